//! The tables of `stbl`: runs of durations and delays, key frames, sizes, and where chunks begin.

use super::super::tables::Stored;
use super::boxes::{count, full, table, words};

/// A chunk ends before it gets larger than this, or with its only sample: players that seek add up the sizes in one.
const CHUNK_BYTES: u64 = 1 << 20;

/// All tables but `stsd`, for samples that lie in the file one after another.
pub(super) fn tables(samples: &[Stored], last_duration: u32) -> Vec<u8> {
    let sizes = words(samples.iter().map(|sample| sample.size));
    let stsz = full(b"stsz", 0, 0, &[&[0; 4], &count(samples.len()), &sizes]);
    let chunks = Chunks::of(samples);
    [
        table(b"stts", &runs(durations(samples, last_duration))),
        delays(samples),
        key_frames(samples),
        chunks.stsc(),
        stsz,
        chunks.offsets(),
    ]
    .concat()
}

/// From one decode time to the next. They fit, because the writer checks them.
fn durations(samples: &[Stored], last: u32) -> impl Iterator<Item = u32> {
    let steps = samples.iter().zip(samples.iter().skip(1));
    let steps = steps.map(|(this, next)| u32::try_from(next.time - this.time).unwrap_or(u32::MAX));
    steps.chain([last])
}

/// `ctts`, unless each frame is shown when it is decoded.
fn delays(samples: &[Stored]) -> Vec<u8> {
    if samples.iter().all(|sample| sample.delay == 0) {
        return Vec::new();
    }
    let delays = samples.iter().map(|sample| sample.delay.cast_unsigned());
    table(b"ctts", &runs(delays))
}

/// `stss`, unless all are key frames.
fn key_frames(samples: &[Stored]) -> Vec<u8> {
    if samples.iter().all(|sample| sample.is_key) {
        return Vec::new();
    }
    let keys = (1..).zip(samples).filter(|(_, sample)| sample.is_key);
    let keys: Vec<_> = keys.map(|(number, _)| [number]).collect();
    table(b"stss", &keys)
}

/// Rows of how often a value follows itself, and the value.
fn runs(values: impl Iterator<Item = u32>) -> Vec<[u32; 2]> {
    let mut rows: Vec<[u32; 2]> = Vec::new();
    for value in values {
        match rows.last_mut() {
            Some([count, last]) if *last == value => *count += 1,
            _ => rows.push([1, value]),
        }
    }
    rows
}

/// Where each chunk begins, and how many samples are in it.
struct Chunks(Vec<(u64, u32)>);

impl Chunks {
    fn of(samples: &[Stored]) -> Self {
        let mut chunks: Vec<(u64, u32)> = Vec::new();
        for sample in samples {
            let end = sample.offset + u64::from(sample.size);
            match chunks.last_mut() {
                Some((start, count)) if end - *start <= CHUNK_BYTES => *count += 1,
                _ => chunks.push((sample.offset, 1)),
            }
        }
        Self(chunks)
    }

    /// `stsc`: runs of chunks with equally many samples, all of the first description.
    fn stsc(&self) -> Vec<u8> {
        let mut rows: Vec<[u32; 3]> = Vec::new();
        for (number, (_, samples)) in (1..).zip(&self.0) {
            if rows.last().is_none_or(|[_, last, _]| last != samples) {
                rows.push([number, *samples, 1]);
            }
        }
        table(b"stsc", &rows)
    }

    /// `stco`, or `co64` in a file of more than 4 GiB.
    fn offsets(&self) -> Vec<u8> {
        let short = self.0.iter().map(|(start, _)| u32::try_from(*start).ok());
        let short: Option<Vec<_>> = short.map(|start| start.map(|start| [start])).collect();
        if let Some(rows) = short {
            return table(b"stco", &rows);
        }
        let long = self.0.iter().flat_map(|(start, _)| start.to_be_bytes());
        let long: Vec<u8> = long.collect();
        full(b"co64", 0, 0, &[&count(self.0.len()), &long])
    }
}
