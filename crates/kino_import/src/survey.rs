//! The survey: every value and every timestamp of a recording is checked before anything is written.
//!
//! Images are left to the pack, which decodes and compares each of them anyway. Everything else is small by comparison
//! and is read twice, so that a defect in a day-long recording is reported in the first minute, not the last. Float
//! arrays that look like images are read too: if all their values are those of 8-bit images, they are imported as such
//! (`whole_numbers.rs`).

use std::sync::atomic::{AtomicUsize, Ordering};

use kino_codec::{Dtype, FrameType};
use kino_dataset::Kind;
use kino_sync::Mutex;

use crate::clock;
use crate::defect::{Action, Defect};
use crate::error::{Result, invalid};
use crate::fit::{Fitted, Target, fit};
use crate::source::{ClockSpec, EpisodeSpec, FrameBuf, Source, block_frames};
use crate::whole_numbers;

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
    let mut fitted = fit(source, &Target::default())?;
    let looked = look(&mut fitted, &Looking::at_all(threads), &mut |_| Ok(()))?;
    Ok(looked.into_defects())
}

/// Which episodes are looked at, by how many threads.
pub(crate) struct Looking<'a> {
    /// Whether the defects of an episode are wanted. Of the others only float arrays are read that look like images: what
    /// these become depends on all episodes.
    pub(crate) is_wanted: &'a (dyn Fn(usize) -> bool + Sync),
    pub(crate) threads: usize,
}

impl Looking<'_> {
    pub(crate) fn at_all(threads: usize) -> Self {
        Self {
            is_wanted: &|_| true,
            threads,
        }
    }
}

/// The defects of a source, in the order in which they are listed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Looked {
    /// Those that are known without reading values.
    pub(crate) before: Vec<Defect>,
    /// Those of the values of episodes, by episode.
    pub(crate) found: Vec<(usize, Vec<Defect>)>,
    /// What became of float images.
    pub(crate) after: Vec<Defect>,
}

impl Looked {
    /// All of them.
    pub(crate) fn into_defects(self) -> Vec<Defect> {
        let found = self.found.into_iter().flat_map(|(_, found)| found);
        let all = self.before.into_iter().chain(found);
        all.chain(self.after).collect()
    }
}

/// The same for a fitted source, whose float images of whole numbers become uint8 images. `go_on` gets the number of
/// episodes that were looked at, and may stop it.
pub(crate) fn look(
    source: &mut Fitted<'_>,
    looking: &Looking<'_>,
    go_on: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Looked> {
    let found = look_at_episodes(source, looking, go_on)?;
    let mut before = source.info.defects.clone();
    before.extend_from_slice(&source.defects);
    let not_whole = found.iter().flat_map(|(_, found)| &found.not_whole);
    let after = whole_numbers::convert(source, &not_whole.cloned().collect());
    let found = found.into_iter().map(|(idx, found)| (idx, found.defects));
    Ok(Looked {
        before,
        found: found.filter(|(_, defects)| !defects.is_empty()).collect(),
        after,
    })
}

/// What the values of an episode are.
#[derive(Debug, Default)]
struct Found {
    defects: Vec<Defect>,
    /// Streams that look like images but have other values than whole numbers from 0 to 255.
    not_whole: Vec<String>,
}

/// Looks at every episode; those with nothing to say are left out.
fn look_at_episodes(
    source: &Fitted<'_>,
    looking: &Looking<'_>,
    go_on: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Vec<(usize, Found)>> {
    let episodes = source.episodes.len();
    let found = Mutex::new(Vec::new());
    let (next, looked_at) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let take = || {
        let episode = next.fetch_add(1, Ordering::Relaxed);
        if episode >= episodes {
            return false;
        }
        let scope = if (looking.is_wanted)(episode) {
            Scope::All
        } else {
            Scope::FloatImages
        };
        let seen = of_episode(source, &source.episodes[episode], scope);
        if !(seen.defects.is_empty() && seen.not_whole.is_empty()) {
            found.lock().push((episode, seen));
        }
        looked_at.fetch_add(1, Ordering::Relaxed);
        true
    };
    let mut gone_on = Ok(());
    std::thread::scope(|scope| {
        let threads = cores(looking.threads).clamp(1, episodes.max(1));
        for _ in 1..threads {
            scope.spawn(|| while take() {});
        }
        while gone_on.is_ok() && take() {
            gone_on = go_on(looked_at.load(Ordering::Relaxed));
        }
        if gone_on.is_err() {
            next.store(episodes, Ordering::Relaxed);
        }
    });
    gone_on?;
    let mut found = found.into_inner();
    found.sort_by_key(|(episode, _)| *episode);
    Ok(found)
}

/// Which streams of an episode are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    FloatImages,
}

fn of_episode(source: &Fitted<'_>, episode: &EpisodeSpec, scope: Scope) -> Found {
    let mut seen = Found::default();
    for (position, stream) in episode.streams.iter().enumerate() {
        let may_be_image = source.image_type(stream).is_some();
        if scope == Scope::FloatImages && !may_be_image {
            continue;
        }
        let mut note = |what: String, action| {
            let place = source.info.place(episode, &stream.name);
            seen.defects
                .push(Defect::new(place, what, action).of(&episode.id));
        };
        if let ClockSpec::Explicit(times) = &stream.clock {
            for what in clock::faults(times) {
                note(what, Action::Kept);
            }
        }
        let found = match stream.frame {
            FrameType::Text => check_texts(episode, position).map(|()| Values::default()),
            FrameType::Values(_) => look_at_values(episode, position, may_be_image),
        };
        match found {
            Ok(values) => {
                if let Some(what) = values.not_numbers(stream.frames) {
                    note(what, Action::Kept);
                }
                if values.has_others {
                    seen.not_whole.push(stream.name.clone());
                }
            }
            // Unreadable data cannot be kept under any policy.
            Err(error) => note(error.what(), Action::Dropped),
        }
    }
    if scope == Scope::FloatImages {
        seen.defects.clear();
    }
    seen
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

/// What was found in the values of a stream.
#[derive(Debug, Default)]
struct Values {
    /// The first frame with NaN, and the number of such frames.
    first_nan: Option<u64>,
    nans: u64,
    /// Whether something that may be images has other values than whole numbers from 0 to 255.
    has_others: bool,
}

impl Values {
    /// How many frames contain NaN; `None` if none does.
    fn not_numbers(&self, frames: u64) -> Option<String> {
        let (first, count) = (self.first_nan?, self.nans);
        Some(format!(
            "contains NaN in {count} of {frames} frames, first in frame {first}"
        ))
    }
}

/// Reads every value of a stream, except those of images, which the pack compares.
fn look_at_values(episode: &EpisodeSpec, stream: usize, may_be_image: bool) -> Result<Values> {
    let spec = &episode.streams[stream];
    let mut seen = Values::default();
    let Some(ty) = spec.frame.as_values() else {
        return Ok(seen);
    };
    let is_nan: fn(&[u8]) -> bool = match (ty.dtype(), spec.kind) {
        (_, Kind::Image | Kind::Depth) if !may_be_image => return Ok(seen),
        (_, Kind::Image) => |_| false,
        (Dtype::F16, _) => is_nan_16,
        (Dtype::F32, _) => is_nan_32,
        (Dtype::F64, _) => is_nan_64,
        // Read them anyway: an unreadable value is a defect.
        _ => |_| false,
    };
    let mut start = 0;
    while start < spec.frames && ty.frame_bytes() > 0 {
        let end = spec.frames.min(start + block_frames(&spec.frame));
        if let FrameBuf::Values(values) = episode.read(stream, start..end)? {
            // Whole numbers are numbers.
            let is_whole = may_be_image && whole_numbers::are_all(ty.dtype(), &values);
            seen.has_others |= may_be_image && !is_whole;
            let frames = values.chunks_exact(ty.frame_bytes()).zip(start..);
            for (_, number) in frames.filter(|(frame, _)| !is_whole && is_nan(frame)) {
                seen.first_nan = seen.first_nan.or(Some(number));
                seen.nans += 1;
            }
        }
        start = end;
    }
    Ok(seen)
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
