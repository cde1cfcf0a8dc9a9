//! The codec that a plan chose for a stream, and those to try beside it on the stream's first frames.
//!
//! ```text
//! Plan::choose ─▶ codec, rivals ─▶ the first frames, encoded by each ─▶ codec        `trial` says how they are weighed
//! ```
//!
//! A stream is tried once: later episodes, and writers that resume or append, keep the codec it has.

use std::num::NonZeroUsize;
use std::sync::Arc;

use kino_codec::{Bound, Codec, CodecError, FrameType, Frames};

use super::trial::{Trial, weigh};
use crate::resize::Resize;

/// At most this many first frames of a stream are tried.
const MOST_FRAMES: usize = 64;

/// Of large frames fewer are tried: about this many bytes, and at least one page of each codec.
const TRIAL_BYTES: usize = 16 << 20;

/// The largest decoded page of a codec that is tried although the plan does not name it: ten images of 1080p.
const MAX_RIVAL_PAGE: usize = 64 << 20;

/// The codec and page length that a plan chose for a stream.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The codec.
    pub codec: Arc<dyn Codec>,
    /// Frames per page.
    pub page_frames: NonZeroUsize,
    /// Events around which frames are bit-exact.
    pub protect: Vec<String>,
    /// How frames are resized before they are encoded.
    pub(crate) resize: Option<Arc<Resize>>,
    /// Whether the plan names the codec: then it is compared with others, and stays.
    pub(super) is_named: bool,
    /// Codecs to try against it on the first frames.
    pub(super) rivals: Vec<Candidate>,
}

/// A codec that a stream may get, and its page length.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) codec: Arc<dyn Codec>,
    pub(super) page_frames: NonZeroUsize,
}

impl Candidate {
    /// Whether a page of such frames is small enough for a codec that the plan does not name: a page is held as pushed
    /// and as decoded again, whatever the budget.
    pub(super) fn is_affordable(&self, frame: &FrameType) -> bool {
        let frame_bytes = frame.as_values().map_or(0, |ty| ty.frame_bytes());
        self.page_frames.get().saturating_mul(frame_bytes) <= MAX_RIVAL_PAGE
    }
}

impl Choice {
    /// This codec and no other, for pages that exist already.
    pub(crate) fn of(codec: &str, frame: &FrameType) -> Result<Self, CodecError> {
        let codec = kino_codec::codec(codec)?;
        Ok(Self {
            page_frames: codec.page_frames(frame),
            codec,
            protect: Vec::new(),
            resize: None,
            is_named: true,
            rivals: Vec::new(),
        })
    }

    /// Whether the plan names the codec.
    pub fn is_named(&self) -> bool {
        self.is_named
    }

    /// Whether frames around this event are bit-exact.
    pub(crate) fn protects(&self, event: &str) -> bool {
        self.protect.iter().any(|name| name == "*" || name == event)
    }

    /// How many of the first frames, of the type that is pushed, decide which codec the stream gets; `None` if the codec is final.
    pub fn trial_frames(&self, frame: &FrameType) -> Option<usize> {
        let pages = self.rivals.iter().map(|rival| rival.page_frames);
        let largest = pages.max()?.max(self.page_frames).get();
        let frame_bytes = frame.as_values().map_or(1, |ty| ty.frame_bytes().max(1));
        let frames = TRIAL_BYTES / frame_bytes;
        Some(frames.clamp(largest.min(MOST_FRAMES), MOST_FRAMES))
    }

    /// Tries the codecs on the first frames of the stream, of the size that is stored, and keeps the best; `None` if only one can store them.
    pub fn settle(&mut self, first: &Frames<'_>) -> Option<Trial> {
        let rivals = std::mem::take(&mut self.rivals);
        let own = Candidate {
            codec: Arc::clone(&self.codec),
            page_frames: self.page_frames,
        };
        let mut candidates = vec![own];
        candidates.extend(rivals);
        let (best, trial) = weigh(&candidates, self.is_named, first)?;
        self.take(candidates.swap_remove(best));
        trial
    }

    /// Keeps the codec that the stream already has, if it is one of those to try; whether it is.
    pub fn keep(&mut self, known: &str) -> bool {
        let is_known = |codec: &dyn Codec| codec.spec().to_string() == known;
        let rival = self.rivals.iter().position(|one| is_known(&*one.codec));
        if let Some(idx) = rival.filter(|_| !self.is_named) {
            let rival = self.rivals.swap_remove(idx);
            self.take(rival);
        } else if !is_known(&*self.codec) {
            return false;
        }
        self.rivals.clear();
        true
    }

    /// Whether the plan asks for a codec that may lose something.
    pub(crate) fn is_lossy(&self) -> bool {
        self.codec.bound() != Bound::Lossless
    }

    fn take(&mut self, candidate: Candidate) {
        if self.is_lossy() && candidate.codec.bound() == Bound::Lossless {
            // Every frame is exact.
            self.protect.clear();
        }
        self.codec = candidate.codec;
        self.page_frames = candidate.page_frames;
    }
}
