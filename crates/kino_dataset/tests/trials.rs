//! Streams whose codec the plan leaves open are tried on their first frames: the choice is that of encoding these by
//! hand, the same for any number of threads and pushes, and stays for later episodes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use common::random_bytes;
use kino_codec::{Dtype, Encoded, FrameType, Frames, Scratch};
use kino_dataset::{
    Arrival, Committed, Dataset, DatasetWriter, EpisodeInfo, Kind, Plan, SharedFrames, Start,
    StreamInfo, StreamUsage, WriterOptions,
};

/// Frames of the small images below.
const FRAMES: usize = 80;

/// The frames that decide.
const FIRST: usize = 64;

/// Grey images so small that the lengths of a group's images matter: `camera` is larger if it cannot predict.
fn info(name: &str, frames: usize) -> StreamInfo {
    StreamInfo {
        frame: FrameType::values(Dtype::U8, &[4, 4, 1]).unwrap(),
        ..common::image_info(name, frames as u64, 4)
    }
}

fn still() -> Vec<u8> {
    random_bytes(16, 3).repeat(FRAMES)
}

fn noise() -> Vec<u8> {
    random_bytes(16 * FRAMES, 5)
}

fn options(threads: usize) -> WriterOptions {
    WriterOptions {
        shard_bytes: 1,
        threads,
        ..WriterOptions::default()
    }
}

/// Writes an episode of one camera, `per_push` frames at a time.
fn add(writer: &mut DatasetWriter, id: &str, images: &[u8], per_push: usize) {
    let mut episode = writer
        .episode(EpisodeInfo {
            id: id.to_owned(),
            ..EpisodeInfo::default()
        })
        .unwrap();
    episode.stream(&info("camera", images.len() / 16)).unwrap();
    for frames in images.chunks(per_push * 16) {
        episode.push(frames).unwrap();
    }
    episode.finish().unwrap();
}

fn write(path: &Path, episodes: &[(&str, Vec<u8>)], options: WriterOptions) -> Committed {
    let mut writer = DatasetWriter::open(path, Start::New, options).unwrap();
    for (id, images) in episodes {
        add(&mut writer, id, images, 7);
    }
    writer.commit("").unwrap()
}

/// What the first frames take, encoded by hand.
fn size_by_hand(codec: &str, frame: &FrameType, images: &[u8], page_frames: usize) -> u64 {
    let frames = Frames::values(frame, images).unwrap();
    let (mut encoded, mut scratch) = (Encoded::default(), Scratch::new());
    let page = NonZeroUsize::new(page_frames).unwrap();
    let codec = kino_codec::codec(codec).unwrap();
    codec
        .encode(&frames, page, &mut encoded, &mut scratch)
        .unwrap();
    encoded
        .pages
        .iter()
        .map(|page| page.bytes.len() as u64)
        .sum()
}

fn codec_of(committed: &Committed) -> &str {
    committed.streams[0].schema.codec.split(':').next().unwrap()
}

/// Every codec of a stream in the dataset.
fn codecs(path: &Path, stream: &str) -> Vec<String> {
    let dataset = Dataset::open(path).unwrap();
    let streams = &dataset.manifest().streams;
    let found = streams.iter().find(|one| one.name == stream).unwrap();
    found.codecs.clone()
}

fn shards(path: &Path) -> Vec<String> {
    let files = fs::read_dir(path.join("shards")).unwrap();
    let mut names: Vec<_> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_choice_is_that_of_encoding_the_first_frames_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let mut late = still();
    late[FIRST * 16..].copy_from_slice(&noise()[FIRST * 16..]);
    let mut few = still();
    few.truncate(3 * 16);
    for (name, images, expected) in [
        ("still", still(), "camera"),
        ("noise", noise(), "predict"),
        ("late noise", late, "camera"),
        ("few frames", few, "camera"),
    ] {
        let committed = write(
            &folder.path().join(name),
            &[("a", images.clone())],
            options(2),
        );
        let StreamUsage { schema, trial, .. } = &committed.streams[0];
        let trial = trial.as_ref().unwrap();
        let first = &images[..images.len().min(FIRST * 16)];
        let frame = &info("camera", 1).frame;
        let sizes = [
            ("predict", size_by_hand("predict", frame, first, 1)),
            ("camera", size_by_hand("camera", frame, first, 4)),
        ];
        let mut tried: Vec<_> = trial.others.iter().chain([&trial.chosen]).collect();
        tried.sort_by(|a, b| b.codec.cmp(&a.codec));
        for (found, (codec, bytes)) in tried.into_iter().zip(sizes) {
            assert!(found.codec.starts_with(codec), "{name}: {found:?}");
            assert_eq!(found.bytes, bytes, "{name}: {codec}");
        }
        assert_eq!(trial.frames, (first.len() / 16) as u64, "{name}");
        assert_eq!(trial.chosen.codec, schema.codec, "{name}");
        assert_eq!(codec_of(&committed), expected, "{name}");
        let dataset = Dataset::open(&folder.path().join(name)).unwrap();
        let stream = dataset.episode(0).unwrap().stream("camera").unwrap();
        assert_eq!(stream.read(0..stream.len()).unwrap(), images, "{name}");
    }
}

#[test]
fn of_about_equal_sizes_the_codec_that_decodes_faster_is_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, options(1)).unwrap();
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    let info = common::image_info("camera", 12, 32);
    let images = random_bytes(12 * 32 * 32 * 3, 1);
    common::push(&mut episode, &info, &images);
    episode.finish().unwrap();
    let committed = writer.commit("").unwrap();
    let predict = size_by_hand("predict", &info.frame, &images, 1);
    let camera = size_by_hand("camera", &info.frame, &images, 4);
    assert!(predict < camera && camera * 100 <= predict * 102);
    assert_eq!(codec_of(&committed), "camera");
}

#[test]
fn the_choice_depends_on_neither_threads_nor_the_size_of_pushes() {
    let folder = tempfile::tempdir().unwrap();
    let mut found = Vec::new();
    for (threads, per_push) in [(1, 1), (2, 5), (4, FIRST), (3, FRAMES)] {
        let path = folder.path().join(format!("{threads}.kino"));
        let mut writer = DatasetWriter::open(&path, Start::New, options(threads)).unwrap();
        add(&mut writer, "a", &still(), per_push);
        add(&mut writer, "b", &noise(), per_push);
        writer.commit("").unwrap();
        found.push(shards(&path));
    }
    assert_eq!(found[0].len(), 2);
    found.dedup();
    assert_eq!(found.len(), 1, "the names of shards are their hashes");
}

#[test]
fn later_episodes_keep_the_codec_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let episodes = [("a", still()), ("b", noise())];
    let whole = write(&path, &episodes, options(1));
    assert_eq!((whole.streams.len(), codec_of(&whole)), (1, "camera"));
    // The same if the writer dies after the first episode and another one resumes its work.
    let resumed_path = folder.path().join("resumed.kino");
    let mut writer = DatasetWriter::open(&resumed_path, Start::New, options(1)).unwrap();
    add(&mut writer, "a", &still(), 7);
    while writer.write_next().unwrap() {}
    drop(writer);
    let mut writer = DatasetWriter::open(&resumed_path, Start::Resume, options(1)).unwrap();
    assert!(writer.resumed().contains("a"));
    add(&mut writer, "b", &noise(), 7);
    let resumed = writer.commit("").unwrap();
    assert_eq!(shards(&resumed_path), shards(&path));
    assert_eq!(resumed.streams[0].trial, whole.streams[0].trial);
    // And if the second is added to the dataset of the first.
    let mut writer = DatasetWriter::open(&path, Start::Append, options(1)).unwrap();
    add(&mut writer, "c", &noise(), 7);
    let added = writer.commit("").unwrap();
    assert_eq!(
        (codec_of(&added), &added.streams[0].trial),
        ("camera", &None)
    );
    assert_eq!(codecs(&path, "camera").len(), 1);
}

#[test]
fn an_abandoned_or_empty_episode_chooses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, options(1)).unwrap();
    add(&mut writer, "empty", &[], 1);
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    common::push(&mut episode, &info("camera", FRAMES), &noise());
    drop(episode);
    add(&mut writer, "a", &still(), 9);
    let committed = writer.commit("").unwrap();
    let used: Vec<_> = committed
        .streams
        .iter()
        .filter(|one| one.frames > 0)
        .collect();
    assert_eq!(used.len(), 1);
    assert!(used[0].schema.codec.starts_with("camera"));
}

#[test]
fn a_stream_that_shares_its_frames_has_the_codec_of_those() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, options(1)).unwrap();
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    common::push(&mut episode, &info("obs", FRAMES), &noise());
    let next = StreamInfo {
        shared: Some(SharedFrames {
            base: "obs".to_owned(),
            first: 1,
            count: FRAMES as u64 - 1,
        }),
        ..info("next_obs", FRAMES)
    };
    episode.stream(&next).unwrap();
    episode.push(&[7; 16]).unwrap();
    episode.finish().unwrap();
    let committed = writer.commit("").unwrap();
    let [obs, next] = &committed.streams[..] else {
        panic!("{committed:?}");
    };
    assert_eq!(obs.schema.codec, next.schema.codec);
    assert!(obs.trial.is_some() && next.trial.is_none());
}

#[test]
fn only_images_whose_codec_a_plan_leaves_open_are_tried() {
    let image = info("camera", 1).frame;
    let depth = FrameType::values(Dtype::U16, &[48, 64]).unwrap();
    let metres = FrameType::values(Dtype::F32, &[48, 64]).unwrap();
    let joints = FrameType::values(Dtype::F32, &[7]).unwrap();
    for (text, kind, frame, codec, is_open) in [
        ("", Kind::Image, &image, "predict", true),
        (
            "[[stream]]\nbound = \"lossless\"",
            Kind::Image,
            &image,
            "predict",
            true,
        ),
        (
            "[[stream]]\ncodec = \"predict\"",
            Kind::Image,
            &image,
            "predict",
            false,
        ),
        (
            "[[stream]]\ncodec = \"camera\"",
            Kind::Image,
            &image,
            "camera",
            false,
        ),
        ("", Kind::Depth, &depth, "depth", false),
        ("", Kind::Depth, &metres, "depth", false),
        ("", Kind::Vector, &joints, "vector", false),
        ("", Kind::Image, &metres, "zstd", false),
    ] {
        let plan = Plan::from_toml(text).unwrap();
        let choice = plan.choose("s", kind, frame, Arrival::Values).unwrap();
        let found = (
            choice.codec.spec().name(),
            choice.trial_frames(frame).is_some(),
        );
        assert_eq!(found, (codec, is_open), "{text} {frame}");
    }
    let carried = Plan::lossless().choose("s", Kind::Image, &image, Arrival::Jpeg);
    assert_eq!(carried.unwrap().trial_frames(&image), None);
    // Large images are tried on fewer frames, at least one page.
    for (side, frames) in [(96, 64), (480, 24), (1600, 4)] {
        let frame = FrameType::values(Dtype::U8, &[side, side, 3]).unwrap();
        let choice = Plan::lossless().choose("s", Kind::Image, &frame, Arrival::Values);
        assert_eq!(choice.unwrap().trial_frames(&frame), Some(frames), "{side}");
    }
}

#[test]
fn a_page_length_that_only_one_codec_can_store_chooses_that() {
    let folder = tempfile::tempdir().unwrap();
    let plan = Plan::from_toml("[[stream]]\nkind = \"image\"\npage_frames = 8").unwrap();
    let written = write(
        &folder.path().join("a.kino"),
        &[("a", noise())],
        WriterOptions { plan, ..options(1) },
    );
    assert_eq!(codec_of(&written), "camera");
}

/// An episode of one camera of 32×32 RGB images.
fn write_rgb(path: &Path, start: Start, plan: &str, images: &[u8]) -> Committed {
    let plan = Plan::from_toml(plan).unwrap();
    let mut writer =
        DatasetWriter::open(path, start, WriterOptions { plan, ..options(1) }).unwrap();
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    let frames = images.len() / (32 * 32 * 3);
    common::push(
        &mut episode,
        &common::image_info("camera", frames as u64, 32),
        images,
    );
    episode.finish().unwrap();
    writer.commit("").unwrap()
}

#[test]
fn a_lossy_codec_is_used_only_if_it_is_smaller_than_lossless() {
    let folder = tempfile::tempdir().unwrap();
    let rgb = common::image_info("camera", 1, 32).frame;
    let flat: Vec<u8> = (0..6)
        .flat_map(|shade| vec![shade * 40; 32 * 32 * 3])
        .collect();
    let noise = random_bytes(6 * 32 * 32 * 3, 2);
    let quality = "quality = 60";
    let bound = "[[stream]]\nkind = \"image\"\nbound = \"psnr(30)\"";
    let named = "[[stream]]\nkind = \"image\"\ncodec = \"jpeg:q=60\"";
    for (nr, (plan, images, expected)) in [
        (quality, &flat, "predict"),
        (quality, &noise, "jpeg"),
        (bound, &flat, "predict"),
        (named, &flat, "jpeg"),
        (named, &noise, "jpeg"),
    ]
    .into_iter()
    .enumerate()
    {
        let written = write_rgb(
            &folder.path().join(nr.to_string()),
            Start::New,
            plan,
            images,
        );
        assert_eq!(codec_of(&written), expected, "{nr}");
        let trial = written.streams[0].trial.as_ref().unwrap();
        let exact = ["predict", "camera"].map(|codec| {
            let page = if codec == "camera" { 4 } else { 1 };
            size_by_hand(codec, &rgb, images, page)
        });
        let jpeg = trial.others.iter().chain([&trial.chosen]);
        let jpeg = jpeg
            .into_iter()
            .find(|one| one.codec.starts_with("jpeg"))
            .unwrap();
        assert_eq!(
            jpeg.bytes,
            size_by_hand(&jpeg.codec, &rgb, images, 1),
            "{nr}"
        );
        let is_needless = exact[0].min(exact[1]) <= jpeg.bytes;
        assert_eq!(trial.needless_loss().is_some(), is_needless, "{nr}");
        assert_eq!(is_needless, *images == flat, "{nr}");
        if let Some((lossless, lossy)) = trial.needless_loss() {
            assert_eq!(
                (lossless.bytes, lossy),
                (exact[0].min(exact[1]), jpeg),
                "{nr}"
            );
        }
    }
}

#[test]
fn a_quality_is_tried_again_when_episodes_are_added_to_a_lossless_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let noise = random_bytes(6 * 32 * 32 * 3, 2);
    let first = write_rgb(&path, Start::New, "", &noise);
    assert_eq!(codec_of(&first), "camera");
    let second = write_rgb(&path, Start::Append, "quality = 60", &noise);
    assert_eq!(codec_of(&second), "jpeg");
    // Both codecs are there now, and the plan leaves it open: it is tried again.
    let third = write_rgb(&path, Start::Append, "", &noise);
    assert_eq!(codec_of(&third), "camera");
    assert!(third.streams[0].trial.is_some());
}

#[test]
fn frames_around_events_need_no_protection_in_a_stream_that_became_lossless() {
    let folder = tempfile::tempdir().unwrap();
    let flat = vec![7; 6 * 32 * 32 * 3];
    let plan = "[[stream]]\nkind = \"image\"\nbound = \"psnr(40)\"\nprotect = [\"given\"]";
    let written = write_rgb(&folder.path().join("a.kino"), Start::New, plan, &flat);
    assert_eq!(codec_of(&written), "camera");
    assert_eq!(written.streams[0].protected_frames, 0);
}
