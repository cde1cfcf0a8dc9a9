//! The first frames of a stream: what they take as they are stored, and what they would take with another codec.

use kino_codec::{Encoded, FrameType, Frames, Scratch};

use crate::dataset::Dataset;
use crate::error::{Result, codec_at};
use crate::plan::{Choice, Trial};
use crate::stored_stream::StoredStream;

/// About this many bytes of frames are encoded to compare sizes, and at least those of a trial.
const SAMPLE_BYTES: usize = 1 << 20;

/// The most bytes of frames that are decoded for it.
const MAX_SAMPLE_BYTES: usize = 128 << 20;

/// What the first frames of a stream take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleSizes {
    /// How many frames.
    pub frames: u64,
    /// Bytes of their pages as they are stored.
    pub stored: u64,
    /// Bytes with the codec that they would get.
    pub encoded: u64,
}

impl SampleSizes {
    /// Whether the new encoding is no smaller.
    pub(super) fn saves_nothing(&self) -> bool {
        self.encoded >= self.stored
    }
}

/// The whole first pages of a stream, decoded.
struct FirstFrames {
    values: Vec<u8>,
    texts: Vec<String>,
    frames: usize,
    stored: u64,
}

/// Chooses the codec by the first frames of a stream in the episode `row`, as a pack does, and compares their sizes;
/// `None` if it has no frames.
pub(super) fn try_first(
    dataset: &Dataset,
    row: usize,
    name: &str,
    choice: &mut Choice,
) -> Result<Option<(SampleSizes, Option<Trial>)>> {
    let episode = dataset.episode(row)?;
    let Some(position) = episode.streams().position(|stream| stream.name == name) else {
        return Ok(None);
    };
    let stored = StoredStream::open(episode, position)?;
    let frame = stored.frame_type().clone();
    let frame_bytes = frame.as_values().map_or(1 << 10, |ty| ty.frame_bytes());
    let tried = choice.trial_frames(&frame);
    let wanted = (SAMPLE_BYTES / frame_bytes.max(1)).max(tried.unwrap_or(1));
    let wanted = wanted.min(MAX_SAMPLE_BYTES / frame_bytes.max(1)).max(1);
    let first = read_first(&stored, wanted)?;
    if first.frames == 0 {
        return Ok(None);
    }
    let place = || stored.place();
    let trial = match tried {
        Some(tried) if frame != FrameType::Text => {
            let len = tried.min(first.frames) * frame_bytes;
            let values = first.values.get(..len).unwrap_or_default();
            choice
                .settle_values(&frame, values)
                .map_err(codec_at(place()))?
        }
        _ => None,
    };
    let slices: Vec<&[u8]>;
    let values = choice.to_stored(&first.values).map_err(codec_at(place()))?;
    let frame = choice.stored_frame(&frame);
    let frames = match &frame {
        FrameType::Values(_) => Frames::values(&frame, &values).map_err(codec_at(place()))?,
        FrameType::Text => {
            slices = first.texts.iter().map(String::as_bytes).collect();
            Frames::bytes(&frame, &slices)
        }
    };
    let (mut encoded, mut scratch) = (Encoded::default(), Scratch::new());
    choice
        .codec
        .encode(&frames, choice.page_frames, &mut encoded, &mut scratch)
        .map_err(codec_at(place()))?;
    let pages = encoded.pages.iter().map(|page| page.bytes.len() as u64);
    let sizes = SampleSizes {
        frames: first.frames as u64,
        stored: first.stored,
        encoded: pages.sum::<u64>() + encoded.shared.len() as u64,
    };
    Ok(Some((sizes, trial)))
}

/// Decodes the first pages of a stream, until they hold `wanted` frames. A part of a page would be compared with all of
/// its bytes, so a page is taken whole, unless it is a long one of video.
fn read_first(stored: &StoredStream, wanted: usize) -> Result<FirstFrames> {
    let mut first = FirstFrames {
        values: Vec::new(),
        texts: Vec::new(),
        frames: 0,
        stored: stored.read_shared()?.len() as u64,
    };
    let mut scratch = Scratch::new();
    let frame_bytes = stored
        .frame_type()
        .as_values()
        .map_or(0, |ty| ty.frame_bytes());
    for mut page in stored.pages(stored.frames()) {
        if first.frames >= wanted {
            break;
        }
        let one = std::slice::from_ref(&page);
        let fetched = stored.fetch(one)?;
        let bytes = stored.page_bytes(one, &page, &fetched)?;
        let most = (MAX_SAMPLE_BYTES / frame_bytes.max(1)).max(1);
        let count = page.frames.min(most.saturating_sub(first.frames).max(1));
        if *stored.frame_type() == FrameType::Text {
            stored.decode_text(&page, bytes, &mut first.texts, &mut scratch)?;
        } else {
            let start = first.values.len();
            first.values.resize(start + count * frame_bytes, 0);
            let bytes_of = bytes.len() as u128 * count as u128 / page.frames.max(1) as u128;
            first.stored += u64::try_from(bytes_of).unwrap_or(u64::MAX);
            page.range = 0..count;
            let out = first.values.get_mut(start..).unwrap_or_default();
            stored.decode(&page, bytes, out, &mut scratch)?;
            first.frames += count;
            continue;
        }
        first.stored += bytes.len() as u64;
        first.frames += page.frames;
    }
    Ok(first)
}
