//! Who takes which indices.
//!
//! ```text
//! batch k       | kG …                      (k+1)G |
//! 3 ranks       | rank 0   | rank 1   | rank 2     |     rank r: kG + ⌊rG/W⌋ .. kG + ⌊(r+1)G/W⌋
//! ```
//!
//! The ranks' slices put together are the same sequence for every number of ranks.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::settings::nearest_divisors;
use super::{MAX_INDEX, Order, past_the_end};
use crate::error::{Result, invalid};

/// Whether ranks may have slices of different lengths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "bool", into = "bool")]
pub enum Uneven {
    /// All slices have one length; the number of ranks must divide the batch.
    #[default]
    Refuse,
    /// Slices may differ by one sample, for instance to go on with three of four machines.
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
    /// The indices of batch `batch` that rank `rank` of `world` takes.
    pub fn rank_range(
        &self,
        batch: u64,
        rank: u32,
        world: u32,
        uneven: Uneven,
    ) -> Result<Range<u64>> {
        let size = self.settings().batch;
        if rank >= world {
            return Err(invalid(format!(
                "rank {rank} of {world}; ranks are 0 to {}",
                world.saturating_sub(1)
            )));
        }
        if world > size || (uneven == Uneven::Refuse && !size.is_multiple_of(world)) {
            return Err(invalid(format!(
                "{world} ranks cannot share a batch of {size} evenly; {}, or allow uneven slices of at least one sample",
                nearest_divisors(size, world)
            )));
        }
        let size = u64::from(size);
        let first = batch
            .checked_mul(size)
            .filter(|first| first.saturating_add(size) <= MAX_INDEX)
            .ok_or_else(|| past_the_end(&format!("batch {batch}")))?;
        let cut = |rank: u32| first + u64::from(rank) * size / u64::from(world);
        Ok(cut(rank)..cut(rank + 1))
    }
}
