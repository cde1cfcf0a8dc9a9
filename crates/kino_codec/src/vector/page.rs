//! The parts of a page.
//!
//! ```text
//! page = length × (classes − 1) │ marks × gates │ exceptions │ starts │ class 0 │ class 1 │ …
//!        varints                  varints         see below    bits      pco pages; the last extends to the end
//! exceptions = runs │ ( gap │ length − 1 │ correction × length ) × runs       varints, corrections zigzag
//! ```
//!
//! `marks` is how often a gate opens in the page; class 0 then holds, for each opening, the number of frames since the
//! previous one (or since frame 0). Starts are packed bits, column by column, padded to a byte.
//!
//! An exception is a value that the other parts do not reproduce exactly (or, in a bounded stream, well enough):
//! its ordered bits are `correction` more. Positions run over all frames of element 0, then of element 1 …

use crate::error::{Result, corrupt};

use super::NAME;
use super::bits::{BitReader, put_varint, take_up_to, take_varint, unzigzag, zigzag};
use super::layout::{Column, Layout};
use super::value::Value;

/// One value to correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exception {
    /// Element × frames of the page + frame.
    pub(super) position: usize,
    /// The difference between its ordered bits and those of the decoded value.
    pub(super) correction: i64,
}

/// Appends exceptions, which must be in order.
pub(super) fn put_exceptions(exceptions: &[Exception], out: &mut Vec<u8>) {
    let runs = exceptions.chunk_by(|a, b| a.position + 1 == b.position);
    put_varint(runs.clone().count() as u64, out);
    let mut end = 0;
    for run in runs {
        let start = run[0].position;
        put_varint((start - end) as u64, out);
        put_varint(run.len() as u64 - 1, out);
        for exception in run {
            put_varint(zigzag(exception.correction), out);
        }
        end = start + run.len();
    }
}

/// The exceptions of a page, with positions checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exceptions<'a> {
    runs: usize,
    bytes: &'a [u8],
}

impl<'a> Exceptions<'a> {
    /// Takes the exceptions of a page with `values` values off the front of `bytes`.
    pub(super) fn take(values: usize, bytes: &mut &'a [u8]) -> Result<Self> {
        let runs = take_up_to(values, bytes)?;
        let all = Self { runs, bytes };
        let mut end = 0;
        for _ in 0..runs {
            let start = take_up_to(values, bytes)?.saturating_add(end);
            end = take_up_to(values, bytes)?
                .saturating_add(start)
                .saturating_add(1);
            if end > values {
                return Err(corrupt(NAME, "an exception is outside the page"));
            }
            for _ in start..end {
                take_varint(bytes)?;
            }
        }
        Ok(all)
    }

    /// Passes every exception to `then`.
    pub(super) fn each(self, mut then: impl FnMut(Exception)) -> Result<()> {
        let mut bytes = self.bytes;
        let mut end = 0;
        for _ in 0..self.runs {
            let start = end + take_up_to(usize::MAX, &mut bytes)?;
            end = start + take_up_to(usize::MAX, &mut bytes)? + 1;
            for position in start..end {
                let correction = unzigzag(take_varint(&mut bytes)?);
                then(Exception {
                    position,
                    correction,
                });
            }
        }
        Ok(())
    }
}

/// A parsed page.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) exceptions: Exceptions<'a>,
    /// The bytes of all classes.
    pub(super) classes: &'a [u8],
}

/// Positions and integers that a page is parsed into; kept from page to page.
#[derive(Debug, Default)]
pub(crate) struct PageScratch {
    /// Where each class ends.
    pub(super) ends: Vec<usize>,
    /// How often each gate opens.
    pub(super) marks: Vec<usize>,
    /// The start values of each element.
    pub(super) starts: Vec<[i64; 2]>,
}

impl PageScratch {
    /// Parses a page of `frames` frames.
    pub(super) fn take<'a, T: Value>(
        &mut self,
        layout: &Layout<T>,
        frames: usize,
        mut bytes: &'a [u8],
    ) -> Result<Parts<'a>> {
        let rest = &mut bytes;
        self.ends.clear();
        let mut end = 0_usize;
        for _ in 1..layout.classes {
            end = take_up_to(rest.len(), rest)?.saturating_add(end);
            self.ends.push(end);
        }
        self.marks.clear();
        for _ in 0..layout.gates {
            self.marks.push(take_up_to(frames.saturating_sub(1), rest)?);
        }
        let exceptions = Exceptions::take(layout.columns.len() * frames, rest)?;
        let mut bits = BitReader::new(rest);
        self.starts.clear();
        for column in &layout.columns {
            let mut starts = [0; 2];
            if let Column::Stored(stored) = column {
                let count = stored.predictor.starts(self.len(stored.gate, frames));
                for (value, start) in starts.iter_mut().zip(&stored.starts[..count]) {
                    *value = start
                        .least
                        .wrapping_add(bits.take(start.bits)?.cast_signed());
                }
                // The second is stored as a step.
                starts[1] = starts[1].wrapping_add(starts[0]);
            }
            self.starts.push(starts);
        }
        let classes = bits.finish()?;
        if end > classes.len() || (layout.classes == 0 && !classes.is_empty()) {
            return Err(corrupt(
                NAME,
                format!(
                    "its classes end at {end}, but there are {} bytes",
                    classes.len()
                ),
            ));
        }
        if layout.classes > 0 {
            self.ends.push(classes.len());
        }
        Ok(Parts {
            exceptions,
            classes,
        })
    }

    /// How many integers of a column a page of `frames` frames stores.
    pub(super) fn len(&self, gate: Option<usize>, frames: usize) -> usize {
        gate.map_or(frames, |gate| self.marks[gate] + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_round_trip() {
        let all: Vec<Exception> = [(0, 5), (1, -5), (7, i64::MIN), (9, 0), (10, 1), (11, 2)]
            .map(|(position, correction)| Exception {
                position,
                correction,
            })
            .to_vec();
        let mut bytes = Vec::new();
        put_exceptions(&all, &mut bytes);
        assert_eq!(bytes[..6], [3, 0, 1, 10, 9, 5]);
        let mut rest = bytes.as_slice();
        let exceptions = Exceptions::take(12, &mut rest).unwrap();
        assert!(rest.is_empty());
        let mut back = Vec::new();
        exceptions.each(|exception| back.push(exception)).unwrap();
        assert_eq!(back, all);
        assert!(Exceptions::take(11, &mut bytes.as_slice()).is_err());
        for cut in 0..bytes.len() {
            assert!(Exceptions::take(12, &mut &bytes[..cut]).is_err());
        }
    }
}
