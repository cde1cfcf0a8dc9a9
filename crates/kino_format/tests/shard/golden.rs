//! Files that never change: the writer must reproduce them, every reader must read them.
//!
//! Add a new golden file with `ADD_GOLDEN=1 cargo test -p kino_format`; existing files are never overwritten.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use kino_codec::Dtype;
use kino_format::{EpisodeRecords, Kind, Schema, ShardWriter, StreamRecord};

use crate::fixture::{STREAM, cut, index, open, regular, shard_bytes, values};

/// The worked example of `spec/format.md`: one episode, one stream, three frames in two pages.
fn tiny() -> Vec<u8> {
    let schema = Schema {
        clock_codec: "raw".to_owned(),
        streams: vec![values("joints", Kind::Vector, Dtype::F32, &[2])],
        ..Schema::default()
    };
    let frames = [[0.0_f32, 1.0], [0.5, 1.5], [-2.0, 3.25]];
    let bytes: Vec<u8> = frames
        .iter()
        .flatten()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let mut out = Vec::new();
    let mut writer = ShardWriter::new(&mut out);
    writer.page(&bytes[..16], 0, &mut out).unwrap();
    writer.page(&bytes[16..], 2, &mut out).unwrap();
    let stream = StreamRecord {
        frames: 3,
        page_count: 2,
        raw_bytes: 24,
        ..STREAM
    };
    let clock = regular(1_000_000_000, 3);
    writer
        .end_episode(&EpisodeRecords::new(&[clock], &[stream]), &schema, &mut out)
        .unwrap();
    writer.finish(&schema, &mut out).unwrap();
    out
}

/// The golden file `name`, which `made` must equal.
pub(crate) fn golden(name: &str, made: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("ADD_GOLDEN").is_some() && !path.exists() {
        let mut file = fs::File::create_new(&path).unwrap();
        file.write_all(made).unwrap();
    }
    let bytes = fs::read(&path).unwrap();
    assert!(bytes == made, "the writer no longer reproduces {name}");
    bytes
}

#[test]
fn version_1_tiny_never_changes() {
    let bytes = golden("v1_tiny.kshard", &tiny());
    let shard = open(&bytes).unwrap();
    let index = index(&shard, &bytes, 0).unwrap();
    assert_eq!(index.clock(0), regular(1_000_000_000, 3));
    let segment = index.segments(0, 1..3).next().unwrap();
    let slices: Vec<_> = index.pages_of(&segment).collect();
    assert_eq!(
        (slices[0].range.clone(), slices[1].range.clone()),
        (1..2, 0..1)
    );
    let start = shard.episodes()[0].start + slices[1].record.offset();
    let last = cut(&bytes, start..start + 8);
    assert_eq!(
        last,
        [(-2.0_f32).to_le_bytes(), 3.25_f32.to_le_bytes()].concat()
    );
}

#[test]
fn version_1_with_every_record_never_changes() {
    let bytes = golden("v1_every_record.kshard", &shard_bytes());
    let shard = open(&bytes).unwrap();
    assert_eq!(shard.verify_header(&bytes), Ok(()));
    for (slot, entry) in shard.episodes().iter().enumerate() {
        assert_eq!(shard.verify_episode(slot, cut(&bytes, entry.range())), []);
    }
}

/// The bytes in the listing of the specification: lines of `offset  bytes  meaning` in its last section.
fn listed(spec: &str) -> Vec<u8> {
    let section = spec.split("\n## 14. ").nth(1).unwrap();
    let mut bytes = Vec::new();
    for line in section.lines().filter_map(|line| line.strip_prefix("    ")) {
        let Some((offset, rest)) = line.split_once("  ").filter(|_| !line.starts_with('#')) else {
            continue;
        };
        assert_eq!(usize::from_str_radix(offset, 16), Ok(bytes.len()), "{line}");
        let hex = rest.split("  ").next().unwrap();
        bytes.extend(
            hex.split(' ')
                .map(|byte| u8::from_str_radix(byte, 16).unwrap()),
        );
    }
    bytes
}

#[test]
fn the_worked_example_of_the_specification_is_the_tiny_shard() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/format.md");
    let spec = fs::read_to_string(path).unwrap();
    assert!(listed(&spec) == tiny());
}
