//! A dataset of one camera, for the examples that measure what stays in memory.

use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Arrival, Dataset, DatasetWriter, EpisodeInfo, Kind, Start, StreamInfo, Times, WriterOptions,
};
use tempfile::TempDir;

/// Episodes of 40 to 60 square images. `value` is that of a byte, by episode, frame and byte, and is cut to eight bits.
pub(crate) fn write_cameras(
    episodes: u64,
    side: usize,
    value: impl Fn(u64, u64, u64) -> u64,
) -> (TempDir, Dataset) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    let mut writer = DatasetWriter::open(&path, Start::New, WriterOptions::default()).unwrap();
    for number in 0..episodes {
        let mut episode = writer
            .episode(EpisodeInfo {
                id: format!("ep-{number}"),
                position: Some(number),
                ..EpisodeInfo::default()
            })
            .unwrap();
        let frames = 40 + number * 7 % 21;
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
