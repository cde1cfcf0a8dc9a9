//! From an image to a page: picks the kind that makes it smallest.

use super::classes::{self, Detail};
use super::levels::{Levels, MAX_LEVELS, distinct};
use super::residuals::{self, PREDICTORS, Width};
use super::steps;
use super::streams::put_stream;
use super::{Kind, Size, rank_width};
use crate::error::Result;
use crate::scratch::Scratch;
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

/// The page of a packed image whose finite values may be off by `eps`.
pub(super) fn encode_image(
    effort: Effort,
    size: Size,
    (image, eps): (&[u8], f64),
    scratch: &mut Scratch,
) -> Result<Vec<u8>> {
    let zstd = &mut scratch.zstd;
    let keys: Vec<u64> = image
        .chunks_exact(size.numbers.size())
        .map(|number| size.numbers.key(number))
        .collect();
    let most = size.pixels() / PIXELS_PER_LEVEL;
    let mut best = None;
    // Within a bound, there are far fewer levels than distinct values.
    let limit = if eps > 0.0 {
        usize::MAX
    } else {
        most.min(MAX_LEVELS)
    };
    let levels = distinct(size.numbers, &keys, limit)
        .map(|distinct| Levels::new(size.numbers, &distinct, eps))
        .filter(|levels| levels.keys.len() <= most.clamp(1, MAX_LEVELS));
    if let Some(levels) = levels {
        encode_ranks(effort, size, (&levels, &keys), &mut best, zstd)?;
    }
    if best.is_none() || eps == 0.0 {
        let width = Width {
            bytes: size.numbers.size(),
        };
        for predictor in PREDICTORS {
            let mut page = vec![Kind::Values(predictor).id()];
            for plane in residuals::encode(predictor, width, size.width, &keys) {
                put_stream(effort, &plane, &mut page, zstd)?;
            }
            keep_shorter(page, &mut best);
        }
    }
    let mut page = best.unwrap_or_default();
    page.shrink_to_fit();
    Ok(page)
}

/// Tries every way to store the ranks of `keys` among `levels`.
fn encode_ranks(
    effort: Effort,
    size: Size,
    (levels, keys): (&Levels, &[u64]),
    best: &mut Option<Vec<u8>>,
    zstd: &mut ZstdContexts,
) -> Result<()> {
    let ranks: Vec<u16> = levels.ranks(keys);
    let width = rank_width(levels.keys.len());
    let mut head = vec![0];
    let table = levels.to_bytes(size.numbers);
    put_stream(effort, &table, &mut head, zstd)?;
    let details = [Detail::Full, Detail::Little].into_iter();
    for detail in details.filter(|_| size.width <= classes::MAX_WIDTH) {
        let mut page = head.clone();
        page[0] = Kind::Choices(detail).id();
        let mut streams = classes::encode(detail, size.width, &ranks);
        for stream in streams.in_order(detail) {
            put_stream(effort.min_match(MIN_MATCH), stream, &mut page, zstd)?;
        }
        // On a large image with flat areas nothing else comes close: no need to try.
        let is_flat = page.len() * 8 < 2 * size.pixels();
        keep_shorter(page, best);
        if is_flat && size.pixels() > MANY_PIXELS {
            return encode_steps(effort, size, (head, &ranks), best, zstd);
        }
    }
    let numbers: Vec<u64> = ranks.iter().map(|rank| u64::from(*rank)).collect();
    for predictor in PREDICTORS {
        let mut page = head.clone();
        page[0] = Kind::Ranks(predictor).id();
        for plane in residuals::encode(predictor, width, size.width, &numbers) {
            put_stream(effort, &plane, &mut page, zstd)?;
        }
        keep_shorter(page, best);
    }
    encode_steps(effort, size, (head, &ranks), best, zstd)
}

/// Stores ranks as steps unless something else is much shorter.
fn encode_steps(
    effort: Effort,
    size: Size,
    (mut page, ranks): (Vec<u8>, &[u16]),
    best: &mut Option<Vec<u8>>,
    zstd: &mut ZstdContexts,
) -> Result<()> {
    if size.width > classes::MAX_WIDTH {
        return Ok(());
    }
    page[0] = Kind::Steps.id();
    let effort = effort.at_least(STEPS_LEVEL).min_match(STEPS_MIN_MATCH);
    for stream in steps::encode(size.width, ranks) {
        put_stream(effort, &stream, &mut page, zstd)?;
    }
    // Small images take equally long either way.
    let is_faster = size.pixels() > MANY_PIXELS;
    let most = |best: &Vec<u8>| match is_faster {
        true => best.len() + best.len() / WORTH,
        false => best.len(),
    };
    if best.as_ref().is_none_or(|best| page.len() <= most(best)) {
        *best = Some(page);
    }
    Ok(())
}

fn keep_shorter(page: Vec<u8>, best: &mut Option<Vec<u8>>) {
    if best.as_ref().is_none_or(|best| page.len() < best.len()) {
        *best = Some(page);
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
