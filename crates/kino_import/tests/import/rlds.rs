//! RLDS against what TensorFlow Datasets reads, and against damage.

use std::fs;
use std::path::Path;

use kino_codec::{Dtype, FrameType};
use kino_dataset::{Dataset, Kind, Start};
use kino_import::{Action, ClockSpec, FrameBuf, ImportError, ImportOptions, OnDefect, Source};
use serde_json::{Value, json};

use crate::damage::survive;
use crate::expected::{compare, expected};
use crate::oracle::recordings;
use crate::pack::{assert_same, pack_all};
use crate::{copy, defects, fixture, ids, pack_as, position, read_all, refused, with_rate};

const TOY: &str = "rlds/toy/1.0.0";

fn open(path: &Path) -> Source {
    kino_import::open(path, &with_rate(10.0)).unwrap()
}

#[test]
fn every_kind_of_value_matches_tfds() {
    let source = open(&fixture(TOY));
    let expected = expected("rlds/expected.json", "toy/1.0.0");
    let compared = compare(&source, &expected, |name| {
        name.strip_prefix("steps/").map(str::to_owned)
    });
    assert_eq!(compared, 5 * 25);
    assert_eq!(defects(&source, Action::Skipped), [""; 0]);
    assert_eq!(defects(&source, Action::Kept), [""; 0]);
    // Its size differs in every episode: it cannot be a stream.
    let found = kino_import::survey(&source, 1).unwrap();
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "lost: stream `observation/any_size`: has 5 types or sizes, none of them in most episodes"
        ]
    );
    for (episode, expected) in source
        .episodes()
        .iter()
        .zip(expected["episodes"].as_array().unwrap())
    {
        assert_eq!(json!(episode.attributes), expected["attributes"]);
        assert_eq!(json!(episode.splits), expected["splits"]);
        let success = expected["attributes"]["episode_metadata/success"].as_bool();
        assert_eq!(episode.success, success);
        let texts = &expected["streams"]["steps/language_instruction"]["texts"];
        assert_eq!(json!(episode.task), texts[0]);
    }
}

#[test]
fn streams_have_the_kind_and_type_of_their_values() {
    let source = open(&fixture(TOY));
    let spec = |name| &source.episodes()[0].streams[position(&source, 0, name)];
    let values = |dtype, shape: &[usize]| FrameType::values(dtype, shape).unwrap();
    for (name, kind, frame, carried) in [
        (
            "observation/image",
            Kind::Image,
            values(Dtype::U8, &[32, 32, 3]),
            true,
        ),
        (
            "observation/wrist",
            Kind::Image,
            values(Dtype::U8, &[32, 32, 3]),
            false,
        ),
        (
            "observation/depth",
            Kind::Depth,
            values(Dtype::U16, &[32, 32, 1]),
            false,
        ),
        (
            "observation/state64",
            Kind::Vector,
            values(Dtype::F64, &[3]),
            false,
        ),
        ("observation/points", Kind::Text, FrameType::Text, false),
        ("language_instruction", Kind::Text, FrameType::Text, false),
    ] {
        let spec = spec(name);
        assert_eq!(
            (spec.kind, &spec.frame, spec.carried),
            (kind, &frame, carried),
            "{name}"
        );
        assert_eq!(spec.clock, ClockSpec::Regular { rate_hz: 10.0 });
    }
    assert_eq!(
        spec("skill").attributes["names"],
        json!(["reach", "grasp", "lift"])
    );
    assert_eq!(spec("observation/points").attributes["text_is"], "JSON");
    let info = source.describe();
    assert_eq!((info.format, info.files.len()), ("rlds", 4));
    assert_eq!(info.attributes["name"], "toy");
}

#[test]
fn a_parent_folder_and_a_single_file_are_recognised() {
    let around = open(&fixture("rlds/toy"));
    assert_eq!(around.episodes().len(), 5);
    let one = open(&fixture(TOY).join("toy-val.tfrecord-00001-of-00002"));
    let ids = ids(&one);
    assert_eq!(ids, ["val/1"]);
}

#[test]
fn a_missing_rate_is_an_error_that_asks_for_one() {
    for name in [TOY, "mds/steps", "webdataset/steps"] {
        let error = refused(&fixture(name), &ImportOptions::default());
        assert!(error.to_string().contains("pass --rate HZ"), "{error}");
    }
}

/// Flips a bit in the body of the first episode of a file.
fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_wrong_checksum_loses_one_episode_and_the_next_is_read() {
    let (_folder, path) = copy(TOY);
    flip(&path.join("toy-train.tfrecord-00000-of-00002"), 1000);
    let source = open(&path);
    let ids = ids(&source);
    assert_eq!(ids, ["train/1", "train/2", "val/0", "val/1"]);
    let lost = defects(&source, Action::Skipped);
    assert_eq!(
        lost[0],
        "toy-train.tfrecord-00000-of-00002:episode 0: has a wrong checksum"
    );
    assert_eq!(
        source.describe().defects[0].episode.as_deref(),
        Some("train/0")
    );
    let target = tempfile::tempdir().unwrap();
    let error = pack_as(&source, target.path(), OnDefect::Error).unwrap_err();
    assert!(matches!(error, ImportError::Defects { .. }));
    let packed = pack_as(&source, target.path(), OnDefect::DropEpisode).unwrap();
    assert_eq!(packed.committed.episodes, 4);
}

#[test]
fn a_missing_file_is_a_defect_and_numbers_stay() {
    let (_folder, path) = copy(TOY);
    fs::remove_file(path.join("toy-val.tfrecord-00000-of-00002")).unwrap();
    let source = open(&path);
    let ids = ids(&source);
    assert_eq!(ids, ["train/0", "train/1", "train/2", "val/1"]);
    let lost = defects(&source, Action::Skipped);
    assert!(
        lost[0].contains("lists 1 episodes of the split `val` in 1 of its 2 files"),
        "{lost:?}"
    );
}

#[test]
fn a_file_with_extra_episodes_does_not_take_the_names_of_others() {
    let (_folder, path) = copy(TOY);
    let info = path.join("dataset_info.json");
    let mut value: Value = serde_json::from_slice(&fs::read(&info).unwrap()).unwrap();
    value["splits"][0]["shardLengths"] = json!(["1", "1"]);
    fs::write(&info, value.to_string()).unwrap();
    let source = open(&path);
    let ids = ids(&source);
    assert_eq!(ids, ["train/0", "train/1", "train/2", "val/0", "val/1"]);
    let kept = defects(&source, Action::Kept);
    assert_eq!(
        kept,
        ["toy-train.tfrecord-00000-of-00002: has 2 episodes, but dataset_info.json says 1"]
    );
}

#[test]
fn a_truncated_file_keeps_the_episodes_before_its_end() {
    let (_folder, path) = copy(TOY);
    let file = path.join("toy-train.tfrecord-00000-of-00002");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 9]).unwrap();
    let source = open(&path);
    assert_eq!(source.episodes().len(), 4);
    let lost = defects(&source, Action::Skipped);
    assert!(lost[0].contains("episode 1: is truncated"), "{lost:?}");
}

#[test]
fn a_description_that_disagrees_is_a_defect_or_an_error() {
    let (_folder, path) = copy(TOY);
    let features = path.join("features.json");
    let whole = fs::read_to_string(&features).unwrap();
    // The action has a different width or type, or is not described.
    let mut changed: Value = serde_json::from_str(&whole).unwrap();
    let steps = "/featuresDict/features/steps/sequence/feature/featuresDict/features";
    let action = format!("{steps}/action/tensor");
    changed.pointer_mut(&action).unwrap()["shape"]["dimensions"][0] = json!("6");
    fs::write(&features, changed.to_string()).unwrap();
    let error = refused(&path, &with_rate(10.0));
    assert!(
        error.to_string().contains("`steps/action` has 35 values"),
        "{error}"
    );
    changed.pointer_mut(&action).unwrap()["dtype"] = json!("int32");
    fs::write(&features, changed.to_string()).unwrap();
    let error = refused(&path, &with_rate(10.0));
    assert!(
        error
            .to_string()
            .contains("contains floats, but features.json says int32"),
        "{error}"
    );
    changed
        .pointer_mut(steps)
        .unwrap()
        .as_object_mut()
        .unwrap()
        .remove("action");
    fs::write(&features, changed.to_string()).unwrap();
    let source = open(&path);
    let lost = defects(&source, Action::Skipped);
    assert!(
        lost[0].ends_with("`steps/action`: is in the episode but not in features.json"),
        "{lost:?}"
    );
}

#[test]
fn a_compressed_file_is_refused_with_advice() {
    let (_folder, path) = copy(TOY);
    fs::write(
        path.join("toy-train.tfrecord-00000-of-00002"),
        [0x1f, 0x8b, 8, 0, 0],
    )
    .unwrap();
    let error = refused(&path, &with_rate(10.0));
    assert!(error.to_string().contains("gzip -dc"), "{error}");
}

#[test]
fn no_flipped_bit_of_a_file_goes_unnoticed() {
    let (_folder, path) = copy(TOY);
    let file = path.join("toy-val.tfrecord-00001-of-00002");
    let whole = fs::read(&file).unwrap();
    for place in (0..whole.len()).step_by(89) {
        let mut bytes = whole.clone();
        bytes[place] ^= 1 << (place % 8);
        fs::write(&file, &bytes).unwrap();
        let source = open(&path);
        assert_eq!(source.episodes().len(), 4, "byte {place}");
        let lost = defects(&source, Action::Skipped);
        assert!(
            lost[0].starts_with("toy-val.tfrecord-00001-of-00002:episode 0: "),
            "{lost:?}"
        );
    }
}

#[test]
fn damage_is_survived() {
    for (file, step) in [
        ("toy-train.tfrecord-00000-of-00002", 211),
        ("features.json", 61),
        ("dataset_info.json", 1),
    ] {
        survive(&fixture(TOY), file, &with_rate(10.0), [step; 3]);
    }
}

#[test]
fn a_real_recording_matches_tfds() {
    let path = recordings().map(|folder| folder.join("real/bridge"));
    let Some(path) = path.filter(|path| path.is_dir()) else {
        println!("skipped: no recordings; set KINOGRAPH_TEST_DATA to their folder");
        return;
    };
    let error = refused(&path, &ImportOptions::default());
    assert!(error.to_string().contains("5 for BridgeData"), "{error}");
    let source = kino_import::open(&path, &with_rate(5.0)).unwrap();
    let expected = expected("rlds/bridge_expected.json", "bridge");
    let compared = compare(&source, &expected, |name| {
        name.strip_prefix("steps/").map(str::to_owned)
    });
    assert_eq!(compared, 25 * 13);
    let lost = defects(&source, Action::Skipped);
    assert_eq!(
        lost,
        [
            "dataset_info.json: lists 25 episodes of the split `val` in 1 of its 1 files that is missing: \
          `bridge_dataset-val.tfrecord-00000-of-00001`"
        ]
    );
    let FrameBuf::Bytes(texts) =
        read_all(&source, 0, position(&source, 0, "language_instruction"), 4)
    else {
        panic!("an instruction is text");
    };
    assert_eq!(
        source.episodes()[0].task.as_deref().map(str::as_bytes),
        Some(&*texts[0])
    );
    let folder = tempfile::tempdir().unwrap();
    pack_all(&source, folder.path(), Start::New);
    assert_same(&source, &Dataset::open(folder.path()).unwrap());
}
