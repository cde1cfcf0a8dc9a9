//! Any text as a codec string: what parses has a canonical form that parses to itself.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(codec) = kino_codec::codec(text) {
        let canonical = codec.spec().to_string();
        let again = kino_codec::codec(&canonical).expect("canonical text parses");
        assert_eq!(again.spec().to_string(), canonical);
    }
});
