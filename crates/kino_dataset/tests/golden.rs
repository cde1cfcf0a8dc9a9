//! Datasets written by every released version must stay readable forever.
//!
//! `golden/` grows and never changes. When the format changes, a new one is written once by
//! `KINOGRAPH_WRITE_GOLDEN=v2 cargo test -p kino_dataset --test golden`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::sample;
use kino_codec::FrameType;
use kino_dataset::{Dataset, Hash, Level, Plan, Start, WriterOptions, verify};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// One plan per dataset, so that every codec and parameter style is in a golden file.
const PLANS: [(&str, &str); 3] = [
    ("lossless", ""),
    (
        "jpeg",
        "quality = 90\n[[stream]]\nmatch = \"force\"\ncodec = \"zstd:level=3,shuffle=8\"",
    ),
    (
        "plain",
        "[[stream]]\nmatch = \"words\"\ncodec = \"text\"\n[[stream]]\ncodec = \"raw\"\npage_frames = 3",
    ),
];

#[test]
fn a_golden_dataset_is_written_on_request() {
    let Ok(version) = std::env::var("KINOGRAPH_WRITE_GOLDEN") else {
        println!("skipped: set KINOGRAPH_WRITE_GOLDEN=<version> to write a new golden dataset");
        return;
    };
    for (name, plan) in PLANS {
        let path = golden().join(&version).join(format!("{name}.kino"));
        assert!(!path.exists(), "golden files never change");
        let options = || WriterOptions {
            plan: Plan::from_toml(plan).unwrap(),
            ..WriterOptions::default()
        };
        common::write_sample_with(&path, Start::New, 0..1, options());
        common::write_sample_with(&path, Start::Append, 1..2, options());
        let json = serde_json::to_string_pretty(&hashes(&path)).unwrap();
        std::fs::write(path.with_extension("json"), json + "\n").unwrap();
    }
}

/// The hash of what every stream of every episode decodes to.
fn hashes(path: &Path) -> BTreeMap<String, Hash> {
    let dataset = Dataset::open(path).unwrap();
    let mut found = BTreeMap::new();
    for row in 0..dataset.len() {
        let episode = dataset.episode(row).unwrap();
        for schema in episode.streams() {
            let stream = episode.stream(&schema.name).unwrap();
            let bytes = match stream.frame_type() {
                FrameType::Text => stream
                    .read_text(0..stream.len())
                    .unwrap()
                    .join("\n")
                    .into_bytes(),
                FrameType::Values(_) => stream.read(0..stream.len()).unwrap(),
            };
            found.insert(
                format!("{}/{}", episode.id(), schema.name),
                Hash::of(&bytes),
            );
        }
    }
    found
}

#[test]
fn every_golden_dataset_is_readable() {
    let mut count = 0;
    for version in std::fs::read_dir(golden()).unwrap() {
        for (name, _) in PLANS {
            let path = version
                .as_ref()
                .unwrap()
                .path()
                .join(format!("{name}.kino"));
            let text = std::fs::read_to_string(path.with_extension("json")).unwrap();
            let expected: BTreeMap<String, Hash> = serde_json::from_str(&text).unwrap();
            assert_eq!(hashes(&path), expected, "{}", path.display());
            assert_eq!(
                verify(&path, Level::Decode, &mut |_, _| {}).unwrap().damage,
                [],
                "{}",
                path.display()
            );
            assert_eq!(Dataset::open_version(&path, 1).unwrap().len(), 1);
            // Lossless streams can be compared with their source, not only with an earlier reading.
            for (id, streams) in [sample(0), sample(1)] {
                for (info, bytes) in streams
                    .iter()
                    .filter(|(info, _)| name != "jpeg" || info.name != "camera")
                {
                    assert_eq!(
                        expected[&format!("{id}/{}", info.name)],
                        Hash::of(bytes),
                        "{name} {id} {}",
                        info.name
                    );
                }
            }
            count += 1;
        }
    }
    assert!(count >= PLANS.len());
}

/// Two episodes of one AV1 file, whose packets are stored as they are; the second begins inside a group. The frames are those
/// of FFmpeg.
#[test]
fn the_golden_video_is_readable() {
    let path = golden().join("v1/video.kino");
    let text = std::fs::read_to_string(path.with_extension("json")).unwrap();
    let expected: BTreeMap<String, Hash> = serde_json::from_str(&text).unwrap();
    assert_eq!(hashes(&path), expected);
    let report = verify(&path, Level::Decode, &mut |_, _| {}).unwrap();
    assert_eq!(report.damage, []);
}
