//! What the threads of [`ReadAhead`] read of a source: blocks of frames, or pages of streams that are linked.

use kino_dataset::{Pages, Pieces, ReadAhead, Share, Task};

use crate::error::{ImportError, Result};
use crate::link::{LinkFiles, LinkedStream};
use crate::shift::is_shift;
use crate::source::{EpisodeSpec, FrameBuf, block_frames};

/// Streams of a source being read.
pub(crate) type SourceAhead<'a> = ReadAhead<'a, Result<Piece>>;

#[derive(Debug)]
pub(crate) enum Piece {
    /// Sent first: how many frames are shared with another stream and are not read.
    Shared(u64),
    /// The next frames, and their share of the budget.
    Block(FrameBuf, Share),
    /// The next pages of a stream that is linked, and their share of the budget.
    Pages(Pages, Share),
}

/// What is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub(crate) episodes: &'a [EpisodeSpec],
    /// The files of streams that are linked; `None` if none is.
    pub(crate) links: Option<&'a LinkFiles<'a>>,
}

/// The error for a thread that is gone, which is a bug.
pub(crate) fn lost_thread() -> ImportError {
    crate::error::invalid("a reader thread ended unexpectedly; this is a bug, please report it")
}

/// Reads a stream to its end, or until the consumer is gone.
pub(crate) fn read(source: Reading<'_>, task: Task, out: &Pieces<Result<Piece>>) {
    let (episode, stream) = task;
    let episode = &source.episodes[episode];
    let pieces = || -> Result<()> {
        let spec = &episode.streams[stream];
        if let Some(files) = source.links.filter(|_| spec.link.is_some()) {
            let linked = LinkedStream::open(files, episode, stream)?;
            return read_pages(linked, out);
        }
        let is_shift = spec.frames > 1 && is_shift(episode, stream)?;
        let first = if is_shift { spec.frames - 1 } else { 0 };
        if !out.send(Ok(Piece::Shared(first))) {
            return Ok(());
        }
        let ty = spec.frame.as_values();
        // Zero-byte frames cannot be pushed; the writer knows their number.
        let is_empty = ty.is_some_and(|ty| ty.frame_bytes() == 0);
        let mut start = first;
        while start < spec.frames && !is_empty {
            let end = spec.frames.min(start + block_frames(&spec.frame));
            let frame_bytes = ty.map_or(1 << 10, |ty| ty.frame_bytes());
            let bytes = usize::try_from(end - start).unwrap_or(usize::MAX);
            let share = out.share(bytes.saturating_mul(frame_bytes));
            let block = episode.read(stream, start..end)?;
            // For long texts a source returns fewer frames than requested.
            let count = match &block {
                FrameBuf::Bytes(frames) => (frames.len() as u64).clamp(1, end - start),
                FrameBuf::Values(_) => end - start,
            };
            let piece = Piece::Block(block, share);
            if !out.send(Ok(piece)) {
                return Ok(());
            }
            start += count;
        }
        Ok(())
    };
    if let Err(error) = pieces() {
        // The consumer is gone, so its error does not matter either.
        out.send(Err(error));
    }
}

/// Reads the pages of a linked stream to its end, or until the consumer is gone.
fn read_pages(mut linked: LinkedStream<'_>, out: &Pieces<Result<Piece>>) -> Result<()> {
    if !out.send(Ok(Piece::Shared(0))) {
        return Ok(());
    }
    while let Some((pages, bytes)) = linked.next_block()? {
        let share = out.share(bytes);
        if !out.send(Ok(Piece::Pages(pages, share))) {
            return Ok(());
        }
    }
    Ok(())
}
