//! Codecs tried on the first frames of a stream: size decides, and between sizes that are about equal, decoding.
//!
//! | the plan says | the stream gets |
//! |---|---|
//! | nothing, or `lossless` | the best lossless codec |
//! | a quality, or a bound | the lossy codec, unless a lossless one is no larger |
//! | a codec | that codec; the trial says how it compares |
//!
//! Only sizes and the codecs' own descriptions count, never a clock: the same frames give the same choice on every
//! machine.

use kino_codec::{Bound, Codec, CodecError, Encoded, Frames, Scratch, Speed};
use serde::{Deserialize, Serialize};

use super::choice::Candidate;

/// Sizes that differ by less than this many percent are about equal.
const MARGIN_PERCENT: u128 = 2;

/// The codecs that were tried on the first frames of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// How many frames were tried.
    pub frames: u64,
    /// The codec that the stream got.
    pub chosen: Tried,
    /// The others.
    pub others: Vec<Tried>,
}

/// A codec and what the frames of a trial took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// The codec's canonical name.
    pub codec: String,
    /// Encoded bytes.
    pub bytes: u64,
}

impl Trial {
    /// The smallest lossless codec that takes no more than a lossy one that the plan asks for, and the latter.
    pub fn needless_loss(&self) -> Option<(&Tried, &Tried)> {
        let all = || self.others.iter().chain([&self.chosen]);
        let lossy = all().find(|one| !one.is_lossless())?;
        let lossless = all().filter(|one| one.is_lossless());
        let smallest = lossless.min_by_key(|one| (one.bytes, **one != self.chosen))?;
        (smallest.bytes <= lossy.bytes).then_some((smallest, lossy))
    }
}

impl Trial {
    /// Why a stream that is stored without loss stays so, although the plan allows a loss.
    pub(crate) fn why_lossless(&self) -> Option<String> {
        let (lossless, lossy) = self.needless_loss()?;
        let size = |one: &Tried| kino_format::ByteSize::new(one.bytes);
        Some(format!(
            "stays without loss, because that is no larger: its first {} frames take {} as `{}` and {} as `{}`",
            self.frames,
            size(lossless),
            lossless.codec,
            size(lossy),
            lossy.codec
        ))
    }
}

impl Tried {
    /// Whether every bit comes back.
    pub fn is_lossless(&self) -> bool {
        kino_codec::codec(&self.codec).is_ok_and(|codec| codec.bound() == Bound::Lossless)
    }
}

/// The position of the best candidate for these frames, or of the first, which the plan chose, if that is named; and
/// how it compares with the others. Candidates that cannot encode the frames do not count.
pub(super) fn weigh(
    candidates: &[Candidate],
    is_named: bool,
    first: &Frames<'_>,
) -> Option<(usize, Option<Trial>)> {
    let mut scratch = Scratch::new();
    let sizes = candidates.iter().map(|one| size(one, first, &mut scratch));
    let sized = sizes.enumerate();
    let mut tried: Vec<_> = sized
        .filter_map(|(idx, bytes)| Some((idx, bytes.ok()?)))
        .collect();
    let best = if is_named {
        0
    } else {
        best(candidates, &tried)?
    };
    let to_tried = |&(idx, bytes): &(usize, u64)| Tried {
        codec: candidates[idx].codec.spec().to_string(),
        bytes,
    };
    let place = tried.iter().position(|&(idx, _)| idx == best)?;
    let chosen = to_tried(&tried.remove(place));
    let trial = Trial {
        frames: first.len() as u64,
        chosen,
        others: tried.iter().map(to_tried).collect(),
    };
    Some((best, Some(trial).filter(|trial| !trial.others.is_empty())))
}

/// The best of those that were tried: the first if it is lossy and smaller than all others.
fn best(candidates: &[Candidate], tried: &[(usize, u64)]) -> Option<usize> {
    if is_lossless(candidates.first()?) {
        return smallest(candidates, tried);
    }
    // One that cannot encode the frames says so when they are written.
    let own = tried.iter().find(|&&(idx, _)| idx == 0);
    let limit = own.map_or(0, |&(_, bytes)| bytes);
    let mut exact = tried.to_vec();
    exact.retain(|&(idx, bytes)| is_lossless(&candidates[idx]) && bytes <= limit);
    smallest(candidates, &exact).or(Some(0))
}

/// Of the smallest and those about as small, the fastest to decode; the first of equally fast ones.
fn smallest(candidates: &[Candidate], tried: &[(usize, u64)]) -> Option<usize> {
    let smallest = u128::from(tried.iter().map(|&(_, bytes)| bytes).min()?);
    let limit = smallest * (100 + MARGIN_PERCENT);
    let small = tried
        .iter()
        .filter(|&&(_, bytes)| u128::from(bytes) * 100 <= limit);
    let best = small.min_by_key(|&&(idx, _)| (decoding(&*candidates[idx].codec), idx));
    best.map(|&(idx, _)| idx)
}

fn is_lossless(one: &Candidate) -> bool {
    one.codec.bound() == Bound::Lossless
}

/// The class of a codec's decoding speed.
fn decoding(codec: &dyn Codec) -> Speed {
    kino_codec::describe(codec.spec().name()).map_or(Speed::Slow, |codec| codec.decode)
}

/// What the frames take.
fn size(one: &Candidate, first: &Frames<'_>, scratch: &mut Scratch) -> Result<u64, CodecError> {
    let mut encoded = Encoded::default();
    one.codec
        .encode(first, one.page_frames, &mut encoded, scratch)?;
    let pages = encoded.pages.iter().map(|page| page.bytes.len());
    Ok((encoded.shared.len() + pages.sum::<usize>()) as u64)
}
