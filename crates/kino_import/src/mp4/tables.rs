//! The tables of `stbl`, turned into samples.
//!
//! ```text
//! stsz  size of each sample, or one size of all          stts  runs of durations     → when it is decoded
//! stco  where each chunk begins                          ctts  runs of offsets       → when it is shown
//! stsc  runs of chunks: how many samples are in each     stss  numbers of key frames
//! ```
//!
//! Runs can claim billions of samples in a few bytes, so they never decide how many there are: `stsz` does, by entries
//! that are in the file or by bytes that are in the file. The others must add up to the same number.

use super::boxes::{Fault, Fields, corrupt, find, need, pair};
use super::key_frames::KeyFrames;
use super::movie::Movie;

/// More frames than this are refused: 155 hours at 30 Hz.
pub(super) const MAX_SAMPLES: usize = 1 << 24;

/// The longest time between two frames, or between decoding and showing one, in units of the timescale. FFmpeg takes
/// longer ones for damage, too.
pub(super) const MAX_OFFSET: u32 = 1 << 28;

/// A sample as the tables have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) offset: u64,
    pub(super) size: u32,
    /// When it is decoded, from 0.
    pub(super) time: i64,
    /// From then to when it is shown.
    pub(super) delay: i32,
    pub(super) is_key: bool,
}

/// All samples of a track, and whether `ctts` gives their delays.
#[derive(Debug, Default)]
pub(super) struct StoredSamples {
    pub(super) samples: Vec<Stored>,
    pub(super) has_delays: bool,
    /// The duration of all samples.
    pub(super) end: i64,
}

/// Refuses a sample that is not in the file, or empty.
pub(super) fn check_place(
    offset: u64,
    size: u32,
    file_len: u64,
    object: &'static str,
) -> Result<(), Fault> {
    let end = offset.checked_add(u64::from(size));
    if size == 0 {
        let what = format!("has an empty sample at byte {offset}");
        return Err(corrupt(object, what));
    }
    if end.is_none_or(|end| end > file_len) {
        let what = format!(
            "has a sample of {size} bytes at byte {offset}, outside of the file of {file_len} bytes"
        );
        return Err(corrupt(object, what));
    }
    Ok(())
}

/// Refuses more samples than a file can have.
pub(super) fn check_count(count: usize, file_len: u64) -> Result<(), Fault> {
    if count > MAX_SAMPLES || count as u64 > file_len {
        let what =
            format!("claims {count} frames; at most {MAX_SAMPLES} are read, and one per byte");
        return Err(corrupt("stbl", what));
    }
    Ok(())
}

/// The samples that `stbl` lists.
pub(super) fn samples(movie: &Movie<'_>, file_len: u64) -> Result<StoredSamples, Fault> {
    let stbl = movie.tables;
    let sizes = Sizes::parse(stbl, file_len)?;
    if sizes.len() == 0 {
        return Ok(StoredSamples::default());
    }
    let mut samples = places(stbl, &sizes, file_len)?;
    let end = set_times(&mut samples, need(stbl, b"stts", "stbl")?)?;
    let ctts = find(stbl, b"ctts", "stbl")?;
    let has_delays = ctts.map_or(Ok(false), |ctts| set_delays(&mut samples, ctts))?;
    let mut keys = KeyFrames::parse(stbl, samples.len())?;
    for (number, sample) in (1..).zip(&mut samples) {
        sample.is_key = keys.next_is_key(number);
    }
    Ok(StoredSamples {
        samples,
        has_delays,
        end,
    })
}

/// `stsz` and `stz2`
enum Sizes<'a> {
    Equal { size: u32, count: usize },
    Wide(&'a [[u8; 4]]),
    Two(&'a [[u8; 2]]),
    One(&'a [u8]),
    Half { pairs: &'a [u8], count: usize },
}

impl<'a> Sizes<'a> {
    fn parse(stbl: &'a [u8], file_len: u64) -> Result<Self, Fault> {
        let sizes = match (find(stbl, b"stsz", "stbl")?, find(stbl, b"stz2", "stbl")?) {
            (Some(stsz), None) => Self::parse_stsz(stsz, file_len)?,
            (None, Some(stz2)) => Self::parse_stz2(stz2)?,
            (None, None) => return Err(corrupt("stbl", "has no box stsz")),
            (Some(_), Some(_)) => return Err(corrupt("stbl", "has both stsz and stz2")),
        };
        check_count(sizes.len(), file_len)?;
        Ok(sizes)
    }

    fn parse_stsz(stsz: &'a [u8], file_len: u64) -> Result<Self, Fault> {
        let (mut fields, _, _) = Fields::full(stsz, "stsz")?;
        let size = fields.u32()?;
        if size == 0 {
            return Ok(Self::Wide(fields.rows()?));
        }
        let count = fields.u32()?;
        if u64::from(count) * u64::from(size) > file_len {
            let what = format!("claims {count} samples of {size} bytes in a file of {file_len}");
            return Err(corrupt("stsz", what));
        }
        let count = to_len(count, "stsz")?;
        Ok(Self::Equal { size, count })
    }

    fn parse_stz2(stz2: &'a [u8]) -> Result<Self, Fault> {
        let (mut fields, _, _) = Fields::full(stz2, "stz2")?;
        Ok(match fields.u32()? & 0xff {
            16 => Self::Two(fields.rows()?),
            8 => Self::One(fields.rows::<1>()?.as_flattened()),
            4 => {
                let count = to_len(fields.u32()?, "stz2")?;
                let pairs = fields.take(count.div_ceil(2))?;
                Self::Half { pairs, count }
            }
            bits => return Err(corrupt("stz2", format!("has sizes of {bits} bits"))),
        })
    }

    fn len(&self) -> usize {
        match self {
            Self::Equal { count, .. } | Self::Half { count, .. } => *count,
            Self::Wide(sizes) => sizes.len(),
            Self::Two(sizes) => sizes.len(),
            Self::One(sizes) => sizes.len(),
        }
    }

    /// The size of a sample; 0, which is refused, beyond the last.
    fn get(&self, idx: usize) -> u32 {
        match self {
            Self::Equal { size, .. } => *size,
            Self::Wide(sizes) => sizes.get(idx).map_or(0, |size| u32::from_be_bytes(*size)),
            Self::Two(sizes) => sizes
                .get(idx)
                .map_or(0, |size| u16::from_be_bytes(*size).into()),
            Self::One(sizes) => sizes.get(idx).map_or(0, |&size| size.into()),
            Self::Half { pairs, .. } => {
                let pair = pairs.get(idx / 2).copied().unwrap_or_default();
                let size = if idx.is_multiple_of(2) {
                    pair >> 4
                } else {
                    pair & 15
                };
                size.into()
            }
        }
    }
}

fn to_len(count: u32, object: &'static str) -> Result<usize, Fault> {
    usize::try_from(count).map_err(|_| corrupt(object, "claims too many samples"))
}

/// Where each sample is: chunk by chunk.
fn places(stbl: &[u8], sizes: &Sizes<'_>, file_len: u64) -> Result<Vec<Stored>, Fault> {
    let chunks = Chunks::parse(stbl)?;
    let mut per_chunk = SamplesPerChunk::parse(need(stbl, b"stsc", "stbl")?, chunks.len())?;
    let mut samples = Vec::with_capacity(sizes.len());
    for chunk in 0..chunks.len() {
        let mut offset = chunks.get(chunk);
        for _ in 0..per_chunk.of(chunk) {
            let size = sizes.get(samples.len());
            if samples.len() == sizes.len() {
                let what = format!("has more samples than the {} of stsz", sizes.len());
                return Err(corrupt("stsc", what));
            }
            check_place(offset, size, file_len, "stco")?;
            samples.push(Stored {
                offset,
                size,
                time: 0,
                delay: 0,
                is_key: false,
            });
            offset += u64::from(size);
        }
    }
    if samples.len() < sizes.len() {
        let what = format!(
            "has {} samples, and stsz has {}",
            samples.len(),
            sizes.len()
        );
        return Err(corrupt("stsc", what));
    }
    Ok(samples)
}

/// `stco` and `co64`
enum Chunks<'a> {
    Short(&'a [[u8; 4]]),
    Long(&'a [[u8; 8]]),
}

impl<'a> Chunks<'a> {
    fn parse(stbl: &'a [u8]) -> Result<Self, Fault> {
        let rows = |table| Fields::full(table, "stco").map(|(fields, ..)| fields);
        match (find(stbl, b"stco", "stbl")?, find(stbl, b"co64", "stbl")?) {
            (Some(stco), None) => Ok(Self::Short(rows(stco)?.rows()?)),
            (None, Some(co64)) => Ok(Self::Long(rows(co64)?.rows()?)),
            (None, None) => Err(corrupt("stbl", "has no box stco")),
            (Some(_), Some(_)) => Err(corrupt("stbl", "has both stco and co64")),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Short(chunks) => chunks.len(),
            Self::Long(chunks) => chunks.len(),
        }
    }

    fn get(&self, idx: usize) -> u64 {
        match self {
            Self::Short(chunks) => chunks
                .get(idx)
                .map_or(0, |at| u32::from_be_bytes(*at).into()),
            Self::Long(chunks) => chunks.get(idx).map_or(0, |at| u64::from_be_bytes(*at)),
        }
    }
}

/// `stsc`: rows of the first chunk of a run (from 1), samples per chunk, and sample description.
struct SamplesPerChunk<'a> {
    rows: &'a [[u8; 12]],
    current: u32,
}

impl<'a> SamplesPerChunk<'a> {
    fn parse(stsc: &'a [u8], chunks: usize) -> Result<Self, Fault> {
        let (mut fields, _, _) = Fields::full(stsc, "stsc")?;
        let rows = fields.rows()?;
        let mut before = 0;
        for row in rows {
            let (first, _) = first_and_count(row);
            let is_first = before == 0;
            if first <= before || is_first && first != 1 || u64::from(first) > chunks as u64 {
                let what = format!("has a run from chunk {first} after {before}, of {chunks}");
                return Err(corrupt("stsc", what));
            }
            before = first;
        }
        Ok(Self { rows, current: 0 })
    }

    /// How many samples a chunk has; chunks are asked for one after another.
    fn of(&mut self, chunk: usize) -> u32 {
        if let [row, rest @ ..] = self.rows {
            let (first, count) = first_and_count(row);
            if u64::from(first) == chunk as u64 + 1 {
                self.current = count;
                self.rows = rest;
            }
        }
        self.current
    }
}

fn first_and_count(row: &[u8; 12]) -> (u32, u32) {
    let [first @ .., _, _, _, _] = *row;
    pair(first)
}

/// Passes each sample on with the value of its run. A table must have runs for exactly all samples.
fn for_runs(
    samples: &mut [Stored],
    rows: &[[u8; 8]],
    object: &'static str,
    mut set: impl FnMut(&mut Stored, u32),
) -> Result<(), Fault> {
    let all = samples.len();
    let mut rest = samples;
    for &row in rows {
        let (count, value) = pair(row);
        let split = usize::try_from(count).ok();
        let run = split.and_then(|count| std::mem::take(&mut rest).split_at_mut_checked(count));
        let Some((run, after)) = run else {
            let what = format!("has times of more samples than the {all} of stsz");
            return Err(corrupt(object, what));
        };
        for sample in run {
            set(sample, value);
        }
        rest = after;
    }
    if !rest.is_empty() {
        let what = format!(
            "has times of {} samples, and stsz has {all}",
            all - rest.len()
        );
        return Err(corrupt(object, what));
    }
    Ok(())
}

/// `stts`: returns the duration of all samples.
fn set_times(samples: &mut [Stored], stts: &[u8]) -> Result<i64, Fault> {
    let (mut fields, _, _) = Fields::full(stts, "stts")?;
    let rows = fields.rows()?;
    check_offsets(rows, "stts")?;
    let mut time = 0;
    for_runs(samples, rows, "stts", |sample, duration| {
        sample.time = time;
        time += i64::from(duration);
    })?;
    Ok(time)
}

/// `ctts`: whether it has any delay. Version 0 says that delays are not negative, but QuickTime writes negative ones.
fn set_delays(samples: &mut [Stored], ctts: &[u8]) -> Result<bool, Fault> {
    let (mut fields, _, _) = Fields::full(ctts, "ctts")?;
    let rows = fields.rows()?;
    if rows.is_empty() {
        return Ok(false);
    }
    check_offsets(rows, "ctts")?;
    for_runs(samples, rows, "ctts", |sample, delay| {
        sample.delay = delay.cast_signed();
    })?;
    Ok(true)
}

fn check_offsets(rows: &[[u8; 8]], object: &'static str) -> Result<(), Fault> {
    for &row in rows {
        check_offset(pair(row).1, object)?;
    }
    Ok(())
}

/// Refuses a duration or a delay that is out of any proportion.
pub(super) fn check_offset(offset: u32, object: &'static str) -> Result<(), Fault> {
    if offset.cast_signed().unsigned_abs() > MAX_OFFSET {
        let what = format!("has a time of {} units", offset.cast_signed());
        return Err(corrupt(object, what));
    }
    Ok(())
}
