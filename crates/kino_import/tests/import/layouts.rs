//! Layouts built here: orders, rates, missing and unknown objects.

use std::path::{Path, PathBuf};

use hdf5_pure::{AttrValue, FileBuilder, FinishedGroup};
use kino_import::{Action, FrameBuf, ImportError, ImportOptions, Source};
use tempfile::TempDir;

use crate::zarr::open_at;
use crate::{defects, ids, position, read_all};

const ENV_ARGS: &str = r#"{"env_name": "Stack", "env_kwargs": {"control_freq": 10}}"#;

/// A demo of `frames` frames whose `rewards` has `rewards` of them.
fn demo(name: &str, frames: u64, rewards: u64) -> FinishedGroup {
    let mut builder = FileBuilder::new();
    let mut group = builder.create_group(name);
    let values = |count: u64| (0..count).map(|i| i as f64).collect::<Vec<_>>();
    group
        .create_dataset("actions")
        .with_f64_data(&values(frames * 2))
        .with_shape(&[frames, 2]);
    group
        .create_dataset("rewards")
        .with_f64_data(&values(rewards));
    group.set_attr("num_samples", AttrValue::U64(frames));
    group.finish()
}

/// A robomimic file of these demos.
fn robomimic(folder: &TempDir, demos: Vec<FinishedGroup>, env_args: &str) -> PathBuf {
    let mut builder = FileBuilder::new();
    let mut data = builder.create_group("data");
    data.set_attr("env_args", AttrValue::VarLenString(env_args.to_owned()));
    for demo in demos {
        data.add_group(demo);
    }
    builder.add_group(data.finish());
    write(folder, "demos.hdf5", builder)
}

/// An ACT file of `frames` frames.
fn act(folder: &TempDir, name: &str, frames: u64) -> PathBuf {
    let mut builder = FileBuilder::new();
    let zeros = vec![0.5_f32; usize::try_from(frames).unwrap() * 14];
    let mut observations = builder.create_group("observations");
    observations
        .create_dataset("qpos")
        .with_f32_data(&zeros)
        .with_shape(&[frames, 14]);
    builder.add_group(observations.finish());
    builder
        .create_dataset("action")
        .with_f32_data(&zeros)
        .with_shape(&[frames, 14]);
    write(folder, name, builder)
}

fn write(folder: &TempDir, name: &str, builder: FileBuilder) -> PathBuf {
    let path = folder.path().join(name);
    builder.write(&path).unwrap();
    path
}

fn open(path: &Path) -> Result<Source, ImportError> {
    kino_import::open(path, &ImportOptions::default())
}

fn refused(path: &Path) -> ImportError {
    open(path).err().unwrap()
}

#[test]
fn demos_are_ordered_by_number_and_others_come_last() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["demo_10", "spare", "demo_9", "demo_0"];
    let demos = names.iter().map(|name| demo(name, 3, 3)).collect();
    let source = open(&robomimic(&folder, demos, ENV_ARGS)).unwrap();
    let ids = ids(&source);
    assert_eq!(ids, ["demo_0", "demo_9", "demo_10", "spare"]);
    let actions = position(&source, 1, "actions");
    let FrameBuf::Values(bytes) = read_all(&source, 1, actions, 2) else {
        panic!("numbers");
    };
    assert_eq!(bytes[40..], 5_f64.to_le_bytes());
}

#[test]
fn the_rate_is_the_files_or_the_users_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let clock = |rate_hz| format!("Regular {{ rate_hz: {rate_hz:?} }}");
    let path = robomimic(&folder, vec![demo("demo_0", 3, 3)], ENV_ARGS);
    let source = open(&path).unwrap();
    assert_eq!(
        format!("{:?}", source.episodes()[0].streams[0].clock),
        clock(10.0)
    );
    let source = open_at(&path, 12.5).unwrap();
    assert_eq!(
        format!("{:?}", source.episodes()[0].streams[0].clock),
        clock(12.5)
    );

    let path = robomimic(&folder, vec![demo("demo_0", 3, 3)], "{}");
    let error = refused(&path);
    assert!(matches!(error, ImportError::InvalidArgument { .. }));
    assert!(error.to_string().contains("pass --rate HZ"), "{error}");
    for rate_hz in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(open_at(&path, rate_hz).is_err(), "{rate_hz}");
    }
}

#[test]
fn an_incomplete_demo_is_a_defect_of_its_episode() {
    let folder = tempfile::tempdir().unwrap();
    let demos = vec![demo("demo_0", 5, 5), demo("demo_1", 5, 4)];
    let path = robomimic(&folder, demos, ENV_ARGS);
    let source = crate::open(&path);
    assert_eq!(source.episodes().len(), 1);
    let lost = defects(&source, Action::Skipped);
    assert_eq!(
        lost,
        ["demos.hdf5:/data/demo_1/rewards: has 4 frames, but `num_samples` says 5"]
    );
    let defect = &source.describe().defects[0];
    assert_eq!(defect.episode.as_deref(), Some("demo_1"));
}

#[test]
fn an_unreadable_file_is_a_defect_among_many_and_an_error_alone() {
    let folder = tempfile::tempdir().unwrap();
    act(&folder, "episode_0.hdf5", 3);
    let cut = act(&folder, "episode_1.hdf5", 3);
    let bytes = std::fs::read(&cut).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let source = crate::open(folder.path());
    assert_eq!(source.episodes().len(), 1);
    let lost = defects(&source, Action::Skipped);
    assert!(
        lost[0].starts_with("episode_1.hdf5:/: is truncated"),
        "{lost:?}"
    );
    assert!(matches!(refused(&cut), ImportError::Corrupt { .. }));
}

#[test]
fn a_killed_recorders_demo_without_actions_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut builder = FileBuilder::new();
    let mut group = builder.create_group("demo_0");
    group.create_dataset("states").with_f64_data(&[1.0]);
    let path = robomimic(&folder, vec![group.finish()], ENV_ARGS);
    let text = refused(&path).to_string();
    assert!(
        text.contains("no episode to import (demos.hdf5:/data/demo_0: has no dataset `actions`"),
        "{text}"
    );
}

#[test]
fn the_error_for_nothing_to_import_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = robomimic(&folder, vec![demo("demo_0", 0, 0)], ENV_ARGS);
    let error = refused(&path);
    assert!(matches!(error, ImportError::NotFound { .. }));
    let text = error.to_string();
    assert!(
        text.contains("no episode to import (demos.hdf5:/data/demo_0: has no frames)"),
        "{text}"
    );
}

#[test]
fn a_folder_of_act_files_is_one_source_in_the_order_of_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    for number in [10, 2, 0] {
        act(&folder, &format!("episode_{number}.hdf5"), 4 + number);
    }
    std::fs::write(folder.path().join("dataset_stats.pkl"), b"x").unwrap();
    let source = open(folder.path()).unwrap();
    let episodes = source.episodes().iter();
    let found: Vec<_> = episodes
        .map(|e| (e.id.as_str(), e.file, e.streams[0].frames))
        .collect();
    assert_eq!(
        found,
        [
            ("episode_0", 0, 4),
            ("episode_2", 1, 6),
            ("episode_10", 2, 14)
        ]
    );
    let names: Vec<_> = source.episodes()[0]
        .streams
        .iter()
        .map(|stream| &stream.name)
        .collect();
    assert_eq!(names, ["action", "observations/qpos"]);
    let files: Vec<_> = source
        .describe()
        .files
        .iter()
        .map(|file| file.path().to_owned())
        .collect();
    assert!(files[2].ends_with("episode_10.hdf5"), "{files:?}");
}

#[test]
fn a_folder_of_robomimic_files_keeps_their_demos_apart() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["close", "open"] {
        let path = robomimic(&folder, vec![demo("demo_0", 3, 3)], ENV_ARGS);
        std::fs::copy(&path, folder.path().join(name).with_extension("h5")).unwrap();
        std::fs::remove_file(path).unwrap();
    }
    let source = open(folder.path()).unwrap();
    let ids = ids(&source);
    assert_eq!(ids, ["close/demo_0", "open/demo_0"]);
    assert_eq!(
        source.describe().attributes["open"]["env_args"]["env_name"],
        "Stack"
    );
}

#[test]
fn the_error_for_an_unknown_layout_says_what_was_looked_for_and_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut builder = FileBuilder::new();
    builder.create_dataset("joints").with_f64_data(&[1.0]);
    let error = refused(&write(&folder, "mine.h5", builder));
    assert!(matches!(error, ImportError::Unsupported { .. }));
    let text = error.to_string();
    for words in [
        "looked for episodes in numbered groups",
        "found 1 dataset: `/joints` [1]",
        "`kinograph pack --suggest-mapping`",
        "docs/guide/import.md#anything-else",
    ] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn missing_files_and_files_that_are_not_hdf5_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let error = refused(&folder.path().join("no.hdf5"));
    assert!(matches!(error, ImportError::NotFound { .. }), "{error}");
    let error = refused(folder.path());
    let text = error.to_string();
    assert!(
        text.contains(": is not in a known format (lerobot, "),
        "{text}"
    );
    assert!(text.contains("docs/guide/import.md"), "{text}");
    let options = ImportOptions {
        format: Some("hdf5".to_owned()),
        ..ImportOptions::default()
    };
    let error = kino_import::open(folder.path(), &options).err().unwrap();
    assert!(error.to_string().contains("has no `*.hdf5`"), "{error}");
    for (name, content) in [("empty.hdf5", ""), ("text.hdf5", "not HDF5 at all")] {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let error = refused(&path);
        assert!(error.to_string().contains("is not an HDF5 file"), "{error}");
    }
}

#[test]
fn a_request_outside_the_stream_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = open(&act(&folder, "episode_0.hdf5", 4)).unwrap();
    for (episode, stream, frames) in [(1, 0, 0..1), (0, 9, 0..1), (0, 0, 3..5)] {
        let error = source.read(episode, stream, frames).unwrap_err();
        assert!(
            matches!(error, ImportError::InvalidArgument { .. }),
            "{error}"
        );
    }
}
