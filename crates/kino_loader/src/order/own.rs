//! Which samples of an episode one rank takes: only their frames need be decoded ahead there.
//!
//! ```text
//! group     | ep 7      | ep 2   | ep 9   | ep 4      |       dealt in parts: places 0 and 1 of the batch are rank 0's
//! ranks     | rank 0       | rank 1       | rank 2    |       ep 2 and ep 9 are shared, each rank takes a run of samples
//! ```
//!
//! It only changes which frames are decoded ahead, never a sample: one that is not among them is decoded when it is needed.

use std::ops::Range;

use super::Order;
use super::endless::{Cache, Endless, Mode};
use super::layout::{Kind, Layout};
use crate::decodes::Decodes;

/// One of the ranks that train together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rank {
    pub(crate) rank: u64,
    pub(crate) world: u64,
}

impl Rank {
    /// Rank `rank` of `world`.
    pub(crate) fn new(rank: u32, world: u32) -> Self {
        Self {
            rank: u64::from(rank),
            world: u64::from(world.max(1)),
        }
    }

    /// Whether some of its samples are in lane `lane` of `lanes`.
    pub(crate) fn has_lane(self, lane: u64, lanes: u64) -> bool {
        lane * self.world < (self.rank + 1) * lanes && (lane + 1) * self.world > self.rank * lanes
    }

    /// Its slice of `len` places.
    pub(crate) fn slice(self, len: u64) -> Range<u64> {
        self.rank * len / self.world..(self.rank + 1) * len / self.world
    }
}

/// The samples of an episode that a rank takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Own {
    /// All, or most of them.
    All,
    /// These, one after the other.
    Run(Range<u32>),
    /// Some, anywhere in the episode.
    Scattered,
}

impl Endless {
    /// Which samples of the episode of `i` a rank takes while it is at `i`: in a group, or in the epoch of a global shuffle.
    pub(crate) fn own(&self, i: u64, rank: Rank, cache: &mut Cache) -> Own {
        if self.is_scattered(rank.world) {
            return Own::Scattered;
        }
        let layout = cache.layout(self, i / self.epoch_len().indices);
        let Kind::Groups(groups) = &layout.kind else {
            return Own::All;
        };
        let spot = self.spot(i, layout);
        let own = self.own_positions(layout.epoch, spot.start..spot.start + spot.len, rank);
        // Where samples repeat, the line begins again.
        let position = spot.start + spot.place;
        let cycle = position - position % self.line.positions;
        let point = self.line.point(position - cycle, layout.phase);
        let (episode, points) = groups.episode_at(point);
        let before = |point| cycle + self.line.positions_before(point, layout.phase);
        let (first, end) = (before(points.start), before(points.end));
        let run = own.start.max(first)..own.end.min(end);
        if run.contains(&position) && run != (first..end) {
            let sample = |position: u64| {
                let point = self.line.point(position - cycle, layout.phase);
                self.line.sample(episode, point - points.start)
            };
            return Own::Run(sample(run.start)..sample(run.end - 1) + 1);
        }
        Own::All
    }

    /// Whether each rank takes some samples of every episode, few of them one after the other.
    fn is_scattered(&self, world: u64) -> bool {
        match self.mode {
            Mode::Global => world > 1,
            Mode::Sequential => world > 1 && self.lanes.count() == 1,
            Mode::Groups(_) => false,
        }
    }

    /// The positions of a group that a rank takes: all of them, unless each place of the batch has its part.
    pub(crate) fn own_positions(&self, epoch: u64, group: Range<u64>, rank: Rank) -> Range<u64> {
        let Some(places) = self.places else {
            return group;
        };
        let start = epoch * self.epoch_len().indices;
        let slice = rank.slice(places.count());
        let first = |place| {
            let end = places.before(place, start + group.end);
            group.start + end - places.before(place, start + group.start)
        };
        first(slice.start)..first(slice.end)
    }
}

impl Order {
    /// Whether a rank of `world`, or a lane, may take some samples of an episode and not all.
    pub(crate) fn is_shared(&self, world: u32) -> bool {
        world > 1 || self.settings().lanes > 1
    }

    /// Whether each rank takes samples anywhere in the episodes of a source.
    pub(crate) fn is_scattered(&self, source: u32, world: u32) -> bool {
        let track = self.inner.tracks.get(source as usize);
        track.is_some_and(|track| track.is_scattered(u64::from(world)))
    }

    /// How many ranks decode a frame, on average over all frames, if none decodes it twice.
    pub(crate) fn sharing(&self, world: u32, decodes: Decodes) -> f64 {
        let shares = self.source_shares();
        let tracks = self.inner.tracks.iter().zip(shares);
        let each = tracks.map(|(track, share)| share * track.sharing(world, decodes));
        each.sum::<f64>() / self.source_shares().iter().sum::<f64>()
    }

    /// Which share of each source a rank holds of a group, of which there are `shares` in all lanes.
    pub(crate) fn rank_shares(&self, shares: &[f64], world: u32) -> Vec<f64> {
        let tracks = self.inner.tracks.iter().zip(shares);
        tracks
            .map(|(track, &share)| track.rank_share(share, world))
            .collect()
    }
}

impl Endless {
    /// How many ranks decode a frame that none decodes twice.
    fn sharing(&self, world: u32, decodes: Decodes) -> f64 {
        let ranks = f64::from(world.max(1));
        match (&self.mode, self.places) {
            // Each of its uses is on a rank by chance.
            (Mode::Global, _) => ranks * (1.0 - (1.0 - 1.0 / ranks).powf(decodes.uses)),
            (Mode::Sequential, _) if self.is_scattered(u64::from(world)) => {
                let batch = self.lanes.batch() as f64;
                (1.0 + ranks * decodes.per_cut / batch).min(ranks)
            }
            (Mode::Groups(_), Some(places)) => {
                let cuts = (ranks - 1.0).min(places.count() as f64 - 1.0);
                let samples = self.line.positions as f64;
                1.0 + cuts * self.groups() * decodes.per_cut / samples
            }
            _ => self.lanes_of_ranks(world).sum::<f64>() / self.lanes.count() as f64,
        }
    }

    /// Which share of the source the largest part of a group is that one rank has; of all lanes, a group has `share`.
    fn rank_share(&self, share: f64, world: u32) -> f64 {
        let ranks = f64::from(world.max(1));
        match (&self.mode, self.places) {
            // A part begins and ends inside of an episode, which counts as a whole.
            (Mode::Groups(_), Some(_)) if world > 1 => {
                let episode = 1.0 / self.line.slots.len().max(1) as f64;
                share.min(share / ranks + episode)
            }
            (Mode::Groups(_), None) => {
                let lanes = self.lanes_of_ranks(world).fold(0.0, f64::max);
                share * lanes / self.lanes.count() as f64
            }
            _ => share,
        }
    }

    /// How many lanes each rank has samples of.
    fn lanes_of_ranks(&self, world: u32) -> impl Iterator<Item = f64> {
        let (world, lanes) = (u64::from(world.max(1)), self.lanes.count());
        (0..world).map(move |rank| {
            let slice = rank * lanes / world..((rank + 1) * lanes).div_ceil(world);
            (slice.end - slice.start) as f64
        })
    }

    /// How many groups an epoch has.
    fn groups(&self) -> f64 {
        Layout::new(self, 0).groups() as f64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::order::{Deal, GroupSize, LastBatch, Settings, Shuffle, Source, Unit};

    fn order(shuffle: Shuffle, lanes: u32, last_batch: LastBatch, is_weighted: bool) -> Order {
        let settings = Settings {
            seed: 3,
            batch_size: 12,
            lanes,
            shuffle,
            deal: if lanes == 1 {
                Deal::Parts
            } else {
                Deal::Strata
            },
            last_batch,
            ..Settings::default()
        };
        let counts = (0..40_u32).map(|at| if at == 0 { 29 } else { 20 + at * 7 % 13 });
        let mut source = Source::new("a", counts.collect::<Vec<_>>());
        if is_weighted {
            source.weights = Some([1.0, 0.5, 2.0, 0.0].repeat(10).into());
        }
        Order::new(source, settings).unwrap()
    }

    const GROUPS: Shuffle = Shuffle::Groups {
        size: GroupSize::Episodes(10),
        unit: Unit::Episodes,
    };

    /// What `own` says of each episode and what was taken, by one rank in the first epoch; and the samples that were not
    /// foreseen.
    fn walk(order: &Order, rank: Rank) -> (HashMap<u32, (Own, Vec<u32>)>, usize) {
        let mut reader = order.reader();
        let mut taken = HashMap::<u32, (Own, Vec<u32>)>::new();
        let mut unforeseen = 0;
        for batch in order.batches_of(0).unwrap() {
            let number = |of: u64| u32::try_from(of).unwrap();
            let (rank_number, world) = (number(rank.rank), number(rank.world));
            let uneven = crate::order::Uneven::Allow;
            for i in order.rank_range(batch, rank_number, world, uneven).unwrap() {
                let sample = reader.at(i).unwrap();
                let own = reader.own(i, rank);
                let entry = taken.entry(sample.episode);
                let (said, samples) = entry.or_insert_with(|| (own.clone(), Vec::new()));
                samples.push(sample.sample);
                match said {
                    Own::Run(run) if !run.contains(&sample.sample) => unforeseen += 1,
                    _ => {}
                }
            }
        }
        (taken, unforeseen)
    }

    #[test]
    fn what_a_rank_takes_of_an_episode_is_what_it_was_said_to_take() {
        for (last_batch, is_weighted) in [
            (LastBatch::Short, false),
            (LastBatch::Wrap, false),
            (LastBatch::Repeat, true),
            (LastBatch::Drop, true),
        ] {
            for world in [2, 3, 4, 6, 12] {
                let order = order(GROUPS, 1, last_batch, is_weighted);
                if last_batch == LastBatch::Short && world > 11 {
                    continue; // more than the last batch has samples
                }
                let mut runs = 0_u64;
                for rank in 0..world {
                    let (taken, unforeseen) = walk(&order, Rank { rank, world });
                    // Where samples repeat, an episode comes again in the last group.
                    let most = if last_batch == LastBatch::Repeat {
                        12
                    } else {
                        0
                    };
                    assert!(unforeseen <= most, "{last_batch:?} {world}: {unforeseen}");
                    for (said, samples) in taken.values() {
                        let Own::Run(run) = said else { continue };
                        runs += 1;
                        let different: std::collections::HashSet<_> = samples.iter().collect();
                        let all = f64::from(run.end - run.start);
                        // What is dropped, or of weight ½, does not come.
                        assert!(is_weighted || different.len() as f64 >= all - 12.0);
                    }
                }
                // Four groups, each cut once between every two ranks.
                let cuts = 2 * (world - 1) * 4;
                assert!(
                    runs <= cuts + 8 && runs >= cuts / 2,
                    "{world}: {runs} of {cuts}"
                );
            }
        }
    }

    #[test]
    fn a_single_process_takes_all_and_a_rank_of_a_global_shuffle_takes_any() {
        let own = |shuffle, lanes, world| {
            let order = order(shuffle, lanes, LastBatch::Short, false);
            order.reader().own(5, Rank { rank: 0, world })
        };
        assert_eq!(own(GROUPS, 1, 1), Own::All);
        assert_eq!(own(Shuffle::Sequential, 1, 1), Own::All);
        assert_eq!(own(Shuffle::Sequential, 4, 4), Own::All);
        assert_eq!(own(Shuffle::Sequential, 1, 4), Own::Scattered);
        assert_eq!(own(Shuffle::Global, 1, 1), Own::All);
        assert_eq!(own(Shuffle::Global, 1, 4), Own::Scattered);
    }

    #[test]
    fn ranks_share_as_many_frames_as_was_said() {
        let decodes = Decodes {
            per_frame: 3.0,
            uses: 3.0,
            per_cut: 2.0,
        };
        for (shuffle, lanes) in [
            (GROUPS, 1),
            (Shuffle::Global, 1),
            (Shuffle::Sequential, 1),
            (GROUPS, 4),
            (GROUPS, 12),
        ] {
            let order = order(shuffle, lanes, LastBatch::Wrap, false);
            for world in [1, 2, 3, 4, 12] {
                // Sample s of an episode needs the frames s to s + 2.
                let (mut decoded, mut all) = (0, std::collections::HashSet::new());
                for rank in 0..world {
                    let mut frames = std::collections::HashSet::new();
                    let (taken, _) = walk(&order, Rank { rank, world });
                    for (episode, (_, samples)) in taken {
                        let of = |sample: u32| (0..3).map(move |at| (episode, sample + at));
                        frames.extend(samples.into_iter().flat_map(of));
                    }
                    decoded += frames.len();
                    all.extend(frames);
                }
                let found = decoded as f64 / all.len() as f64;
                let said = order.sharing(u32::try_from(world).unwrap(), decodes);
                // Frames at the ends of an episode are used less; all ranks of a lane decode all of it ahead.
                let least = match (shuffle, lanes) {
                    (Shuffle::Groups { .. }, 1) => 0.97,
                    (_, 1) => 0.91,
                    _ => 0.6,
                };
                assert!(
                    (least..1.12).contains(&(found / said)),
                    "{shuffle:?}, {lanes} lanes, {world} ranks: {found:.3}, said {said:.3}"
                );
            }
        }
    }
}
