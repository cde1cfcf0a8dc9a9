//! The survey: every number and every time of a recording is looked at before anything is written.
//!
//! Images are left to the pack, which decodes and compares each of them anyway. Everything else is small beside
//! them and is read twice, so that a recording of a day is refused in its first minute and not in its last.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use kino_codec::{Dtype, FrameType};
use kino_dataset::Kind;

use crate::clock;
use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result, invalid};
use crate::fit::{Fitted, Target, fit};
use crate::source::{ClockPlan, EpisodePlan, FrameBuf, Source, block_frames};

/// The longest text of a frame.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// So many threads, or one per core for 0.
pub(crate) fn cores(threads: usize) -> usize {
    match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// Everything that is wrong with a source: what its walk noticed, then what its values and times show, by episode.
///
/// Looks with so many threads, one per core if 0.
pub fn survey(source: &dyn Source, threads: usize) -> Result<Vec<Defect>> {
    let fitted = fit(source, &Target::default())?;
    look(&fitted, threads, &mut || ControlFlow::Continue(()))
}

/// The same of a source that was fitted; `go_on` is asked now and then whether to stop.
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
            lock(&found).push((episode, defects));
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
    let mut found = found.into_inner().unwrap_or_default();
    found.sort_by_key(|(episode, _)| *episode);
    let mut defects = source.describe().defects.clone();
    defects.extend_from_slice(source.defects());
    defects.extend(found.into_iter().flat_map(|(_, defects)| defects));
    Ok(defects)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn of_episode(source: &dyn Source, episode: usize, block: &mut FrameBuf) -> Vec<Defect> {
    let mut defects = Vec::new();
    let plan = &source.episodes()[episode];
    for (position, stream) in plan.streams.iter().enumerate() {
        let place = place(source, plan, &stream.name);
        if let ClockPlan::Explicit(times) = &stream.clock {
            let faults = clock::faults(times).into_iter();
            defects.extend(faults.map(|what| Defect::new(&place, what, Action::Kept).of(&plan.id)));
        }
        let found = match plan.streams[position].frame {
            FrameType::Text => long_text(source, (episode, position), block),
            FrameType::Values(_) => not_numbers(source, (episode, position), block),
        };
        match found {
            Ok(None) => {}
            Ok(Some(what)) => {
                defects.push(Defect::new(&place, what, Action::Kept).of(&plan.id));
            }
            // What cannot be read cannot be kept under any policy.
            Err(error) => {
                defects.push(Defect::new(&place, error.what(), Action::Dropped).of(&plan.id));
            }
        }
    }
    defects
}

/// `demos.hdf5:/data/demo_0, stream `obs/x``, or without the stream if it is empty.
pub(crate) fn place(source: &dyn Source, episode: &EpisodePlan, stream: &str) -> String {
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

/// Reads the texts of a stream: one that is too long for a dataset, or that cannot be read, is an error.
fn long_text(
    source: &dyn Source,
    (episode, stream): (usize, usize),
    block: &mut FrameBuf,
) -> Result<Option<String>> {
    let plan = &source.episodes()[episode].streams[stream];
    let mut start = 0;
    while start < plan.frames {
        let end = plan.frames.min(start + block_frames(&plan.frame));
        source.read(episode, stream, start..end, block)?;
        let texts = match &*block {
            FrameBuf::Bytes(texts) => texts.as_slice(),
            FrameBuf::Values(_) => &[],
        };
        for (text, frame) in texts.iter().zip(start..) {
            if text.len() > MAX_TEXT_BYTES {
                return Err(invalid(format!(
                    "has a text of {} bytes in frame {frame}, at most {MAX_TEXT_BYTES}",
                    text.len()
                )));
            }
            if std::str::from_utf8(text).is_err() {
                return Err(invalid(format!(
                    "has a text that is not UTF-8 in frame {frame}"
                )));
            }
        }
        // Fewer may come than were asked for.
        start += (texts.len() as u64).clamp(1, end - start);
    }
    Ok(None)
}

/// How many frames of a stream of floats hold a NaN, in words; `None` where none does.
fn not_numbers(
    source: &dyn Source,
    (episode, stream): (usize, usize),
    block: &mut FrameBuf,
) -> Result<Option<String>> {
    let plan = &source.episodes()[episode].streams[stream];
    let Some(ty) = plan.frame.as_values() else {
        return Ok(None);
    };
    let is_nan: fn(&[u8]) -> bool = match (ty.dtype(), plan.kind) {
        (_, Kind::Image | Kind::Depth) => return Ok(None),
        (Dtype::F16, _) => is_nan_16,
        (Dtype::F32, _) => is_nan_32,
        (Dtype::F64, _) => is_nan_64,
        // Read all the same: a value that cannot be read is a defect.
        _ => |_| false,
    };
    let (mut first, mut count, mut start) = (None, 0u64, 0);
    while start < plan.frames && ty.frame_bytes() > 0 {
        let end = plan.frames.min(start + block_frames(&plan.frame));
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
            "holds NaN in {count} of {} frames, the first is frame {first}",
            plan.frames
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
