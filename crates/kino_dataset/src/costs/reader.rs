//! Decodes ranges of an encoded run, times it, and compares.

use std::ops::Range;
use std::time::{Duration, Instant};

use kino_codec::{
    Codec, CodecError, Decoder, Encoded, EncodedPage, FrameData, FrameType, Frames, Page, Scratch,
    ValueType,
};

use crate::compare::{Comparison, Distortion, broken};
use crate::resize::FitScratch;

use super::measure::{Effort, best_of};

/// Random positions to read.
const PLACES: u32 = 32;

/// Decodes ranges of an encoded run.
pub(super) struct Reader<'a> {
    frame: &'a FrameType,
    decoder: &'a dyn Decoder,
    pages: Vec<Page<'a>>,
    /// The first frame of each page, and the end of the last.
    starts: Vec<usize>,
    /// Decoded values of the last call.
    values: Vec<u8>,
    /// Decoded texts of the last call.
    texts: Vec<String>,
    scratch: Scratch,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        frame: &'a FrameType,
        decoder: &'a dyn Decoder,
        encoded: &'a Encoded,
    ) -> Self {
        let mut starts = vec![0];
        for page in &encoded.pages {
            starts.push(starts.last().copied().unwrap_or(0) + page.frames);
        }
        let pages = encoded.pages.iter().map(EncodedPage::page);
        Self {
            frame,
            decoder,
            pages: pages.collect(),
            starts,
            values: Vec::new(),
            texts: Vec::new(),
            scratch: Scratch::new(),
        }
    }

    fn frames(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    fn make_room(&mut self, frames: usize) {
        let size = self.frame.as_values().map_or(0, ValueType::frame_bytes);
        self.values.resize(frames * size, 0);
    }

    /// Decodes `range` of page `idx` to position `place` of the values, or appends to the texts.
    fn page(&mut self, idx: usize, range: Range<usize>, place: usize) -> Result<(), CodecError> {
        let (page, scratch) = (self.pages[idx], &mut self.scratch);
        let Some(ty) = self.frame.as_values() else {
            return self
                .decoder
                .decode_text(page, range, &mut self.texts, scratch);
        };
        let size = ty.frame_bytes();
        let places = &mut self.values[place * size..][..range.len() * size];
        self.decoder.decode(page, range, places, scratch)
    }

    /// Decodes frames of the run, from all pages that hold them.
    fn range(&mut self, range: Range<usize>) -> Result<(), CodecError> {
        self.texts.clear();
        let mut next = range.start;
        while next < range.end {
            let idx = self.starts.partition_point(|start| *start <= next) - 1;
            let start = self.starts[idx];
            let end = range.end.min(self.starts[idx + 1]);
            self.page(idx, next - start..end - start, next - range.start)?;
            next = end;
        }
        Ok(())
    }

    /// The sum of the best time of every page.
    pub(super) fn every_page(&mut self, budget: Duration) -> Result<Duration, CodecError> {
        self.make_room(self.frames());
        let mut best = vec![Duration::MAX; self.pages.len()];
        best_of(budget, || {
            self.texts.clear();
            for (idx, best) in best.iter_mut().enumerate() {
                let (frames, place) = (self.pages[idx].frames, self.starts[idx]);
                let start = Instant::now();
                self.page(idx, 0..frames, place)?;
                *best = start.elapsed().min(*best);
            }
            Ok(())
        })?;
        Ok(best.iter().sum())
    }

    /// The mean over random positions of the best time to decode `len` frames there.
    pub(super) fn random(&mut self, len: usize, budget: Duration) -> Result<Duration, CodecError> {
        self.make_room(len);
        let places = self.frames().saturating_sub(len) + 1;
        let mut total = Duration::ZERO;
        for nr in 1..=PLACES {
            // A sequence without a pattern, the same on every machine.
            let start = u64::from(nr).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
            let start = usize::try_from(start).unwrap_or(0) % places;
            total += best_of(budget / PLACES, || self.range(start..start + len))?;
        }
        Ok(total / PLACES)
    }

    /// The best time to decode every page as a loader does that decodes images at a fraction of their size and resizes
    /// them; `None` if that changes nothing.
    pub(super) fn reduced(&self, effort: &Effort) -> Result<Option<Duration>, CodecError> {
        let is_reduced = self.pages.iter().any(|page| self.decoder.can_reduce(*page));
        let resize = effort.resize.filter(|resize| resize.reduced().is_some());
        let Some(resize) = resize.filter(|_| is_reduced) else {
            return Ok(None);
        };
        let (mut out, mut whole) = (vec![0; resize.frame_bytes()], Vec::new());
        let mut scratch = FitScratch::default();
        let best = best_of(effort.budget, || {
            for &page in &self.pages {
                if !resize.decode_reduced(self.decoder, page, &mut out, &mut scratch)? {
                    whole.resize(resize.source_bytes(), 0);
                    self.decoder
                        .decode(page, 0..1, &mut whole, &mut scratch.codec)?;
                    let done = resize.put_all(&mut whole, &mut out, &mut scratch.resize);
                    done.map_err(|what| CodecError::Buffer { what })?;
                }
            }
            Ok(())
        })?;
        Ok(Some(best))
    }

    /// The bitstream of frame `idx`.
    fn bitstream(&self, idx: usize) -> Option<&'a [u8]> {
        let page = self.starts.partition_point(|start| *start <= idx) - 1;
        self.decoder
            .bitstream(self.pages[page], idx - self.starts[page])
    }

    /// Compares what [`every_page`](Self::every_page) decoded last with the original.
    pub(super) fn check(
        &self,
        codec: &dyn Codec,
        frames: &Frames<'_>,
    ) -> Result<Distortion, CodecError> {
        match (frames.data(), self.frame.as_values()) {
            (FrameData::Bytes(texts), None) => {
                let same = self
                    .texts
                    .iter()
                    .map(String::as_bytes)
                    .eq(texts.iter().copied());
                if same {
                    return Ok(Distortion::default());
                }
                Err(broken(
                    codec,
                    "text does not decode to the original".to_owned(),
                ))
            }
            (FrameData::Bytes(files), Some(_)) => {
                let mut files = files.iter().enumerate();
                if files.all(|(idx, file)| self.bitstream(idx) == Some(*file)) {
                    return Ok(Distortion::default());
                }
                Err(broken(
                    codec,
                    "a bitstream is not returned unchanged".to_owned(),
                ))
            }
            (FrameData::Values(_), None) => Ok(Distortion::default()),
            (FrameData::Values(original), Some(ty)) => {
                let comparison = Comparison::new(codec, ty, &[]);
                let mut all = Distortion::default();
                for pair in self.starts.windows(2) {
                    let part = pair[0] * ty.frame_bytes()..pair[1] * ty.frame_bytes();
                    let (a, b) = (&original[part.clone()], &self.values[part]);
                    all.merge(comparison.page(pair[0], a, b)?);
                }
                Ok(all)
            }
        }
    }
}
