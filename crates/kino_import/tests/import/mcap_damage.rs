//! MCAP files that are truncated, damaged, or lie.

use std::fs;
use std::path::Path;

use kino_import::{Action, FrameBuf, ImportOptions, Source};

use crate::{defects, faults, fixture, read_all};

fn bytes(name: &str) -> Vec<u8> {
    fs::read(fixture(&format!("mcap/{name}.mcap"))).unwrap()
}

/// Opens these bytes as a file.
fn open(folder: &Path, bytes: &[u8]) -> Result<Source, String> {
    let path = folder.join("some.mcap");
    fs::write(&path, bytes).unwrap();
    kino_import::open(&path, &as_mcap()).map_err(|error| error.to_string())
}

/// What does not begin like the format is not recognised.
fn as_mcap() -> ImportOptions {
    ImportOptions {
        format: Some("mcap".to_owned()),
        ..ImportOptions::default()
    }
}

/// Reads every frame of a source.
fn read_everything(source: &Source) -> u64 {
    let mut frames = 0;
    for (episode, spec) in source.episodes().iter().enumerate() {
        for (stream, spec) in spec.streams.iter().enumerate() {
            if source.read(episode, stream, 0..spec.frames).is_ok() {
                frames += spec.frames;
            }
        }
    }
    frames
}

fn frames(source: &Source) -> u64 {
    let streams = source.episodes().iter().flat_map(|one| &one.streams);
    streams.map(|stream| stream.frames).sum()
}

#[test]
fn a_file_without_its_end_yields_what_was_finished() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = bytes("ros2_zstd");
    let source = open(folder.path(), &bytes[..bytes.len() / 2]).unwrap();
    let lost = defects(&source, Action::Skipped);
    let cut = lost
        .iter()
        .find(|defect| defect.contains("truncated by the end of the file"))
        .unwrap();
    assert!(cut.contains("messages before it are imported"), "{cut}");
    assert_eq!(
        source.describe().defects[0].episode.as_deref(),
        Some("some")
    );
    let all = open(folder.path(), &bytes).unwrap();
    assert!(frames(&source) > 0 && frames(&source) < frames(&all));
}

#[test]
fn every_truncation_is_read_and_frames_only_grow() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["ros2_plain", "json"] {
        let (whole, mut last) = (bytes(name), 0);
        for len in (0..whole.len()).step_by(97) {
            match open(folder.path(), &whole[..len]) {
                Ok(source) => {
                    let faults = faults(&source.describe().defects);
                    assert!(!faults.is_empty(), "{name} {len}");
                    assert_eq!(read_everything(&source), frames(&source), "{name} {len}");
                    last = frames(&source);
                }
                Err(error) => assert!(error.contains("no episode"), "{error}"),
            }
        }
        assert!(last > 0, "{name}");
    }
}

#[test]
fn a_damaged_chunk_is_skipped_by_its_checksum() {
    let folder = tempfile::tempdir().unwrap();
    let whole = bytes("ros2_none");
    let all = frames(&open(folder.path(), &whole).unwrap());
    let mut broken = whole.clone();
    broken[4000] ^= 1;
    let source = open(folder.path(), &broken).unwrap();
    let lost = defects(&source, Action::Skipped);
    assert!(
        lost.iter()
            .any(|defect| defect.contains("is damaged: checksum")),
        "{lost:?}"
    );
    assert!(frames(&source) < all);
}

#[test]
fn no_flipped_bit_panics() {
    let folder = tempfile::tempdir().unwrap();
    for (name, step) in [
        ("json", 3),
        ("protobuf", 41),
        ("ros2_plain", 37),
        ("ros2_lz4", 67),
        ("ros2_zstd", 83),
    ] {
        let whole = bytes(name);
        for at in (0..whole.len()).step_by(step) {
            let mut broken = whole.clone();
            broken[at] ^= 1 << (at % 8);
            if let Ok(source) = open(folder.path(), &broken) {
                read_everything(&source);
            }
        }
    }
}

const MAGIC: &[u8] = b"\x89MCAP0\r\n";

/// A record of a file.
fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u64).to_le_bytes(), body].concat()
}

fn text(text: &str) -> Vec<u8> {
    let len = u32::try_from(text.len()).unwrap().to_le_bytes();
    [&len[..], text.as_bytes()].concat()
}

fn schema(encoding: &str, data: &str) -> Vec<u8> {
    let texts = [text("toy/Thing"), text(encoding), text(data)].concat();
    record(3, &[&1u16.to_le_bytes()[..], &texts].concat())
}

fn channel(encoding: &str) -> Vec<u8> {
    let texts = [text("/thing"), text(encoding), vec![0; 4]].concat();
    record(4, &[&[0, 0, 1, 0][..], &texts].concat())
}

fn message(data: &[u8]) -> Vec<u8> {
    let times = [[5; 8], [6; 8]].concat();
    record(5, &[&[0, 0, 0, 0, 0, 0][..], &times, data].concat())
}

fn chunk(len: u64, compression: &str, stored: &[u8]) -> Vec<u8> {
    let (len, stored_len) = (len.to_le_bytes(), (stored.len() as u64).to_le_bytes());
    let head = [&[0; 16][..], &len, &[0; 4], &text(compression), &stored_len];
    record(6, &[&head.concat(), stored].concat())
}

/// A file of these records.
fn whole(records: &[&[u8]]) -> Vec<u8> {
    [MAGIC, &records.concat(), &record(2, &[0; 20]), MAGIC].concat()
}

/// A file of one good topic and of something else.
fn file(more: &[u8]) -> Vec<u8> {
    let good = message(&[0, 1, 0, 0, 7]);
    whole(&[&schema("ros2msg", "uint8 x"), &channel("cdr"), &good, more])
}

fn only_loss(more: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let source = open(folder.path(), &file(more)).unwrap();
    assert!(frames(&source) >= 1);
    let mut lost = defects(&source, Action::Skipped);
    assert_eq!(lost.len(), 1, "{lost:?}");
    lost.remove(0)
}

#[test]
fn unreasonable_lengths_bombs_and_unknown_channels_are_reported() {
    let mut endless = record(6, &[]);
    endless[1..9].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(only_loss(&endless).contains("truncated by the end of the file"));
    // A mebibyte per kibibyte, claiming to be smaller, or absurdly large.
    let bomb = zstd::encode_all(&vec![0; 64 << 20][..], 1).unwrap();
    assert!(only_loss(&chunk(100, "zstd", &bomb)).contains("claims 100 bytes and has more"));
    assert!(only_loss(&chunk(u64::MAX, "zstd", &bomb)).contains("far more than the file"));
    assert!(only_loss(&chunk(10, "brotli", &[1, 2])).contains("compressed with \"brotli\""));
    let inner = chunk(5, "", &[5, 0xff, 0xff, 0xff, 0xff]);
    assert!(only_loss(&inner).contains("is truncated"));
    let stranger = [&[9, 0][..], &[0; 20], &[1]].concat();
    assert!(
        only_loss(&record(5, &stranger))
            .contains("1 messages belong to channels that are not in the file")
    );
    assert!(
        only_loss(&message(&[0, 1]))
            .contains("1 of 2 messages are not imported; the first is truncated")
    );
    assert!(only_loss(&[0; 9]).contains("not a valid record"));
}

#[test]
fn unset_stamps_are_not_a_clock() {
    let folder = tempfile::tempdir().unwrap();
    let stamped = [&[0, 1, 0, 0][..], &[0; 8], &[7]].concat();
    let bytes = whole(&[
        &schema("ros2msg", "builtin_interfaces/Time stamp\nuint8 x"),
        &channel("cdr"),
        &message(&stamped),
    ]);
    let source = open(folder.path(), &bytes).unwrap();
    let stream = &source.episodes()[0].streams[0];
    assert_eq!(
        (&*stream.name, &stream.attributes["clock"]),
        ("thing/x", &"log".into())
    );
    let notes = defects(&source, Action::Noted);
    assert!(notes[0].contains("only zero stamps"), "{notes:?}");
    assert_eq!(source.episodes()[0].streams.len(), 1);
}

#[test]
fn a_bomb_of_messages_ends() {
    let many = message(&[0, 1, 0, 0, 7]).repeat(1_100_000);
    let bomb = zstd::encode_all(&many[..], 1).unwrap();
    let lost = only_loss(&chunk(many.len() as u64, "zstd", &bomb));
    assert!(
        lost.contains("more messages than a file of this size can hold"),
        "{lost}"
    );
}

#[test]
fn invalid_and_endless_schemas_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    for (encoding, schema_encoding, data, word) in [
        ("cdr", "ros2msg", "float65 x", "`float65`"),
        ("cdr", "ros2msg", "Thing again", "nested more than"),
        ("cdr", "ros2msg", "Thing[3] again", "nested more than"),
        ("cdr", "ros2msg", "float64[99999999999] x", "is truncated"),
        ("cdr", "ros2idl", "struct X {}", "\"ros2idl\""),
        ("ros1", "ros1msg", "float64 x", "\"ros1\""),
        ("protobuf", "protobuf", "\u{7f}", "the schema `toy/Thing`"),
        ("json", "jsonschema", "{", "is not JSON"),
    ] {
        let bytes = whole(&[
            &schema(schema_encoding, data),
            &channel(encoding),
            &message(&[0, 1, 0, 0, 7, 7, 7, 7]),
        ]);
        let error = open(folder.path(), &bytes).map(drop).unwrap_err();
        assert!(
            error.contains("no episode") && error.contains(word),
            "{error}"
        );
    }
}

#[test]
fn a_schema_that_is_too_long_is_not_parsed() {
    let folder = tempfile::tempdir().unwrap();
    // Parsed, every two bytes of these would be a value.
    for (encoding, schema_encoding, data) in [
        ("protobuf", "protobuf", "\n\0"),
        ("json", "jsonschema", "[["),
        ("cdr", "ros2msg", "#\n"),
    ] {
        let bytes = whole(&[
            &schema(schema_encoding, &data.repeat(3 << 20)),
            &channel(encoding),
            &message(&[7]),
        ]);
        let error = open(folder.path(), &bytes).map(drop).unwrap_err();
        let what = "the schema `toy/Thing` has 6291456 bytes; the limit is 4194304";
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn reading_missing_frames_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = open(folder.path(), &file(&[])).unwrap();
    assert_eq!(read_all(&source, 0, 0, 1), FrameBuf::Values(vec![7]));
    for (episode, stream, frames) in [(1, 0, 0..1), (0, 1, 0..1), (0, 0, 0..2)] {
        assert!(source.read(episode, stream, frames).is_err());
    }
}
