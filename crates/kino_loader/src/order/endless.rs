//! One source, endlessly: index → epoch → lane → group → position → episode and sample.
//!
//! ```text
//! i        0 … N-1 | N … 2N-1 | …            epoch e = ⌊i/N⌋, each with a layout of its own
//! ```
//!
//! A group is dealt from strata (`deal.rs`), or in parts: the indices of the group at place j of their batches take the
//! j-th part of its positions, permuted. Two ranks then share an episode only where a part ends inside of it.

use std::ops::Range;
use std::sync::Arc;

use super::deal::StrataDeal;
use super::keys::{Key, Purpose};
use super::lanes::Lanes;
use super::layout::{Kind, Layout, Shards};
use super::permute::Permutation;
use super::settings::{EpochLen, GroupSize, LastBatch, Settings, Shuffle, Unit};
use super::source::{Line, Source};
use crate::error::{Result, invalid};

/// Layouts of small sources are cheap to keep: this many slots of lines in all, and two layouts at least.
const CACHED_SLOTS: usize = 1 << 16;
const MAX_CACHED: usize = 64;

/// One sample: which sample of which episode, of which source in which epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampleRef {
    /// Which source of a mixture; 0 if there is one.
    pub source: u32,
    /// Which of the source's variants: the position in its list.
    pub variant: u32,
    /// The source's own epoch.
    pub epoch: u64,
    /// The position of the episode in the source's list.
    pub episode: u32,
    /// The sample's ordinal in the episode.
    pub sample: u32,
}

/// How the samples of a source are mixed, with all that this needs.
#[derive(Debug)]
pub(crate) enum Mode {
    Sequential,
    Global,
    Groups(Grouping),
}

/// What groups are made under.
#[derive(Debug)]
pub(crate) struct Grouping {
    /// How large a group of one lane is.
    pub(crate) size: u64,
    /// The sizes of all episodes together.
    pub(crate) total: u64,
    /// What each episode adds to it; 1 where there is no list.
    pub(crate) sizes: Option<Arc<[u64]>>,
    /// The shards, if groups are made of them.
    pub(crate) shards: Option<Shards>,
}

impl Grouping {
    /// The size of the largest unit.
    fn largest(&self) -> u64 {
        let size = |episode: &u32| self.sizes.as_ref().map_or(1, |all| all[*episode as usize]);
        let of_shard = |shards: &Shards| shards.sizes(size).max();
        let of_episode = || self.sizes.iter().flat_map(|all| all.iter().copied()).max();
        self.shards
            .as_ref()
            .map_or_else(of_episode, of_shard)
            .unwrap_or(1)
    }
}

/// One source, endlessly.
#[derive(Debug)]
pub(crate) struct Endless {
    pub(crate) seed: u64,
    pub(crate) line: Line,
    pub(crate) lanes: Lanes,
    /// The places of a batch, where each has a part of every group.
    pub(crate) places: Option<Lanes>,
    pub(crate) mode: Mode,
    epoch: EpochLen,
    variant_starts: Vec<u64>,
}

/// Where an index falls: positions `start..start + len` of the line are a group, it is the one at `place`.
pub(super) struct Spot {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) place: u64,
}

/// What share of a group a source of a mixture has: `slots` of `of`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    pub(crate) slots: u64,
    pub(crate) of: u64,
}

impl Share {
    /// All of it.
    pub(crate) const WHOLE: Self = Self { slots: 1, of: 1 };
}

impl Endless {
    /// A source under settings; `share` is its share of a group.
    pub(crate) fn new(source: &Source, settings: &Settings, share: Share) -> Result<Self> {
        let line = Line::new(source)?;
        let epoch = settings
            .last_batch
            .epoch_len(line.positions, settings.batch_size)?;
        let short = (settings.last_batch == LastBatch::Short).then_some(epoch);
        let places = || Lanes::new(settings.batch_size, settings.batch_size, short);
        Ok(Self {
            places: settings.has_parts().then(places),
            seed: settings.seed,
            mode: mode(source, settings, share)?,
            lanes: Lanes::new(settings.batch_size, settings.lanes, short),
            variant_starts: source.variants.iter().map(|(epoch, _)| *epoch).collect(),
            line,
            epoch,
        })
    }

    /// Indices and samples per epoch.
    pub(crate) fn epoch_len(&self) -> EpochLen {
        self.epoch
    }

    /// The part of an epoch's line that is `lane`'s: first position and length.
    pub(crate) fn lane_part(&self, lane: u64, epoch: u64) -> (u64, u64) {
        let start = epoch * self.epoch.indices;
        self.lanes.part(lane, start, start + self.epoch.indices)
    }

    /// The sample at `i`.
    pub(crate) fn at(&self, i: u64, cache: &mut Cache) -> SampleRef {
        let layout = cache.layout(self, i / self.epoch.indices);
        let spot = self.spot(i, layout);
        self.sample(spot.start + spot.place, layout)
    }

    /// Another sample of the group of `i`: each attempt another position, until all were tried.
    pub(crate) fn substitute(&self, i: u64, attempt: u64, cache: &mut Cache) -> SampleRef {
        let layout = cache.layout(self, i / self.epoch.indices);
        let spot = self.spot(i, layout);
        let others = spot.len - 1;
        let step = if others == 0 {
            0
        } else {
            let key = Key::new(self.seed, Purpose::Substitute, [i, 0, 0]);
            1 + Permutation::new(others, key).at(attempt % others)
        };
        self.sample(spot.start + (spot.place + step) % spot.len, layout)
    }

    /// Where index `i` falls.
    pub(super) fn spot(&self, i: u64, layout: &Layout) -> Spot {
        let place = i % self.epoch.indices;
        if let Kind::Global(permutation) = &layout.kind {
            return Spot {
                start: 0,
                len: self.line.positions,
                place: permutation.at(place % self.line.positions),
            };
        }
        let lane = self.lanes.of(i);
        let (first, len) = self.lane_part(lane, layout.epoch);
        let place = self.lanes.held(lane, i) - self.lanes.held(lane, i - place);
        let Kind::Groups(groups) = &layout.kind else {
            return Spot {
                start: first,
                len,
                place,
            };
        };
        let (group, positions) = groups.find(lane, first..first + len, first + place);
        let (start, len) = (positions.start, positions.end - positions.start);
        let place = match self.places {
            Some(places) => self.place_in_parts(places, i, (group, positions), layout.epoch),
            None => {
                let key = Key::new(self.seed, Purpose::Group, [layout.epoch, lane, group]);
                StrataDeal::new(len, self.line.depth, key).at(first + place - start)
            }
        };
        Spot { start, len, place }
    }

    /// Where in its group, which is dealt in parts, index `i` falls: one of the part of its place in the batch.
    fn place_in_parts(
        &self,
        places: Lanes,
        i: u64,
        (group, positions): (u64, Range<u64>),
        epoch: u64,
    ) -> u64 {
        let start = epoch * self.epoch.indices;
        let (from, to) = (start + positions.start, start + positions.end);
        let place = places.of(i);
        let (first, len) = places.part(place, from, to);
        let nth = places.held(place, i) - places.held(place, from);
        let key = Key::new(self.seed, Purpose::Group, [epoch, place, group]);
        first + Permutation::new(len, key).at(nth)
    }

    fn sample(&self, position: u64, layout: &Layout) -> SampleRef {
        let point = self
            .line
            .point(position % self.line.positions, layout.phase);
        let (episode, offset) = layout.episode_at(&self.line.slots, point);
        SampleRef {
            source: 0,
            variant: self.variant(layout.epoch),
            epoch: layout.epoch,
            episode,
            sample: self.line.sample(episode, offset),
        }
    }

    /// The last variant that has started.
    pub(crate) fn variant(&self, epoch: u64) -> u32 {
        let started = self.variant_starts.partition_point(|&start| start <= epoch);
        u32::try_from(started.max(1) - 1).unwrap_or(u32::MAX)
    }

    /// Which share of the source a group holds at most, of all lanes together.
    pub(crate) fn group_share(&self) -> f64 {
        let lanes = self.lanes.count() as f64;
        match &self.mode {
            Mode::Sequential => lanes / (self.line.slots.len() as f64).max(lanes),
            Mode::Global => 1.0,
            Mode::Groups(grouping) => {
                let of_lane = (grouping.total as f64 / lanes).max(1.0);
                // Whole episodes fill a group less than its size says, so there may be more groups than that, and smaller
                // ones. How many hardly depends on the epoch.
                let groups = Layout::new(self, 0).groups() as f64 / lanes;
                let even = of_lane / groups.max(1.0) + grouping.largest() as f64;
                (even.min(grouping.size as f64).max(1.0) / of_lane).min(1.0)
            }
        }
    }

    /// Bytes held, without the lists that were given.
    pub(crate) fn memory(&self) -> usize {
        let shards = match &self.mode {
            Mode::Groups(grouping) => grouping.shards.as_ref().map_or(0, Shards::memory),
            _ => 0,
        };
        shards + self.line.memory()
    }
}

/// Resolves the size of groups. What fits into one group is shuffled globally.
fn mode(source: &Source, settings: &Settings, share: Share) -> Result<Mode> {
    let (size, unit) = match settings.shuffle {
        Shuffle::Sequential => return Ok(Mode::Sequential),
        Shuffle::Global => return Ok(Mode::Global),
        Shuffle::Groups { size, unit } => (size, unit),
    };
    let sizes = match (size, &source.sizes) {
        (GroupSize::Bytes(_), None) => {
            return Err(invalid(format!(
                "groups of a number of bytes need the sizes of the episodes, and source `{}` has none; use a number of episodes or a fraction",
                source.name
            )));
        }
        (GroupSize::Episodes(_), _) => None,
        (_, sizes) => sizes.clone(),
    };
    let total = total_size(source, sizes.as_deref());
    let size = match group_size(size, total, share).filter(|&size| size < total) {
        Some(size) => size,
        // One group of everything is shuffled exactly, unless each place of the batch has its part of it.
        None if settings.has_parts() => u64::MAX,
        None => return Ok(Mode::Global),
    };
    let shards = match (unit, &source.shards) {
        (Unit::Episodes, _) => None,
        (Unit::Shards, Some(shards)) => Some(Shards::new(shards)),
        (Unit::Shards, None) => {
            return Err(invalid(format!(
                "groups of shards need the shard of each episode, and source `{}` has none; use groups of episodes",
                source.name
            )));
        }
    };
    Ok(Mode::Groups(Grouping {
        size: size / u64::from(settings.lanes),
        total,
        sizes,
        shards,
    }))
}

/// What the episodes that can come need altogether.
pub(crate) fn total_size(source: &Source, sizes: Option<&[u64]>) -> u64 {
    let weights = source.weights.as_deref();
    let comes = |episode: &usize| {
        source.counts[*episode] > 0 && weights.is_none_or(|weights| weights[*episode] > 0.0)
    };
    (0..source.counts.len())
        .filter(comes)
        .map(|episode| sizes.map_or(1, |sizes| sizes[episode]))
        .fold(0, u64::saturating_add)
}

/// A source's share of a group, in units of its sizes; `None` if it has no limit.
fn group_size(size: GroupSize, total: u64, share: Share) -> Option<u64> {
    let size = match size {
        GroupSize::Bytes(bytes) => bytes,
        GroupSize::Episodes(episodes) => u64::from(episodes),
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 < part ≤ 1, and `as` saturates"
        )]
        GroupSize::Fraction(part) => return (part < 1.0).then_some((total as f64 * part) as u64),
    };
    let part = u128::from(size) * u128::from(share.slots) / u128::from(share.of.max(1));
    u64::try_from(part).ok()
}

/// The layouts of the epochs used last; an epoch has its place by its number, so two neighbours never push each other out.
#[derive(Debug)]
pub(crate) struct Cache {
    layouts: Vec<Option<Layout>>,
}

impl Cache {
    /// A cache that fits the source.
    pub(crate) fn new(of: &Endless) -> Self {
        let fits = CACHED_SLOTS / of.line.slots.len().max(1);
        let mut layouts = Vec::new();
        layouts.resize_with(fits.clamp(2, MAX_CACHED), || None);
        Self { layouts }
    }

    /// The layout of an epoch, made if it is not there.
    pub(super) fn layout(&mut self, of: &Endless, epoch: u64) -> &Layout {
        let places = self.layouts.len() as u64;
        let place = usize::try_from(epoch % places).unwrap_or(0);
        let kept = &mut self.layouts[place];
        if kept.as_ref().is_some_and(|layout| layout.epoch != epoch) {
            *kept = None;
        }
        kept.get_or_insert_with(|| Layout::new(of, epoch))
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.layouts.iter().flatten().map(Layout::memory).sum()
    }
}
