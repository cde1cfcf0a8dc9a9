//! WebDataset tars against what webdataset reads, tars of npz against numpy, and damage.

use std::fs;
use std::path::Path;

use kino_dataset::Kind;
use kino_import::{Action, ClockSpec, Source};
use serde_json::json;

use crate::damage::survive;
use crate::expected::{compare, expected};
use crate::{defects, fixture, open, position, refused, with_rate};

fn steps() -> Source {
    kino_import::open(&fixture("webdataset/steps"), &with_rate(20.0)).unwrap()
}

/// Streams have no file extension.
pub(crate) fn without_ending(name: &str) -> Option<String> {
    Some(name.split('.').next().unwrap().to_owned())
}

#[test]
fn a_sample_per_step_matches_webdataset() {
    let source = steps();
    let expected = expected("webdataset/expected.json", "steps");
    assert_eq!(compare(&source, &expected, without_ending), 3 * 7);
    assert_eq!(source.describe().format, "webdataset-steps");
    assert_eq!(source.describe().defects, []);
    let spec = |name| &source.episodes()[0].streams[position(&source, 0, name)];
    assert_eq!(spec("depth").kind, Kind::Depth);
    assert!(spec("front").carried && spec("front").kind == Kind::Image);
    assert_eq!(spec("front").clock, ClockSpec::Regular { rate_hz: 20.0 });
    assert_eq!(
        source.episodes()[0].task.as_deref(),
        Some("öffne 0, schritt 0")
    );
}

#[test]
fn a_sample_per_episode_matches_webdataset() {
    let source = open(&fixture("webdataset/episodes"));
    let expected = expected("webdataset/expected.json", "episodes");
    assert_eq!(compare(&source, &expected, without_ending), 3 * 4);
    assert_eq!(source.describe().format, "webdataset-episodes");
    assert_eq!(source.describe().defects, []);
    for (episode, expected) in source
        .episodes()
        .iter()
        .zip(expected["episodes"].as_array().unwrap())
    {
        let about = &expected["attributes"];
        assert_eq!(episode.attributes["instruction"], about["instruction.txt"]);
        assert_eq!(episode.attributes["meta"], about["meta.json"]);
        assert_eq!(json!(episode.task), about["instruction.txt"]);
        let clock = ClockSpec::Regular { rate_hz: 20.0 };
        assert!(episode.streams.iter().all(|stream| stream.clock == clock));
    }
}

#[test]
fn an_npz_per_demo_matches_numpy() {
    for name in ["robo/data.robo", "robo/packed.robo"] {
        let path = fixture("folders").join(name);
        let source = open(&path);
        let expected = expected("folders/expected.json", name);
        let same = |name: &str| Some(name.to_owned());
        assert_eq!(compare(&source, &expected, same), 3 * 5);
        let info = source.describe();
        assert_eq!((info.format, info.defects.len()), ("npz-tar", 0));
        let about = &expected["attributes"]["env_args.json"]["env_args"];
        assert_eq!(info.attributes["env_args"], *about);
        let spec = &source.episodes()[0].streams[position(&source, 0, "actions")];
        assert_eq!(spec.clock, ClockSpec::Regular { rate_hz: 20.0 });
    }
}

/// A tar with these members.
fn tar(path: &Path, members: &[(&str, &[u8])]) {
    let mut file = Vec::new();
    for (name, content) in members {
        let mut block = vec![0; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        block[148..156].fill(b' ');
        block[156] = b'0';
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        file.extend(block);
        file.extend(*content);
        file.resize(file.len().next_multiple_of(512), 0);
    }
    file.resize(file.len() + 1024, 0);
    fs::write(path, file).unwrap();
}

#[test]
fn what_cannot_be_imported_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar");
    tar(
        &path,
        &[
            ("../e1_t0.a.cls", b"1"),
            ("e1_t0.a.cls", b"1"),
            ("e1_t0.b.cls", b"7"),
            ("e1_t0.c.pkl", b"\x80"),
            ("e1_t1.a.cls", b"2"),
            ("e1_t3.a.cls", b"3"),
            ("e1_t3.a.cls", b"4"),
            ("readme", b"x"),
            ("e2_t0.a.cls", b"many"),
        ],
    );
    let source = kino_import::open(&path, &with_rate(1.0)).unwrap();
    assert_eq!(
        defects(&source, Action::Skipped),
        [
            "x.tar:../e1_t0.a.cls: has a name that leads out of the archive",
            "x.tar:e1_t0.c.pkl: has an unknown extension",
            "x.tar:e1_t3.a.cls: appears twice; the last one is used",
            "x.tar:readme: has a name without an extension: its type is unknown",
            "x.tar:e1.b.cls: is missing in 2 of 3 steps",
            "x.tar:e2.a.cls: contains \"many\", which is not an integer",
        ]
    );
    assert_eq!(
        defects(&source, Action::Kept),
        ["e1: has step 1 and then step 3"]
    );
    assert_eq!(source.episodes()[0].streams[0].frames, 3);
}

#[test]
fn a_compressed_tar_is_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar.gz");
    fs::write(&path, [0x1f, 0x8b, 8, 0]).unwrap();
    let error = refused(&path, &with_rate(1.0));
    assert!(error.to_string().contains("gzip -dc"), "{error}");
}

#[test]
fn damage_is_survived() {
    let options = with_rate(20.0);
    for (folder, file, step) in [
        ("webdataset/steps", "steps-000000.tar", 149),
        ("webdataset/episodes", "episodes-000000.tar", 113),
        ("folders/robo", "packed.robo", 41),
    ] {
        survive(&fixture(folder), file, &options, [step; 3]);
    }
}

#[test]
fn an_npz_with_a_wrong_checksum_is_a_defect() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.robo");
    let mut bytes = fs::read(fixture("folders/robo/data.robo")).unwrap();
    bytes[1000] ^= 1;
    fs::write(&path, bytes).unwrap();
    let source = open(&path);
    let lost = defects(&source, Action::Skipped);
    assert!(
        lost.len() == 1 && lost[0].ends_with("does not match its checksum in the zip"),
        "{lost:?}"
    );
    assert_eq!(
        source.describe().defects[0].episode.as_deref(),
        Some("demo_0")
    );
}
