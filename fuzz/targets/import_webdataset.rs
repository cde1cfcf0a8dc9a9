//! Any members of a valid tar file: in each part of the input a name, a line feed, and the content.

#![no_main]

use std::sync::LazyLock;

use kino_fuzz::{Recording, seal_tar, split};
use libfuzzer_sys::fuzz_target;

static RECORDING: LazyLock<Recording> = LazyLock::new(|| Recording::new("webdataset"));

fuzz_target!(|data: &[u8]| {
    let mut tar = Vec::new();
    for part in split(data) {
        let end = part
            .iter()
            .position(|&byte| byte == b'\n')
            .unwrap_or(part.len());
        let (name, content) = (
            &part[..end.min(100)],
            part.get(end + 1..).unwrap_or_default(),
        );
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name);
        header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        tar.extend(header);
        tar.extend(content);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.extend([0; 1024]);
    seal_tar(&mut tar);
    RECORDING.put("shard-000000.tar", &tar);
    RECORDING.read("shard-000000.tar");
});
