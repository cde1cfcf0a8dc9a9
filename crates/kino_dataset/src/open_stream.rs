//! The stream of an episode that frames are being pushed to, and the frames that wait for a full block.

use std::sync::Arc;

use kino_codec::{FrameType, Scope};

use crate::encode::BlockData;
use crate::error::{Result, invalid};
use crate::events::Recorder;
use crate::plan::Choice;

/// Frames are handed to the workers in blocks of about this many bytes: enough to be worth a thread's while.
const BLOCK_BYTES: usize = 1 << 20;

/// The stream that frames are being pushed to.
#[derive(Debug)]
pub(crate) struct OpenStream {
    pub(crate) frame: Arc<FrameType>,
    pub(crate) choice: Choice,
    pub(crate) channels: Option<usize>,
    /// Frames to expect in all, and the number of the next one.
    pub(crate) frames: u32,
    pub(crate) next: u32,
    pub(crate) raw_bytes: u64,
    pub(crate) waiting: BlockData,
    pub(crate) waiting_frames: u32,
    /// The rules that look for events in this stream.
    pub(crate) recorders: Vec<Recorder>,
}

impl OpenStream {
    /// Frames per block: whole pages of about [`BLOCK_BYTES`], or `None` for a codec that wants the whole run.
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
                "{place} gets more than the {} frames that were announced",
                self.frames
            ))),
        }
    }

    pub(crate) fn add_values(&mut self, packed: &[u8], frames: usize) {
        if let BlockData::Values(waiting) = &mut self.waiting {
            waiting.extend_from_slice(packed);
        }
        self.recorders
            .iter_mut()
            .for_each(|recorder| recorder.push(packed));
        self.count(frames);
    }

    pub(crate) fn add_bytes(&mut self, frame: &[u8]) {
        if let BlockData::Bytes(waiting) = &mut self.waiting {
            waiting.push(frame.to_vec());
        }
        self.count(1);
    }

    fn count(&mut self, frames: usize) {
        let frames = u32::try_from(frames).unwrap_or(u32::MAX);
        self.waiting_frames += frames;
        self.next += frames;
    }
}
