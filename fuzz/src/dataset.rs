//! A dataset of three small episodes, to which requests and selections are applied.

use std::process;

use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Arrival, Dataset, DatasetWriter, EpisodeInfo, Kind, Label, Start, StreamInfo, Times,
    WriterOptions,
};

/// Writes it to a temporary folder and opens it.
pub fn dataset() -> Dataset {
    let folder = std::env::temp_dir().join(format!("kino-fuzz-{}.kino", process::id()));
    write(&folder).expect("a small dataset");
    Dataset::open(&folder).expect("a dataset that was just written")
}

fn write(folder: &std::path::Path) -> kino_dataset::Result<()> {
    let mut writer = DatasetWriter::open(folder, Start::New, WriterOptions::default())?;
    for number in 0..3_u64 {
        let mut episode = writer.episode(EpisodeInfo {
            id: format!("ep-{number}"),
            splits: vec![if number < 2 { "train" } else { "valid" }.to_owned()],
            task: (number != 1).then(|| "lift".to_owned()),
            success: Some(number == 0),
            labels: [("operator".to_owned(), Label::Int(number as i64))].into(),
            ..EpisodeInfo::default()
        })?;
        let frames = 6 + 3 * number;
        let rate = Times::Rate {
            rate_hz: 10.0,
            start_ns: 0,
        };
        let uneven = (0..frames).map(|idx| (idx * 33_000_000 + idx % 3 * 1_000_000) as i64);
        for (name, times) in [
            ("actions", rate),
            ("obs/joints", Times::Explicit(uneven.collect())),
        ] {
            let frame = FrameType::values(Dtype::F32, &[2]).expect("a vector");
            episode.stream(&StreamInfo {
                name: name.to_owned(),
                kind: Kind::Vector,
                frame,
                frames,
                times,
                arrival: Arrival::Values,
                shared: None,
            })?;
            episode.push(&vec![7; frames as usize * 8])?;
        }
        episode.finish()?;
    }
    writer.commit("fuzz").map(drop)
}
