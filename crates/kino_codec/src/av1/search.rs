//! How coarsely a group is encoded: one quality for all, or as coarse as a PSNR allows, found group by group.
//!
//! A page with a guaranteed PSNR is decoded again, and stored finer until it meets the PSNR. The search begins on the
//! first frames of the group, which cost little; then most groups are encoded once or twice.
//!
//! Nothing is remembered from page to page: the same frames give the same bytes, in whatever order pages are encoded.

use crate::bound::Bound;
use crate::error::Result;
use crate::scratch::Scratch;
use crate::spec::CodecSpec;

use super::encode::{Group, Settings};
use super::{DEFAULT_QUALITY, decode_units};

/// The coarsest constant rate factor.
const COARSEST: usize = 63;

/// A group that exceeds the target by this much or less is good enough: a step of the factor is about as much.
const SLACK_DB: f64 = 0.4;

/// What the search aims at, above the target.
const AIM_DB: f64 = SLACK_DB / 2.0;

/// After this many encodings, any result that meets the target is good enough.
const TRIES: usize = 7;

/// The search begins on one frame in this many, and encodes them at most this often.
const PROBE: usize = 4;
const PROBE_TRIES: usize = 3;

/// What a page must reach.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// A quality from 1 to 100, which is a constant rate factor.
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

    /// The units of one group; `None` if no constant rate factor meets the target.
    pub(super) fn encode(
        self,
        group: &Group<'_>,
        settings: impl Fn(usize) -> Settings,
        scratch: &mut Scratch,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let decibels = match self {
            Self::Quality(quality) => {
                let coarseness = usize::try_from(100 - quality).unwrap_or_default();
                let crf = (coarseness * COARSEST / 100).max(1);
                return group.encode(settings(crf)).map(Some);
            }
            Self::Psnr(decibels) => decibels,
        };
        let mut search = Search::new(first_guess(decibels));
        if let Some(probe) = group.head(group.frames.len() / PROBE) {
            for _ in 0..PROBE_TRIES {
                let units = probe.encode(settings(search.next))?;
                let over = psnr(&probe, &units, scratch)? - decibels;
                search.add(over);
                if (over - AIM_DB).abs() < SLACK_DB {
                    break;
                }
            }
            // Only where to begin, and how steep it is: the whole group has another PSNR.
            search = Search {
                slope: search.slope,
                ..Search::new(search.next)
            };
        }
        let mut kept = None;
        for _ in 0..TRIES {
            let units = group.encode(settings(search.next))?;
            if search.add(psnr(group, &units, scratch)? - decibels) {
                kept = Some(units);
            }
            if search.is_done() {
                break;
            }
        }
        Ok(kept)
    }
}

/// A constant rate factor that was tried, and how many decibels it is above the target.
#[derive(Debug, Clone, Copy)]
struct Try {
    crf: usize,
    over: f64,
}

/// A search for the coarsest factor that meets the target: secants, between what met it and what did not.
#[derive(Debug)]
struct Search {
    /// The factor to try next.
    next: usize,
    last: Option<Try>,
    /// The coarsest that met the target.
    kept: Option<Try>,
    /// The finest that missed it.
    broken: Option<Try>,
    /// Decibels per step of the factor.
    slope: f64,
}

impl Search {
    fn new(next: usize) -> Self {
        Self {
            next,
            last: None,
            kept: None,
            broken: None,
            slope: usual_slope(next),
        }
    }

    /// Notes how many decibels above the target `next` was and chooses another; whether it is the best so far.
    fn add(&mut self, over: f64) -> bool {
        let this = Try {
            crf: self.next,
            over: over.min(99.0),
        };
        if let Some(last) = self.last.replace(this).filter(|last| last.crf != this.crf) {
            let steps = to_float(this.crf) - to_float(last.crf);
            self.slope = ((last.over - this.over) / steps).clamp(0.05, 1.5);
        }
        let is_kept = this.over >= 0.0;
        *(if is_kept {
            &mut self.kept
        } else {
            &mut self.broken
        }) = Some(this);
        let wanted = to_float(this.crf) + (this.over - AIM_DB) / self.slope;
        self.next = to_crf(wanted).clamp(self.low() + 1, (self.high() - 1).max(self.low() + 1));
        is_kept
    }

    fn low(&self) -> usize {
        self.kept.map_or(0, |kept| kept.crf)
    }

    fn high(&self) -> usize {
        self.broken.map_or(COARSEST + 1, |broken| broken.crf)
    }

    /// Whether no other factor is worth trying.
    fn is_done(&self) -> bool {
        self.kept.is_some_and(|kept| kept.over < SLACK_DB) || self.high() <= self.low() + 1
    }
}

/// Decibels per step of the factor near a factor, as on most camera streams, until two encodings tell.
fn usual_slope(crf: usize) -> f64 {
    match crf {
        0..20 => 0.25,
        20..52 => 0.13,
        _ => 0.5,
    }
}

/// What most camera streams need.
fn first_guess(decibels: f64) -> usize {
    let fine = 10.0 + (44.0 - decibels) * 8.0;
    to_crf(fine.min(44.0 + (40.0 - decibels).max(0.0) * 4.0)).min(60)
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

fn to_float(crf: usize) -> f64 {
    f64::from(u32::try_from(crf).unwrap_or(u32::MAX))
}

/// The nearest constant rate factor on the fine side.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to 1–63 in the same line"
)]
fn to_crf(wanted: f64) -> usize {
    wanted.floor().clamp(1.0, 63.0) as usize
}
