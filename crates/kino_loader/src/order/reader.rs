//! Index → sample. A reader holds the layouts of the epochs in use, so that asking takes no lock.

use std::ops::Range;

use super::endless::{Cache, SampleRef};
use super::own::{Own, Rank};
use super::{MAX_INDEX, Order, past_the_end};
use crate::error::{LoaderError, Result, invalid};

/// The most samples of one call.
const MAX_FILL: u64 = 1 << 28;

/// Reads an order at any index, in any sequence.
#[derive(Debug)]
pub struct OrderReader {
    order: Order,
    caches: Vec<Cache>,
}

impl OrderReader {
    pub(crate) fn new(order: Order) -> Self {
        let caches = order.inner.tracks.iter().map(Cache::new).collect();
        Self { order, caches }
    }

    /// The order that is read.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// The sample at index `i`; an error where the last batch of an epoch is short and has none there.
    pub fn at(&mut self, i: u64) -> Result<SampleRef> {
        self.check(i)?;
        if !self.order.has_sample(i) {
            return Err(no_sample(&self.order, i));
        }
        Ok(self.sample(i))
    }

    /// Appends the samples at `range`, without the indices that have none.
    pub fn fill(&mut self, range: Range<u64>, samples: &mut Vec<SampleRef>) -> Result<()> {
        let len = range.end.saturating_sub(range.start);
        if len == 0 {
            return Ok(());
        }
        if len > MAX_FILL {
            return Err(invalid(format!(
                "{len} samples were requested at once; request at most {MAX_FILL}"
            )));
        }
        self.check(range.end - 1)?;
        for i in range {
            if self.order.has_sample(i) {
                samples.push(self.sample(i));
            }
        }
        Ok(())
    }

    /// Another sample for a broken one at `i`: a sample of the same group, by a draw of `i` and `attempt`.
    ///
    /// Each attempt takes another position of the group until all were tried, and no other index moves. Where the group
    /// has one position only, it is the sample itself; where samples repeat (weights, `repeat`) it may be an equal one.
    pub fn substitute(&mut self, i: u64, attempt: u64) -> Result<SampleRef> {
        self.check(i)?;
        if !self.order.has_sample(i) {
            return Err(no_sample(&self.order, i));
        }
        let (source, index) = self.locate(i);
        let track = &self.order.inner.tracks[source];
        let sample = track.substitute(index, attempt, &mut self.caches[source]);
        Ok(of_source(sample, source))
    }

    /// Which samples of the episode of index `i`, which has a sample, one rank takes while it is at `i`.
    pub(crate) fn own(&mut self, i: u64, rank: Rank) -> Own {
        let (source, index) = self.locate(i);
        let track = &self.order.inner.tracks[source];
        track.own(index, rank, &mut self.caches[source])
    }

    /// Bytes that the layouts hold.
    pub fn memory(&self) -> usize {
        self.caches.iter().map(Cache::memory).sum()
    }

    fn sample(&mut self, i: u64) -> SampleRef {
        let (source, index) = self.locate(i);
        let track = &self.order.inner.tracks[source];
        of_source(track.at(index, &mut self.caches[source]), source)
    }

    /// The source, and the index in its own order.
    fn locate(&self, i: u64) -> (usize, u64) {
        let inner = &*self.order.inner;
        match &inner.mixture {
            None => (0, i),
            Some(mixture) => mixture.at(i, inner.lanes, inner.settings.seed),
        }
    }

    fn check(&self, i: u64) -> Result<()> {
        if i >= MAX_INDEX {
            return Err(past_the_end(&format!("index {i}")));
        }
        Ok(())
    }
}

/// The error of an index behind the end of a short batch.
fn no_sample(order: &Order, i: u64) -> LoaderError {
    invalid(format!(
        "index {i} has no sample: the last batch of an epoch of {} samples is short, and the next epoch starts at index {}",
        order.epoch_samples(),
        (order.epoch_of(i) + 1).saturating_mul(order.epoch_len())
    ))
}

fn of_source(sample: SampleRef, source: usize) -> SampleRef {
    SampleRef {
        source: u32::try_from(source).unwrap_or(u32::MAX),
        ..sample
    }
}
