//! Part of a source: the requested streams and episodes, bit for bit, without opening files of the others.

use std::fs;
use std::path::Path;

use kino_dataset::{Dataset, Start};
use kino_import::{ImportOptions, OnDefect, Part, Source};

use crate::export::lift;
use crate::lerobot;
use crate::pack::{assert_same, pack_all};
use crate::{copy, copy_tree, faults, fixture, ids, open, pack_as, position, read_all, surveyed};

fn part(streams: &[&str], exclude: &[&str], episodes: &[&str]) -> Part {
    let texts = |all: &[&str]| all.iter().map(|&text| text.to_owned()).collect();
    Part {
        streams: texts(streams),
        exclude: texts(exclude),
        episodes: texts(episodes),
    }
}

fn open_part(path: &Path, part: Part, rate_hz: Option<f64>) -> kino_import::Result<Source> {
    let options = ImportOptions {
        part,
        rate_hz,
        ..ImportOptions::default()
    };
    kino_import::open(path, &options)
}

fn names(source: &Source, episode: usize) -> Vec<&str> {
    let streams = source.episodes()[episode].streams.iter();
    streams.map(|stream| stream.name.as_str()).collect()
}

/// Every stream of the part has the frames of the full source.
fn assert_part_of(some: &Source, all: &Source) {
    for (idx, episode) in some.episodes().iter().enumerate() {
        let whole = ids(all).iter().position(|id| *id == episode.id).unwrap();
        for (stream, spec) in episode.streams.iter().enumerate() {
            let there = position(all, whole, &spec.name);
            let (found, expected) = (
                read_all(some, idx, stream, 7),
                read_all(all, whole, there, 7),
            );
            assert_eq!(found, expected, "{} {}", episode.id, spec.name);
        }
    }
}

#[test]
fn an_hdf5_file_without_its_images_keeps_the_other_streams() {
    let path = lift();
    let all = open(&path);
    let wanted = part(&["obs/*", "actions"], &["**_image"], &["0", "demo_2"]);
    let some = open_part(&path, wanted, None).unwrap();
    assert_eq!(ids(&some), ["demo_0", "demo_2"]);
    let expected: Vec<_> = names(&all, 0)
        .into_iter()
        .filter(|name| *name == "actions" || name.contains("obs/") && !name.ends_with("_image"))
        .collect();
    assert!(expected.len() > 5);
    assert_eq!(names(&some, 0), expected);
    assert_part_of(&some, &all);
    let folder = tempfile::tempdir().unwrap();
    pack_all(&some, folder.path(), Start::New);
    assert_same(&some, &Dataset::open(folder.path()).unwrap());
}

#[test]
fn a_shift_is_stored_once_with_its_base_and_completely_without_it() {
    for (streams, shifts) in [
        (
            &["obs/front_image", "obs/u1", "next_obs/front_image"][..],
            1,
        ),
        (&["obs/u1", "next_obs/front_image"], 0),
    ] {
        let some = open_part(
            &fixture("robomimic.hdf5"),
            part(streams, &[], &["2"]),
            Some(20.0),
        );
        let some = some.unwrap();
        assert_eq!(ids(&some), ["demo_2"]);
        let folder = tempfile::tempdir().unwrap();
        let packed = pack_all(&some, folder.path(), Start::New);
        assert_eq!(packed.shifts, shifts, "{streams:?}");
        assert_same(&some, &Dataset::open(folder.path()).unwrap());
    }
}

#[test]
fn a_lerobot_dataset_without_its_videos_needs_neither_videos_nor_a_decoder() {
    for version in ["v2.0", "v2.1", "v3.0"] {
        let all = lerobot::open(&fixture("lerobot").join(version));
        let (_folder, root) = copy(&format!("lerobot/{version}"));
        fs::remove_dir_all(root.join("videos")).unwrap();
        let some = open_part(&root, part(&[], &["observation.images.*"], &[]), None).unwrap();
        assert_eq!(ids(&some), ids(&all), "{version}");
        assert!(names(&some, 0).contains(&"action"));
        assert!(names(&some, 0).iter().all(|name| !name.contains("images")));
        assert_part_of(&some, &all);
        assert_eq!(surveyed(&some), [""; 0], "{version}");
        // Only the files that are read count as the source.
        let is_video = |path: &Path| path.extension().is_some_and(|ending| ending == "mp4");
        assert!(
            some.describe()
                .files
                .iter()
                .all(|file| !is_video(file.path()))
        );
    }
}

#[test]
fn one_camera_and_some_episodes_of_a_lerobot_dataset() {
    let (_folder, root) = copy("lerobot/v2.1");
    let all = lerobot::open(&root);
    let camera = *names(&all, 0)
        .iter()
        .find(|name| name.contains("images"))
        .unwrap();
    // An excluded episode may lack its data.
    fs::remove_file(root.join("data/chunk-001/episode_000003.parquet")).unwrap();
    let options = ImportOptions {
        part: part(&["action", camera], &[], &["0-1", "episode_000002"]),
        ..lerobot::options()
    };
    let some = kino_import::open(&root, &options).unwrap();
    assert_eq!(
        ids(&some),
        ["episode_000000", "episode_000001", "episode_000002"]
    );
    assert_eq!(names(&some, 0), ["action", camera]);
    assert_part_of(&some, &all);
    assert_eq!(surveyed(&some), [""; 0]);
}

#[test]
fn an_array_of_a_zarr_store_that_is_excluded_may_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pusht.zarr");
    copy_tree(&fixture("zarr/pusht.zarr"), &path);
    let all = open_part(&path, Part::default(), Some(10.0)).unwrap();
    let image = *names(&all, 0)
        .iter()
        .find(|name| name.contains("img"))
        .unwrap();
    for entry in fs::read_dir(path.join("data").join(image)).unwrap() {
        let chunk = entry.unwrap().path();
        let is_chunk = !chunk
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with('.');
        if is_chunk {
            fs::remove_file(chunk).unwrap();
        }
    }
    let damaged = open_part(&path, Part::default(), Some(10.0)).unwrap();
    assert_ne!(faults(&damaged.describe().defects), [""; 0]);
    let some = open_part(&path, part(&[], &[image], &["1-2"]), Some(10.0)).unwrap();
    assert_eq!(ids(&some), ["episode_1", "episode_2"]);
    assert!(!names(&some, 0).contains(&image));
    assert_eq!(faults(&some.describe().defects), [""; 0]);
    let target = folder.path().join("d.kino");
    pack_as(&some, &target, OnDefect::Error).unwrap();
    assert_same(&some, &Dataset::open(&target).unwrap());
}

#[test]
fn a_camera_folder_that_is_excluded_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("images");
    copy_tree(&fixture("folders/images"), &path);
    let all = open_part(&path, Part::default(), Some(10.0)).unwrap();
    for episode in ["episode_0", "episode_1", "episode_2"] {
        for entry in fs::read_dir(path.join(episode).join("front")).unwrap() {
            fs::write(entry.unwrap().path(), "not an image").unwrap();
        }
    }
    let some = open_part(&path, part(&[], &["front"], &["0", "2"]), Some(10.0)).unwrap();
    assert_eq!(ids(&some), ["episode_0", "episode_2"]);
    assert!(names(&all, 0).contains(&"front") && !names(&some, 0).contains(&"front"));
    assert_part_of(&some, &all);
    let target = folder.path().join("d.kino");
    let packed = pack_all(&some, &target, Start::New);
    assert_eq!(faults(&packed.defects), [""; 0]);
    // What was not packed does not count as the source either.
    let bytes = |folder: &str| -> u64 {
        let files = fs::read_dir(path.join(folder)).unwrap();
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum()
    };
    let table = |episode: &str| {
        fs::metadata(path.join(episode).join("states.csv"))
            .unwrap()
            .len()
    };
    let expected: u64 = ["episode_0", "episode_2"]
        .map(|episode| {
            bytes(&format!("{episode}/wrist")) + bytes(&format!("{episode}/depth")) + table(episode)
        })
        .iter()
        .sum();
    assert_eq!(packed.source_bytes, expected);
}

#[test]
fn a_pattern_that_matches_nothing_is_refused_with_the_nearest_name() {
    let hdf5 = lift();
    let zarr = fixture("zarr/pusht.zarr");
    let lerobot = fixture("lerobot/v2.1");
    for (path, wanted, expected) in [
        (
            &hdf5,
            part(&["agentview_image"], &[], &[]),
            "--streams `agentview_image` matches no stream of the source; did you mean `obs/agentview_image`?",
        ),
        (
            &hdf5,
            part(&[], &["obs/wirst*"], &[]),
            "--exclude `obs/wirst*` matches no stream",
        ),
        (
            &hdf5,
            part(&[], &[], &["demo_1,17"]),
            "--episodes `17` matches no episode of the source; there are demo_0",
        ),
        (
            &hdf5,
            part(&[], &["**"], &[]),
            "no stream is left in any episode",
        ),
        (&zarr, part(&["actoin"], &[], &[]), "did you mean `action`?"),
        (
            &lerobot,
            part(&["actoin"], &[], &[]),
            "did you mean `action`?",
        ),
        (
            &lerobot,
            part(&["action"], &[], &["70-99"]),
            "--episodes `70-99` matches no episode",
        ),
    ] {
        let error = open_part(path, wanted, Some(10.0))
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn a_pack_of_a_part_is_resumed_as_the_same_part_only() {
    let settings = |part: Part| {
        let options = ImportOptions {
            part,
            ..ImportOptions::default()
        };
        options.settings().unwrap()
    };
    assert!(settings(Part::default()).is_empty());
    let some = settings(part(&["obs/*"], &["x", "y"], &["0-9"]));
    let some: Vec<_> = some
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(some, ["episodes=0-9", "exclude=x y", "streams=obs/*"]);
}
