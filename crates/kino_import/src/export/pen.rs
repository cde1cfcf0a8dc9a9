//! What an exporter reads frames with: a block at a time, telling how far it is.

use std::ops::{ControlFlow, Range};

use kino_dataset::Stream;

use crate::error::{ImportError, Result};
use crate::export::{Outline, StreamOutline};
use crate::pack::Progress;
use crate::source::block_frames;

/// Reads frames for an exporter, and tells the caller.
pub(crate) struct Pen<'a> {
    report: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    progress: Progress,
}

impl<'a> Pen<'a> {
    pub(crate) fn new(
        outline: &Outline,
        report: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Self {
        let streams = outline.episodes.iter().flat_map(|episode| &episode.streams);
        let progress = Progress {
            bytes: streams.map(StreamOutline::raw_bytes).sum(),
            episodes: outline.episodes.len() as u64,
            ..Progress::default()
        };
        Self { report, progress }
    }

    /// All frames of a stream of numbers, in blocks: `take` gets them in order.
    pub(crate) fn each_block(
        &mut self,
        stream: &Stream,
        mut take: impl FnMut(Range<usize>, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let step = usize::try_from(block_frames(stream.frame_type())).unwrap_or(1);
        for start in (0..stream.len()).step_by(step) {
            let frames = start..stream.len().min(start.saturating_add(step));
            let block = stream.read(frames.clone())?;
            take(frames, &block)?;
            self.progress.bytes_done += block.len() as u64;
            self.tell()?;
        }
        Ok(())
    }

    /// All texts of a stream.
    pub(crate) fn texts(&mut self, stream: &Stream) -> Result<Vec<String>> {
        Ok(stream.read_text(0..stream.len())?)
    }

    /// All pictures of a stream as JPEG files, where the stream has one for every frame.
    pub(crate) fn jpegs(
        &mut self,
        stream: &StreamOutline,
        source: &Stream,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let mut files = Vec::new();
        for frame in 0..source.len() {
            let Some(file) = source.read_bitstream(frame)? else {
                return Ok(None);
            };
            files.push(file);
        }
        self.progress.bytes_done += stream.raw_bytes();
        self.tell()?;
        Ok(Some(files))
    }

    /// An episode is done.
    pub(crate) fn next_episode(&mut self) -> Result<()> {
        self.progress.episodes_done += 1;
        self.tell()
    }

    fn tell(&mut self) -> Result<()> {
        match (self.report)(self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ImportError::Stopped),
        }
    }
}

impl StreamOutline {
    /// Bytes of its frames; none for text.
    fn raw_bytes(&self) -> u64 {
        let frame = self.frame.as_values().map_or(0, |ty| ty.frame_bytes());
        (frame as u64).saturating_mul(self.frames as u64)
    }
}
