//! The same bytes as h5py: hashes that `fixtures/make.py` took from numpy arrays, not from our reader.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kino_codec::{Dtype, FrameType};
use kino_dataset::Kind;
use kino_import::{Action, ClockSpec, FrameBuf, ImportOptions, Source, is_shift};
use serde_json::{Value, json};

use crate::expected::{self, expected};
use crate::{defects, digest, fixture, ids, open, position, read_all, refused, with_rate};

type Hashes = BTreeMap<String, String>;

fn parse<T: serde::de::DeserializeOwned>(name: &str, key: &str) -> T {
    let text = std::fs::read(fixture(name)).unwrap();
    let mut value: Value = serde_json::from_slice(&text).unwrap();
    let value = match key {
        "" => value,
        key => value[key].take(),
    };
    serde_json::from_value(value).unwrap()
}

/// Compares every numeric stream with `expected` (by path in the file) and returns how many there were.
fn compare(source: &Source, expected: &Hashes) -> usize {
    let mut compared = 0;
    for (idx, episode) in source.episodes().iter().enumerate() {
        for (stream, spec) in episode.streams.iter().enumerate() {
            let path = format!("{}/{}", episode.object.trim_matches('/'), spec.name);
            let path = path.trim_start_matches('/');
            if spec.carried || spec.frame == FrameType::Text {
                continue;
            }
            for step in [1, 4, u64::MAX >> 1] {
                let FrameBuf::Values(bytes) = read_all(source, idx, stream, step) else {
                    panic!("{path} is numbers");
                };
                assert_eq!(
                    digest(&bytes),
                    expected[path],
                    "{path}, {step} frames at a time"
                );
            }
            compared += 1;
        }
    }
    compared
}

#[test]
fn every_type_and_filter_matches_h5py() {
    let expected: BTreeMap<String, Hashes> = parse("expected.json", "datasets");
    let source = open(&fixture("robomimic.hdf5"));
    // Two demos; everything that h5py hashed is a stream, except the calibration matrix and the empty demo.
    assert_eq!(compare(&source, &expected["robomimic.hdf5"]), 2 * 27);
    let source = open(&fixture("act_jpeg.hdf5"));
    assert_eq!(compare(&source, &expected["act_jpeg.hdf5"]), 3);
}

#[test]
fn linked_objects_match_h5py() {
    let expected: BTreeMap<String, Hashes> = parse("links.json", "");
    let source = open(&fixture("links.hdf5"));
    assert_eq!(defects(&source, Action::Skipped), [""; 0]);
    assert_eq!(ids(&source), ["demo_0", "demo_1"]);
    for (idx, episode) in source.episodes().iter().enumerate() {
        let names = episode.streams.iter().map(|stream| stream.name.clone());
        let mut names: Vec<_> = names.collect();
        names.sort();
        let hashes = &expected[&episode.id];
        assert!(names.iter().eq(hashes.keys()), "{names:?}");
        for (stream, spec) in episode.streams.iter().enumerate() {
            let bytes = match read_all(&source, idx, stream, 4) {
                FrameBuf::Values(bytes) => bytes,
                FrameBuf::Bytes(texts) => texts.join(&b'\n'),
            };
            assert_eq!(digest(&bytes), hashes[&spec.name], "{}", spec.name);
        }
    }
}

#[test]
fn a_robomimic_file_is_recognised() {
    let source = open(&fixture("robomimic.hdf5"));
    let info = source.describe();
    assert_eq!(info.format, "robomimic-hdf5");
    assert_eq!(
        info.attributes["env_args"]["env_kwargs"]["control_freq"],
        20
    );
    assert_eq!(info.attributes["total"], 12);
    assert_eq!(info.attributes["/@version"], "1.0");
    assert_eq!(info.attributes["/notes"], "recorded on a Tuesday");
    let ids = ids(&source);
    assert_eq!(ids, ["demo_2", "demo_10"]);
    let episode = &source.episodes()[0];
    assert_eq!(episode.splits, ["train", "valid"]);
    assert_eq!(episode.success, Some(true));
    assert_eq!(episode.task.as_deref(), Some("Lift"));
    assert_eq!(episode.object, "/data/demo_2");
    assert_eq!(episode.attributes["num_samples"], 6);
    assert_eq!(episode.attributes["weights"], json!([0.5, "NaN"]));
    assert_eq!(episode.attributes["instruction"], "lift the cube");
    assert_eq!(
        episode.attributes["calibration"],
        json!([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    );
    let model = episode.attributes["model_file"].as_str().unwrap();
    assert!(model.starts_with("<mujoco model='ünïcode'>") && model.len() > 300);
}

#[test]
fn streams_have_the_kind_type_and_clock_of_their_dataset() {
    let source = open(&fixture("robomimic.hdf5"));
    let spec = |name| &source.episodes()[0].streams[position(&source, 0, name)];
    let values = |dtype, shape: &[usize]| FrameType::values(dtype, shape).unwrap();
    for (name, kind, frame) in [
        ("actions", Kind::Vector, values(Dtype::F64, &[7])),
        ("rewards", Kind::Vector, values(Dtype::F64, &[])),
        ("dones", Kind::Vector, values(Dtype::Bool, &[])),
        ("obs/f2", Kind::Vector, values(Dtype::F16, &[2])),
        ("obs/big_u2", Kind::Vector, values(Dtype::U16, &[2])),
        (
            "obs/front_image",
            Kind::Image,
            values(Dtype::U8, &[8, 10, 3]),
        ),
        ("obs/depth", Kind::Depth, values(Dtype::U16, &[8, 10])),
        (
            "obs/wrist_depth",
            Kind::Depth,
            values(Dtype::F32, &[8, 10, 1]),
        ),
        ("obs/language", Kind::Text, FrameType::Text),
        ("obs/empty", Kind::Vector, values(Dtype::F64, &[0])),
    ] {
        let spec = spec(name);
        assert_eq!((spec.kind, &spec.frame), (kind, &frame), "{name}");
        assert_eq!(spec.clock, ClockSpec::Regular { rate_hz: 20.0 });
        assert_eq!((spec.frames, spec.carried), (6, false));
    }
    assert_eq!(spec("obs/wrist_depth").unit.as_deref(), Some("m"));
}

#[test]
fn text_is_read_with_and_without_a_fixed_length() {
    let source = open(&fixture("robomimic.hdf5"));
    let texts = |name| match read_all(&source, 0, position(&source, 0, name), 4) {
        FrameBuf::Bytes(texts) => texts
            .into_iter()
            .map(|text| String::from_utf8(text).unwrap())
            .collect::<Vec<_>>(),
        FrameBuf::Values(_) => panic!("{name} is text"),
    };
    assert_eq!(texts("obs/language")[5], "öffne 5");
    assert_eq!(texts("obs/label"), ["a", "bb", "", "ccc", "d", "e"]);
}

#[test]
fn what_cannot_be_imported_is_listed() {
    let source = open(&fixture("robomimic.hdf5"));
    let lost = defects(&source, Action::Skipped);
    let expected = [
        "robomimic.hdf5:/data/demo_10@half: is an attribute of a type that JSON cannot represent",
        "robomimic.hdf5:/data/demo_2@half: is an attribute of a type that JSON cannot represent",
        "robomimic.hdf5:/data/demo_2/obs/pairs: contains compound values",
        "robomimic.hdf5:/data/demo_3: has no frames",
        "robomimic.hdf5:/data/demo_10/obs/pairs: contains compound values",
        "robomimic.hdf5:/mask/valid: names 1 demos that are not in the file: demo_77",
    ];
    assert_eq!(lost, expected);
    assert_eq!(defects(&source, Action::Kept), [""; 0]);
}

#[test]
fn next_obs_is_a_shift_only_if_every_byte_agrees() {
    let source = open(&fixture("robomimic.hdf5"));
    let source = &source;
    let shifted = position(source, 0, "next_obs/front_image");
    let almost = position(source, 0, "next_obs/i8");
    let base = position(source, 0, "obs/front_image");
    assert_eq!(source.episodes()[0].streams[shifted].shift_of, Some(base));
    assert!(source.episodes()[0].streams[almost].shift_of.is_some());
    assert!(is_shift(&source.episodes()[0], shifted).unwrap());
    assert!(!is_shift(&source.episodes()[0], almost).unwrap());
    assert!(!is_shift(&source.episodes()[0], base).unwrap());
    assert!(is_shift(&source.episodes()[0], usize::MAX).is_err());
}

#[test]
fn jpeg_files_are_stored_without_their_padding() {
    let expected: BTreeMap<String, Vec<String>> = parse("expected.json", "jpegs");
    let source = open(&fixture("act_jpeg.hdf5"));
    let source = &source;
    assert_eq!(source.describe().format, "act-hdf5");
    let episode = &source.episodes()[0];
    assert_eq!(
        (episode.id.as_str(), episode.object.as_str()),
        ("act_jpeg", "/")
    );
    assert_eq!(episode.attributes["compress"], true);
    assert_eq!(
        episode.attributes["compress_len"][1]
            .as_array()
            .unwrap()
            .len(),
        6
    );
    for (name, hashes) in &expected {
        let stream = position(source, 0, name);
        let spec = &episode.streams[stream];
        let channels = if name.ends_with("wrist") { 1 } else { 3 };
        let frame = FrameType::values(Dtype::U8, &[16, 24, channels]).unwrap();
        assert_eq!(
            (spec.kind, &spec.frame, spec.carried),
            (Kind::Image, &frame, true)
        );
        assert_eq!(spec.clock, ClockSpec::Regular { rate_hz: 50.0 });
        let FrameBuf::Bytes(files) = read_all(source, 0, stream, 4) else {
            panic!("{name} is files");
        };
        let found: Vec<_> = files.iter().map(|file| digest(file)).collect();
        assert_eq!(&found, hashes, "{name}");
    }
    assert_eq!(defects(source, Action::Skipped), [""; 0]);
    assert_eq!(defects(source, Action::Noted).len(), 3);
}

#[test]
fn the_hash_of_a_file_is_its_blake3() {
    let path = fixture("act_jpeg.hdf5");
    let source = open(&path);
    let bytes = std::fs::read(&path).unwrap();
    let file = &source.describe().files[0];
    assert_eq!(
        file.read_blake3().unwrap(),
        blake3::hash(&bytes).to_hex().as_str()
    );
    assert_eq!(file.len(), bytes.len() as u64);
}

/// Recordings too large to commit: `KINOGRAPH_TEST_DATA`, or `shared/data` beside the checkout.
pub(crate) fn recordings() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("KINOGRAPH_TEST_DATA").map_or(beside, PathBuf::from);
    folder.is_dir().then_some(folder)
}

#[test]
fn real_and_generated_recordings_match_h5py() {
    let Some(folder) = recordings() else {
        println!("skipped: no recordings; set KINOGRAPH_TEST_DATA to their folder");
        return;
    };
    let expected: BTreeMap<String, Hashes> = parse("recordings.json", "");
    for (name, hashes) in &expected {
        let source = kino_import::open(&folder.join(name), &with_rate(20.0)).unwrap();
        assert_eq!(compare(&source, hashes), hashes.len(), "{name}");
    }
}

#[test]
fn a_genuine_robomimic_file_needs_a_rate_and_lists_the_demos_it_lacks() {
    let path = recordings().map(|folder| folder.join("real/robomimic/lift_ph_low_dim.hdf5"));
    let Some(path) = path.filter(|path| path.is_file()) else {
        println!("skipped: no recordings; set KINOGRAPH_TEST_DATA to their folder");
        return;
    };
    let error = refused(&path, &ImportOptions::default());
    assert!(error.to_string().contains("pass --rate HZ"), "{error}");
    let source = kino_import::open(&path, &with_rate(20.0)).unwrap();
    assert_eq!(source.episodes().len(), 2);
    let lost = defects(&source, Action::Skipped);
    assert_eq!(lost.len(), 8);
    assert!(
        lost[6].contains("/mask/train: names 179 demos"),
        "{}",
        lost[6]
    );
    for stream in 0..source.episodes()[0].streams.len() {
        let is_next = source.episodes()[0].streams[stream].shift_of.is_some();
        assert_eq!(is_shift(&source.episodes()[0], stream).unwrap(), is_next);
    }
}

#[test]
fn robomimic_and_libero_files_match_h5py() {
    for (name, streams) in [
        ("libero.hdf5", 2 * 12),
        // `next_obs` is read too: the packer decides whether it is a shift of `obs`.
        ("low_dim_v01.hdf5", 2 * 8),
        ("v15.hdf5", 2 * 13),
    ] {
        let source = open(&fixture("robomimic").join(name));
        let expected = expected("robomimic/expected.json", name);
        let same = |name: &str| Some(name.to_owned());
        assert_eq!(
            expected::compare(&source, &expected, same),
            streams,
            "{name}"
        );
        let (found, listed) = (source.episodes(), expected["episodes"].as_array().unwrap());
        for (episode, expected) in found.iter().zip(listed) {
            assert_eq!(json!(episode.splits), expected["splits"], "{name}");
        }
        assert_eq!(source.describe().defects, [], "{name}");
    }
}
