//! MDS against what mosaicml-streaming reads, and against damage.

use std::fs;
use std::path::Path;

use kino_dataset::{Dataset, Kind, Start};
use kino_import::{Action, ImportError, Source};
use serde_json::{Value, json};

use crate::damage::survive;
use crate::expected::{compare, expected};
use crate::pack::{assert_same, pack_all};
use crate::{copy, copy_tree, defects, fixture, ids, position, refused, with_rate};

fn open(path: &Path) -> Source {
    kino_import::open(path, &with_rate(20.0)).unwrap()
}

fn same(name: &str) -> Option<String> {
    Some(name.to_owned())
}

/// The expected steps, with the lists of two images as two streams.
fn expected_steps(name: &str) -> Value {
    let mut expected = expected("mds/expected.json", name);
    for episode in expected["episodes"].as_array_mut().unwrap() {
        let streams = episode["streams"].as_object_mut().unwrap();
        let pair = streams.remove("pair").unwrap();
        assert_eq!(pair["shape"], json!([2, 16, 32, 3]));
        for item in 0..2 {
            let one = json!({"dtype": "uint8", "shape": [16, 32, 3], "frames": pair["frames"]});
            streams.insert(format!("pair/{item}"), one);
        }
    }
    expected
}

#[test]
fn steps_match_mosaicml_streaming_compressed_and_raw() {
    for name in ["steps", "steps_zstd"] {
        let source = open(&fixture("mds").join(name));
        let expected = expected_steps(name);
        assert_eq!(compare(&source, &expected, same), 3 * 23, "{name}");
        assert_eq!(source.describe().format, "mds-steps");
        assert_eq!(source.describe().defects, []);
        let spec = |name| &source.episodes()[0].streams[position(&source, 0, name)];
        assert!(spec("front").carried && spec("pair/1").carried);
        assert_eq!(spec("side").kind, Kind::Image);
        assert_eq!(spec("any").attributes["text_is"], "JSON");
        assert_eq!(
            source.episodes()[0].task.as_deref(),
            Some("öffne 0, schritt 0")
        );
    }
}

#[test]
fn episodes_match_mosaicml_streaming() {
    let source = open(&fixture("mds/episodes"));
    let expected = expected("mds/expected.json", "episodes");
    assert_eq!(compare(&source, &expected, same), 3 * 4);
    assert_eq!(source.describe().format, "mds-episodes");
    assert_eq!(source.describe().defects, []);
    for (episode, expected) in source
        .episodes()
        .iter()
        .zip(expected["episodes"].as_array().unwrap())
    {
        assert_eq!(json!(episode.task), expected["task"]);
        assert_eq!(episode.attributes["name"], expected["name"]);
    }
}

#[test]
fn folders_of_splits_are_one_source() {
    let folder = tempfile::tempdir().unwrap();
    for split in ["train", "val"] {
        copy_tree(&fixture("mds/episodes"), &folder.path().join(split));
    }
    let source = open(folder.path());
    assert_eq!(source.episodes().len(), 6);
    assert_eq!(source.episodes()[3].id, "val/episode 0");
    assert_eq!(source.episodes()[3].splits, ["val"]);
}

#[test]
fn a_wrong_hash_loses_its_shard() {
    let (_folder, path) = copy("mds/steps");
    let file = path.join("shard.00001.mds");
    let mut bytes = fs::read(&file).unwrap();
    bytes[5000] ^= 1;
    fs::write(&file, bytes).unwrap();
    let source = open(&path);
    let lost = defects(&source, Action::Skipped);
    assert!(
        lost[0].starts_with("shard.00001.mds:shard: does not match its sha1"),
        "{lost:?}"
    );
    assert!(lost[0].ends_with("its 5 samples are lost"), "{lost:?}");
    // The second episode is in that shard, and so is the start of the third.
    let ids = ids(&source);
    assert_eq!(ids, ["0", "2"]);
}

#[test]
fn a_missing_shard_is_a_defect_and_the_rest_is_packed() {
    let (_folder, path) = copy("mds/steps");
    fs::remove_file(path.join("shard.00000.mds")).unwrap();
    let source = open(&path);
    let lost = defects(&source, Action::Skipped);
    assert_eq!(
        lost,
        ["shard.00000.mds:shard: is listed in index.json but missing; its 5 samples are lost"]
    );
    let target = tempfile::tempdir().unwrap();
    pack_all(&source, target.path(), Start::New);
    assert_same(&source, &Dataset::open(target.path()).unwrap());
}

#[test]
fn episodes_of_one_name_are_renamed() {
    let (_folder, path) = copy("mds/episodes");
    change(&path, |index| {
        let shard = index["shards"][0].clone();
        index["shards"].as_array_mut().unwrap().push(shard);
    });
    let source = open(&path);
    let ids = ids(&source);
    assert_eq!(
        ids[..4],
        ["episode 0", "episode 1", "episode 2", "episode 0#3"]
    );
    let kept = defects(&source, Action::Kept);
    assert_eq!(
        kept[0],
        "episode 0: is the name of several episodes; this one is renamed to `episode 0#3`"
    );
}

/// Writes a changed index.
fn change(path: &Path, change: impl FnOnce(&mut Value)) {
    let index = path.join("index.json");
    let mut value: Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
    change(&mut value);
    fs::write(&index, value.to_string()).unwrap();
}

#[test]
fn pickles_are_skipped_and_other_compressions_refused() {
    let (_folder, path) = copy("mds/episodes");
    change(&path, |index| {
        index["shards"][0]["column_encodings"][2] = json!("pkl")
    });
    let source = open(&path);
    let lost = defects(&source, Action::Skipped);
    assert!(
        lost.len() == 3 && lost[0].contains("is a pickle"),
        "{lost:?}"
    );
    change(&path, |index| {
        index["shards"][0]["compression"] = json!("snappy")
    });
    let error = refused(&path, &with_rate(20.0));
    assert!(matches!(error, ImportError::Unsupported { .. }), "{error}");
}

#[test]
fn a_shard_that_decompresses_beyond_its_stated_size_is_refused() {
    let (_folder, path) = copy("mds/episodes");
    let bomb = zstd::encode_all(&vec![0; 64 << 20][..], 1).unwrap();
    fs::write(path.join("shard.00000.mds.zstd"), &bomb).unwrap();
    change(&path, |index| {
        index["shards"][0]["zip_data"]["bytes"] = json!(bomb.len())
    });
    let error = refused(&path, &with_rate(20.0));
    assert!(
        error.to_string().contains("does not decompress to the"),
        "{error}"
    );
}

#[test]
fn an_impossible_sample_count_is_refused_immediately() {
    let (_folder, path) = copy("mds/steps");
    let file = path.join("shard.00000.mds");
    let mut bytes = fs::read(&file).unwrap();
    bytes[..4].fill(0xff);
    fs::write(&file, bytes).unwrap();
    change(&path, |index| {
        index["shards"][0]["raw_data"]["hashes"] = json!({});
        index["shards"][0]["samples"] = json!(u32::MAX);
    });
    let source = open(&path);
    let lost = defects(&source, Action::Skipped);
    assert!(
        lost.len() == 1 && lost[0].contains("is too short for its samples"),
        "{lost:?}"
    );
}

#[test]
fn damage_is_survived() {
    let options = with_rate(20.0);
    for (folder, file, step) in [
        ("mds/steps", "index.json", 37),
        ("mds/steps_zstd", "shard.00000.mds.zstd", 61),
        ("mds/episodes", "index.json", 7),
        ("mds/episodes", "shard.00000.mds.zstd", 29),
    ] {
        survive(&fixture(folder), file, &options, [step; 3]);
    }
    // Without hashes every byte of a raw shard is trusted.
    let (_folder, path) = copy("mds/steps");
    change(&path, |index| {
        for shard in index["shards"].as_array_mut().unwrap() {
            shard["raw_data"]["hashes"] = json!({});
        }
    });
    survive(&path, "shard.00000.mds", &options, [89, 97, 997]);
}
