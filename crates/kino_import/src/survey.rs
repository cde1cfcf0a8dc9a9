//! The survey: every value and every timestamp of a recording is checked before anything is written.
//!
//! Images are left to the pack, which decodes and compares each of them anyway. Everything else is small by comparison
//! and is read twice, so that a defect in a day-long recording is reported in the first minute, not the last.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use kino_codec::{Dtype, FrameType};
use kino_dataset::Kind;
use parking_lot::Mutex;

use crate::clock;
use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result, invalid};
use crate::fit::{Fitted, Target, fit};
use crate::source::{ClockSpec, EpisodeSpec, FrameBuf, Source, block_frames};

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
pub fn survey(source: &dyn Source, threads: usize) -> Result<Vec<Defect>> {
    let fitted = fit(source, &Target::default())?;
    look(&fitted, threads, &mut || ControlFlow::Continue(()))
}

/// The same for a fitted source; `go_on` is polled so that the caller can stop it.
pub(crate) fn look(
    source: &Fitted<'_>,
    threads: usize,
    go_on: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Vec<Defect>> {
    let episodes = source.episodes().len();
    let found = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let take = |block: &mut FrameBuf| {
        let episode = next.fetch_add(1, Ordering::Relaxed);
        if episode >= episodes {
            return false;
        }
        let defects = of_episode(source, episode, block);
        if !defects.is_empty() {
            found.lock().push((episode, defects));
        }
        true
    };
    let mut is_stopped = false;
    std::thread::scope(|scope| {
        let threads = cores(threads).clamp(1, episodes.max(1));
        for _ in 1..threads {
            scope.spawn(|| {
                let mut block = FrameBuf::default();
                while take(&mut block) {}
            });
        }
        let mut block = FrameBuf::default();
        while !is_stopped && take(&mut block) {
            is_stopped = go_on().is_break();
        }
        if is_stopped {
            next.store(episodes, Ordering::Relaxed);
        }
    });
    if is_stopped {
        return Err(ImportError::Stopped);
    }
    let mut found = found.into_inner();
    found.sort_by_key(|(episode, _)| *episode);
    let mut defects = source.describe().defects.clone();
    defects.extend_from_slice(source.defects());
    defects.extend(found.into_iter().flat_map(|(_, defects)| defects));
    Ok(defects)
}

fn of_episode(source: &dyn Source, episode: usize, block: &mut FrameBuf) -> Vec<Defect> {
    let mut defects = Vec::new();
    let spec = &source.episodes()[episode];
    for (position, stream) in spec.streams.iter().enumerate() {
        let place = place(source, spec, &stream.name);
        if let ClockSpec::Explicit(times) = &stream.clock {
            let faults = clock::faults(times).into_iter();
            defects.extend(faults.map(|what| Defect::new(&place, what, Action::Kept).of(&spec.id)));
        }
        let found = match spec.streams[position].frame {
            FrameType::Text => long_text(source, (episode, position), block),
            FrameType::Values(_) => not_numbers(source, (episode, position), block),
        };
        match found {
            Ok(None) => {}
            Ok(Some(what)) => {
                defects.push(Defect::new(&place, what, Action::Kept).of(&spec.id));
            }
            // Unreadable data cannot be kept under any policy.
            Err(error) => {
                defects.push(Defect::new(&place, error.what(), Action::Dropped).of(&spec.id));
            }
        }
    }
    defects
}

/// `demos.hdf5:/data/demo_0, stream `obs/x``, or without the stream if it is empty.
pub(crate) fn place(source: &dyn Source, episode: &EpisodeSpec, stream: &str) -> String {
    let file = source.describe().files.get(episode.file);
    let file = file.and_then(|file| file.path().file_name());
    let file = file.unwrap_or_default().to_string_lossy();
    match stream {
        "" => format!("{file}:{}", episode.object),
        stream => format!(
            "{file}:{}, stream `{}`",
            episode.object,
            stream.escape_debug()
        ),
    }
}

/// Reads the texts of a stream. A text that is unreadable or too long for a dataset is an error.
fn long_text(
    source: &dyn Source,
    (episode, stream): (usize, usize),
    block: &mut FrameBuf,
) -> Result<Option<String>> {
    let spec = &source.episodes()[episode].streams[stream];
    let mut start = 0;
    while start < spec.frames {
        let end = spec.frames.min(start + block_frames(&spec.frame));
        source.read(episode, stream, start..end, block)?;
        let texts = match &*block {
            FrameBuf::Bytes(texts) => texts.as_slice(),
            FrameBuf::Values(_) => &[],
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
    Ok(None)
}

/// Describes how many frames of a float stream contain NaN; `None` if none does.
fn not_numbers(
    source: &dyn Source,
    (episode, stream): (usize, usize),
    block: &mut FrameBuf,
) -> Result<Option<String>> {
    let spec = &source.episodes()[episode].streams[stream];
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
        source.read(episode, stream, start..end, block)?;
        if let FrameBuf::Values(values) = &*block {
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
