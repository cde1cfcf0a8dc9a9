//! One epoch of one source laid out: what has to be remembered to find a sample by its index.
//!
//! ```text
//! line     | ep 7    | ep 2  | ep 9      | ep 0 | …        a permutation of the episodes (or shards)
//! lanes    |      lane 0         |        lane 1      |    consecutive parts; only episodes on a cut are split
//! groups   | group 0 | group 1   | group 0  | group 1 |    whole episodes, as many as the size of a group allows
//! ```
//!
//! Inside a group the samples are dealt (`deal.rs`). The size says how many groups a lane has; they are then made about equal, because
//! a small last group would mix badly. `Global` and `Sequential` need no line of their own.

use std::ops::Range;

use super::endless::{Endless, Grouping, Mode};
use super::keys::{Key, Purpose};
use super::permute::Permutation;
use super::slots::Slots;

/// An epoch of a source.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) epoch: u64,
    pub(crate) phase: u64,
    pub(crate) kind: Kind,
}

/// How the epoch is laid out.
#[derive(Debug)]
pub(crate) enum Kind {
    /// The line as listed, lane by lane.
    Sequential,
    /// All samples permuted.
    Global(Permutation),
    /// Groups on a permuted line.
    Groups(Groups),
}

/// A permuted line and its groups.
#[derive(Debug)]
pub(crate) struct Groups {
    /// The line: the samples of one episode in each slot.
    slots: Slots<u32>,
    /// The first position of each group, lane by lane.
    group_starts: Vec<u64>,
    /// The first group of each lane, and the end.
    lane_groups: Vec<usize>,
}

/// The episodes of one shard lie side by side.
#[derive(Debug)]
pub(crate) struct Shards {
    /// Episodes, shard by shard.
    episodes: Vec<u32>,
    /// Where each shard starts among them, and the end.
    starts: Vec<usize>,
}

impl Shards {
    /// Shards by rising number, the episodes of each as they are listed.
    pub(crate) fn new(shards: &[u32]) -> Self {
        let mut episodes: Vec<u32> = (0..).take(shards.len()).collect();
        episodes.sort_by_key(|&episode| shards[episode as usize]);
        let differs = |slot: &usize| {
            let of = |slot: usize| shards[episodes[slot] as usize];
            *slot == 0 || of(*slot) != of(*slot - 1)
        };
        let mut starts: Vec<usize> = (0..episodes.len()).filter(differs).collect();
        starts.push(episodes.len());
        Self { episodes, starts }
    }

    fn members(&self, shard: usize) -> &[u32] {
        &self.episodes[self.starts[shard]..self.starts[shard + 1]]
    }

    /// The sum over the episodes of each.
    pub(crate) fn sizes(&self, size: impl Fn(&u32) -> u64) -> impl Iterator<Item = u64> {
        let shards = 0..self.starts.len().saturating_sub(1);
        shards.map(move |shard| {
            self.members(shard)
                .iter()
                .map(&size)
                .fold(0, u64::saturating_add)
        })
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        4 * self.episodes.len() + 8 * self.starts.len()
    }
}

/// A unit on the line: where it ends, and what it adds to the size of its group.
struct Piece {
    end: u64,
    size: u64,
}

impl Layout {
    /// Lays out an epoch.
    pub(crate) fn new(of: &Endless, epoch: u64) -> Self {
        let phase = of.line.phase(of.seed, epoch);
        let kind = match &of.mode {
            Mode::Sequential => Kind::Sequential,
            Mode::Global => {
                let key = Key::new(of.seed, Purpose::Global, [epoch, 0, 0]);
                Kind::Global(Permutation::new(of.line.positions, key))
            }
            Mode::Groups(grouping) => Kind::Groups(Groups::new(of, grouping, epoch, phase)),
        };
        Self { epoch, phase, kind }
    }

    /// The episode under a point, and how far behind its start the point lies.
    pub(crate) fn episode_at(&self, listed: &Slots<()>, point: u64) -> (u32, u64) {
        match &self.kind {
            Kind::Groups(groups) => {
                let (slot, offset) = groups.slots.find(point);
                (groups.slots.content(slot), offset)
            }
            _ => {
                let (slot, offset) = listed.find(point);
                (u32::try_from(slot).unwrap_or(u32::MAX), offset)
            }
        }
    }

    /// The episode in a slot of the line, and its points.
    pub(crate) fn slot(&self, listed: &Slots<()>, slot: usize) -> (u32, Range<u64>) {
        match &self.kind {
            Kind::Groups(groups) => {
                let slots = &groups.slots;
                (
                    slots.content(slot),
                    slots.start(slot)..slots.start(slot + 1),
                )
            }
            _ => {
                let episode = u32::try_from(slot).unwrap_or(u32::MAX);
                (episode, listed.start(slot)..listed.start(slot + 1))
            }
        }
    }

    /// The group of `position` in `lane`, which has `part`.
    pub(crate) fn group(&self, lane: u64, part: Range<u64>, position: u64) -> Range<u64> {
        match &self.kind {
            Kind::Groups(groups) => groups.find(lane, part, position).1,
            Kind::Sequential => position..part.end,
            Kind::Global(_) => part,
        }
    }

    /// How many groups there are in all lanes.
    pub(crate) fn groups(&self) -> usize {
        match &self.kind {
            Kind::Groups(groups) => groups.group_starts.len(),
            _ => 1,
        }
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        match &self.kind {
            Kind::Groups(groups) => {
                groups.slots.memory()
                    + 8 * (groups.group_starts.capacity() + groups.lane_groups.capacity())
            }
            _ => 0,
        }
    }
}

impl Groups {
    fn new(of: &Endless, grouping: &Grouping, epoch: u64, phase: u64) -> Self {
        let (episodes, unit_ends) = line_up(of, grouping.shards.as_ref(), epoch);
        let mut groups = Self {
            // Lengths lie scattered in memory: a loop of its own lets the CPU fetch many at once.
            slots: Slots::new(
                episodes
                    .iter()
                    .map(|&episode| (of.line.length(episode), episode)),
            ),
            group_starts: Vec::new(),
            lane_groups: Vec::new(),
        };
        let end_of = |point| of.line.positions_before(point, phase);
        let pieces = groups.pieces(grouping.sizes.as_deref(), unit_ends, end_of);
        groups.cut(of, epoch, &pieces, grouping.size);
        groups
    }

    /// The units that have positions; `end_of` counts the positions before a point.
    fn pieces(
        &self,
        sizes: Option<&[u64]>,
        unit_ends: Option<Vec<usize>>,
        end_of: impl Fn(u64) -> u64,
    ) -> Vec<Piece> {
        let size_of = |slot: usize| match sizes {
            _ if self.slots.start(slot + 1) == self.slots.start(slot) => 0,
            Some(sizes) => sizes[self.slots.content(slot) as usize],
            None => 1,
        };
        let units = unit_ends.as_ref().map_or(self.slots.len(), Vec::len);
        let mut pieces: Vec<Piece> = Vec::with_capacity(units);
        let (mut slot, mut last) = (0, 0);
        for unit in 0..units {
            let slot_end = unit_ends.as_ref().map_or(unit + 1, |ends| ends[unit]);
            let size = (slot..slot_end).map(size_of).fold(0, u64::saturating_add);
            let end = end_of(self.slots.start(slot_end));
            if end > last {
                pieces.push(Piece { end, size });
            }
            (slot, last) = (slot_end, end);
        }
        pieces
    }

    /// Cuts the line into lanes and these into groups. Where samples repeat, the line begins again.
    fn cut(&mut self, of: &Endless, epoch: u64, pieces: &[Piece], size: u64) {
        let mut at = Place::default();
        for lane in 0..of.lanes.count() {
            self.lane_groups.push(self.group_starts.len());
            let (first, len) = of.lane_part(lane, epoch);
            debug_assert_eq!(first, at.position, "lanes lie side by side");
            let mut lane = Vec::new();
            while at.position < first + len {
                let piece = &pieces[at.piece];
                lane.push((at.position, piece.size));
                let end = at.cycle + piece.end;
                at.position = end.min(first + len);
                if at.position == end {
                    at.piece += 1;
                }
                if at.piece == pieces.len() {
                    at.piece = 0;
                    at.cycle += of.line.positions;
                }
            }
            let groups = fill(&lane, size).count() as u64;
            let total = lane.iter().map(|one| one.1).fold(0, u64::saturating_add);
            let largest = lane.iter().map(|one| one.1).max().unwrap_or(0);
            let even = (total / groups.max(1)).saturating_add(largest);
            self.group_starts.extend(fill(&lane, size.min(even)));
        }
        self.lane_groups.push(self.group_starts.len());
    }

    /// The episode under a point, and its points.
    pub(crate) fn episode_at(&self, point: u64) -> (u32, Range<u64>) {
        let (slot, _) = self.slots.find(point);
        let points = self.slots.start(slot)..self.slots.start(slot + 1);
        (self.slots.content(slot), points)
    }

    /// The group of `lane`, which has `part`, that holds `position`: its number and its positions.
    pub(crate) fn find(&self, lane: u64, part: Range<u64>, position: u64) -> (u64, Range<u64>) {
        let lane = usize::try_from(lane).unwrap_or(usize::MAX);
        let starts = &self.group_starts[self.lane_groups[lane]..self.lane_groups[lane + 1]];
        let after = starts.partition_point(|&start| start <= position).max(1);
        let end = starts.get(after).copied().unwrap_or(part.end);
        (after as u64 - 1, starts[after - 1]..end)
    }
}

/// Where cutting stands: the position, and the piece and the cycle that it lies in.
#[derive(Default)]
struct Place {
    position: u64,
    piece: usize,
    cycle: u64,
}

/// Where groups start, if each takes pieces while their sizes sum to at most `limit`, and at least one.
fn fill(pieces: &[(u64, u64)], limit: u64) -> impl Iterator<Item = u64> {
    let mut room = None;
    pieces.iter().filter_map(move |&(start, size)| match room {
        Some(left) if size <= left => {
            room = Some(left - size);
            None
        }
        _ => {
            room = Some(limit.saturating_sub(size));
            Some(start)
        }
    })
}

/// The episodes in the epoch's permutation; and, where they are lined up by shards, the slot where each shard ends.
fn line_up(of: &Endless, shards: Option<&Shards>, epoch: u64) -> (Vec<u32>, Option<Vec<usize>>) {
    let episodes = of.line.slots.len();
    let units = shards.map_or(episodes, |shards| shards.starts.len() - 1) as u64;
    let order = Permutation::new(units, Key::new(of.seed, Purpose::Line, [epoch, 0, 0]));
    let units = (0..units).map(|place| order.at(place));
    let Some(shards) = shards else {
        let episodes = units.map(|episode| u32::try_from(episode).unwrap_or(u32::MAX));
        return (episodes.collect(), None);
    };
    let mut line = Vec::with_capacity(episodes);
    let mut ends = Vec::with_capacity(shards.starts.len());
    for shard in units {
        line.extend_from_slice(shards.members(usize::try_from(shard).unwrap_or(usize::MAX)));
        ends.push(line.len());
    }
    (line, Some(ends))
}
