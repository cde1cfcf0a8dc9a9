//! The survey: every value and every timestamp of a recording is checked before anything is written.
//!
//! Images are left to the pack, which decodes and compares each of them anyway. Everything else is small by comparison
//! and is read twice, so that a defect in a day-long recording is reported in the first minute, not the last.

use std::sync::atomic::{AtomicUsize, Ordering};

use kino_codec::{Dtype, FrameType};
use kino_dataset::Kind;
use kino_sync::Mutex;

use crate::clock;
use crate::defect::{Action, Defect};
use crate::error::{Result, invalid};
use crate::fit::{Fitted, Target, fit};
use crate::source::{ClockSpec, EpisodeSpec, FrameBuf, Source, SourceInfo, block_frames};

/// The longest text of one frame, in bytes.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// The number of threads; 0 means one per core.
pub(crate) fn cores(threads: usize) -> usize {
    match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// All defects of a source: those the walk noticed, then those of values and timestamps, by episode.
///
/// Uses `threads` threads, one per core if 0.
pub fn survey(source: &Source, threads: usize) -> Result<Vec<Defect>> {
    let fitted = fit(source, &Target::default())?;
    look(&fitted, threads, &mut || Ok(()))
}

/// The same for a fitted source; `go_on` is polled so that the caller can stop it.
pub(crate) fn look(
    source: &Fitted<'_>,
    threads: usize,
    go_on: &mut dyn FnMut() -> Result<()>,
) -> Result<Vec<Defect>> {
    let episodes = source.episodes.len();
    let found = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let take = || {
        let episode = next.fetch_add(1, Ordering::Relaxed);
        if episode >= episodes {
            return false;
        }
        let defects = of_episode(source.info, &source.episodes[episode]);
        if !defects.is_empty() {
            found.lock().push((episode, defects));
        }
        true
    };
    let mut gone_on = Ok(());
    std::thread::scope(|scope| {
        let threads = cores(threads).clamp(1, episodes.max(1));
        for _ in 1..threads {
            scope.spawn(|| while take() {});
        }
        while gone_on.is_ok() && take() {
            gone_on = go_on();
        }
        if gone_on.is_err() {
            next.store(episodes, Ordering::Relaxed);
        }
    });
    gone_on?;
    let mut found = found.into_inner();
    found.sort_by_key(|(episode, _)| *episode);
    let mut defects = source.info.defects.clone();
    defects.extend_from_slice(&source.defects);
    defects.extend(found.into_iter().flat_map(|(_, defects)| defects));
    Ok(defects)
}

fn of_episode(info: &SourceInfo, episode: &EpisodeSpec) -> Vec<Defect> {
    let mut defects = Vec::new();
    for (position, stream) in episode.streams.iter().enumerate() {
        let mut note = |what: String, action| {
            let place = info.place(episode, &stream.name);
            defects.push(Defect::new(place, what, action).of(&episode.id));
        };
        if let ClockSpec::Explicit(times) = &stream.clock {
            for what in clock::faults(times) {
                note(what, Action::Kept);
            }
        }
        let found = match stream.frame {
            FrameType::Text => check_texts(episode, position).map(|()| None),
            FrameType::Values(_) => not_numbers(episode, position),
        };
        match found {
            Ok(None) => {}
            Ok(Some(what)) => note(what, Action::Kept),
            // Unreadable data cannot be kept under any policy.
            Err(error) => note(error.what(), Action::Dropped),
        }
    }
    defects
}

/// Reads the texts of a stream. A text that is unreadable or too long for a dataset is an error.
fn check_texts(episode: &EpisodeSpec, stream: usize) -> Result<()> {
    let spec = &episode.streams[stream];
    let mut start = 0;
    while start < spec.frames {
        let end = spec.frames.min(start + block_frames(&spec.frame));
        let texts = match episode.read(stream, start..end)? {
            FrameBuf::Bytes(texts) => texts,
            FrameBuf::Values(_) => Vec::new(),
        };
        for (text, frame) in texts.iter().zip(start..) {
            if text.len() > MAX_TEXT_BYTES {
                return Err(invalid(format!(
                    "has a text of {} bytes in frame {frame}; the limit is {MAX_TEXT_BYTES}",
                    text.len()
                )));
            }
            if std::str::from_utf8(text).is_err() {
                return Err(invalid(format!(
                    "has a text that is not UTF-8 in frame {frame}"
                )));
            }
        }
        // A source may return fewer frames than requested.
        start += (texts.len() as u64).clamp(1, end - start);
    }
    Ok(())
}

/// Describes how many frames of a float stream contain NaN; `None` if none does.
fn not_numbers(episode: &EpisodeSpec, stream: usize) -> Result<Option<String>> {
    let spec = &episode.streams[stream];
    let Some(ty) = spec.frame.as_values() else {
        return Ok(None);
    };
    let is_nan: fn(&[u8]) -> bool = match (ty.dtype(), spec.kind) {
        (_, Kind::Image | Kind::Depth) => return Ok(None),
        (Dtype::F16, _) => is_nan_16,
        (Dtype::F32, _) => is_nan_32,
        (Dtype::F64, _) => is_nan_64,
        // Read them anyway: an unreadable value is a defect.
        _ => |_| false,
    };
    let (mut first, mut count, mut start) = (None, 0u64, 0);
    while start < spec.frames && ty.frame_bytes() > 0 {
        let end = spec.frames.min(start + block_frames(&spec.frame));
        if let FrameBuf::Values(values) = episode.read(stream, start..end)? {
            for (frame, number) in values.chunks_exact(ty.frame_bytes()).zip(start..) {
                if is_nan(frame) {
                    first = first.or(Some(number));
                    count += 1;
                }
            }
        }
        start = end;
    }
    Ok(first.map(|first| {
        format!(
            "contains NaN in {count} of {} frames, first in frame {first}",
            spec.frames
        )
    }))
}

fn is_nan_16(frame: &[u8]) -> bool {
    let (values, _) = frame.as_chunks::<2>();
    // All bits of the exponent, and one of the fraction.
    let is_nan = |&bytes: &[u8; 2]| u16::from_le_bytes(bytes) & 0x7fff > 0x7c00;
    values.iter().any(is_nan)
}

fn is_nan_32(frame: &[u8]) -> bool {
    let (values, _) = frame.as_chunks::<4>();
    values
        .iter()
        .any(|&bytes| f32::from_le_bytes(bytes).is_nan())
}

fn is_nan_64(frame: &[u8]) -> bool {
    let (values, _) = frame.as_chunks::<8>();
    values
        .iter()
        .any(|&bytes| f64::from_le_bytes(bytes).is_nan())
}
