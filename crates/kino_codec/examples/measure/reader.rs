//! Decodes parts of an encoded run, times it, and compares.

use std::ops::Range;
use std::time::{Duration, Instant};

use kino_codec::{
    Bound, Codec, Decoder, Encoded, EncodedPage, FrameType, FramesMut, Page, Scratch, ValueType,
};

use crate::deviation::{Deviation, deviation, errors};
use crate::source::Source;
use crate::{Outcome, best_of};

/// Random places that are read.
const PLACES: u64 = 32;

/// Decodes parts of an encoded run.
pub(crate) struct Reader<'a> {
    frame: &'a FrameType,
    decoder: &'a dyn Decoder,
    pub(crate) pages: Vec<Page<'a>>,
    /// The number of the first frame of each page.
    starts: Vec<usize>,
    /// Decoded values of the last call; for [`every_page`](Self::every_page), of all frames.
    values: Vec<u8>,
    /// Decoded text of the last call.
    texts: Vec<String>,
    scratch: Scratch,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(
        frame: &'a FrameType,
        decoder: &'a dyn Decoder,
        encoded: &'a Encoded,
    ) -> Self {
        let mut next = 0;
        let start = |page: &EncodedPage| {
            next += page.frames;
            next - page.frames
        };
        let starts = encoded.pages.iter().map(start).collect();
        let pages = encoded.pages.iter().map(|page| Page {
            bytes: &page.bytes,
            frames: page.frames,
        });
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

    /// Decodes `range` of page `idx` to place `place` of the values, or behind the texts.
    fn page(&mut self, idx: usize, range: Range<usize>, place: usize) -> Outcome<()> {
        let (page, scratch) = (self.pages[idx], &mut self.scratch);
        let Some(ty) = self.frame.as_values() else {
            return Ok(self
                .decoder
                .decode_text(page, range, &mut self.texts, scratch)?);
        };
        let size = ty.frame_bytes();
        let places = &mut self.values[place * size..][..range.len() * size];
        let mut dest = FramesMut::packed(ty, range.len(), places)?;
        Ok(self.decoder.decode(page, range, &mut dest, scratch)?)
    }

    /// Decodes frames of the run, from whichever pages they lie in.
    fn frames(&mut self, range: Range<usize>) -> Outcome<()> {
        self.texts.clear();
        let mut next = range.start;
        while next < range.end {
            let idx = self.starts.partition_point(|start| *start <= next) - 1;
            let start = self.starts[idx];
            let end = range.end.min(start + self.pages[idx].frames);
            self.page(idx, next - start..end - start, next - range.start)?;
            next = end;
        }
        Ok(())
    }

    fn make_room(&mut self, frames: usize) {
        let size = self.frame.as_values().map_or(0, ValueType::frame_bytes);
        self.values.resize(frames * size, 0);
    }

    /// The sum of the best time of every page.
    pub(crate) fn every_page(&mut self, budget: Duration) -> Outcome<Duration> {
        self.make_room(self.pages.iter().map(|page| page.frames).sum());
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

    /// The mean over random places of the best time to decode `len` frames there.
    pub(crate) fn random(
        &mut self,
        frames: usize,
        len: usize,
        budget: Duration,
    ) -> Outcome<Duration> {
        self.make_room(len);
        let mut total = Duration::ZERO;
        let places = u32::try_from(PLACES)?;
        for place in 1..=PLACES {
            // A sequence without a pattern that is the same on every machine.
            let start = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let start = usize::try_from(start)? % (frames - len + 1);
            total += best_of(budget / places, || self.frames(start..start + len))?;
        }
        Ok(total / places)
    }

    /// Compares what [`every_page`](Self::every_page) decoded last with the original.
    pub(crate) fn check(&self, codec: &dyn Codec, source: &Source) -> Outcome<Option<Deviation>> {
        let broken = |what: &str| Err(format!("{} {what}", codec.spec()).into());
        if let Some(strings) = &source.strings {
            let mut strings = strings.iter().enumerate();
            return match strings
                .all(|(idx, range)| self.is_string(idx, &source.bytes[range.clone()]))
            {
                true => Ok(None),
                false => broken("did not give a string back"),
            };
        }
        let Some(ty) = self.frame.as_values() else {
            return broken("was given values for text");
        };
        match codec.bound() {
            Bound::Lossless if self.values == source.bytes => return Ok(None),
            Bound::Lossless => return broken("did not give the frames back"),
            Bound::Abs(bound) => {
                let size = ty.dtype().size();
                let errors = errors(ty.dtype(), &source.bytes, &self.values);
                for (idx, error) in errors.enumerate() {
                    if error > bound.eps(idx % (ty.frame_bytes() / size)) {
                        return broken("broke its bound");
                    }
                }
            }
            Bound::Psnr(least) => {
                let size = ty.frame_bytes();
                for (page, start) in self.pages.iter().zip(&self.starts) {
                    let part = start * size..(start + page.frames) * size;
                    let (original, decoded) = (&source.bytes[part.clone()], &self.values[part]);
                    if deviation(ty.dtype(), original, decoded).psnr_db < least {
                        return broken("broke its bound");
                    }
                }
            }
            _ => {}
        }
        Ok(Some(deviation(ty.dtype(), &source.bytes, &self.values)))
    }

    /// Whether frame `idx` is this text or bitstream.
    fn is_string(&self, idx: usize, original: &[u8]) -> bool {
        let page = self.starts.partition_point(|start| *start <= idx) - 1;
        match self.frame {
            FrameType::Text => self.texts[idx].as_bytes() == original,
            FrameType::Values(_) => {
                let place = idx - self.starts[page];
                self.decoder.bitstream(self.pages[page], place) == Some(original)
            }
        }
    }
}
