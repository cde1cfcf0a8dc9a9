//! Packed datasets contain what the source returned, frame by frame.

use std::ops::ControlFlow;
use std::path::Path;

use kino_dataset::{Dataset, Level, Start, verify};
use kino_import::{FrameBuf, ImportError, OnDefect, PackOptions, Packed, Progress, Source, pack};
use serde_json::Value;

use crate::expected::{compare_pixels, expected};
use crate::tars::without_ending;
use crate::{fixture, open, pack_as, read_all, with_rate};

pub(crate) fn pack_all(source: &Source, target: &Path, start: Start) -> Packed {
    let options = PackOptions {
        start,
        on_defect: OnDefect::Keep,
        ..PackOptions::default()
    };
    let mut last = Progress::default();
    let packed = pack(source, target, options, &mut |progress| {
        assert!(
            progress.bytes_done >= last.bytes_done && progress.episodes_done >= last.episodes_done
        );
        assert!(progress.bytes_done == 0 || progress.episodes_checked == progress.episodes);
        last = progress;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(
        (last.bytes_done, last.episodes_done),
        (last.bytes, last.episodes)
    );
    packed
}

/// Compares every frame of a dataset with its source.
pub(crate) fn assert_same(source: &Source, dataset: &Dataset) {
    for (idx, spec) in source.episodes().iter().enumerate() {
        let episode = dataset.find(&spec.id).unwrap();
        // A camera whose size differs in every episode is not a stream.
        let is_kept = |name: &str| !name.ends_with("any_size");
        let kept = spec.streams.iter().filter(|stream| is_kept(&stream.name));
        assert_eq!(episode.streams().count(), kept.count());
        for (position, stream_spec) in spec.streams.iter().enumerate() {
            let name = &stream_spec.name;
            if !is_kept(name) {
                continue;
            }
            let stream = episode.stream(name).unwrap();
            let all = 0..stream.len();
            assert_eq!(stream.len() as u64, stream_spec.frames, "{name}");
            match read_all(source, idx, position, 5) {
                FrameBuf::Values(values) => assert_eq!(stream.read(all).unwrap(), values, "{name}"),
                FrameBuf::Bytes(files) if stream_spec.carried => {
                    for (frame, file) in files.into_iter().enumerate() {
                        assert_eq!(stream.read_bitstream(frame).unwrap(), Some(file), "{name}");
                    }
                }
                FrameBuf::Bytes(texts) => {
                    let found = stream.read_text(all).unwrap();
                    assert!(
                        found
                            .iter()
                            .map(String::as_bytes)
                            .eq(texts.iter().map(Vec::as_slice))
                    );
                }
            }
        }
    }
}

#[test]
fn a_robomimic_file_is_packed_losslessly() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("lift.kino");
    let source = open(&fixture("robomimic.hdf5"));
    let packed = pack_all(&source, &target, Start::New);
    assert_eq!(
        (packed.committed.episodes, packed.resumed, packed.shifts),
        (2, 0, 2)
    );
    let dataset = Dataset::open(&target).unwrap();
    assert_same(&source, &dataset);
    assert!(
        verify(&target, Level::Decode, &mut |_, _| {})
            .unwrap()
            .damage
            .is_empty()
    );
}

#[test]
fn metadata_of_the_source_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let source = open(&fixture("robomimic.hdf5"));
    pack_all(&source, folder.path(), Start::New);
    let dataset = Dataset::open(folder.path()).unwrap();
    let table = dataset.table();
    assert_eq!(
        (table.id(0), table.id(1)),
        (Some("demo_2"), Some("demo_10"))
    );
    let attributes = &dataset.manifest().attributes;
    assert_eq!(attributes["env_args"]["env_kwargs"]["control_freq"], 20);
    let source_info = &attributes["sources"][0];
    assert_eq!(source_info["format"], "robomimic-hdf5");
    assert_eq!(source_info["defects"].as_array().unwrap().len(), 6);
    let hash = source.describe().files[0].read_blake3().unwrap();
    assert_eq!(source_info["files"][0]["blake3"], hash);
    let attributes = dataset.find("demo_2").unwrap().read_attributes().unwrap();
    assert_eq!(attributes["instruction"], "lift the cube");
    assert_eq!(
        attributes["stream_attributes"]["obs/wrist_depth"]["unit"],
        "m"
    );
}

#[test]
fn jpeg_files_are_stored_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let source = open(&fixture("act_jpeg.hdf5"));
    pack_all(&source, folder.path(), Start::New);
    assert_same(&source, &Dataset::open(folder.path()).unwrap());
}

#[test]
fn a_stopped_pack_leaves_no_version_and_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let source = open(&fixture("robomimic.hdf5"));
    let mut options = PackOptions {
        on_defect: OnDefect::Keep,
        ..PackOptions::default()
    };
    // Every episode closes its shard, so that the first is finished when the second is stopped.
    options.writer.shard_bytes = 1;
    let stop = &mut |progress: Progress| match progress.episodes_done {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    let error = pack(&source, folder.path(), options.clone(), stop).unwrap_err();
    assert!(matches!(error, ImportError::Stopped) && error.kind().is_none());
    assert!(Dataset::open(folder.path()).is_err());
    options.start = Start::Resume;
    let go = &mut |_| ControlFlow::Continue(());
    let packed = pack(&source, folder.path(), options, go).unwrap();
    assert!(packed.resumed <= 1);
    assert_same(&source, &Dataset::open(folder.path()).unwrap());
}

#[test]
fn appending_keeps_the_metadata_of_both_sources() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("both.kino");
    let copy = folder.path().join("episode_0.hdf5");
    std::fs::copy(fixture("act_jpeg.hdf5"), &copy).unwrap();
    let (first, second) = (open(&fixture("act_jpeg.hdf5")), open(&copy));
    pack_all(&first, &target, Start::New);
    let error = pack_as(&first, &target, OnDefect::Error);
    assert!(matches!(error, Err(ImportError::Dataset { .. })));
    pack_all(&second, &target, Start::Append);
    let dataset = Dataset::open(&target).unwrap();
    assert_eq!(dataset.len(), 2);
    assert_same(&second, &dataset);
    let sources = &dataset.manifest().attributes["sources"];
    assert_eq!(sources.as_array().map(Vec::len), Some(2));
    assert_ne!(sources[0]["files"][0]["path"], Value::Null);
}

#[test]
fn sources_of_every_library_are_packed_frame_by_frame() {
    for (name, images) in [
        ("rlds/toy/1.0.0", 0),
        ("mds/steps", 6),
        ("mds/steps_zstd", 6),
        ("mds/episodes", 3),
        ("webdataset/steps", 3),
        ("webdataset/episodes", 3),
        ("folders/robo/packed.robo", 0),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let source = kino_import::open(&fixture(name), &with_rate(20.0)).unwrap();
        pack_all(&source, folder.path(), Start::New);
        let dataset = Dataset::open(folder.path()).unwrap();
        assert_same(&source, &dataset);
        let sources = &dataset.manifest().attributes["sources"];
        assert_eq!(sources[0]["format"], source.describe().format);
        if images > 0 {
            let (format, name) = name.split_once('/').unwrap();
            let expected = expected(&format!("{format}/expected.json"), name);
            let compared = compare_pixels(&dataset, &expected, without_ending);
            assert_eq!(compared, images, "{name}");
        }
    }
}

#[test]
fn recordings_are_packed_losslessly() {
    let Some(recordings) = crate::oracle::recordings() else {
        println!("skipped: no recordings; set KINOGRAPH_TEST_DATA to their folder");
        return;
    };
    for name in [
        "real/robomimic/lift_ph_low_dim.hdf5",
        "generated/lift/lift_1demo_nextobs.hdf5",
        "generated/aloha/episode_0.hdf5",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let source = kino_import::open(&recordings.join(name), &with_rate(20.0)).unwrap();
        pack_all(&source, folder.path(), Start::New);
        assert_same(&source, &Dataset::open(folder.path()).unwrap());
    }
}
