//! From an image to a page: picks the kind that makes it smallest.

use super::classes::{self, Detail};
use super::levels::{Levels, MAX_LEVELS, distinct};
use super::residuals::{self, PREDICTORS, Width};
use super::steps;
use super::streams::put_stream;
use super::{Kind, Size, rank_width};
use crate::error::Result;
use crate::predict::Predictor;
use crate::zstd_frame::{Effort, ZstdContexts};

/// A table of levels pays off only with at least this many pixels per level.
const PIXELS_PER_LEVEL: usize = 4;

/// Above this, the streams of a page are long enough to justify their headers.
const MANY_PIXELS: usize = 64 << 10;

/// Short matches among choices are coincidence.
const MIN_MATCH: u32 = 7;

/// Choices must save at least 1/`WORTH` of the size of steps: they take half as long again to decode.
const WORTH: usize = 12;

/// The minimum zstd level for steps: the other work is cheap, so a thorough search is affordable and free for readers.
const STEPS_LEVEL: i32 = 16;
const STEPS_MIN_MATCH: u32 = 5;

/// Tries the ways to store an image and keeps the best.
pub(super) struct Encoder<'a> {
    pub(super) effort: Effort,
    pub(super) size: Size,
    pub(super) zstd: &'a mut ZstdContexts,
    /// The best page so far.
    pub(super) best: Option<Vec<u8>>,
}

impl Encoder<'_> {
    /// The page of a packed image whose finite values may be off by `eps`.
    pub(super) fn encode(mut self, image: &[u8], eps: f64) -> Result<Vec<u8>> {
        let (size, numbers) = (self.size, self.size.numbers);
        let keys: Vec<u64> = image
            .chunks_exact(numbers.size())
            .map(|number| numbers.key(number))
            .collect();
        let most = size.pixels() / PIXELS_PER_LEVEL;
        // Within a bound, there are far fewer levels than distinct values.
        let limit = if eps > 0.0 {
            usize::MAX
        } else {
            most.min(MAX_LEVELS)
        };
        let levels = distinct(numbers, &keys, limit)
            .map(|distinct| Levels::new(numbers, &distinct, eps))
            .filter(|levels| levels.keys.len() <= most.clamp(1, MAX_LEVELS));
        if let Some(levels) = levels {
            self.try_ranks(&levels, &keys)?;
        }
        if self.best.is_none() || eps == 0.0 {
            let width = Width {
                bytes: numbers.size(),
            };
            for predictor in PREDICTORS {
                let page = vec![Kind::Values(predictor).id()];
                self.try_residuals(page, predictor, width, &keys)?;
            }
        }
        Ok(self.best.unwrap_or_default())
    }

    /// Tries every way to store the ranks of `keys` among `levels`.
    fn try_ranks(&mut self, levels: &Levels, keys: &[u64]) -> Result<()> {
        let size = self.size;
        let ranks: Vec<u16> = levels.ranks(keys);
        let mut head = vec![0];
        let table = levels.to_bytes(size.numbers);
        put_stream(self.effort, &table, &mut head, self.zstd)?;
        let details = [Detail::Full, Detail::Little].into_iter();
        for detail in details.filter(|_| size.width <= classes::MAX_WIDTH) {
            let mut page = head.clone();
            page[0] = Kind::Choices(detail).id();
            let mut streams = classes::encode(detail, size.width, &ranks);
            let effort = self.effort.min_match(MIN_MATCH);
            for stream in streams.in_order(detail) {
                put_stream(effort, stream, &mut page, self.zstd)?;
            }
            // On a large image with flat areas nothing else comes close: no need to try.
            let is_flat = page.len() * 8 < 2 * size.pixels();
            self.keep_shorter(page);
            if is_flat && size.pixels() > MANY_PIXELS {
                return self.try_steps(head, &ranks);
            }
        }
        let numbers: Vec<u64> = ranks.iter().map(|rank| u64::from(*rank)).collect();
        let width = rank_width(levels.keys.len());
        for predictor in PREDICTORS {
            let mut page = head.clone();
            page[0] = Kind::Ranks(predictor).id();
            self.try_residuals(page, predictor, width, &numbers)?;
        }
        self.try_steps(head, &ranks)
    }

    /// Stores values as residuals after the start of a page.
    fn try_residuals(
        &mut self,
        mut page: Vec<u8>,
        predictor: Predictor,
        width: Width,
        values: &[u64],
    ) -> Result<()> {
        for plane in residuals::encode(predictor, width, self.size.width, values) {
            put_stream(self.effort, &plane, &mut page, self.zstd)?;
        }
        self.keep_shorter(page);
        Ok(())
    }

    /// Stores ranks as steps after the start of a page, unless something else is much shorter.
    fn try_steps(&mut self, mut page: Vec<u8>, ranks: &[u16]) -> Result<()> {
        if self.size.width > classes::MAX_WIDTH {
            return Ok(());
        }
        page[0] = Kind::Steps.id();
        let effort = self.effort.at_least(STEPS_LEVEL).min_match(STEPS_MIN_MATCH);
        for stream in steps::encode(self.size.width, ranks) {
            put_stream(effort, &stream, &mut page, self.zstd)?;
        }
        // Small images take equally long either way.
        let is_faster = self.size.pixels() > MANY_PIXELS;
        let most = self.best.as_ref().map_or(usize::MAX, |best| {
            let worth = if is_faster { best.len() / WORTH } else { 0 };
            best.len() + worth
        });
        if page.len() <= most {
            self.best = Some(page);
        }
        Ok(())
    }

    fn keep_shorter(&mut self, page: Vec<u8>) {
        if self
            .best
            .as_ref()
            .is_none_or(|best| page.len() < best.len())
        {
            self.best = Some(page);
        }
    }
}

/// The page of an image as choices or steps, regardless of size.
#[cfg(test)]
pub(super) fn encode_ranks_as(effort: Effort, size: Size, image: &[u8], kind: Kind) -> Vec<u8> {
    let keys: Vec<u64> = image
        .chunks_exact(size.numbers.size())
        .map(|number| size.numbers.key(number))
        .collect();
    let distinct = distinct(size.numbers, &keys, MAX_LEVELS).unwrap();
    let levels = Levels::new(size.numbers, &distinct, 0.0);
    let mut zstd = ZstdContexts::default();
    let mut page = vec![kind.id()];
    put_stream(effort, &levels.to_bytes(size.numbers), &mut page, &mut zstd).unwrap();
    let ranks = levels.ranks(&keys);
    let streams: Vec<Vec<u8>> = match kind {
        Kind::Choices(detail) => {
            let mut streams = classes::encode(detail, size.width, &ranks);
            streams.in_order(detail).map(std::mem::take).collect()
        }
        _ => steps::encode(size.width, &ranks).into(),
    };
    for stream in streams {
        put_stream(effort, &stream, &mut page, &mut zstd).unwrap();
    }
    page
}
