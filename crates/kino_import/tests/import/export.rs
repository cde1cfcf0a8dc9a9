//! Import, export, import again: the same episodes, bit for bit. Each format's own reader checks the files in
//! `tests/python/test_export.py`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Arrival, Dataset, DatasetWriter, EpisodeInfo, Episodes, Kind, Selection, Start, StreamInfo,
    Times, WriterOptions,
};
use kino_import::{
    Cameras, Defect, EpisodeSpec, ExportOptions, Exported, FrameBuf, ImportError, OnDefect, Source,
    StreamSpec,
};
use serde_json::json;
use tempfile::TempDir;

use crate::{fixture, open, pack_as, read_all, with_rate};

pub(crate) fn pack(source: &Source, target: &Path) -> Dataset {
    pack_as(source, target, OnDefect::Keep).unwrap();
    Dataset::open(target).unwrap()
}

/// A recording, and a dataset of it in a folder that has nothing else.
pub(crate) fn packed(path: &Path) -> (TempDir, Source, Dataset) {
    let (folder, source) = (tempfile::tempdir().unwrap(), open(path));
    let dataset = pack(&source, &folder.path().join("a.kino"));
    (folder, source, dataset)
}

/// A stream of values to write.
pub(crate) fn stream(
    name: &str,
    kind: Kind,
    frame: FrameType,
    frames: u64,
    times: Times,
) -> StreamInfo {
    StreamInfo {
        name: name.to_owned(),
        kind,
        frame,
        frames,
        times,
        arrival: Arrival::Values,
        shared: None,
    }
}

/// Times at a rate, from zero.
pub(crate) fn rate(rate_hz: f64) -> Times {
    Times::Rate {
        rate_hz,
        start_ns: 0,
    }
}

pub(crate) fn values(dtype: Dtype, shape: &[usize]) -> FrameType {
    FrameType::values(dtype, shape).unwrap()
}

pub(crate) fn options(to: &str, on_defect: OnDefect) -> ExportOptions {
    ExportOptions {
        to: to.to_owned(),
        selection: Selection::default(),
        on_defect,
        cameras: Cameras::Images,
    }
}

pub(crate) fn export(
    dataset: &Dataset,
    target: &Path,
    options: &ExportOptions,
) -> Result<Exported, ImportError> {
    kino_import::export(dataset, target, options, &mut |_| ControlFlow::Continue(()))
}

/// What must not differ between a recording and its export.
#[track_caller]
pub(crate) fn same(before: &Source, after: &Source) {
    assert_eq!(before.episodes().len(), after.episodes().len());
    for (idx, (a, b)) in before.episodes().iter().zip(after.episodes()).enumerate() {
        assert_eq!((&a.id, &a.splits, &a.task), (&b.id, &b.splits, &b.task));
        assert_eq!(a.success, b.success);
        for (key, value) in &a.attributes {
            // Statistics are recomputed.
            if key == "stats" {
                continue;
            }
            // HDF5's bool is written as 0 or 1.
            let value = value
                .as_bool()
                .map_or(value.clone(), |value| json!(u8::from(value)));
            assert_eq!(Some(&value), b.attributes.get(key), "`{key}` of {}", a.id);
        }
        assert_eq!(names(a), names(b), "{}", a.id);
        for (stream, (x, y)) in a.streams.iter().zip(&b.streams).enumerate() {
            same_stream(&a.id, x, y);
            let frames = |source| read_all(source, idx, stream, 4);
            assert!(frames(before) == frames(after), "{} {}", a.id, x.name);
        }
    }
}

fn names(episode: &EpisodeSpec) -> Vec<&str> {
    let streams = episode.streams.iter();
    streams.map(|stream| stream.name.as_str()).collect()
}

/// Asserts that two streams differ in nothing but perhaps their frames.
#[track_caller]
pub(crate) fn same_stream(id: &str, x: &StreamSpec, y: &StreamSpec) {
    let place = format!("{id} {}", x.name);
    let ty = |one: &StreamSpec| (one.name.clone(), one.kind, one.frame.clone());
    assert_eq!(ty(x), ty(y), "{place}");
    assert_eq!((x.frames, x.carried), (y.frames, y.carried), "{place}");
    assert_eq!(x.clock, y.clock, "{place}");
    assert_eq!(x.unit, y.unit, "{place}");
    assert_eq!(x.attributes, y.attributes, "{place}");
}

pub(crate) fn lift() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/lift_3demos.hdf5")
}

#[test]
fn robomimic_recordings_survive_a_round_trip() {
    let names = [
        "robomimic.hdf5",
        "robomimic/libero.hdf5",
        "robomimic/v15.hdf5",
        "robomimic/low_dim_v01.hdf5",
    ];
    for path in names.map(fixture).into_iter().chain([lift()]) {
        let (folder, before, dataset) = packed(&path);
        let target = folder.path().join("out.hdf5");
        let exported = export(&dataset, &target, &options("robomimic", OnDefect::Error)).unwrap();
        assert!(exported.defects.is_empty(), "{:?}", exported.defects);
        assert_eq!(exported.episodes, before.episodes().len() as u64);
        let after = open(&target);
        same(&before, &after);
        for (key, value) in &before.describe().attributes {
            assert_eq!(
                Some(value),
                after.describe().attributes.get(key),
                "`{key}` of {path:?}"
            );
        }
        assert!(
            after.describe().defects.is_empty(),
            "{:?}",
            after.describe().defects
        );
        // Nothing but the dataset and the export is left behind.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}

#[test]
fn act_recordings_survive_a_round_trip_with_their_jpeg_files() {
    let (folder, before, dataset) = packed(&fixture("act_jpeg.hdf5"));
    let target = folder.path().join("out");
    let exported = export(&dataset, &target, &options("act", OnDefect::Error)).unwrap();
    assert!(exported.defects.is_empty(), "{:?}", exported.defects);
    same(&before, &open(&target));
    assert!(target.join("act_jpeg.hdf5").is_file());
}

fn refuse_splits(dataset: &Dataset, target: &Path, to: &str) {
    let refused = export(dataset, target, &options(to, OnDefect::Error)).unwrap_err();
    let what = "split `train`: cannot be stored";
    assert!(refused.to_string().contains(what), "{refused}");
}

#[test]
fn a_robomimic_recording_becomes_act_and_losses_are_listed() {
    let (folder, before, dataset) = packed(&lift());
    let target = folder.path().join("out");
    refuse_splits(&dataset, &target, "act");
    assert!(!target.exists());
    let exported = export(&dataset, &target, &options("act", OnDefect::Keep)).unwrap();
    assert!(exported.defects.iter().any(Defect::is_lost));
    let after = open(&target);
    let name = "observations/images/agentview_image";
    let stream = |source: &Source, name: &str| crate::position(source, 2, name);
    let a = read_all(&before, 2, stream(&before, "obs/agentview_image"), 7);
    let b = read_all(&after, 2, stream(&after, name), 7);
    assert!(a == b && matches!(a, FrameBuf::Values(_)));
    assert_eq!(
        after.episodes()[2].streams[0].clock,
        before.episodes()[2].streams[0].clock
    );
}

#[test]
fn a_zarr_has_every_row_of_every_episode() {
    let (folder, before, dataset) = packed(&lift());
    let target = folder.path().join("out.zarr");
    refuse_splits(&dataset, &target, "zarr");
    export(&dataset, &target, &options("zarr", OnDefect::Keep)).unwrap();
    let read = |name: &str| std::fs::read(target.join(name)).unwrap();
    let head = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&read(&format!("{name}/.zarray"))).unwrap()
    };
    let (mut actions, mut pixels, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for episode in 0..3 {
        for (stream, all) in [
            ("actions", &mut actions),
            ("obs/agentview_image", &mut pixels),
        ] {
            let stream = crate::position(&before, episode, stream);
            match read_all(&before, episode, stream, 5) {
                FrameBuf::Values(mut values) => all.append(&mut values),
                FrameBuf::Bytes(_) => panic!("{stream} is numbers"),
            }
        }
        ends.extend(((actions.len() / 56) as u64).to_le_bytes());
    }
    assert_eq!(read("data/action/0.0"), actions);
    assert_eq!(read("meta/episode_ends/0"), ends);
    assert_eq!(head("data/action")["dtype"], "<f8");
    let rows = head("data/agentview_image")["chunks"][0].as_u64().unwrap();
    let rows = usize::try_from(rows).unwrap();
    let frame = pixels.len() / (actions.len() / 56);
    assert_eq!(read("data/agentview_image/0.0.0.0"), pixels[..rows * frame]);
}

#[test]
fn a_zarr_survives_a_round_trip_if_it_can_hold_everything() {
    let folder = tempfile::tempdir().unwrap();
    let options_10 = with_rate(10.0);
    let before = kino_import::open(&fixture("zarr/pusht.zarr"), &options_10).unwrap();
    let dataset = pack(&before, &folder.path().join("a.kino"));
    let target = folder.path().join("out.zarr");
    export(&dataset, &target, &options("zarr", OnDefect::Keep)).unwrap();
    let after = kino_import::open(&target, &options_10).unwrap();
    assert!(after.describe().defects.is_empty());
    assert_eq!(before.episodes().len(), after.episodes().len());
    for (idx, (a, b)) in before.episodes().iter().zip(after.episodes()).enumerate() {
        assert_eq!((&a.id, names(a)), (&b.id, names(b)));
        for (stream, (x, y)) in a.streams.iter().zip(&b.streams).enumerate() {
            assert_eq!((&x.frame, x.frames), (&y.frame, y.frames), "{}", x.name);
            assert_eq!(x.clock, y.clock, "{}", x.name);
            let frames = |source| read_all(source, idx, stream, 4);
            assert!(frames(&before) == frames(&after), "{}", x.name);
        }
    }
    // A recording with names of its own comes back too, under the names that zarr has for them.
    let before = open(&lift());
    let dataset = pack(&before, &folder.path().join("b.kino"));
    let target = folder.path().join("lift.zarr");
    export(&dataset, &target, &options("zarr", OnDefect::Keep)).unwrap();
    let after = open(&target);
    for episode in 0..3 {
        for (a, b) in [
            ("actions", "action"),
            ("obs/agentview_image", "agentview_image"),
        ] {
            let at = |source: &Source, name| crate::position(source, episode, name);
            let (x, y) = (at(&before, a), at(&after, b));
            let (x, y) = (
                read_all(&before, episode, x, 9),
                read_all(&after, episode, y, 9),
            );
            assert!(x == y, "{a} of {episode}");
        }
        assert_eq!(
            before.episodes()[episode].streams[0].clock,
            after.episodes()[episode].streams[0].clock
        );
    }
}

#[test]
fn only_selected_episodes_are_written_and_an_existing_target_is_untouched() {
    let (folder, _, dataset) = packed(&lift());
    let mut options = options("robomimic", OnDefect::Error);
    options.selection.episodes = Some(Episodes::Ids(vec!["demo_2".to_owned()]));
    let target = folder.path().join("new/out.hdf5");
    export(&dataset, &target, &options).unwrap();
    let after = open(&target);
    assert_eq!(after.episodes().len(), 1);
    assert_eq!(after.episodes()[0].id, "demo_2");
    let bytes = std::fs::read(&target).unwrap();
    let refused = export(&dataset, &target, &options).unwrap_err();
    assert!(refused.to_string().contains("already exists"), "{refused}");
    assert_eq!(std::fs::read(&target).unwrap(), bytes);
    options.to = "robomimik".to_owned();
    let refused = export(&dataset, &target, &options).unwrap_err();
    assert!(
        refused.to_string().contains("use one of robomimic"),
        "{refused}"
    );
}

#[test]
fn a_stopped_export_leaves_nothing() {
    let (folder, _, dataset) = packed(&lift());
    for to in kino_import::EXPORTERS.iter().map(|exporter| exporter.name) {
        let mut calls = 0;
        let stopped = kino_import::export(
            &dataset,
            &folder.path().join("out"),
            &options(to, OnDefect::Keep),
            &mut |_| {
                calls += 1;
                if calls < 9 {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            },
        );
        assert!(matches!(stopped, Err(ImportError::Stopped)), "{to}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{to}");
    }
}

#[test]
fn streams_with_their_own_rates_and_timestamps_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, WriterOptions::default()).unwrap();
    let mut episode = writer
        .episode(EpisodeInfo {
            id: "one".to_owned(),
            ..EpisodeInfo::default()
        })
        .unwrap();
    for (name, frames, times) in [
        ("action", 3, rate(10.0)),
        ("fast", 3, rate(20.0)),
        ("long", 4, rate(10.0)),
        ("timed", 3, Times::Explicit(vec![0, 5, 9])),
    ] {
        let info = stream(name, Kind::Vector, values(Dtype::F32, &[1]), frames, times);
        episode.stream(&info).unwrap();
        for _ in 0..frames {
            episode.push(&[1; 4]).unwrap();
        }
    }
    episode.finish().unwrap();
    writer.commit("test").unwrap();
    let dataset = Dataset::open(&path).unwrap();
    let target = folder.path().join("out.hdf5");
    let exported = export(&dataset, &target, &options("robomimic", OnDefect::Keep)).unwrap();
    let found: Vec<_> = exported.defects.iter().map(ToString::to_string).collect();
    let expected = [
        "note: episode `one`: is written as `demo_0`",
        "note: stream `action`: is written as `actions`",
        "lost: stream `fast`: has a different clock than `actions`; the format has only one",
        "lost: stream `long`: does not have as many frames as `actions`",
        "lost: stream `timed`: has its own timestamps, which the format cannot store",
    ];
    assert_eq!(found, expected);
    let after = open(&target);
    assert_eq!(after.episodes()[0].attributes["id"], "one");
    assert_eq!(after.episodes()[0].streams.len(), 3);
}
