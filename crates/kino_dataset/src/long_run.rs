//! Runs that are too long to be encoded as a whole: a sample determines what their pages share.
//!
//! ```text
//! run     ▒▒░░░░░░░░░▒▒░░░░░░░░░▒▒░░░░░░░░░▒▒░░░░░░░░░     in a file, in staging/
//! sample  ▒▒▒▒▒▒▒▒ ──▶ codec.learn ──▶ shared             pieces at equal intervals
//! blocks  │ 1 MiB │ 1 MiB │ …  ──▶ workers ──▶ pages       as for any other stream
//! ```
//!
//! Codecs of `Scope::Run` need several times the memory of their run, so without this an hour of sensor data would
//! determine how much memory a pack needs. What counts as long and what is sampled depend only on the run, never on
//! the machine or the memory limit of a writer: the same frames become the same bytes everywhere.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use kino_codec::{Frames, RunEncoder, Scope};

use crate::encode::{Block, BlockData, Learnt};
use crate::encode_queue::Job;
use crate::error::{Result, codec_at};
use crate::open_stream::BLOCK_BYTES;
use crate::pipeline::Pipeline;

/// Runs of up to this many values are encoded as a whole: 16 MiB of float32.
pub(crate) const WHOLE_RUN_NUMBERS: usize = 1 << 22;

/// A sample has about this many values …
const SAMPLE_NUMBERS: usize = 1 << 21;

/// … in at least this many pieces.
const SAMPLE_PIECES: usize = 16;

/// Whether a codec of this scope sees a sample of this many values instead of all of them.
pub(crate) fn is_long(scope: Scope, numbers: usize) -> bool {
    scope == Scope::Run && numbers > WHOLE_RUN_NUMBERS
}

/// Whether a block is a run that is too long to be encoded as a whole.
pub(crate) fn is_long_block(block: &Block) -> bool {
    let numbers = block.frames().saturating_mul(elements(block));
    is_long(block.codec.scope(), numbers)
}

/// Values per frame.
fn elements(block: &Block) -> usize {
    block.frame.as_values().map_or(0, |ty| ty.elements())
}

/// Submits a long run, block by block.
pub(crate) fn submit(job: Job, pipeline: &mut Pipeline) -> Result<()> {
    let frames = job.block.frames();
    let page_frames = job.block.page_frames;
    let piece = piece_frames(page_frames, elements(&job.block));
    pipeline.make_room(learning_bytes(&job.block))?;
    let encoder = learn(&job, piece)?;
    let frame_bytes = job.block.frame_bytes();
    let pages = (BLOCK_BYTES / frame_bytes / page_frames).max(1);
    let step = pages.saturating_mul(page_frames.get());
    for first in (0..frames).step_by(step) {
        let range = first..frames.min(first.saturating_add(step));
        let bytes = range.start * frame_bytes..range.end * frame_bytes;
        let block = Block {
            codec: Arc::clone(&job.block.codec),
            frame: Arc::clone(&job.block.frame),
            page_frames,
            data: BlockData::Values(job.block.data.read(bytes)?),
            channels: job.block.channels,
            protected: inside(&job.block.protected, &range),
            // A plan that resizes a stream is refused for codecs of whole runs.
            resize: None,
            learnt: Some(Learnt {
                encoder: Arc::clone(&encoder),
                is_first: first == 0,
            }),
        };
        let part = Job {
            run: job.run,
            first_frame: job.first_frame + u32::try_from(first).unwrap_or(u32::MAX),
            place: job.place.clone(),
            block,
        };
        pipeline.submit_block(part)?;
    }
    Ok(())
}

/// Frames per piece of the sample: a page, unless a few pages exceed the size of the sample.
fn piece_frames(page_frames: NonZeroUsize, elements: usize) -> NonZeroUsize {
    let most = SAMPLE_NUMBERS / SAMPLE_PIECES / elements.max(1);
    page_frames.min(NonZeroUsize::new(most).unwrap_or(NonZeroUsize::MIN))
}

/// Where the pieces of the sample start, in frames.
fn pieces(frames: usize, piece: usize, elements: usize) -> impl Iterator<Item = usize> {
    let places = (frames / piece).max(1);
    let count = (SAMPLE_NUMBERS / (piece * elements.max(1))).clamp(1, places);
    (0..count).map(move |idx| idx * places / count * piece)
}

/// The approximate working memory of learning, in bytes.
fn learning_bytes(block: &Block) -> usize {
    let numbers = block.data.len() / block.number_bytes();
    numbers.min(SAMPLE_NUMBERS) * crate::encode::WHOLE_RUN_BYTES_PER_NUMBER
}

fn learn(job: &Job, piece: NonZeroUsize) -> Result<Arc<dyn RunEncoder>> {
    let Block {
        frame, data, codec, ..
    } = &job.block;
    let (size, frames) = (job.block.frame_bytes(), job.block.frames());
    let mut sample = Vec::new();
    for first in pieces(frames, piece.get(), elements(&job.block)) {
        let end = frames.min(first + piece.get());
        sample.append(&mut data.read(first * size..end * size)?);
    }
    let learnt =
        Frames::values(frame, &sample).and_then(|sample| codec.learn(&sample, piece, frames));
    learnt.map(Into::into).map_err(codec_at(job.place.clone()))
}

/// The parts of frame ranges that lie in `block`, relative to its start.
pub(crate) fn inside(ranges: &[Range<usize>], block: &Range<usize>) -> Vec<Range<usize>> {
    let part = |range: &Range<usize>| {
        let start = range.start.clamp(block.start, block.end) - block.start;
        start..range.end.clamp(block.start, block.end) - block.start
    };
    ranges
        .iter()
        .map(part)
        .filter(|range| !range.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_spread_over_the_run() {
        let at = |frames, piece, elements| pieces(frames, piece, elements).collect::<Vec<_>>();
        let wide = at(1_000_000, 256, 256);
        assert_eq!((wide.len(), wide[1], wide[31]), (32, 122 * 256, 3783 * 256));
        let narrow = at(3_600_000, 256, 6);
        assert_eq!((narrow.len(), narrow[1]), (1365, 10 * 256));
        assert!(narrow[1364] + 256 <= 3_600_000);
        assert_eq!(at(100, 256, 2048), [0]);
        let page = |frames| NonZeroUsize::new(frames).unwrap();
        assert_eq!(piece_frames(page(256), 256), page(256));
        assert_eq!(piece_frames(page(65_536), 2048), page(64));
    }

    #[test]
    fn the_limit_of_a_long_run_never_changes() {
        assert!(!is_long(Scope::Run, 4_194_304) && is_long(Scope::Run, 4_194_305));
        assert!(!is_long(Scope::Page, usize::MAX));
    }

    #[test]
    fn ranges_are_clipped_to_a_block() {
        assert_eq!(inside(&[0..3, 5..9, 20..30], &(2..7)), [0..1, 3..5]);
    }
}
