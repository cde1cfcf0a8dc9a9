//! Images wait here until all that are shown before them are decoded.

use std::collections::BTreeMap;

use rust_h264::decoder::Frame;

/// Decoded images that were not received yet.
#[derive(Default)]
pub(super) struct Waiting {
    /// By the number of the IDR picture before them, time, and order of decoding: what follows an IDR picture is never
    /// shown before what precedes it.
    images: BTreeMap<(u64, i64, u64), Frame>,
    idr: u64,
    decoded: u64,
    is_finished: bool,
}

impl Waiting {
    /// What is decoded from now on is shown after everything that is here.
    pub(super) fn begin(&mut self) {
        self.idr += 1;
    }

    pub(super) fn push(&mut self, pts: i64, frame: Frame) {
        self.decoded += 1;
        self.images.insert((self.idr, pts, self.decoded), frame);
    }

    /// Nothing follows.
    pub(super) fn finish(&mut self) {
        self.is_finished = true;
    }

    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Whether the next image is known, if at most `depth` are decoded before one that is shown earlier.
    pub(super) fn is_ready(&self, depth: usize) -> bool {
        let first = self.images.first_key_value();
        let is_past = first.is_some_and(|((idr, ..), _)| *idr < self.idr);
        self.is_finished && first.is_some() || is_past || self.images.len() > depth
    }

    /// The next image and its time, if it is known.
    pub(super) fn pop(&mut self, depth: usize) -> Option<(i64, Frame)> {
        if !self.is_ready(depth) {
            return None;
        }
        let ((_, pts, _), frame) = self.images.pop_first()?;
        Some((pts, frame))
    }
}
