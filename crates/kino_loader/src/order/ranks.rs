//! Who takes which indices.
//!
//! ```text
//! batch k       | kG …                      (k+1)G |
//! 3 ranks       | rank 0   | rank 1   | rank 2     |     rank r: kG + ⌊rg/W⌋ .. kG + ⌊(r+1)g/W⌋
//! ```
//!
//! g is G, or the number of samples of a short last batch. The ranks' slices put together are the same sequence for
//! every number of ranks.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::settings::LastBatch;
use super::{MAX_INDEX, Order, past_the_end};
use crate::error::{Result, invalid};

/// Whether ranks may have slices of different lengths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Uneven {
    /// All slices of a full batch have one length; the number of ranks must divide the batch.
    #[default]
    Refuse,
    /// Slices may differ by one sample, for instance to resume on three of four machines.
    Allow,
}

impl From<bool> for Uneven {
    fn from(is_allowed: bool) -> Self {
        if is_allowed {
            Self::Allow
        } else {
            Self::Refuse
        }
    }
}

impl From<Uneven> for bool {
    fn from(uneven: Uneven) -> Self {
        uneven == Uneven::Allow
    }
}

impl Order {
    /// The indices of batch `batch` that rank `rank` of `world` takes. Slices of a short last batch may always differ
    /// by one sample.
    pub fn rank_range(
        &self,
        batch: u64,
        rank: u32,
        world: u32,
        uneven: Uneven,
    ) -> Result<Range<u64>> {
        self.check_ranks(rank, world, uneven)?;
        let size = u64::from(self.settings().batch_size);
        let first = batch
            .checked_mul(size)
            .filter(|first| first.saturating_add(size) <= MAX_INDEX)
            .ok_or_else(|| past_the_end(&format!("batch {batch}")))?;
        let len = match self.settings().last_batch {
            LastBatch::Short => size.min(
                self.epoch_samples()
                    .saturating_sub(first % self.epoch_len()),
            ),
            _ => size,
        };
        let slice = |rank: u32| first + u64::from(rank) * len / u64::from(world);
        Ok(slice(rank)..slice(rank + 1))
    }

    /// Refuses ranks that cannot share every batch.
    fn check_ranks(&self, rank: u32, world: u32, uneven: Uneven) -> Result<()> {
        let size = self.settings().batch_size;
        if rank >= world {
            return Err(invalid(format!(
                "rank {rank} of {world}; ranks are 0 to {}",
                world.saturating_sub(1)
            )));
        }
        if world > size {
            return Err(invalid(format!(
                "{world} ranks cannot share a global batch of {size}; use a global batch of at least {world}"
            )));
        }
        if uneven == Uneven::Refuse && !size.is_multiple_of(world) {
            let below = size - size % world;
            return Err(invalid(format!(
                "{world} ranks cannot share a global batch of {size} evenly; use a global batch of {below} or {}, or `uneven=True`",
                below.saturating_add(world)
            )));
        }
        let rest = self.epoch_samples() % u64::from(size);
        if self.settings().last_batch == LastBatch::Short && 0 < rest && rest < u64::from(world) {
            return Err(invalid(format!(
                "the last batch of an epoch has {rest} of {size} samples, too few for {world} ranks; use another batch_size, or last_batch=\"drop\", \"wrap\" or \"repeat\""
            )));
        }
        Ok(())
    }
}
