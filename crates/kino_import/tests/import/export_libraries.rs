//! Import, export, import again, for the formats that store all attributes of an episode: nothing may differ.

use kino_codec::Dtype;
use kino_dataset::{
    Dataset, DatasetWriter, EpisodeInfo, Kind, Start, StreamInfo, Times, WriterOptions,
};
use kino_import::{EpisodeSpec, OnDefect, Source};
use serde_json::json;
use std::path::{Path, PathBuf};

use crate::export::{export, lift, options, pack, rate, same_stream, stream, values};
use crate::{faults, fixture, open, read_all, with_rate};

/// Every recording written by another library, and the rate to pass.
fn recordings() -> Vec<(PathBuf, Option<f64>)> {
    let named = [
        ("robomimic.hdf5", None),
        ("robomimic/libero.hdf5", None),
        ("robomimic/low_dim_v01.hdf5", None),
        ("act_jpeg.hdf5", None),
        ("webdataset/steps", Some(20.0)),
        ("webdataset/episodes", None),
        ("folders/robo/data.robo", None),
        ("rlds/toy/1.0.0", Some(5.0)),
        ("mds/steps", Some(20.0)),
        ("mcap/ros2_zstd.mcap", None),
        ("zarr/pusht.zarr", Some(10.0)),
    ];
    let named = named.map(|(name, rate_hz)| (fixture(name), rate_hz));
    named.into_iter().chain([(lift(), None)]).collect()
}

fn open_at(path: &Path, rate_hz: Option<f64>) -> Source {
    match rate_hz {
        Some(rate_hz) => kino_import::open(path, &with_rate(rate_hz)).unwrap(),
        None => open(path),
    }
}

/// Asserts that nothing differs, in the order of `before`; `skip` names what the format cannot hold.
#[track_caller]
fn identical(before: &Source, after: &Source, skip: &dyn Fn(&str) -> bool) {
    assert_eq!(after.describe().defects, []);
    assert_eq!(before.episodes().len(), after.episodes().len());
    for (idx, a) in before.episodes().iter().enumerate() {
        let found = after.episodes().iter().position(|b| b.id == a.id);
        let there = found.unwrap_or_else(|| panic!("{} is missing", a.id));
        let b = &after.episodes()[there];
        let of = |spec: &EpisodeSpec| {
            let (splits, task) = (spec.splits.clone(), spec.task.clone());
            (
                splits,
                task,
                spec.success,
                spec.licence.clone(),
                spec.attributes.clone(),
            )
        };
        assert_eq!(of(a), of(b), "{}", a.id);
        let streams = a.streams.iter().enumerate();
        // A camera whose size differs in every episode is not packed.
        let is_kept = |name: &str| !skip(name) && !name.ends_with("any_size");
        let kept: Vec<_> = streams.filter(|(_, one)| is_kept(&one.name)).collect();
        assert_eq!(kept.len(), b.streams.len(), "{}", a.id);
        for (at, ((stream, x), y)) in kept.iter().zip(&b.streams).enumerate() {
            let place = format!("{} {}", a.id, x.name);
            same_stream(&a.id, x, y);
            let (x, y) = (
                read_all(before, idx, *stream, 4),
                read_all(after, there, at, 4),
            );
            assert!(x == y, "{place}");
        }
    }
}

/// Packs, exports and opens again. Returns the attributes of both.
fn there_and_back(path: &Path, rate_hz: Option<f64>, to: &str, skip: &dyn Fn(&str) -> bool) {
    let folder = tempfile::tempdir().unwrap();
    let before = open_at(path, rate_hz);
    let dataset = pack(&before, &folder.path().join("a.kino"));
    let target = folder.path().join("out");
    let exported = export(&dataset, &target, &options(to, OnDefect::Keep)).unwrap();
    let lost = faults(&exported.defects);
    let expected = before.episodes().iter().flat_map(|one| &one.streams);
    assert_eq!(
        lost.is_empty(),
        !expected.into_iter().any(|one| skip(&one.name)),
        "{lost:?}"
    );
    let after = open(&target);
    identical(&before, &after, skip);
    for (key, value) in &before.describe().attributes {
        let found = after.describe().attributes.get(key);
        assert_eq!(Some(value), found, "`{key}` of {}", path.display());
    }
    // And once more: the same bytes.
    let again = folder.path().join("again/out");
    export(&dataset, &again, &options(to, OnDefect::Keep)).unwrap();
    assert!(bytes_of(&target) == bytes_of(&again), "{}", path.display());
}

/// Names and contents of all files of a folder.
fn bytes_of(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(bytes_of(&path));
        } else {
            found.push((name, std::fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn every_recording_survives_a_round_trip_through_rlds() {
    for (path, rate_hz) in recordings() {
        // RLDS has steps: of a recording with many rates, the largest group of streams with equal length is kept.
        let is_mcap = path.extension().is_some_and(|ending| ending == "mcap");
        let before = open_at(&path, rate_hz);
        let streams = &before.episodes()[0].streams;
        let count = |frames| streams.iter().filter(|one| one.frames == frames).count();
        let most = streams
            .iter()
            .map(|one| (count(one.frames), one.frames))
            .max();
        let frames = |name: &str| streams.iter().find(|one| one.name == name).unwrap().frames;
        let skip = |name: &str| is_mcap && Some(frames(name)) != most.map(|(_, frames)| frames);
        there_and_back(&path, rate_hz, "rlds", &skip);
    }
}

#[test]
fn every_recording_survives_a_round_trip_through_mcap() {
    for (path, rate_hz) in recordings() {
        // No message type has float16, nor empty frames.
        let before = open_at(&path, rate_hz);
        let streams = before.episodes().iter().flat_map(|one| &one.streams);
        let has_none = |one: &&kino_import::StreamSpec| {
            let ty = one.frame.as_values();
            ty.is_some_and(|ty| ty.dtype() == Dtype::F16 || ty.elements() == 0)
        };
        let lost: Vec<_> = streams
            .filter(has_none)
            .map(|one| one.name.clone())
            .collect();
        there_and_back(&path, rate_hz, "mcap", &|name| {
            lost.iter().any(|one| one == name)
        });
    }
}

#[test]
fn every_recording_survives_a_round_trip_through_webdataset() {
    for (path, rate_hz) in recordings() {
        there_and_back(&path, rate_hz, "webdataset", &|_| false);
    }
}

/// Streams of every kind, with their own rates and timestamps.
fn odd_streams() -> Vec<StreamInfo> {
    let late = Times::Rate {
        rate_hz: 10.0,
        start_ns: 1_000,
    };
    let times = Times::Explicit(vec![5, 5, 90]);
    let ten = || rate(10.0);
    let numbers = |name: &str, dtype, shape: &[usize]| {
        stream(name, Kind::Vector, values(dtype, shape), 4, ten())
    };
    let (pose, color) = (values(Dtype::F32, &[4, 4]), values(Dtype::U8, &[4, 6, 3]));
    let (depth, range) = (values(Dtype::U16, &[4, 6]), values(Dtype::F32, &[4, 6, 1]));
    vec![
        numbers("action", Dtype::F64, &[3]),
        stream("Arm/Pose", Kind::Vector, pose, 9, rate(29.97)),
        stream("depth", Kind::Depth, depth, 3, times),
        stream("range", Kind::Depth, range, 4, late),
        stream("front", Kind::Image, color, 4, ten()),
        numbers("flag", Dtype::Bool, &[]),
        numbers("bits", Dtype::U64, &[2]),
        numbers("small", Dtype::I8, &[2, 1]),
        numbers("alpha", Dtype::U8, &[4, 6, 2]),
    ]
}

fn odd_dataset(path: &Path) -> Dataset {
    dataset(path, &odd_streams())
}

/// Two episodes of these streams.
fn dataset(path: &Path, streams: &[StreamInfo]) -> Dataset {
    let mut writer = DatasetWriter::open(path, Start::New, WriterOptions::default()).unwrap();
    let said = json!({"operator": "B", "stream_attributes": {"Arm/Pose": {"unit": "m"}}});
    for id in ["run.1/a", "run_2"] {
        let info = EpisodeInfo {
            id: id.to_owned(),
            task: Some("pour the tea".to_owned()),
            splits: vec!["train".to_owned(), "20_percent".to_owned()],
            attributes: said.as_object().unwrap().clone(),
            ..EpisodeInfo::default()
        };
        let mut episode = writer.episode(info).unwrap();
        for info in streams {
            episode.stream(info).unwrap();
            let most = if info.name == "flag" { 2 } else { 127 };
            let frame_bytes = info.frame.as_values().unwrap().frame_bytes();
            for frame in 0..usize::try_from(info.frames).unwrap() {
                let byte = |at: usize| u8::try_from((at * 7 + frame * 31) % most).unwrap();
                let bytes: Vec<_> = (0..frame_bytes).map(byte).collect();
                episode.push(&bytes).unwrap();
            }
        }
        episode.finish().unwrap();
    }
    writer.commit("test").unwrap();
    Dataset::open(path).unwrap()
}

/// Two datasets have the same frames at the same times.
#[track_caller]
fn same_frames(a: &Dataset, b: &Dataset, skip: &[&str]) {
    for id in ["run.1/a", "run_2"] {
        let (a, b) = (a.find(id).unwrap(), b.find(id).unwrap());
        let (x, mut y) = (a.read_attributes().unwrap(), b.read_attributes().unwrap());
        if skip.contains(&"Arm/Pose") {
            y.insert(
                "stream_attributes".to_owned(),
                x["stream_attributes"].clone(),
            );
        }
        assert_eq!(x, y);
        for schema in a.streams().filter(|one| !skip.contains(&&*one.name)) {
            let (x, y) = (
                a.stream(&schema.name).unwrap(),
                b.stream(&schema.name).unwrap(),
            );
            assert_eq!(
                (x.frame_type(), schema.kind),
                (y.frame_type(), y.schema().kind)
            );
            let all = 0..x.len();
            assert_eq!(
                x.times_ns(all.clone()).unwrap(),
                y.times_ns(all.clone()).unwrap(),
                "{}",
                schema.name
            );
            assert_eq!(
                x.read(all.clone()).unwrap(),
                y.read(all).unwrap(),
                "{}",
                schema.name
            );
        }
    }
}

#[test]
fn streams_of_every_type_and_clock_survive_webdataset() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = odd_dataset(&folder.path().join("a.kino"));
    let target = folder.path().join("out");
    let exported = export(&dataset, &target, &options("webdataset", OnDefect::Error)).unwrap();
    let notes: Vec<_> = exported.defects.iter().map(ToString::to_string).collect();
    let expected = [
        "note: episode `run.1/a`: is written as `run_1/a`",
        "note: stream `Arm/Pose`: is written as `arm.pose` (2 times)",
    ];
    assert_eq!(notes, expected);
    let after = pack(&open(&target), &folder.path().join("b.kino"));
    same_frames(&dataset, &after, &[]);
}

#[test]
fn streams_of_one_length_survive_rlds_and_the_others_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = odd_dataset(&folder.path().join("a.kino"));
    let target = folder.path().join("Tea-1.rlds");
    let refused = export(&dataset, &target, &options("rlds", OnDefect::Error)).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("stream `depth`: does not have as many frames"),
        "{refused}"
    );
    let exported = export(&dataset, &target, &options("rlds", OnDefect::Keep)).unwrap();
    assert_eq!(
        exported.defects.iter().filter(|one| one.is_lost()).count(),
        2
    );
    assert!(
        target
            .join("1.0.0/tea_1-train.tfrecord-00000-of-00001")
            .is_file()
    );
    let after = pack(&open(&target), &folder.path().join("b.kino"));
    same_frames(&dataset, &after, &["Arm/Pose", "depth"]);
}

#[test]
fn streams_of_every_type_and_clock_survive_mcap() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = odd_dataset(&folder.path().join("a.kino"));
    let target = folder.path().join("out");
    let exported = export(&dataset, &target, &options("mcap", OnDefect::Error)).unwrap();
    assert_eq!(faults(&exported.defects), [""; 0]);
    let after = pack(&open(&target), &folder.path().join("b.kino"));
    same_frames(&dataset, &after, &[]);
}

/// A stream of float32 or another type, at times of its own.
fn timed(name: &str, dtype: Dtype, times: Vec<i64>) -> StreamInfo {
    let (frames, times) = (times.len() as u64, Times::Explicit(times));
    stream(name, Kind::Vector, values(dtype, &[2]), frames, times)
}

#[test]
fn what_cannot_be_stored_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let streams = [
        timed("A", Dtype::F32, vec![0, 5]),
        timed("a", Dtype::F32, vec![0, 5]),
        timed("early", Dtype::F32, vec![-5, 5]),
        timed("half", Dtype::F16, vec![0, 5]),
        timed("obs/x", Dtype::F32, vec![0, 5]),
        timed("obs/x/y", Dtype::F32, vec![0, 5]),
        timed("observation", Dtype::F32, vec![0, 5]),
    ];
    let dataset = dataset(&folder.path().join("a.kino"), &streams);
    for (to, lost) in [
        (
            "webdataset",
            &["stream `a`: would be named `a`, like another stream (2 times)"][..],
        ),
        (
            "rlds",
            &["stream `observation`: has the same name as the prefix of other features (2 times)"],
        ),
        (
            "mcap",
            &[
                "stream `early`: has timestamps before zero, which messages cannot hold (2 times)",
                "stream `half`: is float16, which no message type supports (2 times)",
            ],
        ),
    ] {
        let target = folder.path().join(to);
        let refused = export(&dataset, &target, &options(to, OnDefect::Error)).unwrap_err();
        let refused = refused.to_string();
        let lines: Vec<_> = refused
            .lines()
            .filter(|line| line.starts_with("  "))
            .collect();
        let expected: Vec<_> = lost.iter().map(|lost| format!("  {lost}")).collect();
        assert_eq!(lines, expected);
        assert!(!target.exists());
        export(&dataset, &target, &options(to, OnDefect::Keep)).unwrap();
        let after = open(&target);
        assert_eq!(after.describe().defects, [], "{to}");
        assert_eq!(
            after.episodes()[0].streams.len(),
            streams.len() - lost.len(),
            "{to}"
        );
        // `kinograph.json` is only used if an export wrote it.
        std::fs::write(target.join("kinograph.json"), "{\"kinograph\": 2}").unwrap();
        let faults = open(&target).describe().defects.len();
        assert_eq!(faults, 1, "{to}");
    }
}
