//! What a shuffle gives and costs: how well it mixes, how often frames are decoded, how much memory it needs.
//!
//! ```text
//! fits in memory     everything: decoded once and kept     a group: decoded once per epoch
//! does not           of a group the part that fits is kept, frames of the rest are decoded for each sample
//! ```
//!
//! Memory changes how often a frame is decoded, never the order. All sizes are those of the frames as requested, after
//! resize and crop. Memory is that of a host, whose ranks have equal shares of it; decodes are those of all ranks together.

use std::fmt;

use kino_codec::FrameType;
use kino_dataset::Samples;
use serde::{Deserialize, Serialize};

use crate::decodes::Decodes;
use crate::engine::ImageOptions;
use crate::error::Result;
use crate::order::{Order, Shuffle};

/// Without `memory`, a loader takes at most this share of the memory that is available, over all ranks of the machine…
const DEFAULT_SHARE: u64 = 4;

/// … but not less than this for each rank: a few batches of images must fit.
const LEAST_MEMORY: u64 = 256 << 20;

/// Available memory where the system does not say.
const ASSUMED_MEMORY: u64 = 8 << 30;

/// Where samples are read by themselves, they have memory for a batch, but not more than the budget divided by this…
const BATCH_SHARE: u64 = 2;

/// … and for so many samples if a batch has fewer, up to the budget divided by that.
const OWN_SAMPLES: f64 = 32.0;
const OWN_SHARE: u64 = 8;

/// The ranks that train together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranks {
    /// How many there are.
    pub world: u32,
    /// How many of them share a host and its memory.
    pub local: u32,
}

impl Ranks {
    /// A single process.
    pub const ONE: Self = Self { world: 1, local: 1 };
}

/// What a shuffle gives and costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ShuffleQuality {
    /// Different episodes in a batch, on average.
    pub episodes_per_batch: f64,
    /// The variance of a batch's mean, relative to independent samples, for an effect that an episode's samples share.
    pub vif: f64,
    /// How often a frame is decoded in the first epoch by all ranks together, expected with the memory given.
    pub decodes_per_frame: f64,
    /// By how many ranks a frame is decoded, however much memory there is.
    pub ranks_per_frame: f64,
    /// Bytes of memory of a host with which each rank decodes each of its frames once per epoch.
    pub memory_needed: u64,
    /// Bytes of memory of a host with which each rank decodes each of its frames once, and never again.
    pub memory_for_all: u64,
}

impl ShuffleQuality {
    /// What the shuffle of an order gives and costs if a host has `memory_bytes`. `windows` are those of
    /// [`Loader::start`](crate::Loader::start).
    pub fn of(
        order: &Order,
        windows: &[Vec<Samples>],
        images: &ImageOptions,
        memory_bytes: u64,
        ranks: Ranks,
    ) -> Result<Self> {
        let sources = windows.chunks(1);
        let sources: Vec<u64> = sources
            .map(|source| decoded_bytes(source, images))
            .collect();
        Self::from_sizes(order, decodes(windows)?, &sources, memory_bytes, ranks)
    }

    /// The same by numbers: how often frames are decoded, and the decoded bytes of each source.
    pub fn from_sizes(
        order: &Order,
        decodes: Decodes,
        sources: &[u64],
        memory_bytes: u64,
        ranks: Ranks,
    ) -> Result<Self> {
        let mixing = order.mixing()?;
        let memory = Memory::new(order, decodes.per_frame, sources, ranks.world);
        let sharing = order.sharing(ranks.world, decodes);
        let local = u64::from(ranks.local.max(1));
        let memory_for_all = memory.all;
        let memory_needed = match order.settings().shuffle {
            // A frame that is decoded once in any order needs no memory.
            _ if memory.decodes_alone <= 1.0 => 0,
            Shuffle::Global => memory_for_all,
            _ => needed_for(memory.group),
        };
        let decodes_per_frame = memory.first_epoch(order, memory_bytes / local, sharing);
        Ok(Self {
            episodes_per_batch: mixing.episodes_per_batch,
            vif: mixing.vif,
            decodes_per_frame,
            ranks_per_frame: sharing,
            memory_needed: memory_needed.min(memory_for_all).saturating_mul(local),
            memory_for_all: memory_for_all.saturating_mul(local),
        })
    }

    /// The memory of a host whose loaders are not told: enough for everything, or else for each frame to be decoded once per
    /// epoch, if that is at most a quarter of the `available` memory of the machine.
    pub fn default_memory(&self, available: u64, local_ranks: u32) -> u64 {
        let most = available / DEFAULT_SHARE;
        let wanted = if self.memory_for_all <= most {
            self.memory_for_all
        } else {
            self.memory_needed.min(most)
        };
        wanted.max(LEAST_MEMORY.saturating_mul(u64::from(local_ranks.max(1))))
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
    in_work(group).saturating_add(1 << 20)
}

/// What two groups of this size take while one is used and the next one decoded.
fn in_work(group: u64) -> u64 {
    (group / 10).saturating_mul(23)
}

/// The decoded bytes of the largest groups for which this memory is enough: one in work, and the next one.
pub fn group_bytes(memory_bytes: u64) -> u64 {
    memory_bytes.saturating_sub(1 << 20) / 23 * 10
}

/// What decides which frames stay in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// How often a frame is decoded per epoch if each sample is read by itself.
    pub(crate) decodes_alone: f64,
    /// Samples of a group, of one rank.
    pub(crate) group_samples: usize,
    /// Decoded bytes of everything, and of one rank's share of a group, of all sources together.
    all: u64,
    group: u64,
    /// Samples of a batch, of one rank, and bytes of one that is read by itself.
    in_batch: f64,
    of_sample: f64,
}

impl Memory {
    /// Of an order whose sources take so many bytes, decoded.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and `as` saturates"
    )]
    pub(crate) fn new(order: &Order, decodes_alone: f64, sources: &[u64], world: u32) -> Self {
        let decodes_alone = decodes_alone.max(1.0);
        let shares = order.group_shares();
        let held = sources.iter().zip(order.rank_shares(&shares, world));
        let group: f64 = held.map(|(&bytes, share)| bytes as f64 * share).sum();
        let all = sources.iter().copied().fold(0, u64::saturating_add);
        let samples = order.epoch_samples() as f64;
        let of_group = samples / f64::from(world.max(1)) * shares.into_iter().fold(0.0, f64::max);
        let in_batch = order.settings().batch_size.div_ceil(world.max(1));
        Self {
            decodes_alone,
            group_samples: of_group as usize,
            all,
            group: group as u64,
            in_batch: f64::from(in_batch),
            // Samples differ: at the start of an episode several of their frames are the same.
            of_sample: 1.25 * decodes_alone * all as f64 / samples.max(1.0),
        }
    }

    /// Whether a group fits into so many bytes.
    pub(crate) fn group_fits(&self, bytes: u64) -> bool {
        self.group <= bytes
    }

    /// What the group in work and the next one take.
    pub(crate) fn groups_in_work(&self) -> u64 {
        needed_for(self.group)
    }

    /// Of `bytes`, what samples that are read by themselves have.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and `as` saturates"
    )]
    pub(crate) fn own_bytes(&self, bytes: u64) -> u64 {
        let of = |samples: f64| (samples * self.of_sample) as u64;
        let batch = of(self.in_batch).min(bytes / BATCH_SHARE);
        batch.max(of(OWN_SAMPLES).min(bytes / OWN_SHARE))
    }

    /// Whether to keep the same episodes for ever, and not part of each group while it lasts.
    ///
    /// With g the share of a group, a the decodes alone and M the room relative to everything, a fixed set leaves
    /// a·(1 − M) decodes per frame and epoch, and rotating through groups a − (a − 1)·M/g, or 1 if a group fits but not the
    /// next one beside it.
    pub(crate) fn wants_fixed_set(&self, shuffle: Shuffle, bytes: u64) -> bool {
        let all = (self.all as f64).max(1.0);
        let share = self.group as f64 / all;
        let left = 1.0 - bytes.saturating_sub(self.own_bytes(bytes)) as f64 / all;
        match shuffle {
            Shuffle::Global => true,
            Shuffle::Sequential => false,
            Shuffle::Groups { .. } if self.group_fits(bytes) => {
                bytes < in_work(self.group) && self.decodes_alone * left < 1.0
            }
            Shuffle::Groups { .. } => self.decodes_alone * share >= self.decodes_alone - 1.0,
        }
    }

    /// How often a frame is decoded in the first epoch with so many bytes per rank, if `sharing` ranks decode one that is
    /// kept.
    fn first_epoch(&self, order: &Order, bytes: u64, sharing: f64) -> f64 {
        let kept = (bytes - self.own_bytes(bytes)) as f64;
        let kept = match order.settings().shuffle {
            _ if self.all <= bytes => 1.0,
            shuffle if self.wants_fixed_set(shuffle, bytes) => kept / (self.all as f64).max(1.0),
            Shuffle::Groups { .. } if !self.group_fits(bytes) => {
                kept / (self.group as f64).max(1.0)
            }
            _ => 1.0,
        };
        kept.min(1.0) * sharing + (1.0 - kept.min(1.0)) * self.decodes_alone.max(sharing)
    }
}

/// How often frames are decoded, of the source where that is most often.
pub(crate) fn decodes(windows: &[Vec<Samples>]) -> Result<Decodes> {
    Ok(Decodes::most(
        windows.iter().filter_map(|variants| variants.first()),
    )?)
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

/// Decoded bytes of everything that is requested, in the sizes that it is requested in.
pub fn decoded_bytes(windows: &[Vec<Samples>], images: &ImageOptions) -> u64 {
    let all = windows.iter().flatten().map(|windows| {
        let stored = windows.sizes().iter().copied();
        smaller(stored.fold(0, u64::saturating_add), windows, images)
    });
    all.fold(0, u64::saturating_add)
}

/// What so many decoded bytes of all requested streams are when images are made smaller (or larger), rounded up.
///
/// By the sizes of the streams in the whole dataset: an estimate where the chosen episodes have another mixture of streams.
fn smaller(bytes: u64, windows: &Samples, images: &ImageOptions) -> u64 {
    let asked = windows.request().windows.iter().enumerate();
    let mut forms: Vec<_> = asked
        .filter_map(|(idx, window)| {
            let ty = windows.frame_type(idx)?.as_values()?;
            let kind = windows.kind(idx)?;
            let fit = images.form(&window.key, kind, ty).ok()?.fit;
            let reduce = fit.reduce(ty).ok()?;
            let frame_bytes = reduce.map_or(ty.frame_bytes(), |reduce| reduce.frame_bytes());
            Some((window.stream.as_str(), fit, ty.frame_bytes(), frame_bytes))
        })
        .collect();
    forms.sort_unstable();
    forms.dedup();
    if forms
        .iter()
        .all(|(_, _, stored, requested)| stored == requested)
    {
        return bytes;
    }
    let streams = &windows.dataset().manifest().streams;
    let (mut stored_sum, mut requested_sum) = (0_u128, 0_u128);
    for stream in streams {
        let mut forms = forms.iter().filter(|form| form.0 == stream.name).peekable();
        if forms.peek().is_some() {
            stored_sum += u128::from(stream.raw_bytes);
        }
        for &(_, _, stored, requested) in forms {
            requested_sum +=
                u128::from(stream.raw_bytes) * requested as u128 / (stored as u128).max(1);
        }
    }
    let bytes = (u128::from(bytes) * requested_sum).div_ceil(stored_sum.max(1));
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The windows of small streams, vectors and text, and those of images.
pub(crate) fn split(windows: &[Vec<Samples>], requested: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let first = windows.iter().flatten().next();
    requested.iter().partition(
        |window| match first.and_then(|first| first.frame_type(**window)) {
            Some(FrameType::Values(ty)) => ty.shape().len() < 2,
            _ => true,
        },
    )
}

/// Decoded bytes of the streams of these windows in all datasets, of all episodes.
pub(crate) fn small_bytes(windows: &[Vec<Samples>], requested: &[usize]) -> u64 {
    let each = windows.iter().flatten();
    each.map(|one| stored_bytes(one, requested))
        .fold(0, u64::saturating_add)
}

/// Decoded bytes of the streams of these windows in the whole dataset.
fn stored_bytes(windows: &Samples, requested: &[usize]) -> u64 {
    let asked = &windows.request().windows;
    let streams = windows.dataset().manifest().streams.iter();
    let requested = streams.filter(|stream| {
        requested.iter().any(|&window| {
            asked
                .get(window)
                .is_some_and(|window| window.stream == stream.name)
        })
    });
    requested
        .map(|stream| stream.raw_bytes)
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{GroupSize, Unit};

    #[test]
    fn a_fixed_set_is_kept_if_it_decodes_less_than_rotating_through_groups() {
        let groups = Shuffle::Groups {
            size: GroupSize::Episodes(2),
            unit: Unit::Episodes,
        };
        let wants = |decodes_alone, bytes| {
            let memory = Memory {
                decodes_alone,
                group_samples: 100,
                all: 1000,
                group: 200,
                in_batch: 1.0,
                of_sample: 1.0,
            };
            memory.wants_fixed_set(groups, bytes)
        };
        // A group fits, but not the next one beside it.
        assert!(wants(1.0, 300) && wants(1.0, 459));
        assert!(!wants(1.0, 460));
        assert!(!wants(2.0, 300));
        // No group fits.
        assert!(wants(1.0, 100) && wants(1.2, 100));
        assert!(!wants(2.0, 100));
    }

    #[test]
    fn the_memory_for_a_group_is_what_the_group_needs() {
        for memory in [0, 1 << 20, 24_000_000, 1 << 33] {
            let group = group_bytes(memory);
            assert!(group == 0 || needed_for(group) <= memory);
            assert!(needed_for(group + 40) > memory, "{memory}");
        }
    }

    #[test]
    fn the_default_memory_is_what_is_needed_within_a_quarter_of_the_machine() {
        let quality = |memory_needed, memory_for_all| ShuffleQuality {
            episodes_per_batch: 30.0,
            vif: 1.2,
            decodes_per_frame: 1.0,
            ranks_per_frame: 1.0,
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
        assert_eq!(quality(1, 2).default_memory(8 << 30, 8), 8 * LEAST_MEMORY);
        assert_eq!(quality(huge, huge).default_memory(8 << 30, 1), 2 << 30);
        assert_eq!(quality(huge, huge).default_memory(8 << 30, 4), 2 << 30);
        assert!(available_memory() > 1 << 20);
    }
}
