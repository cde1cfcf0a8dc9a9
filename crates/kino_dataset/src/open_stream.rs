//! The stream that frames are being pushed to, and the frames waiting for a full block.

use std::sync::Arc;

use kino_codec::{CodecError, FrameType, Scope};
use kino_format::Kind;

use crate::draft::StreamDraft;
use crate::encode::{Block, BlockData};
use crate::error::{Result, invalid};
use crate::events::Recorder;
use crate::long_run;
use crate::plan::{Arrival, Choice, Trial};
use crate::spill::Spill;
use crate::stats::channels_of;
use crate::stored_stream::check_bools;
use crate::stream_info::StreamInfo;

/// Frames are submitted to the workers in blocks of about this many bytes: enough to be worth a task.
pub(crate) const BLOCK_BYTES: usize = 1 << 20;

/// A page of text ends early at this many bytes, so that no reader refuses it.
const MAX_TEXT_BLOCK: usize = 32 << 20;

/// The memory that a text takes besides its bytes.
const PER_TEXT: usize = 48;

/// The first frames of a stream, and the codecs that were tried on them.
type FirstFrames = (Vec<u8>, Option<Trial>);

/// The stream that frames are being pushed to.
#[derive(Debug)]
pub(crate) struct OpenStream {
    /// The type of the frames that are pushed; the choice may store them in another size.
    pub(crate) frame: Arc<FrameType>,
    pub(crate) choice: Choice,
    pub(crate) channels: Option<usize>,
    /// The total number of frames to expect, and the index of the next.
    pub(crate) frames: u32,
    pub(crate) next: u32,
    /// Bytes of its frames as they are stored, before the codec.
    pub(crate) raw_bytes: u64,
    /// Bytes of a frame as it is stored, before the codec; 0 for text.
    stored_bytes: usize,
    arrival: Arrival,
    pub(crate) waiting: BlockData,
    pub(crate) waiting_frames: u32,
    /// Bytes of waiting text.
    pub(crate) waiting_text: usize,
    /// Holds the waiting frames of a long run.
    pub(crate) file: Option<Spill>,
    /// The rules that detect events in this stream.
    pub(crate) recorders: Vec<Recorder>,
    /// The first frames, until they have decided which codec the stream gets.
    first: Vec<u8>,
    /// Whether pages were pushed that exist already.
    pub(crate) has_pages: bool,
}

impl OpenStream {
    /// A stream before its first frame.
    pub(crate) fn new(
        info: &StreamInfo,
        choice: Choice,
        draft: &StreamDraft,
        recorders: Vec<Recorder>,
    ) -> Self {
        let ty = info.frame.as_values();
        let stored = choice.stored_frame(&info.frame);
        let stored = stored.as_values();
        let frame_bytes = ty.map_or(0, |ty| ty.frame_bytes());
        let is_image = matches!(info.kind, Kind::Image | Kind::Depth);
        let own_start = draft.shared.count;
        let stored_bytes = stored.map_or(0, |ty| ty.frame_bytes());
        let is_resized = choice.resize.is_some();
        // Frames without bytes cannot be pushed: they are complete already.
        let is_complete = ty.is_some() && frame_bytes == 0;
        Self {
            frame: Arc::new(info.frame.clone()),
            choice,
            channels: stored
                .filter(|_| frame_bytes > 0)
                .map(|ty| channels_of(is_image, ty)),
            frames: draft.frames,
            next: if is_complete { draft.frames } else { own_start },
            raw_bytes: stored_bytes as u64 * u64::from(own_start),
            stored_bytes,
            arrival: info.arrival,
            waiting: match (&info.frame, info.arrival) {
                (FrameType::Values(_), Arrival::Values) => BlockData::Values(Vec::new()),
                // Files that are resized are decoded first.
                _ if is_resized => BlockData::Values(Vec::new()),
                _ => BlockData::Bytes(Vec::new()),
            },
            waiting_frames: 0,
            waiting_text: 0,
            file: None,
            recorders,
            first: Vec::new(),
            has_pages: false,
        }
    }

    /// Holds frames back until there are enough to choose the codec; returns the others.
    pub(crate) fn hold<'p>(&mut self, packed: &'p [u8]) -> &'p [u8] {
        let Some(frames) = self.choice.trial_frames(&self.frame) else {
            return packed;
        };
        let wanted = frames.saturating_mul(self.frame_bytes());
        let room = wanted.saturating_sub(self.first.len());
        let (head, rest) = packed.split_at(room.min(packed.len()));
        self.first.extend_from_slice(head);
        rest
    }

    /// Whether there are enough first frames to choose the codec.
    pub(crate) fn is_trial_due(&self) -> bool {
        let frames = self.choice.trial_frames(&self.frame);
        frames.is_some_and(|frames| self.held_frames() >= frames)
    }

    /// Frames that wait for the choice of a codec.
    fn held_frames(&self) -> usize {
        self.first.len() / self.frame_bytes().max(1)
    }

    /// Chooses the codec by the frames held back, and returns these; `None` if there are none.
    pub(crate) fn settle(&mut self) -> Result<Option<FirstFrames>, CodecError> {
        let first = std::mem::take(&mut self.first);
        if first.is_empty() {
            return Ok(None);
        }
        let trial = self.choice.settle_values(&self.frame, &first)?;
        Ok(Some((first, trial)))
    }

    /// Whether files are pushed that have to be decoded, because they are resized.
    pub(crate) fn decodes_files(&self) -> bool {
        self.arrival != Arrival::Values && self.choice.resize.is_some()
    }

    /// Counts frames of values.
    pub(crate) fn count_raw(&mut self, frames: usize) {
        self.raw_bytes += frames as u64 * self.stored_bytes as u64;
    }

    /// Bytes of a frame as it is pushed; 0 for text.
    pub(crate) fn frame_bytes(&self) -> usize {
        self.frame.as_values().map_or(0, |ty| ty.frame_bytes())
    }

    /// Whether the frames to come are a run that is too long to wait in memory.
    pub(crate) fn is_long(&self) -> bool {
        let elements = self.frame.as_values().map_or(0, |ty| ty.elements());
        let numbers = elements * (self.frames - self.next) as usize;
        long_run::is_long(self.choice.codec.scope(), numbers)
    }

    /// Refuses packed values that are not whole frames, more than were announced, or bools that are neither 0 nor 1.
    pub(crate) fn check_values(&self, place: &str, packed: &[u8]) -> Result<()> {
        let frame_bytes = self.frame_bytes();
        if !matches!(self.waiting, BlockData::Values(_)) {
            return Err(invalid(format!(
                "{place} holds byte strings, but packed values were pushed"
            )));
        }
        if frame_bytes == 0 || !packed.len().is_multiple_of(frame_bytes) {
            return Err(invalid(format!(
                "{place}: {} bytes are not a multiple of the frame size of {frame_bytes} bytes",
                packed.len()
            )));
        }
        if let Some(ty) = self.frame.as_values()
            && check_bools(ty, packed).is_err()
        {
            let byte = packed.iter().position(|&byte| byte > 1).unwrap_or_default();
            return Err(invalid(format!(
                "{place}: frame {} has a bool stored as {}, but a bool must be 0 or 1; store it as uint8, or pass `values != 0`",
                self.next as usize + self.held_frames() + byte / frame_bytes,
                packed[byte]
            )));
        }
        self.check_count(place, packed.len() / frame_bytes)
    }

    /// Refuses byte strings that are more than were announced, or text that is not UTF-8.
    pub(crate) fn check_bytes(&self, place: &str, frames: &[&[u8]]) -> Result<()> {
        if !matches!(self.waiting, BlockData::Bytes(_)) {
            return Err(invalid(format!(
                "{place} holds packed values, but byte strings were pushed"
            )));
        }
        self.check_count(place, frames.len())?;
        let is_text = *self.frame == FrameType::Text;
        let is_wrong = |frame: &&[u8]| is_text && std::str::from_utf8(frame).is_err();
        match frames.iter().position(is_wrong) {
            Some(frame) => {
                let frame = self.next as usize + frame;
                Err(invalid(format!("{place}: frame {frame} is not UTF-8 text")))
            }
            None => Ok(()),
        }
    }

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

    /// Refuses more frames than were announced.
    fn check_count(&self, place: &str, more: usize) -> Result<()> {
        let next = u32::try_from(self.held_frames() + more)
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

    /// Takes the waiting frames as a block.
    pub(crate) fn take_block(&mut self) -> Result<Block> {
        Ok(Block {
            codec: Arc::clone(&self.choice.codec),
            frame: Arc::clone(&self.frame),
            page_frames: self.choice.page_frames,
            data: self.take_waiting()?,
            channels: self.channels,
            protected: Vec::new(),
            resize: self.choice.resize.clone(),
            learnt: None,
        })
    }

    fn take_waiting(&mut self) -> Result<BlockData> {
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
