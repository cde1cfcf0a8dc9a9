//! Export to WebDataset: a folder of tar shards, one sample per episode, that webdataset and our importer read.
//!
//! ```text
//! kinograph.json                     attributes of the dataset
//! shard-000000.tar
//!   demo_0.kinograph.json            id, splits, task, clocks, names and types of the streams (about.rs)
//!   demo_0.instruction.txt           the task
//!   demo_0.actions.npy               numeric: [frames, …]
//!   demo_0.obs.front.00000.png …     images: a file per frame, JPEG files unchanged
//!   demo_0.words.json                text: a list with one item per frame
//! ```
//!
//! A sample is an episode, not a step: webdataset yields samples one by one in any order, and a policy's window needs
//! neighbouring steps. Streams keep their own rates and lengths, which steps could not.

mod tar;

use std::fs;
use std::path::{Path, PathBuf};

use kino_codec::FrameType;
use kino_dataset::Stream;
use serde_json::json;

use crate::about::{self, About, Clocks};
use crate::error::Result;
use crate::export::{EpisodeOutline, FrameReader, Outline, StreamOutline, WritingPath};
use crate::npy;
use crate::webdataset::ABOUT;
use tar::Tar;

/// Size limit of a tar, unless one episode is larger (1 GB).
const MAX_SHARD_BYTES: u64 = 1_000_000_000;

/// The field with the task, for other readers.
const INSTRUCTION: &str = "instruction";

/// Assigns each stream its field: everything can be stored.
pub(crate) fn prepare(outline: &mut Outline) -> Result<()> {
    outline.rename(field);
    outline.rename_episodes(|id, _| key(id))
}

/// Fields are in lower case for webdataset, and have no slash.
fn field(stream: &StreamOutline) -> String {
    let field = stream.source.to_lowercase().replace('/', ".");
    match field.as_str() {
        INSTRUCTION | "kinograph" => format!("{field}_"),
        _ => field,
    }
}

/// The name of a sample ends at its first dot, and must stay inside the tar.
fn key(id: &str) -> String {
    let odd = |c: char| c == '.' || c == '\\' || c.is_control();
    let id = id.replace(odd, "_");
    let parts = id.split('/');
    let parts: Vec<_> = parts
        .map(|part| if part.is_empty() { "_" } else { part })
        .collect();
    parts.join("/")
}

pub(crate) fn write(outline: &Outline, reader: &mut FrameReader<'_>, path: &Path) -> Result<()> {
    write_shards(outline, reader, path, MAX_SHARD_BYTES)
}

fn write_shards(
    outline: &Outline,
    reader: &mut FrameReader<'_>,
    path: &Path,
    max_bytes: u64,
) -> Result<()> {
    fs::create_dir(path).writing(path)?;
    about::write_dataset(path, &outline.attributes)?;
    let mut shards = 0;
    let mut next_path = || -> PathBuf {
        shards += 1;
        path.join(format!("shard-{:06}.tar", shards - 1))
    };
    let mut shard = next_path();
    let mut tar = Tar::create(&shard).writing(&shard)?;
    for episode in &outline.episodes {
        let start = tar.len();
        Sample {
            tar: &mut tar,
            path: &shard,
            key: &episode.name,
        }
        .write(outline, episode, reader)?;
        // The length of an episode is known once it is written: the one too many moves to the next tar.
        if tar.len() > max_bytes && start > 0 {
            let next = next_path();
            let moved = tar.move_to(start, &next);
            let full = std::mem::replace(&mut tar, moved.writing(&next)?);
            full.finish().writing(&shard)?;
            shard = next;
        }
        reader.next_episode()?;
    }
    tar.finish().writing(&shard)
}

/// The sample that is being written.
struct Sample<'a> {
    tar: &'a mut Tar,
    path: &'a Path,
    key: &'a str,
}

impl Sample<'_> {
    fn write(
        mut self,
        outline: &Outline,
        episode: &EpisodeOutline,
        reader: &mut FrameReader<'_>,
    ) -> Result<()> {
        let source = outline.dataset.find(&episode.id)?;
        let about = About::read(episode, &source, Clocks::All)?;
        self.add(ABOUT, about.to_json().as_bytes())?;
        if let Some(task) = &episode.task {
            self.add(&format!("{INSTRUCTION}.txt"), task.as_bytes())?;
        }
        for stream in &episode.streams {
            self.stream(stream, &source.stream(&stream.source)?, reader)?;
        }
        Ok(())
    }

    fn stream(
        &mut self,
        stream: &StreamOutline,
        source: &Stream,
        reader: &mut FrameReader<'_>,
    ) -> Result<()> {
        let name = &stream.name;
        if let Some(form) = stream.image_form() {
            let ending = form.ending();
            return reader.each_image(source, &form, |frame, file| {
                self.add(&format!("{name}.{frame:05}.{ending}"), file)
            });
        }
        let FrameType::Values(ty) = &stream.frame else {
            let texts = json!(reader.texts(source)?);
            return self.add(&format!("{name}.json"), texts.to_string().as_bytes());
        };
        let shape = [stream.frames]
            .into_iter()
            .chain(ty.shape().iter().copied());
        let head = npy::header(ty.dtype(), &shape.collect::<Vec<_>>());
        let size = (stream.frames as u64).saturating_mul(ty.frame_bytes() as u64);
        let (path, member) = (self.path, format!("{}.{name}.npy", self.key));
        let begun = self.tar.begin(&member, head.len() as u64 + size);
        begun.and_then(|()| self.tar.put(&head)).writing(path)?;
        reader.each_block(source, |_, block| self.tar.put(block).writing(path))
    }

    fn add(&mut self, field: &str, content: &[u8]) -> Result<()> {
        let added = self.tar.add(&format!("{}.{field}", self.key), content);
        added.writing(self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::{ImportOptions, open};
    use kino_codec::Dtype;
    use kino_dataset::{
        Arrival, Dataset, DatasetWriter, EpisodeInfo, Kind, Selection, Start, StreamInfo, Times,
        WriterOptions,
    };
    use std::ops::ControlFlow;

    #[test]
    fn a_tar_that_would_be_too_long_ends_before_the_episode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.kino");
        let mut writer = DatasetWriter::open(&path, Start::New, WriterOptions::default()).unwrap();
        for id in ["a", "b", "c", "d"] {
            let info = EpisodeInfo {
                id: id.to_owned(),
                ..EpisodeInfo::default()
            };
            let mut episode = writer.episode(info).unwrap();
            let stream = StreamInfo {
                name: "action".to_owned(),
                kind: Kind::Vector,
                frame: FrameType::values(Dtype::U8, &[1000]).unwrap(),
                frames: 10,
                times: Times::Rate {
                    rate_hz: 10.0,
                    start_ns: 0,
                },
                arrival: Arrival::Values,
                shared: None,
            };
            episode.stream(&stream).unwrap();
            episode.push(&vec![id.as_bytes()[0]; 10_000]).unwrap();
            episode.finish().unwrap();
        }
        writer.commit("test").unwrap();
        let dataset = Dataset::open(&path).unwrap();
        for (max_bytes, tars) in [(1, 4), (30_000, 2), (1 << 30, 1)] {
            let target = folder.path().join(format!("out{max_bytes}"));
            let mut outline = Outline::of(&dataset, &Selection::default()).unwrap();
            prepare(&mut outline).unwrap();
            let mut go_on = |_| ControlFlow::Continue(());
            let mut reader = FrameReader::new(&outline, &mut go_on);
            write_shards(&outline, &mut reader, &target, max_bytes).unwrap();
            let source = open(&target, &ImportOptions::default()).unwrap();
            assert_eq!(source.describe().files.len(), tars);
            let ids: Vec<_> = source.episodes().iter().map(|one| &*one.id).collect();
            assert_eq!(ids, ["a", "b", "c", "d"]);
        }
    }

    #[test]
    fn an_id_becomes_the_name_of_a_sample() {
        for (id, expected) in [
            ("demo_0", "demo_0"),
            ("train/0", "train/0"),
            ("run.3/a.b", "run_3/a_b"),
            ("../x", "__/x"),
            ("/a//b", "_/a/_/b"),
        ] {
            assert_eq!(key(id), expected);
        }
    }
}
