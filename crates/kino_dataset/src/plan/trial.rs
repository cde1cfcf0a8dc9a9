//! Codecs tried on the first frames of a stream: size decides, and between sizes that are about equal, decoding.
//!
//! Only sizes and the codecs' own descriptions count, never a clock: the same frames give the same choice on every
//! machine.

use kino_codec::{Codec, CodecError, Encoded, Frames, Scratch, Speed};
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

/// The position of the best candidate for these frames, and how it compares with others. Candidates that cannot encode
/// them do not count; `None` if none can.
pub(super) fn weigh(
    candidates: &[Candidate],
    first: &Frames<'_>,
) -> Option<(usize, Option<Trial>)> {
    let mut scratch = Scratch::new();
    let sizes = candidates.iter().map(|one| size(one, first, &mut scratch));
    let sized = sizes.enumerate();
    let mut tried: Vec<_> = sized
        .filter_map(|(idx, bytes)| Some((idx, bytes.ok()?)))
        .collect();
    let best = best(candidates, &tried)?;
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

/// Of the smallest and those about as small, the fastest to decode; the first of equally fast ones.
fn best(candidates: &[Candidate], tried: &[(usize, u64)]) -> Option<usize> {
    let smallest = u128::from(tried.iter().map(|&(_, bytes)| bytes).min()?);
    let limit = smallest * (100 + MARGIN_PERCENT);
    let small = tried
        .iter()
        .filter(|&&(_, bytes)| u128::from(bytes) * 100 <= limit);
    let best = small.min_by_key(|&&(idx, _)| (decoding(&*candidates[idx].codec), idx));
    best.map(|&(idx, _)| idx)
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
