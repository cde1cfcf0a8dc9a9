//! When an episode comes again: what a cache needs in order to keep what is used next.
//!
//! ```text
//! epoch 4   | 7 2 9 | 4 0 5 | 8 1 3 |      episode 9 was used in the first group
//! epoch 5   | 3 8 4 | 1 9 0 | 5 7 2 |      and comes again in the second: at its first index
//! ```
//!
//! The index is that of the group, because the samples of all its episodes are dealt from its start on. It is exact to a
//! batch, and in a mixture to a block of 4,096 places (`mixture.rs`). It only changes how much is decoded, never a sample.

use super::endless::Endless;
use super::layout::Layout;
use super::mixture::BLOCK;
use super::own::Rank;
use super::{Order, SampleRef};

/// An episode that does not come again, as far as was looked.
pub(crate) const NEVER: u64 = u64::MAX;

/// Epochs that are looked at: with several ranks an episode may be another rank's in the next one.
const EPOCHS: u64 = 3;

/// Knows when episodes come again on one rank.
#[derive(Debug)]
pub(crate) struct NextUses {
    order: Order,
    rank: Rank,
    /// Per source: epochs, each with the first index of each episode.
    firsts: Vec<Vec<(u64, Vec<u64>)>>,
}

impl NextUses {
    /// For `rank` of `world`.
    pub(crate) fn new(order: Order, rank: u32, world: u32) -> Self {
        Self {
            firsts: vec![Vec::new(); order.inner.tracks.len()],
            order,
            rank: Rank::new(rank, world),
        }
    }

    /// The global index, to within a batch, at which the episode of a sample comes again after the sample's epoch.
    pub(crate) fn after(&mut self, sample: &SampleRef) -> u64 {
        let source = sample.source as usize;
        for ahead in 1..=EPOCHS {
            let epoch = sample.epoch.saturating_add(ahead);
            if self.order.inner.tracks[source].variant(epoch) != sample.variant {
                return NEVER;
            }
            let firsts = self.firsts(source, epoch);
            match firsts.get(sample.episode as usize) {
                Some(&NEVER) => {}
                first => return first.copied().unwrap_or(NEVER),
            }
        }
        NEVER
    }

    /// The first index of each episode in an epoch of a source.
    fn firsts(&mut self, source: usize, epoch: u64) -> &[u64] {
        let known = self.firsts[source].iter();
        let at = match known.clone().position(|(one, _)| *one == epoch) {
            Some(at) => at,
            None => {
                let track = &self.order.inner.tracks[source];
                let mut firsts = first_places(track, epoch, self.rank);
                for first in firsts.iter_mut().filter(|first| **first != NEVER) {
                    *first = self.global(source, epoch, *first);
                }
                let kept = &mut self.firsts[source];
                kept.retain(|(one, _)| *one + EPOCHS > epoch && *one < epoch + EPOCHS);
                kept.push((epoch, firsts));
                kept.len() - 1
            }
        };
        &self.firsts[source][at].1
    }

    /// The global index of a place in an epoch of a source.
    fn global(&self, source: usize, epoch: u64, place: u64) -> u64 {
        let inner = &self.order.inner;
        let indices = inner.tracks[source].epoch_len().indices;
        let index = epoch.saturating_mul(indices).saturating_add(place);
        let Some(mixture) = &inner.mixture else {
            return index;
        };
        let slots = u128::from(mixture.slots[source].max(1));
        u64::try_from(u128::from(index) * u128::from(BLOCK) / slots).unwrap_or(NEVER)
    }
}

/// Of each episode, the first index in an epoch of the lanes and parts that a rank takes, relative to the start of the epoch.
fn first_places(track: &Endless, epoch: u64, rank: Rank) -> Vec<u64> {
    let layout = Layout::new(track, epoch);
    let lanes = track.lanes.count();
    let mut firsts = vec![NEVER; track.line.slots.len()];
    let mut lane = 0;
    let mut part = track.lane_part(lane, epoch);
    for slot in 0..firsts.len() {
        let (episode, points) = layout.slot(&track.line.slots, slot);
        let position = |point| track.line.positions_before(point, layout.phase);
        let (mut start, end) = (position(points.start), position(points.end));
        while start < end {
            while start >= part.0 + part.1 && lane + 1 < lanes {
                lane += 1;
                part = track.lane_part(lane, epoch);
            }
            if start >= part.0 + part.1 {
                break; // dropped with the last batch
            }
            let stop = end.min(part.0 + part.1);
            if rank.has_lane(lane, lanes) {
                let group = layout.group(lane, part.0..part.0 + part.1, start);
                let own = track.own_positions(epoch, group.clone(), rank);
                if own.start < stop && start < own.end {
                    let first = &mut firsts[episode as usize];
                    *first = (*first).min((group.start - part.0).saturating_mul(lanes));
                }
            }
            start = stop;
        }
    }
    firsts
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::order::{GroupSize, LastBatch, Settings, Shuffle, Source, Uneven, Unit};

    fn settings(shuffle: Shuffle, lanes: u32, last_batch: LastBatch) -> Settings {
        Settings {
            seed: 11,
            batch_size: 12,
            lanes,
            shuffle,
            last_batch,
            ..Settings::default()
        }
    }

    fn source(name: &str, episodes: u32) -> Source {
        sized(name, episodes, 1)
    }

    fn sized(name: &str, episodes: u32, scale: u32) -> Source {
        let counts = (0..episodes).map(|at| scale * (20 + at * 7 % 13));
        Source::new(name, counts.collect::<Vec<_>>())
    }

    /// Walks along the order and compares each episode's next appearance with what was said at its last use before.
    fn check(order: &Order, world: u32, slack: u64) {
        let batches = 4 * order.epoch_len() / 12;
        for rank in 0..world {
            let mut uses = NextUses::new(order.clone(), rank, world);
            let mut reader = order.reader();
            // Of an episode: the epoch of its last use, and when it was said to come again.
            let mut said = HashMap::new();
            let (mut seen, mut early) = (0, 0);
            for batch in 0..batches {
                let range = order.rank_range(batch, rank, world, Uneven::Refuse);
                let mut samples = Vec::new();
                reader.fill(range.unwrap(), &mut samples).unwrap();
                for sample in samples {
                    let next = uses.after(&sample);
                    let key = (sample.source, sample.episode);
                    if let Some((epoch, at)) = said.insert(key, (sample.epoch, next))
                        && epoch < sample.epoch
                    {
                        // The group has started, and is not over.
                        let now = (batch + 1) * 12;
                        seen += 1;
                        early += u64::from(at > now + slack);
                        assert!(
                            now < at.saturating_add(order.epoch_len() + slack),
                            "{sample:?} {at} {now}"
                        );
                    }
                }
            }
            assert!(seen > 10 && early * 20 <= seen, "{early} of {seen}");
        }
    }

    #[test]
    fn episodes_come_again_when_it_was_said() {
        let groups = Shuffle::Groups {
            size: GroupSize::Fraction(0.2),
            unit: Unit::Episodes,
        };
        for (shuffle, lanes, last_batch, world) in [
            (groups, 1, LastBatch::Short, 1),
            (groups, 1, LastBatch::Wrap, 2),
            (groups, 2, LastBatch::Short, 2),
            (groups, 4, LastBatch::Drop, 2),
            (Shuffle::Sequential, 1, LastBatch::Wrap, 1),
            (Shuffle::Sequential, 2, LastBatch::Short, 1),
        ] {
            let settings = settings(shuffle, lanes, last_batch);
            check(&Order::new(source("a", 40), settings).unwrap(), world, 24);
        }
        let parts = vec![(sized("a", 40, 40), 0.3), (sized("b", 25, 80), 0.7)];
        let settings = settings(groups, 1, LastBatch::Wrap);
        check(&Order::mixture(parts, settings).unwrap(), 1, 4096);
    }

    #[test]
    fn no_group_is_larger_than_the_share_that_memory_is_divided_by() {
        // Groups of 25 % of whole episodes are five, of a fifth each.
        for (part, unit, lanes) in [
            (0.25, Unit::Episodes, 1),
            (0.1, Unit::Episodes, 1),
            (0.2, Unit::Episodes, 2),
            (0.3, Unit::Shards, 1),
        ] {
            let size = GroupSize::Fraction(part);
            let shuffle = Shuffle::Groups { size, unit };
            let mut source = source("a", 120);
            let sizes: Vec<u64> = source
                .counts
                .iter()
                .map(|&count| 50 * u64::from(count))
                .collect();
            let total: u64 = sizes.iter().sum();
            source.sizes = Some(sizes.clone().into());
            source.shards = Some((0..120).map(|episode| episode / 4).collect());
            let order = Order::new(source, settings(shuffle, lanes, LastBatch::Short)).unwrap();
            let (share, mut largest) = (order.group_shares()[0], 0.0_f64);
            for epoch in 0..4 {
                // The episodes of a group have the same first place; several lanes have one each at a time.
                let mut groups = HashMap::<_, u64>::new();
                for lane in 0..u64::from(lanes) {
                    let rank = Rank {
                        rank: lane,
                        world: u64::from(lanes),
                    };
                    let firsts = first_places(&order.inner.tracks[0], epoch, rank);
                    for (first, size) in firsts.into_iter().zip(&sizes) {
                        *groups.entry((lane, first)).or_default() +=
                            if first == NEVER { 0 } else { *size };
                    }
                }
                let of_lanes = groups
                    .values()
                    .map(|&bytes| bytes as f64 * f64::from(lanes));
                largest = of_lanes
                    .map(|bytes| bytes / total as f64)
                    .fold(largest, f64::max);
            }
            // An episode on the cut of two lanes counts in both.
            let cut = if lanes > 1 { 0.04 } else { 1e-9 };
            assert!(largest <= share + cut, "{part} {unit:?}: {largest} {share}");
            assert!(
                share <= part && largest >= share * 0.8,
                "{part} {unit:?}: {largest} {share}"
            );
        }
    }

    #[test]
    fn a_sequential_order_comes_again_exactly_an_epoch_later() {
        let settings = settings(Shuffle::Sequential, 1, LastBatch::Wrap);
        let order = Order::new(source("a", 10), settings).unwrap();
        let mut uses = NextUses::new(order.clone(), 0, 1);
        let mut samples = Vec::new();
        order
            .reader()
            .fill(0..order.epoch_len(), &mut samples)
            .unwrap();
        let mut firsts = HashMap::new();
        for (at, sample) in (0_u64..).zip(samples) {
            let first = *firsts.entry(sample.episode).or_insert(at);
            assert_eq!(uses.after(&sample), order.epoch_len() + first);
        }
    }

    #[test]
    fn a_variant_that_ends_is_not_used_again() {
        let mut source = source("a", 10);
        source.variants = vec![(0, "x".to_owned()), (2, "y".to_owned())];
        let settings = settings(Shuffle::Sequential, 1, LastBatch::Wrap);
        let order = Order::new(source, settings).unwrap();
        let mut uses = NextUses::new(order.clone(), 0, 1);
        let mut at = |epoch| {
            let sample = order.reader().at(epoch * order.epoch_len()).unwrap();
            uses.after(&sample)
        };
        assert!(at(0) != NEVER && at(1) == NEVER && at(2) != NEVER);
    }
}
