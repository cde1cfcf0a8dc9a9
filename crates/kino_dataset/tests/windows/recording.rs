//! Small recordings with several clocks: 30 Hz, 500 Hz, jittered and with equal times, sparse, text.

use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Arrival, Dataset, DatasetWriter, EpisodeInfo, Kind, Start, StreamInfo, Times, WriterOptions,
};
use tempfile::TempDir;

use super::common::{push, random_bytes, text_info, vector_info};

fn rate(rate_hz: f64, start_ns: i64) -> Times {
    Times::Rate { rate_hz, start_ns }
}

fn values(name: &str, dtype: Dtype, shape: &[usize], frames: u64, times: Times) -> StreamInfo {
    StreamInfo {
        name: name.to_owned(),
        kind: Kind::Vector,
        frame: FrameType::values(dtype, shape).unwrap(),
        frames,
        times,
        arrival: Arrival::Values,
        shared: None,
    }
}

/// Numbers that differ from frame to frame and are finite in every float type.
fn numbers(info: &StreamInfo, seed: u64) -> Vec<u8> {
    let ty = info.frame.as_values().unwrap();
    let count = info.frames as usize * ty.elements();
    let random = random_bytes(count, seed);
    let number = |idx: usize| f64::from(random[idx]) / 64.0 - 2.0 + idx as f64 * 1e-3;
    match ty.dtype() {
        Dtype::F64 => (0..count)
            .flat_map(|idx| number(idx).to_le_bytes())
            .collect(),
        Dtype::F32 => (0..count)
            .flat_map(|idx| (number(idx) as f32).to_le_bytes())
            .collect(),
        _ => random_bytes(info.frames as usize * ty.frame_bytes(), seed),
    }
}

/// Steps of about a tenth of a second, some of them 0, some long.
fn jittered(frames: usize, start_ns: i64, seed: u64) -> Times {
    let random = random_bytes(frames, seed);
    let times = random.iter().scan(start_ns, |time, &byte| {
        let now = *time;
        *time += match byte % 5 {
            0 => 0,
            4 => 90_000_000 + i64::from(byte) * 1000,
            _ => 9_000_000 + i64::from(byte) * 10_000,
        };
        Some(now)
    });
    Times::Explicit(times.collect())
}

/// Two episodes, `a` and `b`, whose streams start and end at different times.
pub(crate) fn open_mixed() -> (TempDir, Dataset) {
    let start = 7_000_000_000;
    write(&["a", "b"], |number| {
        let more = 5 * number as u64;
        let camera = StreamInfo {
            kind: Kind::Image,
            ..values(
                "camera",
                Dtype::U8,
                &[2, 3, 3],
                24 + more,
                rate(30.0, start + 5_000_000),
            )
        };
        let mut streams = vec![
            camera,
            values("actions", Dtype::F32, &[2], 17 + more, rate(20.0, start)),
            values(
                "joints",
                Dtype::F32,
                &[3],
                420 + more,
                rate(500.0, start - 20_000_000),
            ),
            values(
                "force",
                Dtype::F64,
                &[2],
                40 + more,
                jittered(40 + more as usize, start, 3 + more),
            ),
            values(
                "pose",
                Dtype::F64,
                &[2, 4],
                31 + more,
                jittered(31 + more as usize, start + 1, 90 + more),
            ),
            StreamInfo {
                times: rate(2.0, start),
                ..text_info("words", 2)
            },
            values("empty", Dtype::F32, &[1], 0, Times::Explicit(vec![])),
        ];
        if number == 0 {
            streams.push(values("rare", Dtype::F32, &[1], 3, rate(2.0, start)));
        }
        streams
    })
}

/// Episodes of 9, 12 and 4 frames on one clock, as robomimic records them.
pub(crate) fn open_even() -> (TempDir, Dataset) {
    write(&["x", "y", "z"], |number| {
        let frames = [9, 12, 4][number];
        vec![
            vector_info("actions", frames, 2),
            vector_info("obs/state", frames, 3),
        ]
    })
}

/// 1200 episodes of 2 to 6 frames; stream `z` is missing in two.
pub(crate) fn open_many() -> (TempDir, Dataset) {
    let ids: Vec<String> = (0..1200).map(|number| format!("ep-{number:04}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    write(&ids, |number| {
        let frames = 2 + number as u64 % 5;
        let mut names = vec!["x", "y", "z"];
        if number == 700 || number == 1150 {
            names.pop();
        }
        let streams = names.iter();
        streams.map(|name| vector_info(name, frames, 1)).collect()
    })
}

fn write(ids: &[&str], streams: impl Fn(usize) -> Vec<StreamInfo>) -> (TempDir, Dataset) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, WriterOptions::default()).unwrap();
    for (number, id) in ids.iter().enumerate() {
        let info = EpisodeInfo {
            id: (*id).to_owned(),
            position: Some(number as u64),
            // The second has none.
            task: (number != 1).then(|| format!("task of {id}")),
            ..EpisodeInfo::default()
        };
        let mut episode = writer.episode(info).unwrap();
        for info in streams(number) {
            let bytes = match info.frame {
                FrameType::Text => b"reach\ndone".to_vec(),
                FrameType::Values(_) => numbers(&info, number as u64 + info.frames),
            };
            push(&mut episode, &info, &bytes);
        }
        episode.finish().unwrap();
    }
    writer.commit("test").unwrap();
    let dataset = Dataset::open(&path).unwrap();
    (folder, dataset)
}
