//! `elst`: which part of a track is shown, and when that begins.
//!
//! ```text
//! elst   wait 0.5 s, then show 2 s from media time 1024          FFmpeg writes 1024 for B-frames: the first pts
//!
//! cts    0    512   1024 … 31744 │ 32256 …
//!        discarded  shown         discarded, and not listed after the second key frame
//! ```
//!
//! FFmpeg begins with the last key frame at or before the media time, so that everything that is shown can be decoded,
//! and counts decode times from there: the first sample that is shown gets the end of the wait. In a fragmented file it
//! only shifts times.

use super::boxes::{Fault, Fields, corrupt, find, unsupported};
use super::movie::REMUX;
use super::tables::{Stored, StoredSamples};

/// A speed of 1.
const NORMAL_RATE: u32 = 0x0001_0000;

/// Longer times are refused, so that sums of a few of them are still numbers.
pub(super) const LONGEST: i64 = i64::MAX / 8;

/// The only segment of an edit list, in units of the track's timescale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edit {
    /// Nothing is shown for so long.
    pub(super) wait: i64,
    /// The media time that is shown first.
    pub(super) start: i64,
    pub(super) duration: i64,
}

/// A sample with its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timed {
    pub(super) offset: u64,
    pub(super) size: u32,
    pub(super) dts: i64,
    pub(super) pts: i64,
    pub(super) is_key: bool,
    pub(super) is_shown: bool,
}

/// The samples of a track with their times, and what shifts those of fragments.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub(super) samples: Vec<Timed>,
    /// Where the next fragment begins if it does not say.
    pub(super) end: i64,
    /// By how much decode times come before the times of the tables, because some delays are negative.
    pub(super) shift: i64,
}

/// Reads an edit list. `None` if it is empty.
pub(super) fn parse(
    edts: &[u8],
    timescale: u32,
    movie_timescale: u32,
) -> Result<Option<Edit>, Fault> {
    let Some(elst) = find(edts, b"elst", "edts")? else {
        return Ok(None);
    };
    let (mut fields, version, _) = Fields::full(elst, "elst")?;
    let count = fields.u32()?;
    let (mut wait, mut found) = (0_i64, None);
    for _ in 0..count {
        let segment = Segment::parse(&mut fields, version)?;
        let duration = rescale(segment.duration, timescale, movie_timescale)?;
        match (segment.start, found) {
            (-1, None) => wait = wait.checked_add(duration).ok_or_else(too_long)?,
            (0.., None) => found = Some((segment.start, duration)),
            (..-1, _) => return Err(corrupt("elst", "begins before the first frame")),
            (_, Some(_)) => {
                let what = "shows several parts of the video, one after another";
                return Err(unsupported("elst", what, REMUX));
            }
        }
        if segment.rate != NORMAL_RATE && segment.start != -1 {
            let what = "shows the video at another speed";
            return Err(unsupported("elst", what, REMUX));
        }
    }
    let edit = found.map(|(start, duration)| Edit {
        wait,
        start,
        duration,
    });
    match edit {
        Some(edit) if edit.start >= LONGEST || edit.wait >= LONGEST => Err(too_long()),
        None if count > 0 => Err(corrupt("elst", "shows nothing")),
        edit => Ok(edit),
    }
}

struct Segment {
    duration: u64,
    start: i64,
    rate: u32,
}

impl Segment {
    fn parse(fields: &mut Fields<'_>, version: u8) -> Result<Self, Fault> {
        let (duration, start) = if version == 1 {
            (fields.u64()?, fields.i64()?)
        } else {
            (fields.u32()?.into(), fields.i32()?.into())
        };
        let rate = fields.u32()?;
        Ok(Self {
            duration,
            start,
            rate,
        })
    }
}

fn too_long() -> Fault {
    corrupt("elst", "has times that are too long")
}

/// A duration in another timescale, rounded to the nearest; halves up.
fn rescale(duration: u64, to: u32, from: u32) -> Result<i64, Fault> {
    let (to, from) = (u128::from(to), u128::from(from));
    let scaled = (u128::from(duration) * to + from / 2) / from;
    let limited = i64::try_from(scaled).ok().filter(|&all| all < LONGEST);
    limited.ok_or_else(too_long)
}

/// Gives the samples of `stbl` their times, by the track's edit list.
pub(super) fn apply(stored: &StoredSamples, edit: Option<Edit>) -> Result<Timeline, Fault> {
    let samples = &*stored.samples;
    let latest = samples.iter().map(|sample| -i64::from(sample.delay)).max();
    let shift = latest.unwrap_or(0).max(0);
    let timed = match edit {
        Some(edit) if !samples.is_empty() => cut(stored, edit, shift)?,
        _ => {
            let timed = samples.iter().map(|sample| sample.at(0, shift));
            timed.collect()
        }
    };
    Ok(Timeline {
        samples: timed,
        end: stored.end,
        shift,
    })
}

impl Stored {
    /// When it is shown, by the tables.
    fn cts(&self) -> i64 {
        self.time + i64::from(self.delay)
    }

    /// The sample, shown `by` later than the tables say.
    fn at(&self, by: i64, shift: i64) -> Timed {
        Timed {
            offset: self.offset,
            size: self.size,
            dts: self.time + by - shift,
            pts: self.cts() + by,
            is_key: self.is_key,
            is_shown: true,
        }
    }
}

/// The samples that an edit needs. Those that are decoded but outside of it are not shown.
fn cut(stored: &StoredSamples, edit: Edit, shift: i64) -> Result<Vec<Timed>, Fault> {
    let shown = edit.start..edit.start + edit.duration;
    let needed = needed(stored, edit);
    let first_shown = needed.iter().find(|sample| shown.contains(&sample.cts()));
    let Some(first_shown) = first_shown else {
        return Err(corrupt("elst", "shows no frame"));
    };
    // The decode time of the first sample that is shown is when the wait ends.
    let mut by = edit.wait - first_shown.time;
    let in_edit = needed.iter().filter(|sample| shown.contains(&sample.cts()));
    let earliest = in_edit.fold(-1, |earliest, sample| match sample.cts() + by {
        pts if earliest < 0 => pts,
        pts => pts.min(earliest),
    });
    // If that shows the first frame later, everything comes earlier.
    by -= (earliest - edit.wait).max(0);
    let timed = needed.iter().map(|sample| Timed {
        is_shown: shown.contains(&sample.cts()),
        ..sample.at(by, shift)
    });
    Ok(timed.collect())
}

/// The samples from the last key frame at or before an edit to the first key frame after it, or to the second if frames
/// can be shown before a key frame that they come after.
fn needed(stored: &StoredSamples, edit: Edit) -> &[Stored] {
    let samples = &*stored.samples;
    let samples = samples.get(first_needed(stored, edit.start)..);
    let samples = samples.unwrap_or_default();
    let end = edit.start + edit.duration;
    let durations = samples.windows(2).map(|pair| match pair {
        [this, next] => next.time - this.time,
        _ => 0,
    });
    let last = std::iter::once(edit.duration);
    let mut keys_after = (1..)
        .zip(samples)
        .zip(durations.chain(last))
        .filter(|((_, sample), duration)| sample.is_key && sample.cts() + duration >= end);
    let stop = keys_after.nth(usize::from(stored.has_delays));
    stop.and_then(|((count, _), _)| samples.get(..count))
        .unwrap_or(samples)
}

/// The first sample that is decoded to show the media time `start`.
fn first_needed(stored: &StoredSamples, start: i64) -> usize {
    let samples = &*stored.samples;
    let decoded = samples.partition_point(|sample| sample.time <= start);
    let before = samples.get(..decoded).unwrap_or_default();
    let is_before = |sample: &Stored| sample.is_key && sample.cts() <= start;
    if stored.has_delays {
        return before.iter().rposition(is_before).unwrap_or(0);
    }
    let key = before.iter().rposition(|sample| sample.is_key);
    let found = key.or(decoded.checked_sub(1)).unwrap_or(0);
    // Of several at the same time, the first.
    let time = before.get(found).map_or(0, |sample| sample.time);
    let same = before.partition_point(|sample| sample.time < time)..found;
    let earlier = before.get(same.clone()).unwrap_or_default();
    let is_like = |sample: &Stored| sample.is_key || key.is_none();
    earlier
        .iter()
        .position(is_like)
        .map_or(found, |idx| same.start + idx)
}
