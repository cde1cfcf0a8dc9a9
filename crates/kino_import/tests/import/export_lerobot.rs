//! Exports to LeRobot: import, export, import again. LeRobot's own reader judges the files in
//! `fixtures/lerobot/check_export.py`.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Dataset, DatasetWriter, EpisodeInfo, Episodes, Kind, Start, Times, WriterOptions,
};
use kino_import::{
    Cameras, ExportOptions, FrameBuf, ImportError, ImportOptions, NewVideo, OnDefect, Pixels,
    Source, Video, VideoError, VideoInfo, VideoShape, Videos,
};
use serde_json::{Value, json};

use crate::export::{export, lift, options, pack, packed, rate, same, stream, values};
use crate::{copy, faults, lerobot, open, position, read_all};

const VERSIONS: [&str; 2] = ["lerobot-v2.1", "lerobot-v3"];

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn json_lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn recordings_of_every_version_survive_a_round_trip() {
    for version in ["v2.0", "v2.1", "v3.0"] {
        let folder = tempfile::tempdir().unwrap();
        let before = lerobot::open(&crate::fixture("lerobot").join(version));
        let dataset = pack(&before, &folder.path().join("a.kino"));
        for to in VERSIONS {
            let target = folder.path().join(to);
            let options = ExportOptions {
                cameras: Cameras::Stored,
                ..options(to, OnDefect::Error)
            };
            let exported = export(&dataset, &target, &options).unwrap();
            assert_eq!(faults(&exported.defects), [""; 0], "{version} {to}");
            assert_eq!(exported.episodes, 4);
            // Video files with the same packets.
            let after = open(&target);
            assert!(after.describe().format.starts_with(to));
            assert_eq!(faults(&after.describe().defects), [""; 0], "{version} {to}");
            same(&before, &after);
            let said = |source: &Source, file: &str, key: &str| {
                source.describe().attributes["lerobot"][file][key].clone()
            };
            for key in ["robot_type", "fps", "splits", "total_frames", "total_tasks"] {
                let (a, b) = (said(&before, "info", key), said(&after, "info", key));
                assert_eq!(a, b, "{version} {to} {key}");
            }
            let names = said(&after, "info", "features")["action"]["names"].clone();
            assert_eq!(names["motors"][5], "j5", "{version} {to}");
            if version == "v2.0" {
                assert_eq!(said(&after, "modality", "state")["arm"]["end"], 5);
            }
        }
    }
}

/// A copy of a fixture without its videos.
fn without_videos(version: &str) -> (tempfile::TempDir, PathBuf) {
    let (folder, root) = copy(&format!("lerobot/{version}"));
    fs::remove_dir_all(root.join("videos")).unwrap();
    lerobot::edit(&root.join("meta/info.json"), |text| {
        let mut info: Value = serde_json::from_str(&text).unwrap();
        let features = info["features"].as_object_mut().unwrap();
        features.retain(|_, feature| feature["dtype"] != "video");
        info["video_path"] = Value::Null;
        if info.get("total_videos").is_some() {
            info["total_videos"] = json!(0);
        }
        info.to_string()
    });
    (folder, root)
}

#[test]
fn attributes_of_an_image_recording_are_kept() {
    for (version, to) in [("v2.1", "lerobot-v2.1"), ("v3.0", "lerobot-v3")] {
        let (folder, root) = without_videos(version);
        let before = open(&root);
        let dataset = pack(&before, &folder.path().join("a.kino"));
        let target = folder.path().join("out");
        export(&dataset, &target, &options(to, OnDefect::Error)).unwrap();
        let info = |root: &Path| json_of(&root.join("meta/info.json"));
        assert_eq!(info(&root), info(&target));
        same(&before, &open(&target));
    }
}

/// Numbers of LeRobot's statistics and of ours, in order.
fn flat(value: &Value, out: &mut Vec<f64>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| flat(value, out)),
        Value::Bool(value) => out.push(f64::from(u8::from(*value))),
        value => out.push(value.as_f64().unwrap()),
    }
}

/// Compares the statistics of a column; `kinds` with the tolerance, as a fraction of the range.
#[track_caller]
fn near(name: &str, theirs: &Value, ours: &Value, kinds: &[(&str, f64)]) {
    let all = |of: &Value, kind: &str| {
        let mut out = Vec::new();
        flat(&of[kind], &mut out);
        out
    };
    let (least, most) = (all(theirs, "min"), all(theirs, "max"));
    for (kind, share) in kinds {
        let (a, b) = (all(theirs, kind), all(ours, kind));
        assert_eq!(a.len(), b.len(), "{name} {kind}");
        for (idx, (a, b)) in a.iter().zip(&b).enumerate() {
            let range = most.get(idx).map_or(1.0, |most| most - least[idx]);
            assert!(
                (a - b).abs() <= share * range + 1e-6,
                "{name} {kind}: {a} {b}"
            );
        }
    }
}

#[test]
fn statistics_match_lerobot() {
    let exact = [
        ("min", 0.0),
        ("max", 0.0),
        ("mean", 1e-6),
        ("std", 1e-6),
        ("count", 0.0),
    ];
    let (folder, root) = without_videos("v2.1");
    let dataset = pack(&open(&root), &folder.path().join("a.kino"));
    let target = folder.path().join("out");
    export(&dataset, &target, &options("lerobot-v2.1", OnDefect::Error)).unwrap();
    let lines = |root: &Path| json_lines(&root.join("meta/episodes_stats.jsonl"));
    let mut compared = 0;
    for (theirs, ours) in lines(&root).iter().zip(lines(&target)) {
        for (name, ours) in ours["stats"].as_object().unwrap() {
            near(name, &theirs["stats"][name], ours, &exact);
            compared += 1;
        }
    }
    // All but depth, whose statistics are those of an 8-bit image in LeRobot.
    assert_eq!(compared, 4 * 12);

    let (folder, root) = without_videos("v3.0");
    let dataset = pack(&open(&root), &folder.path().join("a.kino"));
    let target = folder.path().join("out");
    export(&dataset, &target, &options("lerobot-v3", OnDefect::Error)).unwrap();
    let (theirs, ours) = (
        json_of(&root.join("meta/stats.json")),
        json_of(&target.join("meta/stats.json")),
    );
    // LeRobot uses a histogram of 5000 bins, and returns a bin edge.
    let part = 2.0 / 5000.0;
    let quantiles = ["q01", "q10", "q50", "q90", "q99"].map(|name| (name, part));
    for (name, ours) in ours.as_object().unwrap() {
        // LeRobot treats the rows of an array as frames, and squares 8-bit pixels modulo 256.
        let kinds: Vec<_> = match name.as_str() {
            "observation.pose" => continue,
            "observation.images.top" => [&exact[..3], &exact[4..], &quantiles[..]].concat(),
            _ => [&exact[..], &quantiles[..]].concat(),
        };
        near(name, &theirs[name], ours, &kinds);
    }
}

#[test]
fn a_robomimic_recording_becomes_lerobot() {
    let (folder, before, dataset) = packed(&lift());
    for to in VERSIONS {
        let target = folder.path().join(to);
        let exported = export(&dataset, &target, &options(to, OnDefect::Keep)).unwrap();
        let notes: Vec<_> = exported.defects.iter().map(ToString::to_string).collect();
        let renamed = "note: stream `obs/agentview_image`: is written as `observation.images.agentview_image` (3 times)";
        assert!(notes.iter().any(|note| note == renamed), "{notes:#?}");
        let after = &open(&target);
        assert_eq!(faults(&after.describe().defects), [""; 0]);
        for (idx, episode) in before.episodes().iter().enumerate() {
            let again = &after.episodes()[idx];
            assert_eq!(again.attributes["id"], json!(episode.id));
            assert_eq!(
                (&again.task, again.success),
                (&episode.task, episode.success)
            );
            for (stream, spec) in episode.streams.iter().enumerate() {
                let name = match spec.name.as_str() {
                    "actions" => "action".to_owned(),
                    name if spec.kind == Kind::Image && name.starts_with("obs/") => {
                        name.replace("obs/", "observation.images.")
                    }
                    name if name.starts_with("obs/") => name.replace("obs/", "observation."),
                    name => name.replace('/', "."),
                };
                let found = position(after, idx, &name);
                let again = &again.streams[found];
                assert_eq!(
                    (&again.clock, again.frames),
                    (&spec.clock, spec.frames),
                    "{name}"
                );
                assert!(
                    read_all(&before, idx, stream, 7) == read_all(after, idx, found, 11),
                    "{name}"
                );
            }
        }
    }
}

/// A dataset of two episodes with a stream of every type.
fn every_type(path: &Path) -> Dataset {
    let mut writer = DatasetWriter::open(path, Start::New, WriterOptions::default()).unwrap();
    for (id, frames) in [("b", 5), ("a", 1)] {
        let info = EpisodeInfo {
            id: id.to_owned(),
            success: (id == "a").then_some(true),
            licence: (id == "b").then(|| "CC0".to_owned()),
            splits: vec!["all".to_owned(), id.to_owned()],
            attributes: json!({"pose": [1, 2.5], "length": 3, "x": if id == "a" { json!(1) } else { json!(2.5) }})
                .as_object()
                .cloned()
                .unwrap(),
            ..EpisodeInfo::default()
        };
        let mut episode = writer.episode(info).unwrap();
        let mut add = |name: &str, kind: Kind, frame: FrameType| {
            let info = stream(name, kind, frame.clone(), frames, rate(12.5));
            episode.stream(&info).unwrap();
            for number in 0..frames {
                match frame.as_values() {
                    Some(ty) => {
                        let bytes = 0..ty.frame_bytes();
                        let seed = usize::try_from(number).unwrap() * 31 + name.len();
                        let bytes = bytes.map(|at| ((at * 7 + seed) % 251).to_le_bytes()[0]);
                        let bytes: Vec<u8> = match ty.dtype() {
                            Dtype::Bool => bytes.map(|byte| byte % 2).collect(),
                            _ => bytes.collect(),
                        };
                        episode.push(&bytes).unwrap();
                    }
                    None => {
                        let text = format!("{name} ü {number}");
                        episode.push_bytes(&[text.as_bytes()]).unwrap();
                    }
                }
            }
        };
        add("action", Kind::Vector, values(Dtype::F32, &[2]));
        for dtype in Dtype::ALL {
            for shape in [&[][..], &[3], &[2, 3], &[2, 1, 2], &[1, 2, 1, 2, 2]] {
                let name = format!("{}/{}", dtype.name(), shape.len());
                add(&name, Kind::Vector, values(dtype, shape));
            }
        }
        for channels in [1, 3, 4] {
            let name = format!("obs/image{channels}");
            add(&name, Kind::Image, values(Dtype::U8, &[4, 5, channels]));
        }
        add("obs/depth", Kind::Depth, values(Dtype::U16, &[4, 5]));
        add("obs/metres", Kind::Depth, values(Dtype::F32, &[4, 5, 1]));
        add("note", Kind::Text, FrameType::Text);
        add("index", Kind::Vector, values(Dtype::F32, &[]));
        if id == "a" {
            add("only", Kind::Vector, values(Dtype::F32, &[]));
        }
        episode.finish().unwrap();
    }
    writer.commit("test").unwrap();
    Dataset::open(path).unwrap()
}

#[test]
fn every_dtype_and_every_kind_of_image_is_lossless() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = every_type(&folder.path().join("a.kino"));
    for to in VERSIONS {
        let target = folder.path().join(to);
        let refused = export(&dataset, &target, &options(to, OnDefect::Error)).unwrap_err();
        assert!(matches!(refused, ImportError::NoPlace { .. }), "{refused}");
        assert!(!target.exists());
        let exported = export(&dataset, &target, &options(to, OnDefect::Keep)).unwrap();
        let expected = [
            "lost: attribute `length` of an episode: has a name that LeRobot fills itself (2 times)",
            "lost: stream `index`: has the name of a column that LeRobot fills itself (2 times)",
            "lost: stream `only`: is not in every episode with the same type",
        ];
        assert_eq!(faults(&exported.defects), expected);
        let after = &open(&target);
        assert_eq!(faults(&after.describe().defects), [""; 0]);
        for (idx, spec) in after.episodes().iter().enumerate() {
            let id = spec.attributes["id"].as_str().unwrap();
            let episode = dataset.find(id).unwrap();
            let is_there = |split: &str| spec.splits.iter().any(|one| one == split);
            assert!(spec.splits.len() == 2 && is_there("all") && is_there(id));
            assert_eq!(spec.task, None);
            assert_eq!(spec.success, (id == "a").then_some(true));
            assert_eq!(spec.licence.as_deref(), (id == "b").then_some("CC0"));
            assert_eq!(
                spec.attributes["x"].as_f64(),
                Some(if id == "a" { 1.0 } else { 2.5 })
            );
            // All but `index` and `only`, and the five of LeRobot's own.
            assert_eq!(spec.streams.len(), 1 + 60 + 3 + 2 + 1 + 5, "{to}");
            for schema in episode.streams() {
                if ["index", "only"].contains(&schema.name.as_str()) {
                    continue;
                }
                let name = match (schema.kind, schema.name.strip_prefix("obs/")) {
                    (Kind::Image, Some(rest)) => format!("observation.images.{rest}"),
                    (_, Some(rest)) => format!("observation.{rest}"),
                    _ => schema.name.replace('/', "."),
                };
                let found = position(after, idx, &name);
                let stream = episode.stream(&schema.name).unwrap();
                assert_eq!(
                    spec.streams[found].frame,
                    *stream.frame_type(),
                    "{to} {name}"
                );
                let frames = read_all(after, idx, found, 2);
                match stream.frame_type() {
                    FrameType::Text => {
                        let texts = stream.read_text(0..stream.len()).unwrap();
                        let texts = texts.into_iter().map(String::into_bytes).collect();
                        assert!(frames == FrameBuf::Bytes(texts), "{name}");
                    }
                    FrameType::Values(_) => {
                        let values = stream.read(0..stream.len()).unwrap();
                        assert!(frames == FrameBuf::Values(values), "{to} {name}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_selection_is_renumbered() {
    let folder = tempfile::tempdir().unwrap();
    let before = lerobot::open(&crate::fixture("lerobot/v3.0"));
    let dataset = pack(&before, &folder.path().join("a.kino"));
    for to in VERSIONS {
        let mut options = options(to, OnDefect::Error);
        let ids = ["episode_000001", "episode_000003"].map(str::to_owned);
        options.selection.episodes = Some(Episodes::Ids(ids.to_vec()));
        let target = folder.path().join(to);
        export(&dataset, &target, &options).unwrap();
        let after = &open(&target);
        assert_eq!(faults(&after.describe().defects), [""; 0]);
        let tasks: Vec<_> = after
            .episodes()
            .iter()
            .map(|spec| spec.task.as_deref())
            .collect();
        assert_eq!(tasks, [Some("öffne die Schublade"), Some("stack")]);
        assert_eq!(after.episodes()[1].id, "episode_000001");
        assert_eq!(after.episodes()[1].attributes["id"], "episode_000003");
        let FrameBuf::Values(index) = read_all(after, 1, position(after, 1, "index"), 9) else {
            panic!("index is a number")
        };
        assert_eq!(
            index[..8],
            5_i64.to_le_bytes(),
            "the first episode has five frames"
        );
        let info = &after.describe().attributes["lerobot"]["info"];
        assert_eq!(info["total_tasks"], 2);
        assert_eq!(info["splits"], json!({"train": "0:2"}));
    }
}

#[test]
fn splits_that_are_not_ranges_and_episodes_without_actions_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, WriterOptions::default()).unwrap();
    for (id, split) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let info = EpisodeInfo {
            id: id.to_owned(),
            splits: vec![split.to_owned()],
            ..EpisodeInfo::default()
        };
        let mut episode = writer.episode(info).unwrap();
        let name = if id == "b" { "effort" } else { "actions" };
        let times = Times::Explicit(vec![0, 100_000_000]);
        let info = stream(name, Kind::Vector, values(Dtype::F32, &[2]), 2, times);
        episode.stream(&info).unwrap();
        episode.push(&[1; 8]).unwrap();
        episode.push(&[2; 8]).unwrap();
        episode.finish().unwrap();
    }
    writer.commit("test").unwrap();
    let dataset = Dataset::open(&path).unwrap();
    let target = folder.path().join("out");
    let mut options = options("lerobot-v3", OnDefect::Keep);
    let refused = export(&dataset, &target, &options).unwrap_err();
    let what = "episode `b` has no stream for `action`, which the format requires; it has effort";
    assert_eq!(refused.to_string(), what);
    options.selection.episodes = Some(Episodes::Ids(vec!["a".to_owned(), "c".to_owned()]));
    let exported = export(&dataset, &target, &options).unwrap();
    let notes: Vec<_> = exported.defects.iter().map(ToString::to_string).collect();
    let rate = "note: the rate: is written as 10 Hz, the mean rate of the first episode";
    assert!(notes.iter().any(|note| note == rate), "{notes:#?}");
    let lost =
        "lost: stream `actions`: has its own timestamps, which the format cannot store (2 times)";
    assert_eq!(faults(&exported.defects), [lost]);
    assert_eq!(open(&target).episodes()[0].splits, ["x"]);
}

/// Uncompressed videos: height, width, rate, then the pixels. `lost` frames are missing at the end.
#[derive(Debug)]
struct Raw {
    lost: usize,
}

struct RawOut {
    path: PathBuf,
    bytes: Vec<u8>,
    lost: usize,
}

struct RawIn {
    info: VideoInfo,
    pixels: Vec<u8>,
}

impl Videos for Raw {
    fn open(&self, path: &Path) -> Result<Box<dyn Video>, VideoError> {
        let bytes = fs::read(path).unwrap();
        let (head, pixels) = bytes.split_at(24);
        let head: Vec<f64> = head
            .as_chunks()
            .0
            .iter()
            .map(|&one| f64::from_le_bytes(one))
            .collect();
        let whole = |number: f64| number.to_string().parse::<usize>().unwrap();
        let (height, width) = (whole(head[0]), whole(head[1]));
        let frames = i64::try_from(pixels.len() / (height * width * 3)).unwrap();
        let period = whole((1e9 / head[2]).round());
        let period = i64::try_from(period).unwrap();
        Ok(Box::new(RawIn {
            info: VideoInfo {
                height,
                width,
                pixels: Pixels::Rgb8,
                times_ns: (0..frames).map(|frame| frame * period).collect(),
            },
            pixels: pixels.to_vec(),
        }))
    }

    fn create(&self, path: &Path, shape: VideoShape) -> Result<Box<dyn NewVideo>, VideoError> {
        let head = [shape.height as f64, shape.width as f64, shape.rate_hz];
        Ok(Box::new(RawOut {
            path: path.to_owned(),
            bytes: head
                .iter()
                .flat_map(|number| number.to_le_bytes())
                .collect(),
            lost: self.lost * shape.height * shape.width * 3,
        }))
    }
}

impl NewVideo for RawOut {
    fn push(&mut self, pixels: &[u8]) -> Result<(), VideoError> {
        self.bytes.extend_from_slice(pixels);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), VideoError> {
        let len = self.bytes.len() - self.lost;
        fs::write(&self.path, &self.bytes[..len]).unwrap();
        Ok(())
    }
}

impl Video for RawIn {
    fn info(&self) -> &VideoInfo {
        &self.info
    }

    fn read(&mut self, frames: Range<u64>, out: &mut Vec<u8>) -> Result<(), VideoError> {
        let bytes = self.info.height * self.info.width * 3;
        let at = |frame: u64| usize::try_from(frame).unwrap() * bytes;
        out.extend_from_slice(&self.pixels[at(frames.start)..at(frames.end)]);
        Ok(())
    }
}

#[test]
fn video_files_are_where_lerobot_expects_them() {
    let (folder, before, dataset) = packed(&lift());
    for to in VERSIONS {
        let target = folder.path().join(to);
        let mut options = options(to, OnDefect::Keep);
        options.cameras = Cameras::Video(Arc::new(Raw { lost: 0 }));
        let exported = export(&dataset, &target, &options).unwrap();
        let said = "note: stream `obs/agentview_image`: is encoded as video, which changes its pixels (3 times)";
        assert!(
            exported
                .defects
                .iter()
                .any(|defect| defect.to_string() == said)
        );
        let import = ImportOptions {
            videos: Some(Arc::new(Raw { lost: 0 })),
            ..ImportOptions::default()
        };
        let after = kino_import::open(&target, &import).unwrap();
        assert_eq!(faults(&after.describe().defects), [""; 0], "{to}");
        let name = "observation.images.agentview_image";
        let feature = &after.describe().attributes["lerobot"]["info"]["features"][name];
        assert_eq!(
            (&feature["dtype"], &feature["info"]["video.fps"]),
            (&json!("video"), &json!(20))
        );
        for episode in 0..3 {
            let stream = |source: &Source, name| position(source, episode, name);
            let pixels = stream(&before, "obs/agentview_image");
            let pixels = read_all(&before, episode, pixels, 50);
            let shown = stream(&after, name);
            assert!(read_all(&after, episode, shown, 9) == pixels, "{to}");
        }
    }
}

#[test]
fn a_video_that_lacks_a_frame_fails_the_export_and_other_formats_refuse_video() {
    let (folder, _, dataset) = packed(&lift());
    let target = folder.path().join("out");
    let mut options = options("lerobot-v3", OnDefect::Keep);
    options.cameras = Cameras::Video(Arc::new(Raw { lost: 1 }));
    let ImportError::Unwritable { source, .. } = export(&dataset, &target, &options).unwrap_err()
    else {
        panic!("a frame is missing")
    };
    assert!(source.to_string().contains("frames, "), "{source}");
    options.to = "robomimic".to_owned();
    let refused = export(&dataset, &target, &options).unwrap_err().to_string();
    assert!(
        refused.contains("robomimic does not support video files"),
        "{refused}"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let refused = Cameras::from_name("video", None).unwrap_err().to_string();
    assert!(
        refused.contains("pip install 'kinograph[video]'"),
        "{refused}"
    );
}
