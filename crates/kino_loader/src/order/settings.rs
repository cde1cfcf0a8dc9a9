//! What the user chooses: everything here changes the order, nothing else does.

use serde::{Deserialize, Serialize};

use crate::error::{Result, invalid};

/// The largest global batch.
const MAX_BATCH: u32 = 1 << 20;
/// The most lanes: each has a list of groups in memory.
const MAX_LANES: u32 = 1 << 16;

/// The settings of an order.
///
/// ```
/// use kino_loader::{Settings, Shuffle};
///
/// let settings = Settings { seed: 7, batch: 256, ..Settings::default() };
/// assert_eq!(settings.shuffle, Shuffle::Global);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Where all randomness comes from.
    pub seed: u64,
    /// Samples per batch, of all ranks together.
    pub batch: u32,
    /// Parts of a batch that read episodes of their own; divides `batch`.
    pub lanes: u32,
    /// How samples are mixed.
    pub shuffle: Shuffle,
    /// What happens where an epoch does not end with a batch.
    pub tail: Tail,
    /// Samples per epoch of a mixture; by default as many as its sources have together.
    #[serde(default)]
    pub epoch_size: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            batch: 1,
            lanes: 1,
            shuffle: Shuffle::Global,
            tail: Tail::Carry,
            epoch_size: None,
        }
    }
}

/// How samples are mixed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shuffle {
    /// Not at all: episodes and samples as they are listed.
    Sequential,
    /// All samples of an epoch, exactly.
    Global,
    /// Samples of some episodes at a time, so that only these need be decoded.
    Groups {
        /// How much may be open at once, all lanes together.
        pool: PoolSize,
        /// What groups are made of.
        #[serde(default)]
        unit: Unit,
    },
}

/// How much may be open at once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolSize {
    /// Decoded bytes; needs the sizes of the episodes.
    Bytes(u64),
    /// A number of episodes.
    Episodes(u32),
    /// A part of each source, above 0 and at most 1: of its bytes where sizes are known, of its episodes otherwise.
    Fraction(f64),
}

/// What groups are made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Any episodes together: the best mixing.
    #[default]
    Episodes,
    /// Whole shards: a group opens few files, which is what counts on remote storage.
    Shards,
}

/// What happens where an epoch does not end with a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tail {
    /// The batch goes on with the next epoch: nothing is lost, nothing comes twice.
    #[default]
    Carry,
    /// The last samples of the epoch's line, fewer than a batch, are left out of this epoch.
    Drop,
    /// The first samples of the line come again to fill the batch.
    Pad,
}

impl Tail {
    /// The length of an epoch of `positions`, or `None` if there is none.
    pub(crate) fn epoch_len(self, positions: u64, batch: u32) -> Option<u64> {
        let batch = u64::from(batch);
        let len = match self {
            Self::Carry => positions,
            Self::Drop => positions - positions % batch,
            Self::Pad => positions.next_multiple_of(batch),
        };
        (len > 0).then_some(len)
    }
}

impl Settings {
    /// Refuses what no order can be made of.
    pub(crate) fn check(&self) -> Result<()> {
        if self.batch == 0 || self.batch > MAX_BATCH {
            return Err(invalid(format!(
                "a batch of {} samples; choose 1 to {MAX_BATCH}",
                self.batch
            )));
        }
        if self.lanes == 0 || self.lanes > MAX_LANES || !self.batch.is_multiple_of(self.lanes) {
            return Err(invalid(format!(
                "{} lanes do not divide a batch of {}; {}",
                self.lanes,
                self.batch,
                nearest_divisors(self.batch, self.lanes)
            )));
        }
        match self.shuffle {
            Shuffle::Groups {
                pool: PoolSize::Fraction(part),
                ..
            } if !(part > 0.0 && part <= 1.0) => Err(invalid(format!(
                "a pool of {part} of the dataset; choose a fraction above 0 and at most 1"
            ))),
            Shuffle::Groups {
                pool: PoolSize::Bytes(0) | PoolSize::Episodes(0),
                ..
            } => Err(invalid(
                "a pool of nothing; choose at least 1, or `sequential`",
            )),
            _ if self.epoch_size == Some(0) => {
                Err(invalid("an epoch of 0 samples; choose at least one batch"))
            }
            _ => Ok(()),
        }
    }

    /// The settings as lines of text, the same for the same order; `spec/order.md` gives the grammar.
    pub(crate) fn to_lines(self) -> String {
        let shuffle = match self.shuffle {
            Shuffle::Sequential => "sequential".into(),
            Shuffle::Global => "global".into(),
            Shuffle::Groups { pool, unit } => {
                let pool = match pool {
                    PoolSize::Bytes(bytes) => format!("bytes {bytes}"),
                    PoolSize::Episodes(episodes) => format!("episodes {episodes}"),
                    PoolSize::Fraction(part) => format!("fraction {:016x}", part.to_bits()),
                };
                let unit = match unit {
                    Unit::Episodes => "episodes",
                    Unit::Shards => "shards",
                };
                format!("groups {pool} {unit}")
            }
        };
        let tail = match self.tail {
            Tail::Carry => "carry",
            Tail::Drop => "drop",
            Tail::Pad => "pad",
        };
        let size = self.epoch_size.unwrap_or(0);
        format!(
            "seed {}\nbatch {}\nlanes {}\nshuffle {shuffle}\ntail {tail}\nepoch_size {size}\n",
            self.seed, self.batch, self.lanes
        )
    }
}

/// Names the divisors of `batch` on both sides of `request`.
pub(crate) fn nearest_divisors(batch: u32, request: u32) -> String {
    let divides = |number: &u32| batch.is_multiple_of(*number);
    let below = (1..=batch.min(request)).rev().find(divides);
    let above = (request.max(1)..=batch).find(divides);
    match (below, above) {
        (Some(below), Some(above)) if below != above => {
            format!("the nearest that do are {below} and {above}")
        }
        (Some(one), _) | (_, Some(one)) => format!("the nearest that does is {one}"),
        (None, None) => "choose 1".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_order_can_be_made_of_is_refused_with_what_can() {
        let check = |settings: Settings| settings.check().unwrap_err().to_string();
        let batch = |batch, lanes| Settings {
            batch,
            lanes,
            ..Settings::default()
        };
        assert!(check(batch(0, 1)).contains("choose 1 to"));
        assert!(check(batch(64, 3)).ends_with("the nearest that do are 2 and 4"));
        assert!(check(batch(64, 65)).ends_with("the nearest that does is 64"));
        assert!(check(batch(64, 0)).ends_with("the nearest that does is 1"));
        for pool in [
            PoolSize::Bytes(0),
            PoolSize::Episodes(0),
            PoolSize::Fraction(f64::NAN),
            PoolSize::Fraction(0.0),
            PoolSize::Fraction(1.1),
        ] {
            let shuffle = Shuffle::Groups {
                pool,
                unit: Unit::Episodes,
            };
            let settings = Settings {
                shuffle,
                ..Settings::default()
            };
            assert!(check(settings).starts_with("a pool of"));
        }
    }
}
