//! What a shuffle gives and costs: how well it mixes, how often frames are decoded, how much memory it needs.
//!
//! ```text
//! fits in memory     everything: decoded once and kept     a group: decoded once per epoch
//! does not           of a group the part that fits is kept, frames of the rest are decoded for each sample
//! ```
//!
//! Memory changes how often a frame is decoded, never the order. All sizes are those of the frames as requested, after
//! resize and crop.

use std::fmt;

use kino_dataset::Samples;
use serde::{Deserialize, Serialize};

use super::ImageOptions;
use super::caching::decoded_bytes;
use crate::decodes::decodes_per_frame;
use crate::error::Result;
use crate::order::{Order, Shuffle};

/// Without `memory`, a loader takes at most this share of the memory that is available, over all ranks of the machine…
const DEFAULT_SHARE: u64 = 4;

/// … but not less than this: a few batches of images must fit.
const LEAST_MEMORY: u64 = 256 << 20;

/// Available memory where the system does not say.
const ASSUMED_MEMORY: u64 = 8 << 30;

/// Of the memory, samples that are read by themselves have this share where a group does not fit.
pub(super) const ALONE_SHARE: u64 = 8;

/// What a shuffle gives and costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ShuffleQuality {
    /// Different episodes in a batch, on average.
    pub episodes_per_batch: f64,
    /// The variance of a batch's mean, relative to independent samples, for an effect that an episode's samples share.
    pub vif: f64,
    /// How often a frame is decoded in the first epoch, expected with the memory given.
    pub decodes_per_frame: f64,
    /// Bytes of memory with which each frame is decoded once per epoch.
    pub memory_needed: u64,
    /// Bytes of memory with which each frame is decoded once, and never again.
    pub memory_for_all: u64,
}

impl ShuffleQuality {
    /// What the shuffle of an order gives and costs with `memory_bytes`. `windows` are those of
    /// [`Loader::start`](super::Loader::start).
    pub fn of(
        order: &Order,
        windows: &[Vec<Samples>],
        images: &ImageOptions,
        memory_bytes: u64,
    ) -> Result<Self> {
        let sources = windows.chunks(1);
        let sources: Vec<u64> = sources
            .map(|source| decoded_bytes(source, images))
            .collect();
        Self::from_sizes(order, decodes_alone(windows)?, &sources, memory_bytes)
    }

    /// The same by numbers: how often a frame is decoded if each sample is read by itself, and the decoded bytes of each
    /// source.
    pub fn from_sizes(
        order: &Order,
        decodes_alone: f64,
        sources: &[u64],
        memory_bytes: u64,
    ) -> Result<Self> {
        let mixing = order.mixing()?;
        let alone = decodes_alone.max(1.0);
        let memory_for_all = sources.iter().copied().fold(0, u64::saturating_add);
        let group = group_bytes(order, sources);
        let memory_needed = match order.settings().shuffle {
            // A frame that is decoded once in any order needs no memory.
            _ if alone <= 1.0 => 0,
            Shuffle::Global => memory_for_all,
            _ => needed_for(group),
        };
        let decodes_per_frame = match order.settings().shuffle {
            _ if memory_for_all <= memory_bytes => 1.0,
            Shuffle::Global => alone,
            Shuffle::Sequential => 1.0,
            Shuffle::Groups { .. } => {
                let kept = memory_bytes - memory_bytes / ALONE_SHARE;
                let kept = (kept as f64 / group.max(1) as f64).min(1.0);
                kept + (1.0 - kept) * alone
            }
        };
        Ok(Self {
            episodes_per_batch: mixing.episodes_per_batch,
            vif: mixing.vif,
            decodes_per_frame,
            memory_needed: memory_needed.min(memory_for_all),
            memory_for_all,
        })
    }

    /// The memory of a loader that is not told: enough for everything, or else for each frame to be decoded once per
    /// epoch, if that is at most a quarter of the `available` memory of the machine, divided by the ranks on it.
    pub fn default_memory(&self, available: u64, local_ranks: u32) -> u64 {
        let most = available / DEFAULT_SHARE / u64::from(local_ranks.max(1));
        let wanted = if self.memory_for_all <= most {
            self.memory_for_all
        } else {
            self.memory_needed.min(most)
        };
        wanted.max(LEAST_MEMORY)
    }
}

impl fmt::Display for ShuffleQuality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} episodes per batch, VIF {:.2}, {:.1} decodes per frame",
            self.episodes_per_batch, self.vif, self.decodes_per_frame
        )
    }
}

/// Memory for two groups of this size, so that the next one is decoded while the first is used.
fn needed_for(group: u64) -> u64 {
    (group / 10).saturating_mul(23).saturating_add(1 << 20)
}

/// Decoded bytes of a group, of all sources together.
pub(super) fn group_bytes(order: &Order, sources: &[u64]) -> u64 {
    let held = sources.iter().zip(order.group_shares());
    let bytes: f64 = held.map(|(&bytes, share)| bytes as f64 * share).sum();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and `as` saturates"
    )]
    let bytes = bytes as u64;
    bytes
}

/// How often a frame is decoded per epoch if each sample is read by itself; of the source where that is most often.
pub(super) fn decodes_alone(windows: &[Vec<Samples>]) -> Result<f64> {
    let firsts = windows.iter().filter_map(|variants| variants.first());
    firsts
        .map(decodes_per_frame)
        .try_fold(1.0, |most: f64, one| Ok(most.max(one?)))
}

/// Bytes of memory that this process may still take: of the machine, and of its container.
pub fn available_memory() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = meminfo.lines().find_map(|line| {
        let kilobytes = line
            .strip_prefix("MemAvailable:")?
            .trim()
            .strip_suffix("kB")?;
        kilobytes.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let number = |path: &str| {
        std::fs::read_to_string(path)
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    let container = number("/sys/fs/cgroup/memory.max")
        .map(|most| most.saturating_sub(number("/sys/fs/cgroup/memory.current").unwrap_or(0)));
    let available = available.unwrap_or(ASSUMED_MEMORY);
    container.map_or(available, |container| container.min(available))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_memory_is_what_is_needed_within_a_quarter_of_the_machine() {
        let quality = |memory_needed, memory_for_all| ShuffleQuality {
            episodes_per_batch: 30.0,
            vif: 1.2,
            decodes_per_frame: 1.0,
            memory_needed,
            memory_for_all,
        };
        assert_eq!(
            quality(300 << 20, 400 << 20).default_memory(8 << 30, 1),
            400 << 20
        );
        let huge = u64::MAX / 2;
        assert_eq!(
            quality(300 << 20, huge).default_memory(8 << 30, 1),
            300 << 20
        );
        assert_eq!(quality(1, 2).default_memory(8 << 30, 8), LEAST_MEMORY);
        assert_eq!(quality(huge, huge).default_memory(8 << 30, 1), 2 << 30);
        assert_eq!(quality(huge, huge).default_memory(8 << 30, 4), 512 << 20);
        assert!(available_memory() > 1 << 20);
    }
}
