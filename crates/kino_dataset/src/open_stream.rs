//! The stream that frames are being pushed to, and the frames waiting for a full block.

use std::sync::Arc;

use kino_codec::{FrameType, Scope};

use crate::encode::BlockData;
use crate::error::{Result, invalid};
use crate::events::Recorder;
use crate::plan::Choice;
use crate::spill::Spill;

/// Frames are submitted to the workers in blocks of about this many bytes: enough to be worth a task.
pub(crate) const BLOCK_BYTES: usize = 1 << 20;

/// A page of text ends early at this many bytes, so that no reader refuses it.
const MAX_TEXT_BLOCK: usize = 32 << 20;

/// The memory that a text takes besides its bytes.
const PER_TEXT: usize = 48;

/// The stream that frames are being pushed to.
#[derive(Debug)]
pub(crate) struct OpenStream {
    pub(crate) frame: Arc<FrameType>,
    pub(crate) choice: Choice,
    pub(crate) channels: Option<usize>,
    /// The total number of frames to expect, and the index of the next.
    pub(crate) frames: u32,
    pub(crate) next: u32,
    pub(crate) raw_bytes: u64,
    pub(crate) waiting: BlockData,
    pub(crate) waiting_frames: u32,
    /// Bytes of waiting text.
    pub(crate) waiting_text: usize,
    /// Holds the waiting frames of a long run.
    pub(crate) file: Option<Spill>,
    /// The rules that detect events in this stream.
    pub(crate) recorders: Vec<Recorder>,
}

impl OpenStream {
    /// Frames per block: whole pages of about [`BLOCK_BYTES`], or `None` for a codec that needs the whole run.
    pub(crate) fn block_frames(&self, frame_bytes: usize) -> Option<usize> {
        let page = self.choice.page_frames.get();
        match self.choice.codec.scope() {
            Scope::Run => None,
            Scope::Page => Some(
                (BLOCK_BYTES / frame_bytes.max(1) / page)
                    .max(1)
                    .saturating_mul(page),
            ),
        }
    }

    /// Counts frames that are about to be pushed, and refuses more than were announced.
    pub(crate) fn expect(&mut self, place: &str, more: usize) -> Result<()> {
        let next = u32::try_from(more)
            .ok()
            .and_then(|more| self.next.checked_add(more));
        match next.filter(|&next| next <= self.frames) {
            Some(_) => Ok(()),
            None => Err(invalid(format!(
                "{place} got more than the {} frames that were announced",
                self.frames
            ))),
        }
    }

    pub(crate) fn add_values(&mut self, packed: &[u8], frames: usize) -> Result<()> {
        self.recorders
            .iter_mut()
            .for_each(|recorder| recorder.push(packed));
        self.count(frames);
        let BlockData::Values(waiting) = &mut self.waiting else {
            return Ok(());
        };
        match &mut self.file {
            // Small pushes are buffered, large ones are not copied.
            Some(file) if waiting.len() + packed.len() >= BLOCK_BYTES => {
                file.push(waiting)?;
                waiting.clear();
                file.push(packed)
            }
            _ => {
                waiting.extend_from_slice(packed);
                Ok(())
            }
        }
    }

    pub(crate) fn add_bytes(&mut self, frame: &[u8]) {
        if let BlockData::Bytes(waiting) = &mut self.waiting {
            waiting.push(frame.to_vec());
        }
        self.waiting_text += frame.len() + PER_TEXT;
        self.count(1);
    }

    /// Whether the waiting texts are worth a task, or as many as a page may have.
    pub(crate) fn is_full_of_text(&self) -> bool {
        let is_page = (self.waiting_frames as usize).is_multiple_of(self.choice.page_frames.get());
        *self.frame == FrameType::Text
            && (self.waiting_text >= MAX_TEXT_BLOCK
                || (is_page && self.waiting_text >= BLOCK_BYTES))
    }

    /// Takes the waiting frames.
    pub(crate) fn take_waiting(&mut self) -> Result<BlockData> {
        self.waiting_frames = 0;
        self.waiting_text = 0;
        let empty = match self.waiting {
            BlockData::Bytes(_) => BlockData::Bytes(Vec::new()),
            _ => BlockData::Values(Vec::new()),
        };
        let waiting = std::mem::replace(&mut self.waiting, empty);
        match (self.file.take(), waiting) {
            (Some(mut file), BlockData::Values(rest)) => {
                file.push(&rest)?;
                Ok(BlockData::File(file))
            }
            (_, waiting) => Ok(waiting),
        }
    }

    fn count(&mut self, frames: usize) {
        let frames = u32::try_from(frames).unwrap_or(u32::MAX);
        self.waiting_frames += frames;
        self.next += frames;
    }
}
