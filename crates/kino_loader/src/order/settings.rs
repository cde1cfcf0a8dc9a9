//! What the user chooses: everything here changes the order, nothing else does.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{LoaderError, Result, invalid};

/// The largest global batch.
const MAX_BATCH: u32 = 1 << 20;
/// The most lanes: each has a list of groups in memory.
const MAX_LANES: u32 = 1 << 16;

/// The settings of an order.
///
/// ```
/// use kino_loader::{Settings, Shuffle};
///
/// let settings = Settings { seed: 7, batch_size: 256, ..Settings::default() };
/// assert_eq!(settings.shuffle, Shuffle::Global);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where all randomness comes from.
    pub seed: u64,
    /// Samples per batch, of all ranks together.
    pub batch_size: u32,
    /// Parts of a batch that read episodes of their own; divides `batch_size`.
    pub lanes: u32,
    /// How samples are mixed.
    pub shuffle: Shuffle,
    /// How the samples of a group come into batches.
    #[serde(skip_serializing_if = "Deal::is_strata")]
    pub deal: Deal,
    /// What the last batch of an epoch is where the samples do not fill it.
    pub last_batch: LastBatch,
    /// Samples per epoch of a mixture; by default as many as its sources have together.
    pub epoch_size: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            batch_size: 1,
            lanes: 1,
            shuffle: Shuffle::Global,
            deal: Deal::Strata,
            last_batch: LastBatch::Short,
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
        /// How large a group is, all lanes together.
        size: GroupSize,
        /// What groups are made of.
        #[serde(default)]
        unit: Unit,
    },
}

/// How large a group is: what is decoded and shuffled at a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupSize {
    /// Decoded bytes; needs the sizes of the episodes.
    Bytes(u64),
    /// A number of episodes.
    Episodes(u32),
    /// A fraction of each source, above 0 and at most 1: of its bytes where sizes are known, of its episodes otherwise.
    Fraction(f64),
}

/// How the samples of a group come into batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Deal {
    /// A batch takes from the whole group, wherever in the batch: ranks that share a lane share its episodes.
    #[default]
    Strata,
    /// Each place of the batch has a part of the group, one after the other: so has each rank, however many there are.
    Parts,
}

impl fmt::Display for Deal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strata => "strata",
            Self::Parts => "parts",
        })
    }
}

impl Deal {
    /// Whether it is the one that states have not always named.
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_strata(&self) -> bool {
        *self == Self::Strata
    }
}

/// What groups are made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Any episodes together: the best mixing.
    #[default]
    Episodes,
    /// Whole shards: a group opens few files, which matters on remote storage.
    Shards,
}

/// What the last batch of an epoch is where the samples do not fill it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LastBatch {
    /// It holds fewer samples: each sample comes exactly once per epoch.
    #[default]
    Short,
    /// There is none: the last samples of the epoch, fewer than a batch, are dropped.
    Drop,
    /// It is filled with the first samples of the next epoch, which begins inside the batch.
    Wrap,
    /// It is filled with samples of the same epoch, which come again.
    Repeat,
}

/// How many indices an epoch has, and how many of them, from its first on, have a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EpochLen {
    pub(crate) indices: u64,
    pub(crate) samples: u64,
}

impl LastBatch {
    /// The length of an epoch of `positions`; an error if no batch is left of it.
    pub(crate) fn epoch_len(self, positions: u64, batch: u32) -> Result<EpochLen> {
        let len = u64::from(batch);
        let indices = match self {
            Self::Wrap => positions,
            Self::Drop => positions - positions % len,
            Self::Short | Self::Repeat => positions.next_multiple_of(len),
        };
        if indices == 0 {
            return Err(self.too_large(positions, batch));
        }
        let samples = match self {
            Self::Short => positions,
            _ => indices,
        };
        Ok(EpochLen { indices, samples })
    }

    /// Its name, as in JSON and in Python.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Drop => "drop",
            Self::Wrap => "wrap",
            Self::Repeat => "repeat",
        }
    }

    /// Refuses a batch that is larger than an epoch, where it would be dropped or repeat its samples.
    pub(crate) fn check(self, samples: u64, batch: u32) -> Result<()> {
        if self == Self::Short || u64::from(batch) <= samples {
            return Ok(());
        }
        Err(self.too_large(samples, batch))
    }

    fn too_large(self, samples: u64, batch: u32) -> LoaderError {
        let harm = match self {
            Self::Drop => "with last_batch=\"drop\" would drop them all".to_owned(),
            _ => format!(
                "would repeat each about {} times",
                u64::from(batch) / samples.max(1)
            ),
        };
        invalid(format!(
            "a batch of {batch} from {samples} samples {harm}; use last_batch=\"short\", or a batch of at most {samples}"
        ))
    }
}

impl Settings {
    /// Whether groups are dealt in parts: not where there are none.
    pub(crate) fn has_parts(&self) -> bool {
        self.deal == Deal::Parts && matches!(self.shuffle, Shuffle::Groups { .. })
    }

    /// With the default deal where nothing is dealt, so that equal orders have equal settings.
    pub(crate) fn without_unused_deal(self) -> Self {
        let deal = if self.has_parts() {
            Deal::Parts
        } else {
            Deal::Strata
        };
        Self { deal, ..self }
    }

    /// Refuses what no order can be made of.
    pub(crate) fn check(&self) -> Result<()> {
        if self.batch_size == 0 || self.batch_size > MAX_BATCH {
            return Err(invalid(format!(
                "the batch size is {}; it must be from 1 to {MAX_BATCH}",
                self.batch_size
            )));
        }
        if self.lanes == 0 || self.lanes > MAX_LANES || !self.batch_size.is_multiple_of(self.lanes)
        {
            return Err(invalid(format!(
                "a batch of {} samples cannot be split into {} equal lanes; use {} lanes",
                self.batch_size,
                self.lanes,
                nearest_divisors(self.batch_size, self.lanes)
            )));
        }
        if self.deal == Deal::Parts && self.lanes != 1 {
            return Err(invalid(format!(
                "{} lanes of groups in parts; parts are for one lane: leave out `lanes` or `deal`",
                self.lanes
            )));
        }
        match self.shuffle {
            Shuffle::Groups {
                size: GroupSize::Fraction(part),
                ..
            } if !(part > 0.0 && part <= 1.0) => Err(invalid(format!(
                "groups of a fraction of {part} of the dataset; the fraction must be above 0 and at most 1"
            ))),
            Shuffle::Groups {
                size: GroupSize::Bytes(0) | GroupSize::Episodes(0),
                ..
            } => Err(invalid("groups of size 0; use at least 1 episode or byte")),
            _ if self.epoch_size == Some(0) => {
                Err(invalid("`epoch_size` is 0; it must be at least 1"))
            }
            _ => Ok(()),
        }
    }

    /// The settings as lines of text, the same for the same order; `spec/order.md` gives the grammar.
    pub(crate) fn to_lines(self) -> String {
        let shuffle = match self.shuffle {
            Shuffle::Sequential => "sequential".into(),
            Shuffle::Global => "global".into(),
            Shuffle::Groups { size, unit } => {
                let size = match size {
                    GroupSize::Bytes(bytes) => format!("bytes {bytes}"),
                    GroupSize::Episodes(episodes) => format!("episodes {episodes}"),
                    GroupSize::Fraction(part) => format!("fraction {:016x}", part.to_bits()),
                };
                let unit = match unit {
                    Unit::Episodes => "episodes",
                    Unit::Shards => "shards",
                };
                format!("groups {size} {unit}")
            }
        };
        let last_batch = self.last_batch.name();
        let size = self.epoch_size.unwrap_or(0);
        let deal = match self.deal {
            Deal::Strata => "",
            Deal::Parts => "deal parts\n",
        };
        format!(
            "seed {}\nbatch {}\nlanes {}\nshuffle {shuffle}\nlast_batch {last_batch}\nepoch_size {size}\n{deal}",
            self.seed, self.batch_size, self.lanes
        )
    }
}

/// The divisors of `whole` on both sides of `request`, as text: `2 or 4`.
pub(crate) fn nearest_divisors(whole: u32, request: u32) -> String {
    let divides = |number: &u32| whole.is_multiple_of(*number);
    let below = (1..=whole.min(request)).rev().find(divides);
    let above = (request.max(1)..=whole).find(divides);
    match (below, above) {
        (Some(below), Some(above)) if below != above => format!("{below} or {above}"),
        (Some(one), _) | (_, Some(one)) => one.to_string(),
        (None, None) => "1".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_order_can_be_made_of_is_refused_with_what_can() {
        let check = |settings: Settings| settings.check().unwrap_err().to_string();
        let batch = |batch, lanes| Settings {
            batch_size: batch,
            lanes,
            ..Settings::default()
        };
        assert!(check(batch(0, 1)).contains("must be from 1 to"));
        assert!(check(batch(64, 3)).ends_with("use 2 or 4 lanes"));
        assert!(check(batch(64, 65)).ends_with("use 64 lanes"));
        assert!(check(batch(64, 0)).ends_with("use 1 lanes"));
        for size in [
            GroupSize::Bytes(0),
            GroupSize::Episodes(0),
            GroupSize::Fraction(f64::NAN),
            GroupSize::Fraction(0.0),
            GroupSize::Fraction(1.1),
        ] {
            let shuffle = Shuffle::Groups {
                size,
                unit: Unit::Episodes,
            };
            let settings = Settings {
                shuffle,
                ..Settings::default()
            };
            assert!(check(settings).starts_with("groups of"));
        }
    }
}
