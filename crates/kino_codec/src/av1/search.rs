//! How coarsely a group is quantised: one quality for all, or as coarse as a PSNR allows, found group by group.
//!
//! A page with a guaranteed PSNR is decoded again, and stored finer until it meets the PSNR. The search brackets
//! the target, then interpolates or bisects; most groups need three encodings.

use crate::bound::Bound;
use crate::error::Result;
use crate::scratch::Scratch;
use crate::spec::CodecSpec;

use super::encode::{Group, Settings};
use super::{DEFAULT_QUALITY, decode_units};

/// The coarsest quantiser step.
const COARSEST: usize = 255;

/// A group that exceeds the target by this much or less is good enough.
const SLACK_DB: f64 = 0.15;

/// After this many encodings, any result that meets the target is good enough.
const TRIES: usize = 7;

/// What a page must reach.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// A quality from 1 to 100, which is a quantiser step.
    Quality(i32),
    /// PSNR in decibels, over all values of the page.
    Psnr(f64),
}

impl Target {
    /// From the parameters.
    pub(super) fn parse(spec: &CodecSpec) -> Result<Self> {
        match (spec.get("psnr"), spec.get("q")) {
            (Some(_), Some(_)) => {
                Err(spec.error("`q` and `psnr` exclude each other; use one of them"))
            }
            (Some(_), None) => Ok(Self::Psnr(spec.decibels("psnr")?)),
            (None, _) => Ok(Self::Quality(spec.integer(
                "q",
                1..=100,
                DEFAULT_QUALITY,
            )?)),
        }
    }

    /// The parameter that sets it.
    pub(super) fn parameter(self) -> (&'static str, String) {
        match self {
            Self::Quality(quality) => ("q", quality.to_string()),
            Self::Psnr(decibels) => ("psnr", decibels.to_string()),
        }
    }

    pub(super) fn bound(self) -> Bound {
        match self {
            Self::Quality(_) => Bound::Unbounded,
            Self::Psnr(decibels) => Bound::Psnr(decibels),
        }
    }

    /// The units of one group; `None` if no quantiser step meets the target.
    pub(super) fn encode(
        self,
        group: &Group<'_>,
        settings: impl Fn(usize) -> Settings,
        scratch: &mut Scratch,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let decibels = match self {
            Self::Quality(quality) => {
                let coarseness = usize::try_from(100 - quality).unwrap_or_default();
                let quantizer = (coarseness * COARSEST / 100).max(1);
                return group.encode(settings(quantizer)).map(Some);
            }
            Self::Psnr(decibels) => decibels,
        };
        let mut kept: Option<(Try, Vec<Vec<u8>>)> = None;
        let mut broken: Option<Try> = None;
        let mut next = first_guess(decibels);
        for tries in 0.. {
            let units = group.encode(settings(next))?;
            let over = psnr(group, &units, scratch)? - decibels;
            let this = Try {
                quantizer: next,
                over,
            };
            if over >= 0.0 {
                kept = Some((this, units));
            } else {
                broken = Some(this);
            }
            let finest = kept.as_ref().map(|(kept, _)| *kept);
            let low = finest.map_or(0, |kept| kept.quantizer);
            let high = broken.map_or(COARSEST + 1, |broken| broken.quantizer);
            let done = finest.is_some_and(|kept| kept.over < SLACK_DB || tries >= TRIES);
            if done || high <= low + 1 {
                break;
            }
            // Interpolation that keeps landing on one side hardly moves: every other try bisects instead.
            let halves = tries % 2 == 1 && finest.is_some() && broken.is_some();
            next = if halves {
                (low + high) / 2
            } else {
                between(this, finest, broken).clamp(low + 1, high - 1)
            };
        }
        Ok(kept.map(|(_, units)| units))
    }
}

/// A quantiser step that was tried, and how many decibels it is above the target.
#[derive(Debug, Clone, Copy)]
struct Try {
    quantizer: usize,
    over: f64,
}

/// What most camera streams need.
fn first_guess(decibels: f64) -> usize {
    to_step(50.0 + (42.0 - decibels) * 20.0).min(240)
}

/// The next step to try: interpolated between the coarsest that meets the target and the finest that misses it,
/// or, until both exist, a step of the usual size towards the missing side.
fn between(last: Try, kept: Option<Try>, broken: Option<Try>) -> usize {
    let (Some(kept), Some(broken)) = (kept, broken) else {
        // A decibel is about this many steps; doubled, to reach the other side soon.
        let slope = 24.0 + 0.2 * to_float(last.quantizer);
        return to_step(to_float(last.quantizer) + slope * last.over);
    };
    if !kept.over.is_finite() {
        return (kept.quantizer + broken.quantizer) / 2;
    }
    // Slightly towards the safe side, so that the last try rarely misses.
    let part = (kept.over - SLACK_DB / 2.0).max(0.0) / (kept.over - broken.over);
    let gap = to_float(broken.quantizer - kept.quantizer);
    to_step(to_float(kept.quantizer) + part * gap)
}

/// The PSNR over all values of a group except exact frames; infinite if nothing differs.
#[expect(
    clippy::cast_precision_loss,
    reason = "a page has under 2²⁸ values, each square under 2¹⁶"
)]
fn psnr(group: &Group<'_>, units: &[Vec<u8>], scratch: &mut Scratch) -> Result<f64> {
    let size = group.size;
    let mut pixels = vec![0; size.bytes()];
    let mut state = scratch.take();
    let (mut squares, mut values) = (0_u64, 0_usize);
    let units = units.iter().map(Vec::as_slice);
    decode_units(size, units, &mut state, |idx, image| {
        if group.frames.is_protected(idx) {
            return;
        }
        values += size.bytes();
        let original = &group.pixels[idx * size.bytes()..][..size.bytes()];
        image.to_pixels(size, &mut pixels);
        let square = |(a, b): (&u8, &u8)| u64::from(a.abs_diff(*b)).pow(2);
        squares += pixels.iter().zip(original).map(square).sum::<u64>();
    })?;
    scratch.keep(state);
    let mean = squares as f64 / values as f64;
    match squares {
        0 => Ok(f64::INFINITY),
        _ => Ok(10.0 * (255.0 * 255.0 / mean).log10()),
    }
}

fn to_float(step: usize) -> f64 {
    f64::from(u32::try_from(step).unwrap_or(u32::MAX))
}

/// The nearest quantiser step.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to 1–255 in the same line"
)]
fn to_step(requested: f64) -> usize {
    requested.round().clamp(1.0, 255.0) as usize
}
