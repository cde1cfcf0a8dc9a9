//! LeRobot datasets against what lerobot, pyarrow and PyAV read from them, and damaged copies.
//!
//! No test here decodes video: a stand-in returns frames whose every byte is their number.
//! `tests/python/test_import_lerobot.py` compares real pixels.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kino_codec::{Dtype, FrameType};
use kino_dataset::{Dataset, Kind};
use kino_import::{
    Action, FrameBuf, ImportError, ImportOptions, OnDefect, Pixels, Source, Video, VideoError,
    VideoInfo, Videos,
};
use serde_json::Value;

use crate::damage::read_everything_with;
use crate::expected::compare_stream;
use crate::{copy, copy_tree, fixture, ids, pack_as, position, read_all, refused, surveyed};

/// Knows how many frames each fixture's video has, by its length in bytes.
#[derive(Debug)]
struct StandIn(Vec<(u64, u64)>);

struct Numbered(VideoInfo);

impl StandIn {
    fn new() -> Self {
        let mut known = Vec::new();
        let root = fixture("lerobot");
        for (version, source) in expected()["sources"].as_object().unwrap() {
            for episode in source["episodes"].as_array().unwrap() {
                for stream in episode["streams"].as_object().unwrap().values() {
                    if let Some(file) = stream["file"].as_str() {
                        let len = fs::metadata(root.join(version).join(file)).unwrap().len();
                        known.push((len, stream["frames_in_file"].as_u64().unwrap()));
                    }
                }
            }
        }
        Self(known)
    }
}

impl Videos for StandIn {
    fn open(&self, path: &Path) -> Result<Box<dyn Video>, VideoError> {
        let len = fs::metadata(path).unwrap().len();
        let known = self.0.iter().find(|(known, _)| *known == len);
        let Some(&(_, frames)) = known else {
            let what = "cannot be read as a video".to_owned();
            return Err(VideoError::Damaged { what });
        };
        // All but v2.0 run at 30 Hz.
        let path = path.to_string_lossy();
        let is_slow = path.contains("v2.0") || path.contains("slow");
        let rate = if is_slow { 10 } else { 30 };
        let time = |frame| i64::try_from(frame * 1_000_000_000 / rate).unwrap();
        Ok(Box::new(Numbered(VideoInfo {
            height: 48,
            width: 64,
            pixels: Pixels::Rgb8,
            times_ns: (0..frames).map(time).collect(),
        })))
    }
}

impl Video for Numbered {
    fn info(&self) -> &VideoInfo {
        &self.0
    }

    fn read(&mut self, frames: Range<u64>, out: &mut Vec<u8>) -> Result<(), VideoError> {
        for frame in frames {
            out.extend(vec![u8::try_from(frame).unwrap(); 48 * 64 * 3]);
        }
        Ok(())
    }
}

fn expected() -> Value {
    let text = fs::read(fixture("lerobot/expected.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

pub(crate) fn options() -> ImportOptions {
    ImportOptions {
        videos: Some(Arc::new(StandIn::new())),
        ..ImportOptions::default()
    }
}

pub(crate) fn open(path: &Path) -> Source {
    kino_import::open(path, &options()).unwrap()
}

pub(crate) fn edit(path: &Path, change: impl Fn(String) -> String) {
    let text = fs::read_to_string(path).unwrap();
    let changed = change(text.clone());
    assert_ne!(changed, text, "nothing was changed in {}", path.display());
    fs::write(path, changed).unwrap();
}

/// Compares one stream with the result of LeRobot's own reader.
fn compare(source: &Source, episode: usize, name: &str, expected: &Value) {
    let stream = position(source, episode, name);
    let spec = &source.episodes()[episode].streams[stream];
    assert_eq!(spec.frames, expected["frames"], "{name}");
    for step in [1, 4, 1000] {
        match read_all(source, episode, stream, step) {
            FrameBuf::Values(bytes) if expected.get("file").is_some() => {
                let first = expected["first_frame_in_file"].as_u64().unwrap();
                for (frame, pixels) in bytes.chunks(48 * 64 * 3).enumerate() {
                    let number = u8::try_from(first + frame as u64).unwrap();
                    assert!(pixels.iter().all(|&pixel| pixel == number), "{name}");
                }
            }
            found => compare_stream(name, spec, &found, expected),
        }
    }
}

#[test]
fn every_stream_of_every_version_matches_lerobots_own_reader() {
    for (version, expected) in expected()["sources"].as_object().unwrap() {
        let source = open(&fixture("lerobot").join(version));
        let source = &source;
        assert_eq!(source.describe().format, format!("lerobot-{version}"));
        assert_eq!(surveyed(source), [""; 0], "{version}");
        let episodes = expected["episodes"].as_array().unwrap();
        assert_eq!(source.episodes().len(), episodes.len());
        for (idx, expected) in episodes.iter().enumerate() {
            let spec = &source.episodes()[idx];
            assert_eq!(spec.id, format!("episode_{idx:06}"));
            assert_eq!(spec.splits, ["train"]);
            let tasks = expected["tasks"].as_array().unwrap();
            assert_eq!(spec.task.as_deref(), tasks[0].as_str());
            let streams = expected["streams"].as_object().unwrap();
            for (name, stream) in streams {
                compare(source, idx, name, stream);
            }
            // One more if the task changes within the episode.
            let changes = u64::from(idx == 2);
            assert_eq!(spec.streams.len() as u64, streams.len() as u64 + changes);
            if idx == 2 {
                let texts = serde_json::json!({"frames": tasks.len(), "texts": tasks});
                compare(source, idx, "task", &texts);
            }
        }
    }
}

#[test]
fn kinds_clocks_and_attributes_are_kept() {
    let source = open(&fixture("lerobot/v2.0"));
    let info = source.describe();
    assert_eq!(info.attributes["lerobot"]["info"]["robot_type"], "toy");
    assert_eq!(
        info.attributes["lerobot"]["modality"]["state"]["arm"]["end"],
        5
    );
    assert!(info.attributes["lerobot"]["stats"]["action"]["mean"].is_array());
    let source = open(&fixture("lerobot/v3.0"));
    let episode = &source.episodes()[0];
    let kind = |name: &str| episode.streams[position(&source, 0, name)].kind;
    assert_eq!(kind("observation.images.top"), Kind::Image);
    assert_eq!(kind("observation.depth"), Kind::Depth);
    assert_eq!(kind("observation.images.front"), Kind::Image);
    assert_eq!(kind("note"), Kind::Text);
    assert_eq!(kind("observation.pose"), Kind::Vector);
}

#[test]
fn without_a_decoder_the_error_names_the_extra() {
    let (_folder, root) = copy("lerobot/v2.1");
    // AV1 in MP4 needs none, but other files do.
    fs::write(
        root.join(FRONT).join("episode_000000.mp4"),
        b"a file of AVI",
    )
    .unwrap();
    let error = refused(&root, &ImportOptions::default());
    assert!(matches!(error, ImportError::Unsupported { .. }));
    assert!(
        error.to_string().contains("pip install 'kinograph[video]'"),
        "{error}"
    );
}

const FRONT: &str = "videos/chunk-000/observation.images.front";

#[test]
fn missing_short_and_long_videos_are_defects_of_their_episodes() {
    let (_folder, root) = copy("lerobot/v2.1");
    let front = root.join(FRONT);
    let file = |episode| front.join(format!("episode_{episode:06}.mp4"));
    let (nine, five) = (fs::read(file(0)).unwrap(), fs::read(file(1)).unwrap());
    fs::write(file(0), &five).unwrap();
    fs::write(file(1), &nine).unwrap();
    fs::remove_file(file(2)).unwrap();
    let source = open(&root);
    let expected = [
        format!(
            "lost: {FRONT}/episode_000000.mp4: has 5 frames of episode 0, but the episode has 9"
        ),
        format!(
            "lost: {FRONT}/episode_000001.mp4: has 9 frames, but episode 1 has 5; the last 4 are skipped"
        ),
        format!(
            "lost: {FRONT}/episode_000002.mp4: is missing: the episode has no `observation.images.front`"
        ),
    ];
    assert_eq!(surveyed(&source), expected);
    let has_front = |episode: usize| {
        let streams = &source.episodes()[episode].streams;
        streams
            .iter()
            .any(|spec| spec.name == "observation.images.front")
    };
    assert_eq!([0, 1, 2, 3].map(has_front), [false, true, false, true]);
    for (on_defect, episodes) in [(OnDefect::Keep, 4), (OnDefect::DropEpisode, 1)] {
        let target = tempfile::tempdir().unwrap();
        let packed = pack_as(&source, target.path(), on_defect).unwrap();
        assert_eq!(packed.committed.episodes, episodes);
        assert_eq!(Dataset::open(target.path()).unwrap().len() as u64, episodes);
    }
}

/// Has an MP4 file shown at a third of its speed.
fn slow_down(path: &Path) {
    let mut file = fs::read(path).unwrap();
    for name in [b"mvhd", b"mdhd"] {
        let header = file.windows(4).position(|bytes| bytes == name).unwrap();
        // Its name, version and flags, and two times.
        let place = header + 16..header + 20;
        let scale = u32::from_be_bytes(file[place.clone()].try_into().unwrap());
        file[place].copy_from_slice(&(scale / 3).to_be_bytes());
    }
    fs::write(path, file).unwrap();
}

#[test]
fn a_video_with_different_timestamps_is_a_defect() {
    let folder = tempfile::tempdir().unwrap();
    let slow = folder.path().join("slow");
    copy_tree(&fixture("lerobot/v3.0"), &slow);
    let path = slow.join("videos/observation.images.front/chunk-000");
    for name in ["file-000.mp4", "file-001.mp4"] {
        slow_down(&path.join(name));
    }
    let source = open(&slow);
    let found = surveyed(&source);
    let of_front: Vec<_> = found.iter().filter(|what| what.contains("front")).collect();
    let file = "videos/observation.images.front/chunk-000/file-000.mp4";
    assert_eq!(of_front.len(), 4);
    for (found, expected) in of_front.iter().zip([
        format!(
            "kept: {file}: shows frame 1 of the episode at 0.100000 s; at 30 Hz it should be at 0.033333 s"
        ),
        format!("lost: {file}: shows frame 9 at 0.900000 s, but episode 1 begins at 0.300000 s"),
        format!("lost: {file}: shows frame 14 at 1.400000 s, but episode 2 begins at 0.466667 s"),
    ]) {
        assert_eq!(**found, expected);
    }
}

#[test]
fn wrong_counts_timestamps_and_indexes_are_listed_with_their_place() {
    let (_folder, root) = copy("lerobot/v2.1");
    edit(&root.join("meta/episodes.jsonl"), |text| {
        text.replace("\"length\": 9", "\"length\": 10")
    });
    edit(&root.join("meta/info.json"), |text| {
        text.replace("\"total_episodes\": 4", "\"total_episodes\": 6")
    });
    let data = root.join("data/chunk-000/episode_000001.parquet");
    fs::copy(fixture("lerobot/defects.parquet"), data).unwrap();
    fs::remove_file(root.join("data/chunk-001/episode_000003.parquet")).unwrap();
    let source = open(&root);
    assert_eq!(
        surveyed(&source),
        [
            "kept: data/chunk-000/episode_000000.parquet: has 9 frames of episode 0, but meta says 10",
            "kept: data/chunk-000/episode_000001.parquet:timestamp: of frame 4 is 0.090000 s, earlier than the \
             previous frame; at 30 Hz it should be 0.133333 s",
            "lost: data/chunk-001/episode_000003.parquet: is missing: the episode has no data",
            "kept: episode_000001.parquet:episode 1, stream `observation.state`: contains NaN in 1 of 5 frames, first in \
             frame 2",
        ]
    );
    let notes = source.describe().defects.iter();
    let notes = notes.filter(|defect| defect.action == Action::Noted);
    // Nothing is lost when fewer episodes are listed than were recorded.
    let total = "note: meta/info.json:total_episodes: says 6 episodes, but 4 are listed";
    assert_eq!(notes.clone().next().unwrap().to_string(), total);
    // The videos of the episode that has no data.
    assert_eq!(
        notes
            .filter(|defect| defect.place.starts_with("videos/chunk-001"))
            .count(),
        3
    );
}

#[test]
fn a_truncated_info_is_a_defect_and_its_complete_members_are_used() {
    let (_folder, root) = copy("lerobot/v2.1");
    let info = root.join("meta/info.json");
    edit(&info, |text| {
        text[..text.find("\"index\"").unwrap() + 30].to_owned()
    });
    let source = open(&root);
    let found = surveyed(&source);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("kept: meta/info.json: is not valid JSON (EOF"),
        "{found:?}"
    );
    let streams = source.episodes()[0].streams.len();
    // Only the version's folder and a passed rate.
    fs::write(&info, "{").unwrap();
    let error = refused(&root, &options());
    assert!(error.to_string().contains("pass --rate HZ"), "{error}");
    let options = ImportOptions {
        rate_hz: Some(30.0),
        ..options()
    };
    let source = kino_import::open(&root, &options).unwrap();
    assert_eq!(source.describe().format, "lerobot-v2.1");
    assert_eq!(source.episodes()[0].streams.len(), streams);
    let pose = position(&source, 0, "observation.pose");
    let pose = &source.episodes()[0].streams[pose].frame;
    assert_eq!(pose, &FrameType::values(Dtype::F64, &[2, 3]).unwrap());
}

#[test]
fn no_template_and_no_camera_leads_out_of_the_folder() {
    for (name, path) in [
        ("data_path", "../../etc/passwd"),
        ("data_path", "/etc/passwd"),
        ("video_path", "../secret/{video_key}.mp4"),
    ] {
        let (_folder, root) = copy("lerobot/v2.1");
        edit(&root.join("meta/info.json"), |text| {
            let mut info: Value = serde_json::from_str(&text).unwrap();
            info[name] = Value::from(path);
            info.to_string()
        });
        let error = refused(&root, &options()).to_string();
        assert!(
            error.contains("leads out of the source's folder"),
            "{error}"
        );
    }
}

/// Damages one file at many places; reading it must never panic.
fn damage(version: &str, name: &str, step: usize) {
    let (_folder, root) = copy(&format!("lerobot/{version}"));
    let path = root.join(name);
    let (whole, options) = (fs::read(&path).unwrap(), options());
    assert!(read_everything_with(&root, &options).is_ok());
    for place in (0..whole.len()).step_by(step) {
        let mut bytes = whole.clone();
        bytes[place] ^= 1 << (place % 8);
        fs::write(&path, &bytes).unwrap();
        let _ = read_everything_with(&root, &options);
        fs::write(&path, &whole[..place]).unwrap();
        let _ = read_everything_with(&root, &options);
    }
    // The footer is at the end, and its values are trusted first.
    for back in 1..whole.len().min(200) {
        let mut bytes = whole.clone();
        let place = bytes.len() - back;
        bytes[place] = bytes[place].wrapping_add(0x7f);
        fs::write(&path, &bytes).unwrap();
        let _ = read_everything_with(&root, &options);
    }
}

#[test]
fn damaged_data_never_panics() {
    damage("v2.0", "data/chunk-000/episode_000000.parquet", 41);
    damage("v3.0", "data/chunk-000/file-001.parquet", 301);
}

#[test]
fn damaged_metadata_never_panics() {
    damage("v2.1", "meta/info.json", 101);
    damage("v2.0", "meta/episodes.jsonl", 7);
    damage("v3.0", "meta/tasks.parquet", 37);
    damage("v3.0", "meta/episodes/chunk-000/file-000.parquet", 3001);
}

#[test]
fn a_truncated_table_loses_its_episodes_and_no_others() {
    let (_folder, root) = copy("lerobot/v3.0");
    let path = root.join("data/chunk-000/file-000.parquet");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let source = open(&root);
    let ids = ids(&source);
    assert_eq!(ids, ["episode_000002", "episode_000003"]);
    let lost = surveyed(&source);
    assert_eq!(lost.len(), 2, "{lost:?}");
    assert!(lost[0].starts_with("lost: data/chunk-000/file-000.parquet: `footer` cannot be read"));
}
