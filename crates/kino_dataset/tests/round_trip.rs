//! A dataset written, committed, opened and read back, compared with the arrays it was made from.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]
#![allow(clippy::cast_precision_loss, reason = "small generated numbers")]

mod common;

use std::path::Path;

use common::{image_info, random_bytes, sample, text_info, vector_info, write_sample};
use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Arrival, Dataset, DatasetError, DatasetWriter, EpisodeInfo, ErrorKind, Kind, Label, Level,
    Plan, SharedFrames, Start, StreamInfo, Times, WriterOptions, verify,
};

fn options(plan: Plan) -> WriterOptions {
    WriterOptions {
        plan,
        threads: 2,
        ..WriterOptions::default()
    }
}

#[test]
fn every_stream_round_trips_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    write_sample(&path, Start::New, 0..3);
    let dataset = Dataset::open(&path).unwrap();
    assert_eq!((dataset.len(), dataset.manifest().version), (3, 1));
    for number in 0..3 {
        let (id, streams) = sample(number);
        let episode = dataset.find(&id).unwrap();
        assert_eq!(episode.row(), number);
        assert_eq!(episode.read_attributes().unwrap()["number"], number);
        for (info, bytes) in streams {
            let stream = episode.stream(&info.name).unwrap();
            assert_eq!(stream.len() as u64, info.frames, "{}", info.name);
            assert_eq!(stream.frame_type(), &info.frame);
            if info.frame == FrameType::Text {
                let texts = stream.read_text(0..stream.len()).unwrap();
                assert_eq!(texts.join("\n").as_bytes(), bytes);
                continue;
            }
            assert!(
                stream.read(0..stream.len()).unwrap() == bytes,
                "{}",
                info.name
            );
            let frame_bytes = info.frame.as_values().unwrap().frame_bytes();
            let middle = stream.len() / 3..stream.len() / 2;
            assert!(
                stream.read(middle.clone()).unwrap()
                    == bytes[middle.start * frame_bytes..middle.end * frame_bytes]
            );
        }
    }
    let verified = verify(&path, Level::Decode, &mut |_, _| {}).unwrap();
    assert_eq!(verified.damage, []);
    assert!(verified.frames > 0 && !path.join("staging").exists());
}

#[test]
fn frames_are_found_by_time_on_each_streams_own_clock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    write_sample(&path, Start::New, 0..1);
    let dataset = Dataset::open(&path).unwrap();
    let episode = dataset.episode(0).unwrap();
    // The force sensor starts 1 ms before the camera, which starts at 5 s: that is second 0 of the episode.
    assert_eq!(episode.start_ns(), 4_999_000_000);
    let force = episode.stream("force").unwrap();
    let times = force.times_ns(0..force.len()).unwrap();
    let found = force.frames_between(0.1..0.2).unwrap();
    let expected: Vec<usize> = (0..times.len())
        .filter(|&idx| (5_099_000_000..5_199_000_000).contains(&times[idx]))
        .collect();
    assert_eq!(found.clone().collect::<Vec<_>>(), expected);
    assert!(!found.is_empty());
    let camera = episode.stream("camera").unwrap();
    assert_eq!(camera.frames_between(0.0..0.101).unwrap(), 0..3);
    assert_eq!(
        camera
            .frames_between(f64::NEG_INFINITY..f64::INFINITY)
            .unwrap(),
        0..camera.len()
    );
    assert!(camera.frames_between(f64::NAN..1.0).is_err());
}

#[test]
fn the_bytes_of_a_shard_do_not_depend_on_the_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    for threads in [1, 2, 5] {
        let path = folder.path().join(format!("{threads}.kino"));
        common::write_sample_with(
            &path,
            Start::New,
            0..4,
            WriterOptions {
                threads,
                ..WriterOptions::default()
            },
        );
        names.push(Dataset::open(&path).unwrap().manifest().shards.clone());
    }
    assert!(names[0] == names[1] && names[1] == names[2]);
}

#[test]
fn append_creates_a_new_version_and_keeps_the_old_one_readable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    write_sample(&path, Start::New, 0..2);
    write_sample(&path, Start::Append, 2..5);
    let new = Dataset::open(&path).unwrap();
    let old = Dataset::open_version(&path, 1).unwrap();
    assert_eq!((old.len(), new.len()), (2, 5));
    assert_eq!(new.manifest().parent.as_deref(), Some(old.id()));
    assert_eq!(new.versions().unwrap(), [1, 2]);
    let (_, streams) = sample(4);
    let stream = new.find("demo_4").unwrap().stream("camera").unwrap();
    assert!(
        stream.read(0..stream.len()).unwrap()
            == streams
                .iter()
                .find(|(info, _)| info.name == "camera")
                .unwrap()
                .1
    );
    assert!(matches!(
        Dataset::open_version(&path, 9),
        Err(DatasetError::NotFound { .. })
    ));
}

#[test]
fn shared_frames_are_stored_once_and_read_under_both_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let frames = random_bytes(11 * 24, 1);
    let mut writer = DatasetWriter::open(&path, Start::New, options(Plan::lossless())).unwrap();
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    episode.stream(&vector_info("obs/x", 10, 3)).unwrap();
    episode.push(&frames[..10 * 24]).unwrap();
    let shared = Some(SharedFrames {
        base: "obs/x".to_owned(),
        first: 1,
        count: 9,
    });
    episode
        .stream(&StreamInfo {
            shared,
            ..vector_info("next_obs/x", 10, 3)
        })
        .unwrap();
    episode.push(&frames[10 * 24..]).unwrap();
    episode.finish().unwrap();
    writer.commit("").unwrap();
    let episode = Dataset::open(&path).unwrap().episode(0).unwrap();
    let next = episode.stream("next_obs/x").unwrap();
    assert!(next.read(0..10).unwrap() == frames[24..]);
    assert!(next.read(7..10).unwrap() == frames[8 * 24..]);
    assert!(next.read(2..5).unwrap() == frames[3 * 24..6 * 24]);
    assert_eq!(next.read_bitstream(3).unwrap(), None);
    let summary = Dataset::open(&path).unwrap().manifest().streams[1].clone();
    assert_eq!((summary.raw_bytes, summary.stored_values), (240, 3));
}

#[test]
fn an_abandoned_episode_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let small = WriterOptions {
        memory_bytes: 1,
        threads: 1,
        ..WriterOptions::default()
    };
    let mut writer = DatasetWriter::open(&path, Start::New, small).unwrap();
    for number in 0..6 {
        let (id, streams) = sample(number);
        let mut episode = writer
            .episode(EpisodeInfo {
                id,
                ..EpisodeInfo::default()
            })
            .unwrap();
        for (idx, (info, bytes)) in streams.iter().enumerate() {
            if number % 2 == 1 && idx == number / 2 + 1 {
                break;
            }
            common::push(&mut episode, info, bytes);
        }
        if number % 2 == 0 {
            episode.finish().unwrap();
        }
    }
    writer.commit("").unwrap();
    let dataset = Dataset::open(&path).unwrap();
    let ids: Vec<_> = (0..dataset.len())
        .map(|row| dataset.table().id(row).unwrap().to_owned())
        .collect();
    assert_eq!(ids, ["demo_0", "demo_2", "demo_4"]);
    assert_eq!(
        verify(&path, Level::Decode, &mut |_, _| {}).unwrap().damage,
        []
    );
}

#[test]
fn a_dropped_writer_changes_nothing_and_its_shards_can_be_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    // A minimal memory limit: every episode is written before the next starts, in a shard of its own.
    let options = || WriterOptions {
        shard_bytes: 1,
        memory_bytes: 1,
        settings: [("source".to_owned(), "lift".to_owned())].into(),
        ..WriterOptions::default()
    };
    let mut writer = DatasetWriter::open(&path, Start::New, options()).unwrap();
    common::add_samples(&mut writer, 0..3);
    drop(writer);
    assert!(matches!(
        Dataset::open(&path),
        Err(DatasetError::NotFound { .. })
    ));
    let error = DatasetWriter::open(&path, Start::New, options()).unwrap_err();
    assert!(error.to_string().contains("--resume"), "{error}");

    let mut writer = DatasetWriter::open(&path, Start::Resume, options()).unwrap();
    let finished: Vec<_> = (0..4)
        .filter(|number| !writer.resumed().contains(&format!("demo_{number}")))
        .collect();
    assert!(finished.len() < 4, "at least one shard was finished");
    for number in finished {
        common::add_samples(&mut writer, number..number + 1);
    }
    writer.commit("").unwrap();
    let resumed = Dataset::open(&path).unwrap();
    assert_eq!(
        verify(&path, Level::Decode, &mut |_, _| {}).unwrap().damage,
        []
    );

    let whole = folder.path().join("b.kino");
    let mut writer = DatasetWriter::open(&whole, Start::New, options()).unwrap();
    common::add_samples(&mut writer, 0..4);
    writer.commit("").unwrap();
    let whole = Dataset::open(&whole).unwrap();
    let mut names = [
        resumed.manifest().shards.clone(),
        whole.manifest().shards.clone(),
    ];
    names
        .iter_mut()
        .for_each(|shards| shards.sort_by_key(|shard| shard.blake3));
    assert_eq!(
        names[0], names[1],
        "the same shards, whether interrupted or not"
    );
    assert_eq!(
        resumed.stats().unwrap()["force"].count,
        whole.stats().unwrap()["force"].count
    );
}

#[test]
fn lossy_images_are_measured_and_the_rest_stays_exact() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    common::write_sample_with(&path, Start::New, 0..1, options(Plan::quality(95)));
    let dataset = Dataset::open(&path).unwrap();
    let camera = dataset
        .manifest()
        .streams
        .iter()
        .find(|stream| stream.name == "camera")
        .unwrap()
        .clone();
    assert!(
        camera.codecs[0].starts_with("jpeg:q=95"),
        "{:?}",
        camera.codecs
    );
    let psnr = camera.psnr_db().unwrap();
    let (_, streams) = sample(0);
    let original = &streams
        .iter()
        .find(|(info, _)| info.name == "camera")
        .unwrap()
        .1;
    let decoded = dataset
        .episode(0)
        .unwrap()
        .stream("camera")
        .unwrap()
        .read(0..30)
        .unwrap();
    let squares: f64 = original
        .iter()
        .zip(&decoded)
        .map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2))
        .sum();
    let expected = 10.0 * (255.0 * 255.0 / (squares / original.len() as f64)).log10();
    assert!((psnr - expected).abs() < 1e-9, "{psnr} {expected}");
    let force = dataset
        .manifest()
        .streams
        .iter()
        .find(|stream| stream.name == "force")
        .unwrap();
    assert_eq!((force.max_abs_error, force.psnr_db()), (0.0, None));
}

#[test]
fn wrong_input_is_refused_with_its_place_and_leaves_the_writer_usable() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = DatasetWriter::open(
        &folder.path().join("a.kino"),
        Start::New,
        options(Plan::lossless()),
    )
    .unwrap();
    type Mistake = fn(&mut kino_dataset::EpisodeWriter<'_>) -> kino_dataset::Result<()>;
    let mistakes: [(&str, Mistake); 8] = [
        ("but 4 were announced", |episode| {
            episode.stream(&vector_info("x", 4, 3))?;
            episode.push(&[0; 24])?;
            episode.stream(&vector_info("y", 4, 3))
        }),
        ("more than the 4", |episode| {
            episode.stream(&vector_info("x", 4, 3))?;
            episode.push(&[0; 5 * 24])
        }),
        ("not a multiple of the frame size", |episode| {
            episode.stream(&vector_info("x", 4, 3))?;
            episode.push(&[0; 25])
        }),
        ("decrease", |episode| {
            let times = Times::Explicit(vec![0, 5, 3, 9]);
            episode.stream(&StreamInfo {
                times,
                ..vector_info("x", 4, 3)
            })
        }),
        ("3 timestamps", |episode| {
            let times = Times::Explicit(vec![0, 5, 7]);
            episode.stream(&StreamInfo {
                times,
                ..vector_info("x", 4, 3)
            })
        }),
        ("before `push`", |episode| episode.push(&[0; 24])),
        ("relative path", |episode| {
            episode.stream(&vector_info("../x", 4, 3))
        }),
        ("is not a fraction", |episode| {
            let times = Times::Rate {
                rate_hz: std::f64::consts::PI * 1e-6,
                start_ns: 0,
            };
            episode.stream(&StreamInfo {
                times,
                ..vector_info("x", 4, 3)
            })
        }),
    ];
    for (expected, mistake) in mistakes {
        let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
        let error = mistake(&mut episode).unwrap_err();
        let text = common::chain(&error);
        assert!(text.contains(expected), "{expected}: {text}");
    }
    write_good(writer, &folder.path().join("a.kino"));
}

/// After any number of refused episodes: a valid one, a second with the same id, one of another type.
fn write_good(mut writer: DatasetWriter, path: &Path) {
    let info = |name: &str| vector_info(name, 4, 3);
    let mut episode = writer
        .episode(EpisodeInfo {
            id: "good".to_owned(),
            ..EpisodeInfo::default()
        })
        .unwrap();
    episode.stream(&info("x")).unwrap();
    episode.push(&[7; 4 * 24]).unwrap();
    episode.finish().unwrap();
    assert!(
        writer
            .episode(EpisodeInfo {
                id: "good".to_owned(),
                ..EpisodeInfo::default()
            })
            .is_err()
    );
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    let other = StreamInfo {
        frame: FrameType::values(Dtype::F32, &[3]).unwrap(),
        ..info("x")
    };
    assert!(common::chain(&episode.stream(&other).unwrap_err()).contains("other episodes"));
    drop(episode);
    writer.commit("").unwrap();
    assert_eq!(Dataset::open(path).unwrap().len(), 1);
}

#[test]
fn targets_that_are_not_empty_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    write_sample(&path, Start::New, 0..1);
    let open = |path: &Path, start| {
        DatasetWriter::open(path, start, WriterOptions::default()).unwrap_err()
    };
    let error = open(&path, Start::New);
    assert!(
        error.kind() == ErrorKind::Conflict && error.to_string().contains("--append"),
        "{error}"
    );
    std::fs::create_dir(folder.path().join("b")).unwrap();
    std::fs::write(folder.path().join("b/thesis.tex"), "x").unwrap();
    assert!(
        open(&folder.path().join("b"), Start::New)
            .to_string()
            .contains("not empty")
    );
    assert!(
        open(&folder.path().join("b"), Start::Append)
            .to_string()
            .contains("does not contain a dataset")
    );
    assert_eq!(
        open(&folder.path().join("c"), Start::Append).kind(),
        ErrorKind::NotFound
    );
    let writer = DatasetWriter::open(
        &folder.path().join("d"),
        Start::New,
        WriterOptions::default(),
    )
    .unwrap();
    assert!(
        writer
            .commit("")
            .unwrap_err()
            .to_string()
            .contains("no episodes")
    );
}

#[test]
fn empty_streams_odd_shapes_and_labels_survive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, options(Plan::lossless())).unwrap();
    let labels = [
        ("operator".to_owned(), Label::Text("b".to_owned())),
        ("score".to_owned(), Label::Float(0.5)),
    ];
    let info = EpisodeInfo {
        labels: labels.into(),
        success: Some(true),
        ..EpisodeInfo::default()
    };
    let mut episode = writer.episode(info).unwrap();
    episode.stream(&vector_info("nothing", 0, 3)).unwrap();
    let flat = FrameType::values(Dtype::F64, &[0, 5]).unwrap();
    episode
        .stream(&StreamInfo {
            frame: flat,
            ..vector_info("flat", 6, 3)
        })
        .unwrap();
    episode
        .stream(&StreamInfo {
            times: Times::Explicit(Vec::new()),
            ..image_info("camera", 0, 4)
        })
        .unwrap();
    episode.stream(&text_info("words", 0)).unwrap();
    episode.finish().unwrap();
    writer.commit("").unwrap();
    let dataset = Dataset::open(&path).unwrap();
    let row = dataset.table().row(0).unwrap();
    assert_eq!(
        (row.labels["score"].clone(), row.success, row.id.as_str()),
        (Label::Float(0.5), Some(true), "episode_0")
    );
    let episode = dataset.episode(0).unwrap();
    assert_eq!(
        episode.stream("flat").unwrap().read(0..6).unwrap(),
        Vec::<u8>::new()
    );
    assert_eq!(episode.stream("flat").unwrap().len(), 6);
    for name in ["nothing", "camera"] {
        let stream = episode.stream(name).unwrap();
        assert!(stream.is_empty() && stream.read(0..0).unwrap().is_empty());
        assert_eq!(stream.frames_between(0.0..9.0).unwrap(), 0..0);
    }
    assert!(
        episode
            .stream("words")
            .unwrap()
            .read_text(0..0)
            .unwrap()
            .is_empty()
    );
    assert!(
        common::chain(&episode.stream("wrist").unwrap_err())
            .contains("nothing, flat, camera, words")
    );
    assert_eq!(
        verify(&path, Level::Decode, &mut |_, _| {}).unwrap().damage,
        []
    );
}

#[test]
fn a_jpeg_file_is_stored_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a.kino"), folder.path().join("b.kino"));
    common::write_sample_with(&first, Start::New, 0..1, options(Plan::quality(80)));
    let camera = Dataset::open(&first)
        .unwrap()
        .episode(0)
        .unwrap()
        .stream("camera")
        .unwrap();
    let files: Vec<Vec<u8>> = (0..30)
        .map(|idx| camera.read_bitstream(idx).unwrap().unwrap())
        .collect();
    let mut writer = DatasetWriter::open(&second, Start::New, options(Plan::lossless())).unwrap();
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    let info = StreamInfo {
        arrival: Arrival::Jpeg,
        ..image_info("camera", 30, 48)
    };
    episode.stream(&info).unwrap();
    episode
        .push_bytes(&files.iter().map(Vec::as_slice).collect::<Vec<_>>())
        .unwrap();
    episode.finish().unwrap();
    writer.commit("").unwrap();
    let carried = Dataset::open(&second)
        .unwrap()
        .episode(0)
        .unwrap()
        .stream("camera")
        .unwrap();
    assert_eq!(
        (carried.schema().codec.as_str(), carried.schema().kind),
        ("jpeg:carry", Kind::Image)
    );
    assert_eq!(carried.read_bitstream(7).unwrap().unwrap(), files[7]);
    assert!(carried.read(0..30).unwrap() == camera.read(0..30).unwrap());
}

#[test]
fn labels_that_the_table_cannot_hold_are_refused_immediately() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let labelled = |name: &str, label| EpisodeInfo {
        labels: [(name.to_owned(), label)].into(),
        ..EpisodeInfo::default()
    };
    let mut writer = DatasetWriter::open(&path, Start::New, options(Plan::lossless())).unwrap();
    let mut episode = writer.episode(labelled("score", Label::Int(3))).unwrap();
    common::push(&mut episode, &vector_info("x", 2, 1), &[0; 16]);
    episode.finish().unwrap();
    assert!(writer.episode(labelled("shard", Label::Int(3))).is_err());
    assert!(
        writer
            .episode(labelled("score", Label::Text("3".to_owned())))
            .is_err()
    );
    assert!(writer.episode(labelled("score", Label::Float(0.5))).is_ok());
    writer.commit("").unwrap();
    let mut writer = DatasetWriter::open(&path, Start::Append, options(Plan::lossless())).unwrap();
    assert!(
        writer
            .episode(labelled("score", Label::Bool(true)))
            .is_err()
    );
}

#[test]
fn opening_a_dataset_reads_no_shard() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    write_sample(&path, Start::New, 0..2);
    std::fs::remove_dir_all(path.join("shards")).unwrap();
    let dataset = Dataset::open(&path).unwrap();
    assert_eq!((dataset.len(), dataset.table().id(1)), (2, Some("demo_1")));
    assert!(dataset.stats().unwrap().contains_key("force"));
    assert_eq!(dataset.episode(0).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_pack_with_another_plan_is_not_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let options = |plan| WriterOptions {
        plan,
        shard_bytes: 1,
        memory_bytes: 1,
        ..WriterOptions::default()
    };
    let mut writer = DatasetWriter::open(&path, Start::New, options(Plan::lossless())).unwrap();
    common::add_samples(&mut writer, 0..3);
    drop(writer);
    let error = DatasetWriter::open(&path, Start::Resume, options(Plan::quality(90))).unwrap_err();
    assert!(error.to_string().contains("plan"), "{error}");
    assert!(DatasetWriter::open(&path, Start::Resume, options(Plan::lossless())).is_ok());
}

#[test]
fn ids_do_not_skip_the_number_of_an_abandoned_episode() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, options(Plan::lossless())).unwrap();
    for number in 0..4 {
        let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
        common::push(&mut episode, &vector_info("x", 2, 1), &[0; 16]);
        if number != 1 {
            episode.finish().unwrap();
        }
    }
    writer.commit("").unwrap();
    let dataset = Dataset::open(&path).unwrap();
    let ids: Vec<_> = (0..3)
        .map(|row| dataset.table().id(row).unwrap().to_owned())
        .collect();
    assert_eq!(ids, ["episode_0", "episode_1", "episode_2"]);
}
