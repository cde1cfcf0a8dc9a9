//! What an epoch of a remote dataset costs: requests, bytes and money, computed before a frame is read.
//!
//! ```text
//! stored bytes of the requested streams × how often they are read ─▶ bytes ─▶ reads of a megabyte ─▶ GETs ─▶ dollars
//!                                                                      │
//!                         from the second epoch on, less what the cache has room for
//! ```
//!
//! `python/kinograph/_estimate.py` computes the same for a loader that was made in Python; a test compares them.

use std::collections::BTreeSet;
use std::fmt;

use kino_dataset::{ByteSize, Samples};
use kino_loader::{Ranks, ShuffleQuality};
use serde::Serialize;

use crate::doctor::Subject;
use crate::error::{Result, invalid};

/// Of consecutive pages so much is read at once, as long as the storage was not measured (`read_size.rs` of `kino_dataset`)…
const SPAN_BYTES: f64 = (1 << 20) as f64;

/// … and less at the beginning, so that a first batch comes early.
const FIRST_SPAN_BYTES: f64 = (128 << 10) as f64;
const FIRST_BYTES: f64 = (16 << 20) as f64;

/// Requests to open a shard.
const PER_SHARD: f64 = 3.0;

/// What a storage charges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoragePrice {
    get: f64,
    gb: f64,
}

impl StoragePrice {
    /// Dollars per 1000 GETs, and per GB (10⁹ bytes) that leaves the storage.
    pub fn new(get: f64, gb: f64) -> Result<Self> {
        for price in [get, gb] {
            if !(price.is_finite() && price >= 0.0) {
                return Err(invalid(format!(
                    "the price {price} is not a number of dollars; give 0 if it costs nothing"
                )));
            }
        }
        Ok(Self { get, gb })
    }

    fn of(self, gets: f64, bytes: f64) -> f64 {
        gets / 1e3 * self.get + bytes / 1e9 * self.gb
    }
}

/// What reading one epoch costs, by all ranks together. Only remote datasets count.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct EpochCost {
    /// Requests in the first epoch.
    pub gets: u64,
    /// Bytes that are fetched in it.
    pub bytes: u64,
    /// What that costs.
    pub dollars: f64,
    /// The share of the bytes that come from the cache from the second epoch on.
    pub hit_rate: f64,
    /// Requests in each epoch after the first.
    pub later_gets: u64,
    /// Bytes that are fetched in each of them.
    pub later_bytes: u64,
    /// What each of them costs.
    pub later_dollars: f64,
}

impl EpochCost {
    /// Of a loader that was not started. Reads the index of a few episodes, and no frame.
    pub fn of(subject: &Subject, price: StoragePrice) -> Result<Self> {
        let options = &subject.options;
        let ranks = Ranks {
            world: options.world_size,
            local: 1,
        };
        let memory = options.memory_bytes();
        let quality = ShuffleQuality::of(
            &subject.order,
            &subject.windows,
            &options.images,
            memory,
            ranks,
        )?;
        // Of variants of an episode one is read.
        let samples = subject
            .windows
            .iter()
            .filter_map(|variants| variants.first());
        Ok(Self::sum(
            samples,
            quality.decodes_per_frame.max(1.0),
            price,
        ))
    }

    /// Of some samples, if each frame is read so many `times`.
    fn sum<'s>(
        samples: impl Iterator<Item = &'s Samples>,
        times: f64,
        price: StoragePrice,
    ) -> Self {
        let (mut gets, mut bytes, mut kept, mut first) = (0.0, 0.0, 0.0, 0.0);
        for samples in samples {
            let Some(storage) = samples.dataset().storage_report() else {
                continue;
            };
            let (stored, requests) = needs(samples);
            let opened = samples.episodes().len() as f64 + PER_SHARD * shards(samples);
            let share = stored * times;
            gets += requests * times + opened;
            bytes += share;
            first += share.min(FIRST_BYTES) / FIRST_SPAN_BYTES;
            if let Some(cache) = storage.cache.filter(|cache| cache.stopped.is_none()) {
                // Bytes that are read more than once per epoch are kept once.
                kept += (cache.limit_bytes as f64 / stored.max(1.0)).min(1.0) * share;
            }
        }
        let hit_rate = if bytes > 0.0 {
            (kept / bytes).min(1.0)
        } else {
            0.0
        };
        let (later_gets, later_bytes) = (gets * (1.0 - hit_rate), bytes * (1.0 - hit_rate));
        Self {
            gets: whole(gets + first),
            bytes: whole(bytes),
            dollars: price.of(gets + first, bytes),
            hit_rate,
            later_gets: whole(later_gets),
            later_bytes: whole(later_bytes),
            later_dollars: price.of(later_gets, later_bytes),
        }
    }
}

/// Stored bytes of the requested streams in the selected episodes, and how many reads they are.
fn needs(samples: &Samples) -> (f64, f64) {
    let dataset = samples.dataset();
    let share = samples.episodes().len() as f64 / dataset.len().max(1) as f64;
    let windows = &samples.request().windows;
    let names: BTreeSet<&str> = windows.iter().map(|window| &*window.stream).collect();
    let streams = dataset.manifest().streams.iter();
    let streams = streams.filter(|stream| names.contains(&*stream.name));
    streams.fold((0.0, 0.0), |(bytes, reads), stream| {
        let stored = stream.bytes as f64;
        let each = stored / stream.episodes.max(1) as f64;
        let spans = (each / SPAN_BYTES).ceil();
        (
            bytes + stored * share,
            reads + stream.episodes as f64 * share * spans,
        )
    })
}

/// How many shards the dataset's episodes are in.
fn shards(samples: &Samples) -> f64 {
    let table = samples.dataset().table();
    let shards = (0..table.len()).filter_map(|row| table.shard(row));
    shards.collect::<BTreeSet<_>>().len() as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and `as` saturates"
)]
fn whole(count: f64) -> u64 {
    count.round() as u64
}

impl fmt::Display for EpochCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.gets == 0 {
            return f.write_str("every dataset is local: no requests");
        }
        write!(
            f,
            "first epoch: {} GETs, {}, ${:.4}; later: {:.0}% from the cache, {} GETs, {}, ${:.4} each",
            self.gets,
            ByteSize::new(self.bytes),
            self.dollars,
            self.hit_rate * 100.0,
            self.later_gets,
            ByteSize::new(self.later_bytes),
            self.later_dollars,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_per_thousand_requests_and_per_gigabyte_and_are_not_negative() {
        let price = StoragePrice::new(0.0004, 0.09).unwrap();
        assert_eq!(price.of(1000.0, 1e9), 0.0904);
        assert!(StoragePrice::new(-1.0, 0.0).is_err());
        assert!(StoragePrice::new(0.0, f64::NAN).is_err());
        assert_eq!(
            EpochCost::default().to_string(),
            "every dataset is local: no requests"
        );
    }
}
