//! A version's manifest: any bytes, and any text with a correct id.

#![no_main]

use kino_dataset::Manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = Manifest::parse("fuzz", data, 1);
    // The id would stop almost every change: append the correct one.
    let id = blake3::hash(data).to_hex();
    let mut signed = data.to_vec();
    signed.extend(format!(",\n  \"id\": \"{id}\"\n}}\n").into_bytes());
    if let Ok((manifest, found)) = Manifest::parse("fuzz", &signed, 1) {
        assert_eq!((manifest.version, found.as_str()), (1, id.as_str()));
        for stream in &manifest.streams {
            let _ = stream.psnr_db();
        }
    }
});
