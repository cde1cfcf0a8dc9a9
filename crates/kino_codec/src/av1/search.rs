//! How coarse a group is stored: by a quality for all, or as coarse as a PSNR allows, found group by group.
//!
//! A page that promises a PSNR is decoded again, and stored finer until it keeps the promise. The steps follow
//! the measured slope (a decibel is worth about twenty steps of the quantiser, more where it is fine), so that
//! two or three encodings do for most groups.

use crate::bound::Bound;
use crate::error::Result;
use crate::scratch::Scratch;
use crate::spec::CodecSpec;

use super::encode::{Group, Settings};
use super::{DEFAULT_QUALITY, decode_units};

/// The coarsest step of the quantiser.
const COARSEST: usize = 255;

/// A group that is this much better than promised is good enough.
const SLACK_DB: f64 = 0.15;

/// So many encodings are spent on coming closer, before the rest of the way is halved.
const TRIES: usize = 6;

/// What a page has to reach.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// A step of the quantiser.
    Quantizer(usize),
    /// Decibels over all values of the page.
    Psnr(f64),
}

impl Target {
    /// From the parameters; with the one that says so in canonical form.
    pub(super) fn parse(spec: &CodecSpec) -> Result<(Self, (&'static str, String))> {
        match (spec.get("psnr"), spec.get("q")) {
            (Some(_), Some(_)) => Err(spec.error("give `q` or `psnr`, not both")),
            (Some(_), None) => {
                let decibels = spec.decibels("psnr")?;
                Ok((Self::Psnr(decibels), ("psnr", decibels.to_string())))
            }
            (None, _) => {
                let quality = spec.integer("q", 1..=100, DEFAULT_QUALITY)?;
                let coarseness = usize::try_from(100 - quality).unwrap_or_default();
                let quantizer = (coarseness * COARSEST / 100).max(1);
                Ok((Self::Quantizer(quantizer), ("q", quality.to_string())))
            }
        }
    }

    pub(super) fn bound(self) -> Bound {
        match self {
            Self::Quantizer(_) => Bound::Unbounded,
            Self::Psnr(decibels) => Bound::Psnr(decibels),
        }
    }

    /// The units of one group; `None` if no step of the quantiser keeps the promise.
    pub(super) fn encode(
        self,
        group: &Group<'_>,
        settings: impl Fn(usize) -> Settings,
        scratch: &mut Scratch,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let decibels = match self {
            Self::Quantizer(quantizer) => return group.encode(settings(quantizer)).map(Some),
            Self::Psnr(decibels) => decibels,
        };
        // The coarsest step known to keep the promise, with its units, and the finest known to break it.
        let mut kept: Option<(usize, Vec<Vec<u8>>)> = None;
        let mut broken = COARSEST + 1;
        let mut next = first_guess(decibels);
        for tries in 0.. {
            let units = group.encode(settings(next))?;
            let over = psnr(group, &units, scratch)? - decibels;
            if over >= 0.0 {
                kept = Some((next, units));
            } else {
                broken = next;
            }
            let finest = kept.as_ref().map_or(0, |(quantizer, _)| *quantizer);
            let close = (0.0..SLACK_DB).contains(&over) || broken <= finest + 1;
            if kept.is_some() && (close || tries >= TRIES) || broken <= 1 {
                break;
            }
            next = step(next, over, tries).clamp(finest + 1, broken - 1);
        }
        Ok(kept.map(|(_, units)| units))
    }
}

/// Where most cameras need about this much.
fn first_guess(decibels: f64) -> usize {
    to_step(50.0 + (42.0 - decibels) * 20.0).clamp(2, 240)
}

/// The next step to try, `over` decibels above (or below) the promise.
fn step(from: usize, over: f64, tries: usize) -> usize {
    if tries >= TRIES / 2 && over < 0.0 {
        return from / 2;
    }
    // A little towards the safe side, so that the last try is seldom a miss.
    let slope = 12.0 + 0.1 * to_float(from);
    let wanted = to_float(from) + slope * (over - SLACK_DB / 2.0);
    to_step(wanted)
}

/// The PSNR over all values of a group but those of exact frames; infinite if nothing differs.
#[expect(
    clippy::cast_precision_loss,
    reason = "a page has under 2²⁸ values, each square under 2¹⁶"
)]
fn psnr(group: &Group<'_>, units: &[Vec<u8>], scratch: &mut Scratch) -> Result<f64> {
    let size = group.size;
    let mut pixels = vec![0; size.row_bytes()];
    let (mut squares, mut values) = (0_u64, 0_usize);
    let units = units.iter().map(Vec::as_slice);
    decode_units(size, units, &mut scratch.av1, |idx, picture| {
        if group.is_exact(idx) {
            return;
        }
        values += size.bytes();
        let original = &group.pixels[idx * size.bytes()..][..size.bytes()];
        for (y, original) in original.chunks_exact(size.row_bytes()).enumerate() {
            picture.row(y, (0, size.width)).to_pixels(&mut pixels);
            let square = |(a, b): (&u8, &u8)| u64::from(a.abs_diff(*b)).pow(2);
            squares += pixels.iter().zip(original).map(square).sum::<u64>();
        }
    })?;
    let mean = squares as f64 / values as f64;
    match squares {
        0 => Ok(f64::INFINITY),
        _ => Ok(10.0 * (255.0 * 255.0 / mean).log10()),
    }
}

fn to_float(step: usize) -> f64 {
    f64::from(u32::try_from(step).unwrap_or(u32::MAX))
}

/// The nearest step of the quantiser.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to 1–255 in the same line"
)]
fn to_step(wanted: f64) -> usize {
    wanted.round().clamp(1.0, 255.0) as usize
}
