//! The order again, slowly: epochs as lists, straight from the definitions of `spec/order.md`.
//!
//! It shares no code with the crate, only the types of sources and settings.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unwrap_used,
    reason = "small numbers, and a wrong one fails the test"
)]

use std::collections::HashMap;

use kino_loader::{Deal, GroupSize, LastBatch, SampleRef, Settings, Shuffle, Source, Unit};

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

pub(crate) fn key(seed: u64, words: [u64; 4]) -> u64 {
    words
        .iter()
        .fold(mix(seed.wrapping_add(GAMMA)), |hash, word| {
            mix((hash ^ word).wrapping_add(GAMMA))
        })
}

fn draw(key: u64, t: u64) -> u64 {
    mix(key.wrapping_add((t + 1).wrapping_mul(GAMMA)))
}

/// The images of 0..len, as a list.
pub(crate) fn permutation(len: u64, key: u64) -> Vec<u64> {
    let mut bits = 0;
    while 1_u64 << bits < len {
        bits += 1;
    }
    let right_bits = bits - bits / 2;
    let rounds = if bits <= 8 { 12 } else { 6 };
    let walk = |start: u64| {
        let mut x = start;
        loop {
            let (mut left, mut right) = (x >> right_bits, x % (1 << right_bits));
            for round in 0..rounds {
                if round % 2 == 0 {
                    left ^= mix(right ^ draw(key, round)) % (1 << (bits / 2));
                } else {
                    right ^= mix(left ^ draw(key, round)) % (1 << right_bits);
                }
            }
            x = left * (1 << right_bits) + right;
            if x < len {
                return x;
            }
        }
    };
    (0..len).map(walk).collect()
}

/// One source: lists of its epochs.
pub(crate) struct Twin {
    source: Source,
    settings: Settings,
    slots: Option<u64>,
    pub(crate) positions: u64,
    /// Indices of an epoch, and how many of them have a sample.
    pub(crate) epoch_len: u64,
    pub(crate) epoch_samples: u64,
    epochs: HashMap<u64, Vec<SampleRef>>,
}

impl Twin {
    pub(crate) fn new(source: &Source, settings: &Settings) -> Self {
        Self::of_mixture(source, settings, None)
    }

    /// A source that has `slots` of 4096.
    fn of_mixture(source: &Source, settings: &Settings, slots: Option<u64>) -> Self {
        let mut twin = Self {
            source: source.clone(),
            settings: *settings,
            slots,
            positions: 0,
            epoch_len: 0,
            epoch_samples: 0,
            epochs: HashMap::new(),
        };
        twin.positions = (0..source.counts.len())
            .map(|episode| u64::from(source.counts[episode]) * twin.len_of(episode))
            .sum::<u64>()
            / twin.unit();
        (twin.epoch_len, twin.epoch_samples) = rounded(twin.positions, settings);
        twin
    }

    fn unit(&self) -> u64 {
        if self.source.weights.is_some() {
            1 << 20
        } else {
            1
        }
    }

    fn len_of(&self, episode: usize) -> u64 {
        match &self.source.weights {
            None => 1,
            Some(weights) if weights[episode] > 0.0 => {
                ((f64::from(weights[episode]) * 1_048_576.0 + 0.5).floor() as u64).max(1)
            }
            Some(_) => 0,
        }
    }

    /// The sample of an index; `None` behind the end of a short batch.
    pub(crate) fn at(&mut self, i: u64) -> Option<SampleRef> {
        let epoch = i / self.epoch_len;
        if !self.epochs.contains_key(&epoch) {
            let list = self.epoch(epoch);
            assert_eq!(list.len() as u64, self.epoch_samples);
            self.epochs.insert(epoch, list);
        }
        let list = &self.epochs[&epoch];
        list.get((i % self.epoch_len) as usize).copied()
    }

    /// Pool and sizes of the episodes, or `None` where all is one group.
    fn pool(&self) -> Option<(u64, Vec<u64>)> {
        let Shuffle::Groups { size, .. } = self.settings.shuffle else {
            return None;
        };
        let ones = vec![1; self.source.counts.len()];
        let sizes = match (&self.source.sizes, size) {
            (Some(sizes), GroupSize::Bytes(_) | GroupSize::Fraction(_)) => sizes.to_vec(),
            _ => ones,
        };
        let total: u64 = (0..sizes.len())
            .filter(|&at| self.source.counts[at] > 0 && self.len_of(at) > 0)
            .map(|at| sizes[at])
            .sum();
        let part = |size: u64| self.slots.map_or(size, |slots| size * slots / 4096);
        let pool = match size {
            GroupSize::Bytes(bytes) => part(bytes),
            GroupSize::Episodes(episodes) => part(u64::from(episodes)),
            GroupSize::Fraction(fraction) => (total as f64 * fraction) as u64,
        };
        let pool = if pool >= total && has_parts(&self.settings) {
            u64::MAX
        } else {
            pool
        };
        let is_one = pool >= total && !has_parts(&self.settings);
        (!is_one).then(|| (pool / u64::from(self.settings.lanes), sizes))
    }

    /// The units of the line: episodes or shards, each with its episodes.
    fn units(&self) -> Vec<Vec<usize>> {
        let episodes = 0..self.source.counts.len();
        match (self.settings.shuffle, &self.source.shards) {
            // All is one group, on the line as listed.
            _ if self.pool().is_none() => episodes.map(|episode| vec![episode]).collect(),
            (
                Shuffle::Groups {
                    unit: Unit::Shards, ..
                },
                Some(shards),
            ) => {
                let mut numbers = shards.to_vec();
                numbers.sort_unstable();
                numbers.dedup();
                let members = |number| {
                    episodes
                        .clone()
                        .filter(|&at| shards[at] == number)
                        .collect()
                };
                numbers.into_iter().map(members).collect()
            }
            _ => episodes.map(|episode| vec![episode]).collect(),
        }
    }

    fn epoch(&self, epoch: u64) -> Vec<SampleRef> {
        let seed = self.settings.seed;
        let (n, len) = (self.positions as usize, self.epoch_samples as usize);
        let pool = self.pool();
        let units = self.units();
        let order: Vec<u64> = match pool {
            Some(_) => permutation(units.len() as u64, key(seed, [1, epoch, 0, 0])),
            None => (0..units.len() as u64).collect(),
        };
        // (unit on the line, sample) of every position.
        let line = self.line(epoch, &order, &units);
        assert_eq!(line.len(), n);
        if self.settings.shuffle != Shuffle::Sequential && pool.is_none() {
            let images = permutation(n as u64, key(seed, [2, epoch, 0, 0]));
            return (0..len).map(|p| line[images[p % n] as usize].1).collect();
        }
        let line: Vec<(usize, SampleRef)> = (0..len)
            .map(|p| (line[p % n].0 + p / n * units.len(), line[p % n].1))
            .collect();
        // Deal the indices of the epoch to lanes, cut the line, shuffle each lane's groups, and give them out again.
        let lanes = u64::from(self.settings.lanes);
        let (epoch_len, samples) = (self.epoch_len, self.epoch_samples);
        let lane_of = |i: u64| lane_of(&self.settings, i, epoch_len, samples) as usize;
        let indices = epoch * epoch_len..epoch * epoch_len + samples;
        let mut rest = &line[..];
        let mut parts: Vec<_> = (0..lanes)
            .map(|lane| {
                let count = indices
                    .clone()
                    .filter(|&i| lane_of(i) == lane as usize)
                    .count();
                let (part, after) = rest.split_at(count);
                rest = after;
                if has_parts(&self.settings) {
                    return self.in_parts(part, &pool, epoch).into_iter();
                }
                self.shuffled(part, &pool, [3, epoch, lane]).into_iter()
            })
            .collect();
        indices.map(|i| parts[lane_of(i)].next().unwrap()).collect()
    }

    /// The sample of every position, with the place of its unit on the line.
    fn line(&self, epoch: u64, order: &[u64], units: &[Vec<usize>]) -> Vec<(usize, SampleRef)> {
        let variant = self
            .source
            .variants
            .iter()
            .filter(|(from, _)| *from <= epoch)
            .count();
        let mut windows = Vec::new();
        for (at, &unit) in order.iter().enumerate() {
            for &episode in &units[unit as usize] {
                for window in 0..self.source.counts[episode] {
                    let sample = SampleRef {
                        source: 0,
                        variant: variant.max(1) as u32 - 1,
                        epoch,
                        episode: episode as u32,
                        sample: window,
                    };
                    windows.push((at, sample, self.len_of(episode)));
                }
            }
        }
        let unit = self.unit();
        let total: u64 = windows.iter().map(|(_, _, len)| len).sum();
        let rest = total % unit;
        let random = u128::from(draw(key(self.settings.seed, [4, epoch, 0, 0]), 0));
        let phase = rest + ((random * u128::from(unit - rest)) >> 64) as u64;
        let mut points = (0..self.positions).map(|p| p * unit + phase).peekable();
        let (mut end, mut line) = (0, Vec::new());
        for (at, sample, len) in windows {
            end += len;
            while points.next_if(|&point| point < end).is_some() {
                line.push((at, sample));
            }
        }
        line
    }

    fn shuffled(
        &self,
        part: &[(usize, SampleRef)],
        pool: &Option<(u64, Vec<u64>)>,
        words: [u64; 3],
    ) -> Vec<SampleRef> {
        let Some((_, sizes)) = pool else {
            return part.iter().map(|one| one.1).collect();
        };
        let groups = self.groups(part, pool.as_ref().unwrap());
        let comers = (0..sizes.len())
            .filter(|&at| self.source.counts[at] > 0 && self.len_of(at) > 0)
            .count() as u64;
        let depth = self.positions.div_ceil(comers);
        let [purpose, epoch, lane] = words;
        let shuffle = |(group, list): (usize, &Vec<SampleRef>)| {
            let key = key(self.settings.seed, [purpose, epoch, lane, group as u64]);
            dealt(list, depth, key)
        };
        groups.iter().enumerate().flat_map(shuffle).collect()
    }

    /// The samples of an epoch where each place of the batch has a part of every group: a pile for each, shuffled.
    fn in_parts(
        &self,
        line: &[(usize, SampleRef)],
        pool: &Option<(u64, Vec<u64>)>,
        epoch: u64,
    ) -> Vec<SampleRef> {
        let places = Settings {
            lanes: self.settings.batch_size,
            ..self.settings
        };
        let mut all = Vec::new();
        for (group, list) in (0..).zip(self.groups(line, pool.as_ref().unwrap())) {
            let first = epoch * self.epoch_len + all.len() as u64;
            let of: Vec<u64> = (first..first + list.len() as u64)
                .map(|i| lane_of(&places, i, self.epoch_len, self.epoch_samples))
                .collect();
            let (mut piles, mut rest) = (HashMap::new(), &list[..]);
            for place in 0..u64::from(self.settings.batch_size) {
                let count = of.iter().filter(|&&one| one == place).count();
                let (pile, after) = rest.split_at(count);
                rest = after;
                let key = key(self.settings.seed, [3, epoch, place, group]);
                let images = permutation(count as u64, key).into_iter();
                piles.insert(place, images.map(|image| pile[image as usize]));
            }
            all.extend(
                of.iter()
                    .map(|place| piles.get_mut(place).unwrap().next().unwrap()),
            );
        }
        all
    }

    /// The groups of a part of the line.
    fn groups(
        &self,
        part: &[(usize, SampleRef)],
        (pool, sizes): &(u64, Vec<u64>),
    ) -> Vec<Vec<SampleRef>> {
        let units = self.units();
        let pieces: Vec<(u64, Vec<SampleRef>)> = part
            .chunk_by(|one, next| one.0 == next.0)
            .map(|piece| {
                // A unit is as large as all its episodes that can come, whatever part of it lies here.
                let holds = |unit: &&Vec<usize>| unit.contains(&(piece[0].1.episode as usize));
                let members = units.iter().find(holds).unwrap().iter();
                let comes = |at: &&usize| self.source.counts[**at] > 0 && self.len_of(**at) > 0;
                let size = members.filter(comes).map(|&at| sizes[at]).sum();
                (size, piece.iter().map(|one| one.1).collect())
            })
            .collect();
        // As many groups as the pool gives, then about equal ones.
        let count = groups_of(&pieces, *pool).len() as u64;
        let total: u64 = pieces.iter().map(|piece| piece.0).sum();
        let largest = pieces.iter().map(|piece| piece.0).max().unwrap_or(0);
        groups_of(&pieces, (*pool).min(total / count.max(1) + largest))
    }
}

/// Whether each place of a batch has a part of every group.
fn has_parts(settings: &Settings) -> bool {
    settings.deal == Deal::Parts && matches!(settings.shuffle, Shuffle::Groups { .. })
}

/// Pieces put together while their sizes sum to at most `pool`.
fn groups_of(pieces: &[(u64, Vec<SampleRef>)], pool: u64) -> Vec<Vec<SampleRef>> {
    let (mut groups, mut used) = (Vec::<Vec<SampleRef>>::new(), 0);
    for (size, samples) in pieces {
        if groups.is_empty() || used + size > pool {
            groups.push(Vec::new());
            used = 0;
        }
        used += size;
        groups.last_mut().unwrap().extend(samples);
    }
    groups
}

/// A group dealt from strata: the whole table of where places go, then the walk.
fn dealt(list: &[SampleRef], depth: u64, key: u64) -> Vec<SampleRef> {
    let len = list.len() as u64;
    let strata = len.div_ceil(depth);
    let among: Vec<_> = (0..strata)
        .map(|stratum| permutation(depth, draw(key, 2 * stratum + 1)))
        .collect();
    let mut images = Vec::new();
    for round in 0..depth {
        for stratum in permutation(strata, draw(key, 2 * round)) {
            images.push(stratum * depth + among[stratum as usize][round as usize]);
        }
    }
    let walk = |place: usize| {
        let mut image = images[place];
        while image >= len {
            image = images[image as usize];
        }
        list[image as usize]
    };
    (0..list.len()).map(walk).collect()
}

/// Several sources.
pub(crate) struct MixtureTwin {
    settings: Settings,
    slots: Vec<u64>,
    twins: Vec<Twin>,
    blocks: HashMap<(u64, u64), Vec<u64>>,
    pub(crate) epoch_len: u64,
    epoch_samples: u64,
    /// Lane and place of the indices that were asked for, and of all before.
    places: Vec<Option<(u64, u64)>>,
    /// Places taken of each lane.
    taken: Vec<u64>,
}

impl MixtureTwin {
    /// Slots are given: how weights become slots is tested beside the code.
    pub(crate) fn new(sources: &[Source], slots: &[u64], settings: &Settings) -> Self {
        let limit = match settings.shuffle {
            Shuffle::Groups {
                size: GroupSize::Bytes(bytes),
                ..
            } => Some((bytes, true)),
            Shuffle::Groups {
                size: GroupSize::Episodes(count),
                ..
            } => Some((u64::from(count), false)),
            _ => None,
        };
        let need = |by_size: bool| -> u64 {
            let size = |source: &Source| -> u64 {
                let comes = |at: &usize| {
                    source.counts[*at] > 0 && source.weights.as_ref().is_none_or(|w| w[*at] > 0.0)
                };
                let size = |at: usize| {
                    if by_size {
                        source.sizes.as_ref().unwrap()[at]
                    } else {
                        1
                    }
                };
                (0..source.counts.len()).filter(comes).map(size).sum()
            };
            sources.iter().map(size).sum()
        };
        let all_fits = limit.is_some_and(|(limit, by_size)| need(by_size) <= limit);
        let parts = has_parts(settings);
        let lanes = if parts {
            settings.batch_size
        } else {
            settings.lanes
        };
        let twin = |(at, source): (usize, &Source)| {
            let own = Settings {
                seed: key(settings.seed, [6, at as u64, 0, 0]),
                batch_size: lanes,
                last_batch: LastBatch::Wrap,
                epoch_size: None,
                shuffle: match settings.shuffle {
                    Shuffle::Groups { unit, .. } if all_fits && parts => Shuffle::Groups {
                        size: GroupSize::Fraction(1.0),
                        unit,
                    },
                    _ if all_fits => Shuffle::Global,
                    shuffle => shuffle,
                },
                ..*settings
            };
            Twin::of_mixture(source, &own, Some(slots[at]))
        };
        let twins: Vec<Twin> = sources.iter().enumerate().map(twin).collect();
        let windows = twins.iter().map(|twin| twin.positions).sum();
        let (epoch_len, epoch_samples) = rounded(settings.epoch_size.unwrap_or(windows), settings);
        Self {
            settings: Settings { lanes, ..*settings },
            slots: slots.to_vec(),
            epoch_len,
            epoch_samples,
            twins,
            blocks: HashMap::new(),
            places: Vec::new(),
            taken: vec![0; lanes as usize],
        }
    }

    /// The sample of an index; `None` behind the end of a short batch.
    pub(crate) fn at(&mut self, i: u64) -> Option<SampleRef> {
        // Places are counted one by one, from the first index on.
        while self.places.len() as u64 <= i {
            let next = self.places.len() as u64;
            let (epoch_len, samples) = (self.epoch_len, self.epoch_samples);
            let has_sample =
                self.settings.last_batch != LastBatch::Short || next % epoch_len < samples;
            self.places.push(has_sample.then(|| {
                let lane = lane_of(&self.settings, next, epoch_len, samples);
                let place = &mut self.taken[lane as usize];
                *place += 1;
                (lane, *place - 1)
            }));
        }
        let (lane, place) = self.places[i as usize]?;
        let lanes = u64::from(self.settings.lanes);
        let (seed, block) = (self.settings.seed, place / 4096);
        let images = self
            .blocks
            .entry((lane, block))
            .or_insert_with(|| permutation(4096, key(seed, [5, lane, block, 0])));
        let mut slot = images[(place % 4096) as usize];
        let mut source = 0;
        while slot >= self.slots[source] {
            slot -= self.slots[source];
            source += 1;
        }
        let own = (block * self.slots[source] + slot) * lanes + lane;
        let sample = self.twins[source].at(own)?;
        Some(SampleRef {
            source: source as u32,
            ..sample
        })
    }
}

/// The lane of an index that has a sample.
fn lane_of(settings: &Settings, i: u64, epoch_len: u64, samples: u64) -> u64 {
    let (batch, lanes) = (u64::from(settings.batch_size), u64::from(settings.lanes));
    let rest = samples % batch;
    let is_last = settings.last_batch == LastBatch::Short && i % epoch_len >= samples - rest;
    // Behind the end of the run of every lane before.
    let len = if is_last { rest } else { batch };
    (0..lanes)
        .find(|lane| i % batch < (lane + 1) * len / lanes)
        .unwrap()
}

/// Indices and samples of an epoch.
fn rounded(positions: u64, settings: &Settings) -> (u64, u64) {
    let batch = u64::from(settings.batch_size);
    let down = positions / batch * batch;
    let up = positions.div_ceil(batch) * batch;
    match settings.last_batch {
        LastBatch::Short => (up, positions),
        LastBatch::Drop => (down, down),
        LastBatch::Wrap => (positions, positions),
        LastBatch::Repeat => (up, up),
    }
}
