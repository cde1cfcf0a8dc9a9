//! The pages of a stream as they are stored: what they cost to decode.
//!
//! Carried video and JPEG cannot be encoded again to the same bytes, so their pages are timed where they lie.

use std::time::Duration;

use kino_codec::{Encoded, EncodedPage};

use crate::dataset::Dataset;
use crate::error::{Result, codec_at, not_found};
use crate::stored_stream::StoredStream;

use super::measure::{Effort, Measured, WINDOW};
use super::reader::Reader;

/// Measures the first pages of a stream that hold at most `max_bytes` of decoded frames, and at least one.
///
/// Encoding takes no time: the pages exist. The errors are those that the manifest states.
pub fn measure_stored(
    dataset: &Dataset,
    stream: &str,
    max_bytes: usize,
    effort: Effort,
) -> Result<Measured> {
    let summary = dataset.manifest().streams.iter();
    let summary = summary.clone().find(|summary| summary.name == stream);
    let missing = || not_found(format!("there is no stream `{stream}`"));
    let summary = summary.ok_or_else(missing)?;
    let stored = first_episode_with(dataset, stream)?.ok_or_else(missing)?;
    let (encoded, raw_bytes) = first_pages(&stored, max_bytes)?;
    let decoder = stored.decoder()?;
    let place = || format!("stream `{stream}`");
    let mut reader = Reader::new(stored.frame_type(), decoder, &encoded);
    let decode = reader
        .every_page(effort.budget)
        .map_err(codec_at(place()))?;
    let random = reader.random(1, effort.budget).map_err(codec_at(place()))?;
    let frames = encoded.pages.iter().map(|page| page.frames).sum();
    let window_frames = WINDOW.min(frames);
    let window = reader
        .random(window_frames, effort.budget)
        .map_err(codec_at(place()))?;
    let reduced = reader.reduced(&effort).map_err(codec_at(place()))?;
    let pages = encoded.pages.iter().map(|page| page.bytes.len());
    Ok(Measured {
        codec: stored.schema().codec.clone(),
        frame: stored.frame_type().to_string(),
        frames,
        raw_bytes,
        bytes: encoded.shared.len() + pages.sum::<usize>(),
        shared_bytes: encoded.shared.len(),
        page_frames: encoded.pages.first().map_or(0, |page| page.frames),
        encode: Duration::ZERO,
        decode,
        random,
        window,
        window_frames,
        reduced,
        max_abs_error: summary.max_abs_error,
        psnr_db: summary.psnr_db(),
    })
}

/// The stream in the first episode that has pages of it.
fn first_episode_with(dataset: &Dataset, stream: &str) -> Result<Option<StoredStream>> {
    for row in 0..dataset.len() {
        let episode = dataset.episode(row)?;
        let position = episode.streams().position(|one| one.name == stream);
        if let Some(position) = position {
            let stored = StoredStream::open(episode, position)?;
            if stored.pages(stored.frames()).next().is_some() {
                return Ok(Some(stored));
            }
        }
    }
    Ok(None)
}

/// The first pages, and the bytes of their frames once decoded.
fn first_pages(stored: &StoredStream, max_bytes: usize) -> Result<(Encoded, usize)> {
    let mut encoded = Encoded {
        shared: stored.read_shared()?,
        pages: Vec::new(),
    };
    let frame_bytes = stored.frame_type().as_values().map(|ty| ty.frame_bytes());
    let mut raw_bytes = 0;
    for page in stored.pages(stored.frames()) {
        let run = [page];
        let bytes = stored.fetch(&run)?;
        let bytes = stored.page_bytes(&run, &run[0], &bytes)?.to_vec();
        // Text has no frame size; its stored bytes stand for it.
        let frames = run[0].frames;
        let decoded = frame_bytes.map_or(bytes.len(), |size| size.saturating_mul(frames));
        if !encoded.pages.is_empty() && decoded.saturating_add(raw_bytes) > max_bytes {
            break;
        }
        raw_bytes += decoded;
        encoded.pages.push(EncodedPage { frames, bytes });
    }
    Ok((encoded, raw_bytes))
}
