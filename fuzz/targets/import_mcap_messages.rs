//! Any schema and any messages in a valid MCAP file, for each encoding.
//!
//! ```text
//! input = encoding │ name of the schema │ schema │ message │ message …      separated, see recording.rs
//!         u8
//! ```

#![no_main]

use std::sync::LazyLock;

use kino_fuzz::{Recording, split};
use libfuzzer_sys::fuzz_target;

static RECORDING: LazyLock<Recording> = LazyLock::new(|| Recording::new("mcap"));

/// The encodings of schema and messages.
const ENCODINGS: [(&str, &str); 3] = [
    ("ros2msg", "cdr"),
    ("protobuf", "protobuf"),
    ("jsonschema", "json"),
];

const MAGIC: &[u8] = b"\x89MCAP0\r\n";

fuzz_target!(|data: &[u8]| {
    let Some((&encoding, data)) = data.split_first() else {
        return;
    };
    let (schema_encoding, message_encoding) = ENCODINGS[usize::from(encoding) % ENCODINGS.len()];
    let mut parts = split(data);
    let (Some(name), Some(schema)) = (parts.next(), parts.next()) else {
        return;
    };
    let mut file = MAGIC.to_vec();
    record(&mut file, 1, &[&text(b""), &text(b"fuzz")]);
    let fields = [
        &1_u16.to_le_bytes()[..],
        &text(name),
        &text(schema_encoding.as_bytes()),
        &text(schema),
    ];
    record(&mut file, 3, &fields);
    let ids = [1, 0, 1, 0];
    record(
        &mut file,
        4,
        &[
            &ids,
            &text(b"/topic"),
            &text(message_encoding.as_bytes()),
            &[0; 4],
        ],
    );
    for (number, message) in parts.enumerate() {
        let time = (number as u64 * 100_000_000).to_le_bytes();
        record(&mut file, 5, &[&[1, 0, 0, 0, 0, 0], &time, &time, message]);
    }
    record(&mut file, 15, &[&[0; 4]]);
    record(&mut file, 2, &[&[0; 20]]);
    file.extend(MAGIC);
    RECORDING.put("drive.mcap", &file);
    RECORDING.read("drive.mcap");
});

fn record(file: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    file.push(kind);
    file.extend((len as u64).to_le_bytes());
    parts.iter().for_each(|part| file.extend(*part));
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes(), bytes].concat()
}
