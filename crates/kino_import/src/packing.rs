//! The episodes of a pack: read ahead, handed to the writer, and dropped one by one if they cannot be stored.

use std::collections::HashSet;
use std::thread;

use kino_dataset::{
    DatasetWriter, EpisodeInfo, EpisodeWriter, ReadLimits, SharedFrames, StreamInfo,
};
use serde_json::{Map, Value};

use crate::defect::{Action, Defect, OnDefect};
use crate::error::{ImportError, Result};
use crate::fit::Fitted;
use crate::link::LinkFiles;
use crate::progress::Reporter;
use crate::read_ahead::{Piece, Reading, SourceAhead, lost_thread, read};
use crate::settle::info;
use crate::source::FrameBuf;
use crate::stream_order::{stream_attributes, stream_order};

/// A pack under way.
pub(crate) struct Packing<'a> {
    pub(crate) source: &'a Fitted<'a>,
    pub(crate) reporter: Reporter<'a>,
    /// Frame bytes that need no encoding: of resumed or dropped episodes, and of shared frames.
    pub(crate) passed: u64,
    pub(crate) shifts: u64,
    /// Episodes written by this pack.
    pub(crate) written: u64,
    pub(crate) on_defect: OnDefect,
    pub(crate) defects: Vec<Defect>,
    /// Episodes that could not be stored.
    pub(crate) lost: Vec<usize>,
    /// The files of linked streams; `None` if everything is packed.
    pub(crate) links: Option<&'a LinkFiles<'a>>,
    /// The portion of each episode.
    pub(crate) portion_of: &'a [u64],
    /// Who reads the source's files for their hashes.
    pub(crate) hashes: Hashes,
}

/// Who reads the source's files for their hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hashes {
    /// This pack: its rows name them.
    Here,
    /// The parts of a pack, each some of them: the commit adds them to the rows.
    AtCommit,
}

impl Packing<'_> {
    /// Packs these episodes in this order, except for those that are resumed.
    pub(crate) fn episodes(
        &mut self,
        writer: &mut DatasetWriter,
        wanted: &[usize],
        resumed: &HashSet<String>,
        limits: ReadLimits,
    ) -> Result<()> {
        let source = self.source;
        let to_read = wanted.iter().copied();
        let to_read = to_read.filter(|&episode| !resumed.contains(&source.ids[episode]));
        thread::scope(|scope| {
            let tasks = to_read.flat_map(|episode| {
                let streams = stream_order(&source.episodes[episode].streams);
                streams.into_iter().map(move |stream| (episode, stream))
            });
            let reading = Reading {
                episodes: &source.episodes,
                links: self.links,
            };
            let read = move |task, out: &_| read(reading, task, out);
            let mut ahead = SourceAhead::start(scope, read, tasks, limits);
            for &episode in wanted {
                self.episode(writer, &mut ahead, episode, resumed)?;
            }
            // Frames that were read are not encoded yet.
            while writer.write_next()? {
                self.tell(writer.written_bytes())?;
            }
            self.tell(writer.written_bytes())
        })
    }

    fn episode(
        &mut self,
        writer: &mut DatasetWriter,
        ahead: &mut SourceAhead<'_>,
        episode: usize,
        resumed: &HashSet<String>,
    ) -> Result<()> {
        let source = self.source;
        let spec = &source.episodes[episode];
        let (before, passed) = (writer.written_bytes(), self.passed);
        if resumed.contains(&source.ids[episode]) {
            self.passed += spec.bytes();
        } else {
            match self.streams(writer, ahead, episode) {
                Ok(()) => self.written += 1,
                Err(error) if !error.is_of_episode() => return Err(error),
                // The writer names the episode itself, which may be an earlier one.
                Err(error @ ImportError::Dataset { .. }) if self.on_defect == OnDefect::Error => {
                    return Err(error);
                }
                Err(error) if self.on_defect == OnDefect::Error => {
                    return Err(ImportError::Episode {
                        episode: source.ids[episode].clone(),
                        source: Box::new(error),
                    });
                }
                // Nothing remains of the episode but its defect.
                Err(error) => {
                    ahead.skip(episode);
                    let place = match &error {
                        ImportError::Corrupt { object, file, .. }
                        | ImportError::Unsupported { object, file, .. } => {
                            format!("{}:{object}", file.display())
                        }
                        _ => source.info.place(spec, ""),
                    };
                    let defect = Defect::new(place, error.what(), Action::Dropped);
                    self.defects.push(defect.of(&spec.id));
                    self.lost.push(episode);
                    let written = writer.written_bytes() - before;
                    self.passed = passed + spec.bytes().saturating_sub(written);
                }
            }
        }
        self.reporter.progress.episodes_done += 1;
        self.tell(writer.written_bytes())
    }

    fn streams(
        &mut self,
        writer: &mut DatasetWriter,
        ahead: &mut SourceAhead<'_>,
        episode: usize,
    ) -> Result<()> {
        let mut episode_writer = writer.episode(self.info(episode)?)?;
        for stream in stream_order(&self.source.episodes[episode].streams) {
            self.stream(&mut episode_writer, ahead, episode, stream)?;
        }
        if self.on_defect != OnDefect::Error {
            // Codec errors must surface while the episode can still be abandoned.
            episode_writer.settle()?;
        }
        Ok(episode_writer.finish()?)
    }

    fn info(&self, episode: usize) -> Result<EpisodeInfo> {
        let spec = &self.source.episodes[episode];
        let file = self.source.info.files.get(spec.file);
        let is_trusted = self.links.is_some_and(LinkFiles::are_trusted);
        let hashed = file.filter(|_| !is_trusted && self.hashes == Hashes::Here);
        let mut attributes = spec.attributes.clone();
        let of_streams: Map<_, _> = spec.streams.iter().filter_map(stream_attributes).collect();
        if !of_streams.is_empty() {
            attributes.insert("stream_attributes".to_owned(), Value::Object(of_streams));
        }
        Ok(EpisodeInfo {
            id: self.source.ids[episode].clone(),
            position: Some(episode as u64),
            splits: spec.splits.clone(),
            task: spec.task.clone(),
            success: spec.success,
            licence: spec.licence.clone(),
            source: file.map(|file| format!("{}:{}", file.path().display(), spec.object)),
            source_hash: hashed
                .map(|file| file.read_blake3().map(str::to_owned))
                .transpose()?,
            attributes,
            portion: self.portion_of[episode],
            ..EpisodeInfo::default()
        })
    }

    fn stream(
        &mut self,
        writer: &mut EpisodeWriter<'_>,
        ahead: &mut SourceAhead<'_>,
        episode: usize,
        stream: usize,
    ) -> Result<()> {
        let streams = &self.source.episodes[episode].streams;
        let spec = &streams[stream];
        let pieces = ahead.take((episode, stream));
        let pieces = pieces.ok_or_else(lost_thread)?;
        let first = match pieces.recv().map_err(|_| lost_thread())?? {
            Piece::Shared(frames) => frames,
            Piece::Block(..) | Piece::Pages(..) => return Err(lost_thread()),
        };
        let base = spec.shift_of.filter(|_| first > 0);
        let info = StreamInfo {
            shared: base.map(|base| SharedFrames {
                base: streams[base].name.clone(),
                first: 1,
                count: first,
            }),
            ..info(spec)
        };
        match (&spec.link, &spec.variant_of) {
            (Some(codec), _) => writer.paged_stream(&info, codec)?,
            (None, Some(base)) => writer.variant(&info, base)?,
            (None, None) => writer.stream(&info)?,
        }
        self.shifts += u64::from(first > 0);
        self.passed += first * spec.frame_bytes();
        for piece in pieces {
            let (block, _share) = match piece? {
                Piece::Block(block, share) => (block, share),
                Piece::Pages(pages, _share) => {
                    writer.push_pages(pages)?;
                    self.tell(writer.written_bytes())?;
                    continue;
                }
                Piece::Shared(_) => return Err(lost_thread()),
            };
            match &block {
                FrameBuf::Values(values) => writer.push(values)?,
                FrameBuf::Bytes(frames) => {
                    let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
                    writer.push_bytes(&frames)?;
                }
            }
            self.tell(writer.written_bytes())?;
        }
        Ok(())
    }

    /// Reports how much is written, and stops if the caller asks for it.
    fn tell(&mut self, written: u64) -> Result<()> {
        let progress = &mut self.reporter.progress;
        let done = (self.passed + written).min(progress.bytes);
        progress.bytes_done = done.max(progress.bytes_done);
        self.reporter.tell()
    }
}
