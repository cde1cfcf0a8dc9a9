//! One dataset with everything that the format can hold: every codec, every kind of stream, both kinds of clock, shared
//! and protected frames, labels, two versions.
//!
//! ```text
//! golden/v1/every.toml   the plan it was packed with
//! golden/v1/every.kino   the dataset
//! golden/v1/every.json   what each version must read as: values and times as hashes, the table, statistics, events
//! ```
//!
//! Never regenerate these files: they stand for the disks of users. If the writer learns something, add a dataset of
//! another name beside this one, in the same way.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a test fails by panicking, and its numbers are small"
)]

mod common;
#[path = "../../kino_codec/tests/inverted/mod.rs"]
mod inverted;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::random_bytes;
use inverted::Inverted;
use kino_codec::{Dtype, Encoded, FrameType, Frames, Scratch, add_foreign_codec, codec};
use kino_dataset::{
    Arrival, Dataset, DatasetWriter, Episode, EpisodeInfo, Hash, Kind, Label, Level, Plan,
    Protected, SharedFrames, Start, StreamInfo, Times, WriterOptions, verify,
};
use serde_json::{Value, json};

const FRAMES: usize = 40;
const IMAGES: usize = 6;

fn golden(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1");
    folder.join(name)
}

/// The plans, and with them the datasets.
fn plans() -> Vec<PathBuf> {
    add_foreign_codec(Arc::new(Inverted)).unwrap();
    let entries = golden("").read_dir().unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let plans: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    assert!(plans.contains(&golden("every.toml")));
    plans
}

fn read_plan(path: &Path) -> Plan {
    Plan::from_toml(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_datasets_read_as_what_was_written_down() {
    for plan in plans() {
        let path = plan.with_extension("kino");
        let text = std::fs::read_to_string(plan.with_extension("json")).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            read(&path),
            expected,
            "never regenerate it: fix the reader, or add another dataset beside it"
        );
        let report = verify(&path, Level::Decode, &mut |_, _| {}).unwrap();
        assert_eq!(report.damage, []);
    }
}

#[test]
fn every_codec_of_the_format_is_in_a_golden_dataset() {
    let mut used = BTreeSet::new();
    for entry in golden("").read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "kino") {
            let dataset = Dataset::open(&path).unwrap();
            let streams = dataset.manifest().streams.iter();
            let codecs = streams.flat_map(|stream| stream.codecs.clone());
            used.extend(codecs.map(|text| kino_codec::describe(&text).unwrap().name));
        }
    }
    for codec in kino_codec::codecs() {
        assert!(
            used.contains(codec.name),
            "`{}` is in no golden dataset; add one beside every.kino that has it",
            codec.name
        );
    }
}

#[test]
fn every_rule_of_a_plan_is_used() {
    for plan in plans() {
        let dataset = Dataset::open(&plan.with_extension("kino")).unwrap();
        let streams = dataset.manifest().streams.iter();
        let named = streams.map(|stream| (stream.name.as_str(), stream.kind));
        assert_eq!(read_plan(&plan).unused_rules(named).len(), 0);
    }
}

#[test]
#[ignore = "writes the datasets of new plans; they are never changed"]
fn write_new_datasets() {
    let is_new = |plan: &PathBuf| !plan.with_extension("kino").exists();
    for plan in plans().into_iter().filter(is_new) {
        write_dataset(&plan);
    }
}

fn write_dataset(plan: &Path) {
    let path = plan.with_extension("kino");
    for (start, number) in [(Start::New, 0), (Start::Append, 1)] {
        let options = WriterOptions {
            plan: read_plan(plan),
            threads: 1,
            ..WriterOptions::default()
        };
        let mut writer = DatasetWriter::open(&path, start, options).unwrap();
        write_episode(&mut writer, number);
        writer.commit(&format!("episode {number}")).unwrap();
    }
    let json = serde_json::to_string_pretty(&read(&path)).unwrap();
    std::fs::write(plan.with_extension("json"), json + "\n").unwrap();
}

/// Everything a reader can learn about every version.
fn read(path: &Path) -> Value {
    let versions = Dataset::open(path).unwrap().versions().unwrap();
    let read = |version: &u64| {
        let dataset = Dataset::open_version(path, *version).unwrap();
        let episodes: Vec<Value> = (0..dataset.len())
            .map(|row| {
                let mut episode = read_episode(&dataset.episode(row).unwrap());
                let table = dataset.table().row(row).unwrap();
                let labels = table.labels.iter().map(|(name, label)| {
                    let value = match label {
                        Label::Bool(value) => json!(value),
                        Label::Int(value) => json!(value),
                        Label::Float(value) => json!(value),
                        Label::Text(value) => json!(value),
                    };
                    (name.clone(), value)
                });
                episode["table"] = json!({
                    "id": table.id, "frames": table.frames, "start_ns": table.start_ns, "duration_s": table.duration_s,
                    "raw_bytes": table.raw_bytes, "splits": table.splits, "task": table.task, "success": table.success,
                    "licence": table.licence, "consent": table.consent, "source": table.source,
                    "labels": labels.collect::<serde_json::Map<_, _>>(),
                });
                episode
            })
            .collect();
        let stats = dataset.stats().unwrap().iter().map(|(name, stats)| {
            let value = json!({
                "frames": stats.frames, "count": stats.count, "nonfinite": stats.nonfinite, "mean": stats.mean,
                "std": stats.std, "min": stats.min, "max": stats.max, "quantiles": stats.quantiles,
            });
            (name.clone(), value)
        });
        json!({
            "version": version, "message": dataset.manifest().message, "episodes": episodes,
            "stats": stats.collect::<serde_json::Map<_, _>>(),
        })
    };
    versions.iter().map(read).collect()
}

fn read_episode(episode: &Episode) -> Value {
    let streams = episode.streams().map(|schema| {
        let stream = episode.stream(&schema.name).unwrap();
        let all = 0..stream.len();
        let values = match stream.frame_type() {
            FrameType::Text => stream.read_text(all.clone()).unwrap().join("\n").into(),
            FrameType::Values(_) => stream.read(all.clone()).unwrap(),
        };
        let times = stream.times_ns(all).unwrap();
        let times: Vec<u8> = times.iter().flat_map(|time| time.to_le_bytes()).collect();
        json!({
            "name": schema.name, "kind": schema.kind, "type": stream.frame_type().to_string(), "codec": schema.codec,
            "frames": stream.len(), "values": Hash::of(&values), "times": Hash::of(&times),
        })
    });
    let protected = episode.read_protected().unwrap();
    let protected = protected
        .iter()
        .map(|part| json!([part.event, part.start_ns, part.end_ns]));
    json!({
        "streams": streams.collect::<Vec<_>>(), "protected": protected.collect::<Vec<_>>(),
        "events": episode.read_events().unwrap(), "attributes": episode.read_attributes().unwrap(),
    })
}

fn write_episode(writer: &mut DatasetWriter, number: usize) {
    let given = Protected {
        event: "given".to_owned(),
        start_ns: 1_050_000_000,
        end_ns: 1_150_000_000,
    };
    let first = EpisodeInfo {
        id: "first".to_owned(),
        splits: vec!["train".to_owned(), "half".to_owned()],
        task: Some("lift the cube".to_owned()),
        success: Some(true),
        licence: Some("CC-BY-4.0".to_owned()),
        consent: Some("research".to_owned()),
        source: Some("demo.hdf5".to_owned()),
        protected: vec![given],
        attributes: [("robot".to_owned(), json!({"arms": 2}))]
            .into_iter()
            .collect(),
        labels: [
            ("operator".to_owned(), Label::Text("größer".to_owned())),
            ("score".to_owned(), Label::Float(0.25)),
            ("takes".to_owned(), Label::Int(-3)),
            ("is_night".to_owned(), Label::Bool(false)),
        ]
        .into(),
        ..EpisodeInfo::default()
    };
    let info = if number == 0 {
        first
    } else {
        EpisodeInfo::default()
    };
    let mut episode = writer.episode(info).unwrap();
    for (info, data) in streams(number) {
        episode.stream(&info).unwrap();
        match data {
            Data::Values(bytes) => episode.push(&bytes).unwrap(),
            Data::Strings(strings) => {
                let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
                episode.push_bytes(&strings).unwrap();
            }
        }
    }
    episode.finish().unwrap();
}

enum Data {
    Values(Vec<u8>),
    Strings(Vec<Vec<u8>>),
}

fn info(name: &str, kind: Kind, frame: FrameType, frames: usize) -> StreamInfo {
    StreamInfo {
        name: name.to_owned(),
        kind,
        frame,
        frames: frames as u64,
        times: Times::Rate {
            rate_hz: if frames == IMAGES { 10.0 } else { 50.0 },
            start_ns: 1_000_000_000,
        },
        arrival: Arrival::Values,
        shared: None,
    }
}

/// The streams of an episode; the second lacks some of the first.
fn streams(number: usize) -> Vec<(StreamInfo, Data)> {
    let mut all = vectors(number);
    all.extend(images(number));
    if number == 0 {
        let words = ["open the drawer", "", "schließe die Schublade"];
        let words = (0..FRAMES).map(|idx| words[idx / 15].as_bytes().to_vec());
        let info = info("text/words", Kind::Text, FrameType::Text, FRAMES);
        all.push((info, Data::Strings(words.collect())));
    }
    all
}

fn wave(frame: usize, element: usize) -> f64 {
    (frame as f64 * 0.11 + element as f64).sin()
}

fn vectors(number: usize) -> Vec<(StreamInfo, Data)> {
    let values =
        |name: &str, dtype: Dtype, shape: &[usize], value: &dyn Fn(usize, usize) -> Vec<u8>| {
            let frame = FrameType::values(dtype, shape).unwrap();
            let elements = frame.as_values().unwrap().elements();
            let places = (0..FRAMES * elements).map(|idx| (idx / elements, idx % elements));
            let bytes = places.flat_map(|(frame, element)| value(frame + number, element));
            (
                info(name, Kind::Vector, frame, FRAMES),
                Data::Values(bytes.collect()),
            )
        };
    let f32s = |frame, element| (wave(frame, element) as f32).to_le_bytes().to_vec();
    let gripper = |frame: usize, element: usize| {
        let closed = [0.04_f32, 0.0][usize::from((15..25).contains(&frame))];
        if element == 0 {
            closed.to_le_bytes().to_vec()
        } else {
            f32s(frame, element)
        }
    };
    let pose = |frame: usize, element: usize| {
        let (a, b) = (frame as f64 * 0.03, frame as f64 * 0.01);
        let quat = [
            a.cos() * b.cos(),
            a.sin() * b.cos(),
            a.cos() * b.sin(),
            a.sin() * b.sin(),
        ];
        let value = if element == 0 { a } else { quat[element - 1] };
        value.to_le_bytes().to_vec()
    };
    let (mut default, data) = values("vector/default", Dtype::F32, &[7], &gripper);
    let mut next = StreamInfo {
        name: "next/default".to_owned(),
        shared: Some(SharedFrames {
            base: "vector/default".to_owned(),
            first: 1,
            count: FRAMES as u64 - 1,
        }),
        ..default.clone()
    };
    let last = (0..7).flat_map(|element| f32s(FRAMES, element)).collect();
    let jitter = random_bytes(FRAMES, 3);
    let times =
        (0..FRAMES).map(|idx| 1_000_000_000 + 20_000_000 * idx as i64 + i64::from(jitter[idx]));
    default.times = Times::Explicit(times.collect());
    next.times = default.times.clone();
    let special = |frame: usize, _| {
        let special = [f64::NAN, f64::INFINITY, -0.0, 1e300];
        let value = if frame < 4 {
            special[frame]
        } else {
            wave(frame, 0)
        };
        value.to_le_bytes().to_vec()
    };
    vec![
        (default, data),
        (next, Data::Values(last)),
        values("vector/bounded", Dtype::F64, &[5], &pose),
        values("vector/pco", Dtype::I64, &[2], &|frame, element| {
            (frame as i64 * 1_000_000 + (wave(frame, element) * 1e3) as i64)
                .to_le_bytes()
                .to_vec()
        }),
        values("vector/zstd", Dtype::F32, &[3], &f32s),
        values("vector/raw", Dtype::U16, &[3], &|frame, element| {
            ((frame * 7 + element) as u16).to_le_bytes().to_vec()
        }),
        values("vector/flags", Dtype::Bool, &[2], &|frame, _| {
            vec![u8::from(frame > 20)]
        }),
        values("vector/scalar", Dtype::F64, &[], &special),
    ]
}

fn images(number: usize) -> Vec<(StreamInfo, Data)> {
    let pixels = |shape: &[usize]| -> Vec<u8> {
        let [height, width] = [shape[0], shape[1]];
        let channels = shape.get(2).copied().unwrap_or(1);
        let noise = random_bytes(IMAGES * height * width * channels, 5 + number as u64);
        let pixel = |(idx, noise): (usize, u8)| {
            let (x, c) = (idx / channels % width, idx % channels);
            let (y, frame) = (
                idx / channels / width % height,
                idx / channels / width / height,
            );
            (x * 9 + y * 5 + frame * 2 + c * 40) as u8 ^ (noise & 1)
        };
        noise.into_iter().enumerate().map(pixel).collect()
    };
    let image = |name: &str, shape: &[usize]| {
        let frame = FrameType::values(Dtype::U8, shape).unwrap();
        (
            info(name, Kind::Image, frame, IMAGES),
            Data::Values(pixels(shape)),
        )
    };
    let depth = |name: &str, dtype: Dtype| {
        let frame = FrameType::values(dtype, &[12, 16]).unwrap();
        let value = |idx: usize| {
            if idx.is_multiple_of(37) {
                0
            } else {
                900 + idx / 16 % 12 * 3 + idx % 5
            }
        };
        let bytes = (0..IMAGES * 12 * 16).flat_map(|idx| match dtype {
            Dtype::U16 => (value(idx) as u16).to_le_bytes().to_vec(),
            _ => (value(idx) as f32 * 1e-3).to_le_bytes().to_vec(),
        });
        (
            info(name, Kind::Depth, frame, IMAGES),
            Data::Values(bytes.collect()),
        )
    };
    let (mut files_info, _) = image("image/files", &[16, 24, 3]);
    files_info.arrival = Arrival::Jpeg;
    let files = jpeg_files(&files_info.frame, &pixels(&[16, 24, 3]));
    vec![
        image("image/default", &[12, 10, 3]),
        image("image/grey", &[9, 7]),
        image("image/rgba", &[6, 5, 4]),
        image("image/two_channels", &[6, 5, 2]),
        image("image/camera", &[12, 10, 3]),
        image("image/jpeg", &[16, 16, 3]),
        image("image/psnr", &[16, 16, 3]),
        image("image/av1", &[16, 24, 3]),
        (files_info, Data::Strings(files)),
        depth("depth/default", Dtype::U16),
        depth("depth/bounded", Dtype::F32),
    ]
}

fn jpeg_files(frame: &FrameType, pixels: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Encoded::default();
    let frames = Frames::values(frame, pixels).unwrap();
    codec("jpeg:q=80")
        .unwrap()
        .encode(&frames, NonZeroUsize::MIN, &mut out, &mut Scratch::new())
        .unwrap();
    out.pages.into_iter().map(|page| page.bytes).collect()
}
