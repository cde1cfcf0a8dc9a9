//! What the user of whole-episode batches chooses.

use serde::{Deserialize, Serialize};

use super::settings::LastBatch;
use crate::error::{Result, invalid};

/// The most batches of a step.
const MAX_STEP: u32 = 1 << 16;
/// The settings of batches of whole episodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LengthSettings {
    /// Where all randomness comes from.
    pub seed: u64,
    /// What a batch may hold.
    pub batching: Batching,
    /// Batches per step: the largest number of ranks that will ever train. The number of ranks must divide it.
    pub step: u32,
    /// Episodes that are sorted together; by default as many as 100 batches hold. More waste less, fewer mix better.
    pub spread: Option<u32>,
    /// What the last step of an epoch is where the batches do not fill it; every rank needs its batches, so it cannot be short.
    pub last_batch: LastBatch,
    /// What happens to an episode that exceeds the budget.
    pub oversize: Oversize,
}

/// What a batch may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Batching {
    /// So many episodes of similar length.
    Similar {
        /// Episodes per batch.
        batch: u32,
    },
    /// As many episodes of similar length as a budget allows, padding included.
    Budget {
        /// The longest episode's frames times the number of episodes is at most this.
        frames: u64,
    },
}

/// What happens to an episode that exceeds the budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Oversize {
    /// The order is refused, and the episode named.
    #[default]
    Refuse,
    /// It is a batch of its own.
    Alone,
}

impl Default for LengthSettings {
    fn default() -> Self {
        Self {
            seed: 0,
            batching: Batching::Similar { batch: 1 },
            step: 1,
            spread: None,
            last_batch: LastBatch::Wrap,
            oversize: Oversize::Refuse,
        }
    }
}

/// An episode without frames still takes a row.
pub(super) fn frames_of(length: u32) -> u64 {
    u64::from(length.max(1))
}

impl LengthSettings {
    /// Refuses what no order of these lengths can be made of.
    pub(super) fn check(&self, lengths: &[u32]) -> Result<()> {
        if lengths.is_empty() || u32::try_from(lengths.len()).is_err() {
            return Err(invalid(format!(
                "{} episodes are selected; select from 1 to {}",
                lengths.len(),
                u32::MAX
            )));
        }
        if self.step == 0 || self.step > MAX_STEP {
            return Err(invalid(format!(
                "a step has {} batches; it must have from 1 to {MAX_STEP}",
                self.step
            )));
        }
        if self.last_batch == LastBatch::Short {
            return Err(invalid(
                "last_batch=\"short\" would leave ranks without a batch of whole episodes in the last step; use \"wrap\", \"drop\" or \"repeat\"",
            ));
        }
        if self.spread == Some(0) {
            return Err(invalid("`spread` is 0 episodes; it must be at least 1"));
        }
        match self.batching {
            Batching::Similar { batch: 0 } => Err(invalid(
                "the batch size is 0 episodes; it must be at least 1",
            )),
            Batching::Budget { frames } if self.oversize == Oversize::Refuse => {
                match lengths
                    .iter()
                    .position(|&length| frames_of(length) > frames)
                {
                    Some(episode) => Err(invalid(format!(
                        "episode {episode} has {} frames, more than the budget of {frames}; raise the budget to at least {}, skip the episode, or let it be a batch of its own",
                        lengths[episode],
                        lengths.iter().max().unwrap_or(&0)
                    ))),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Episodes that are sorted together.
    pub(super) fn spread_of(&self, lengths: &[u32]) -> u64 {
        match (self.spread, self.batching) {
            (Some(spread), _) => u64::from(spread),
            // As many as 100 batches hold, at the mean length.
            (None, Batching::Similar { batch }) => 100 * u64::from(batch),
            (None, Batching::Budget { frames }) => {
                let total: u128 = lengths
                    .iter()
                    .map(|&length| u128::from(frames_of(length)))
                    .sum();
                let per_batch = u128::from(frames) * lengths.len() as u128 / total.max(1);
                u64::try_from(per_batch.max(1))
                    .unwrap_or(u64::MAX)
                    .saturating_mul(100)
            }
        }
    }
}
