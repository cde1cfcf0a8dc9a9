//! A dataset of one camera, for the examples that measure what stays in memory.

use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Arrival, Dataset, DatasetWriter, EpisodeInfo, Kind, Plan, Start, StreamInfo, Times,
    WriterOptions,
};
use tempfile::TempDir;

/// Episodes of 40 to 60 square images. `value` is that of a byte, by episode, frame and byte, and is cut to eight bits.
#[allow(dead_code, reason = "not every example has such episodes")]
pub(crate) fn write_cameras(
    episodes: u64,
    side: usize,
    value: impl Fn(u64, u64, u64) -> u64,
) -> (TempDir, Dataset) {
    let lengths: Vec<u64> = (0..episodes).map(|number| 40 + number * 7 % 21).collect();
    write_lengths(&lengths, side, Plan::lossless(), value)
}

/// Every frame is a page.
#[allow(dead_code, reason = "not every example needs such pages")]
pub(crate) fn single_frames() -> Plan {
    Plan::from_toml("[[stream]]\nmatch = \"front\"\ncodec = \"predict\"").unwrap()
}

/// The same, of episodes of so many frames, stored with a plan.
pub(crate) fn write_lengths(
    lengths: &[u64],
    side: usize,
    plan: Plan,
    value: impl Fn(u64, u64, u64) -> u64,
) -> (TempDir, Dataset) {
    let options = WriterOptions {
        plan,
        ..WriterOptions::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, options).unwrap();
    for (number, &frames) in (0..).zip(lengths) {
        let mut episode = writer
            .episode(EpisodeInfo {
                id: format!("ep-{number}"),
                position: Some(number),
                ..EpisodeInfo::default()
            })
            .unwrap();
        let stream = StreamInfo {
            name: "front".to_owned(),
            kind: Kind::Image,
            frame: FrameType::values(Dtype::U8, &[side, side, 3]).unwrap(),
            frames,
            times: Times::Rate {
                rate_hz: 20.0,
                start_ns: 0,
            },
            arrival: Arrival::Values,
            shared: None,
        };
        episode.stream(&stream).unwrap();
        for at in 0..frames {
            let values = (0..(side * side * 3) as u64).map(|byte| value(number, at, byte) as u8);
            episode.push(&values.collect::<Vec<u8>>()).unwrap();
        }
        episode.finish().unwrap();
    }
    writer.commit("example").unwrap();
    (folder, Dataset::open(&path).unwrap())
}
