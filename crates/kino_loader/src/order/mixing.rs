//! How well an order mixes, and the fewest episodes of a group that mixes well enough.
//!
//! VIF, the variance inflation factor, is how many times larger the variance of a batch's mean is than with independent
//! samples, for an effect that all samples of an episode share. A batch of G samples with c_e of episode e has
//!
//! ```text
//! VIF = (Σ c_e² / G − G·s) / (1 − s)          s = Σ p_e², p_e the episode's share of all samples
//! ```
//!
//! A group of m episodes is dealt from strata as long as the mean episode (`deal.rs`), so a batch is q = G/m rounds. Of a
//! stratum it takes q samples with variance V, because the first and the last round are cut at random places:
//!
//! ```text
//! V = q − q² + q³/3 for q ≤ 1, else ⅓
//! ```
//!
//! An episode of λ mean lengths lies across strata at a random place; S(λ), the expected sum of the squares of its shares of
//! them, is λ² − λ³/3 for λ ≤ 1, else λ − ⅓. (Where all episodes have one length they are the strata, and S = 1.) Summing
//! the variances of c_e over the episodes of the group gives, with bars for means over episodes,
//!
//! ```text
//! E Σ c_e² / G = q·λ̄² + 1 − (1 − V/q)·S̄ − V·λ̄²/G          λ̄² the mean of λ²
//! ```
//!
//! In parts, each of the G places of a batch takes one sample of its G-th of the group. An episode of λ mean lengths lies
//! across λ·q parts, and two samples of it can come from different parts only:
//!
//! ```text
//! E Σ c_e² / G = 1 + mean of ((λq)² − S(λq)) / q
//! ```
//!
//! That is less but for equal lengths. Groups in parts have as many episodes as both need, so that batches that follow each
//! other mix no worse than they did.
//!
//! The tests compare it with orders; `examples/shuffle_quality.rs` measures more of them.

use std::collections::HashMap;

use super::mixture::{BLOCK, Mixture};
use super::settings::{Deal, GroupSize, Shuffle, Unit};
use super::{Order, Source};
use crate::decodes::Decodes;
use crate::error::Result;

/// The largest VIF by episode that the automatic shuffle accepts.
const MAX_VIF: f64 = 1.25;

/// Frames decoded up to this often per epoch are not worth a group.
const FEW_DECODES: f64 = 1.05;

/// Groups in parts are large enough for so many ranks to decode at most this many frames of them twice.
const MOST_RANKS: u32 = 16;
const DECODED_TWICE: f64 = 0.08;

/// Mixing is measured on about this many samples, in so many batches.
const MEASURED_SAMPLES: u64 = 1 << 16;
const MEASURED_BATCHES: std::ops::RangeInclusive<u64> = 4..=64;

/// How well the batches of an order mix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mixing {
    /// Different episodes in a batch, on average.
    pub episodes_per_batch: f64,
    /// The variance of a batch's mean, relative to independent samples, for an effect that an episode's samples share.
    pub vif: f64,
}

/// What a user leaves open when the shuffle is chosen automatically.
#[derive(Debug, Clone, Copy)]
pub struct AutoShuffle {
    /// Samples per batch, of all ranks together.
    pub batch_size: u32,
    /// Slices of a batch that read episodes of their own.
    pub lanes: u32,
    /// How the samples of a group come into batches.
    pub deal: Deal,
    /// How often frames are decoded.
    pub decodes: Decodes,
    /// What groups are made of.
    pub unit: Unit,
}

impl AutoShuffle {
    /// The shuffle for these sources: of everything if no frame is decoded twice; otherwise in groups of the fewest
    /// episodes whose batches mix well. It depends on the data, the request and the batch, never on the machine.
    ///
    /// ```
    /// use kino_loader::{AutoShuffle, Deal, Decodes, GroupSize, Shuffle, Source, Unit};
    ///
    /// let source = Source::new("demos", vec![100; 1000]);
    /// let (lanes, deal, unit) = (1, Deal::Parts, Unit::Episodes);
    /// let auto = AutoShuffle { batch_size: 32, lanes, deal, decodes: Decodes::ONCE, unit };
    /// assert_eq!(auto.choose(&[(source.clone(), 1.0)])?, Shuffle::Global);
    /// let overlapping = AutoShuffle { decodes: Decodes { per_frame: 2.0, uses: 2.0, per_cut: 1.0 }, ..auto };
    /// let Shuffle::Groups { size: GroupSize::Episodes(episodes), .. } = overlapping.choose(&[(source, 1.0)])? else {
    ///     panic!()
    /// };
    /// assert!((32..100).contains(&episodes));
    /// # Ok::<(), kino_loader::LoaderError>(())
    /// ```
    pub fn choose(&self, parts: &[(Source, f64)]) -> Result<Shuffle> {
        if self.decodes.per_frame <= FEW_DECODES {
            return Ok(Shuffle::Global);
        }
        let weights: Vec<f64> = parts.iter().map(|(_, weight)| *weight).collect();
        let slots = Mixture::new(&weights)?.slots;
        let mut size = 0.0_f64;
        let mut total = 0.0;
        for ((source, _), slots) in parts.iter().zip(slots) {
            let lengths = Lengths::of(source);
            total += lengths.episodes;
            let share = f64::from(slots) / f64::from(BLOCK);
            // A group of a mixture is shared out by the slots.
            let fewest = lengths.fewest(f64::from(self.batch_size) * share, self.deal);
            size = size.max(fewest.max(self.fewest_for_ranks(&lengths)) / share);
        }
        let lanes = f64::from(self.lanes.max(1));
        let size = lanes * (size / lanes).ceil();
        if size >= total && self.deal == Deal::Strata {
            return Ok(Shuffle::Global);
        }
        let size = size.min(total);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number from 1 to the number of episodes"
        )]
        let episodes = size as u32;
        Ok(Shuffle::Groups {
            size: GroupSize::Episodes(episodes.max(1)),
            unit: self.unit,
        })
    }
}

impl AutoShuffle {
    /// The fewest episodes of a group that may be divided among [`MOST_RANKS`]: each of the cuts between them costs some
    /// frames, which both ranks decode.
    fn fewest_for_ranks(&self, lengths: &Lengths) -> f64 {
        if self.deal == Deal::Strata {
            return 1.0;
        }
        let cuts = f64::from(MOST_RANKS.min(self.batch_size) - 1);
        let least = cuts * self.decodes.per_cut / DECODED_TWICE / lengths.mean;
        least.ceil().clamp(1.0, lengths.episodes)
    }
}

/// What mixing depends on: how many episodes there are, and how their lengths differ.
struct Lengths {
    episodes: f64,
    /// The mean number of samples.
    mean: f64,
    /// The mean of λ².
    mean_square: f64,
    /// The mean of S(λ); λ², where all episodes have one length.
    overlap: f64,
    /// All λ.
    relative: Vec<f64>,
}

/// S: the expected sum of the squares of the shares that something of so many units has of the units it lies across.
fn overlap(length: f64) -> f64 {
    if length <= 1.0 {
        length.powi(2) - length.powi(3) / 3.0
    } else {
        length - 1.0 / 3.0
    }
}

impl Lengths {
    fn of(source: &Source) -> Self {
        let lengths: Vec<f64> = lengths(source).filter(|&length| length > 0.0).collect();
        let episodes = (lengths.len() as f64).max(1.0);
        let mean = lengths.iter().sum::<f64>() / episodes;
        let mean_of = |of: &dyn Fn(f64) -> f64| {
            lengths.iter().map(|length| of(length / mean)).sum::<f64>() / episodes
        };
        let mean_square = mean_of(&|length| length * length);
        let is_equal = lengths.windows(2).all(|pair| pair[0] == pair[1]);
        Self {
            episodes,
            mean,
            mean_square,
            overlap: if is_equal { 1.0 } else { mean_of(&overlap) },
            relative: lengths.into_iter().map(|length| length / mean).collect(),
        }
    }

    /// The VIF of batches from groups of so many episodes, dealt from strata.
    fn vif(&self, batch: f64, group: f64) -> f64 {
        let rounds = batch / group;
        let variance = if rounds < 1.0 {
            rounds - rounds.powi(2) + rounds.powi(3) / 3.0
        } else {
            1.0 / 3.0
        };
        let squares = rounds * self.mean_square + 1.0
            - (1.0 - variance / rounds) * self.overlap
            - variance * self.mean_square / batch;
        self.of_squares(batch, squares)
    }

    /// The same, dealt in parts.
    fn vif_in_parts(&self, batch: f64, group: f64) -> f64 {
        let rounds = batch / group;
        let across = self.relative.iter().map(|length| {
            let parts = length * rounds;
            parts.powi(2) - overlap(parts)
        });
        self.of_squares(batch, 1.0 + across.sum::<f64>() / self.episodes / rounds)
    }

    /// The VIF of batches of which E Σ c_e² / G is `squares`.
    fn of_squares(&self, batch: f64, squares: f64) -> f64 {
        let share = self.mean_square / self.episodes;
        if share >= 1.0 {
            return 1.0; // one episode: there is nothing to mix
        }
        (squares - batch * share) / (1.0 - share)
    }

    /// The fewest episodes of a group for a VIF of at most [`MAX_VIF`]; all if less is not enough.
    ///
    /// Groups are made about equal, so what counts is how many there are: `below` is enough groups, `above` too many.
    fn fewest(&self, batch: f64, deal: Deal) -> f64 {
        let vif = |group| match deal {
            Deal::Strata => self.vif(batch, group),
            Deal::Parts => self.vif(batch, group).max(self.vif_in_parts(batch, group)),
        };
        let (mut below, mut above) = (1.0, self.episodes + 1.0);
        while above - below > 1.0 {
            let groups = f64::floor((below + above) / 2.0);
            if vif(self.episodes / groups) <= MAX_VIF {
                below = groups
            } else {
                above = groups
            }
        }
        (self.episodes / below).ceil()
    }
}

/// How many samples each episode has per epoch.
fn lengths(source: &Source) -> impl Iterator<Item = f64> {
    let weight = |episode: usize| source.weights.as_ref().map_or(1.0, |all| all[episode]);
    let counts = source.counts.iter().enumerate();
    counts.map(move |(episode, &count)| f64::from(count) * f64::from(weight(episode)))
}

impl Order {
    /// Measures how well the first epoch mixes, on batches spread over it.
    pub fn mixing(&self) -> Result<Mixing> {
        let batch = u64::from(self.settings().batch_size);
        let all = self.batches_of(0)?;
        let wanted = (MEASURED_SAMPLES / batch)
            .clamp(*MEASURED_BATCHES.start(), *MEASURED_BATCHES.end())
            .min(all.end.max(1));
        let share = self.squared_shares();
        let (mut episodes, mut inflation) = (0.0, 0.0);
        let (mut reader, mut samples) = (self.reader(), Vec::new());
        for nth in 0..wanted {
            let number = all.end * nth / wanted;
            samples.clear();
            reader.fill(number * batch..(number + 1) * batch, &mut samples)?;
            let mut counts = HashMap::<_, f64>::new();
            for sample in &samples {
                *counts.entry((sample.source, sample.episode)).or_default() += 1.0;
            }
            let len = (samples.len() as f64).max(1.0);
            let squares: f64 = counts.values().map(|count| count * count).sum();
            episodes += counts.len() as f64;
            inflation += if share < 1.0 {
                (squares / len - len * share) / (1.0 - share)
            } else {
                1.0
            };
        }
        Ok(Mixing {
            episodes_per_batch: episodes / wanted as f64,
            vif: inflation / wanted as f64,
        })
    }

    /// Which share of the samples each source has.
    pub(crate) fn source_shares(&self) -> Vec<f64> {
        match &self.inner.mixture {
            Some(mixture) => {
                let slots = mixture.slots.iter();
                slots
                    .map(|&slots| f64::from(slots) / f64::from(BLOCK))
                    .collect()
            }
            None => vec![1.0; self.sources().len()],
        }
    }

    /// The sum over all episodes of the square of their share of the samples.
    fn squared_shares(&self) -> f64 {
        let shares = self.source_shares();
        let of_source = |(at, source): (usize, &Source)| {
            let total: f64 = lengths(source).sum();
            let squares: f64 = lengths(source).map(|length| length * length).sum();
            squares * (shares[at] / total.max(f64::MIN_POSITIVE)).powi(2)
        };
        self.sources().iter().enumerate().map(of_source).sum()
    }

    /// Which share of each source a group holds, of all lanes together: 1 where everything is shuffled at once.
    pub(crate) fn group_shares(&self) -> Vec<f64> {
        self.inner
            .tracks
            .iter()
            .map(|track| track.group_share())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{LastBatch, Settings};

    /// Episodes of `mean` samples, longer or shorter by up to `spread` of that.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small positive numbers"
    )]
    fn source(episodes: u32, mean: u32, spread: f64) -> Source {
        let counts = (0..episodes).map(|at| {
            let turn = f64::from(at.wrapping_mul(2_654_435_761)) / f64::from(u32::MAX);
            (f64::from(mean) * (1.0 + spread * (2.0 * turn - 1.0))).round() as u32
        });
        Source::new("a", counts.collect::<Vec<_>>())
    }

    fn decodes(per_frame: f64) -> Decodes {
        Decodes {
            per_frame,
            uses: per_frame,
            per_cut: per_frame - 1.0,
        }
    }

    /// For frames that two samples need, in one lane.
    fn dealt_from_strata(batch_size: u32) -> AutoShuffle {
        AutoShuffle {
            batch_size,
            lanes: 1,
            deal: Deal::Strata,
            decodes: decodes(2.0),
            unit: Unit::Episodes,
        }
    }

    fn measured(source: &Source, batch: u32, shuffle: Shuffle) -> Mixing {
        measured_with(source, batch, shuffle, Deal::Strata)
    }

    fn measured_with(source: &Source, batch: u32, shuffle: Shuffle, deal: Deal) -> Mixing {
        let settings = Settings {
            seed: 5,
            batch_size: batch,
            shuffle,
            deal,
            last_batch: LastBatch::Drop,
            ..Settings::default()
        };
        Order::new(source.clone(), settings)
            .unwrap()
            .mixing()
            .unwrap()
    }

    #[test]
    fn the_formula_agrees_with_the_orders() {
        for (episodes, mean, spread) in [(2000, 60, 0.0), (2000, 60, 0.5), (600, 90, 0.9)] {
            let source = source(episodes, mean, spread);
            let lengths = Lengths::of(&source);
            for batch in [16, 64, 256] {
                for groups in [2, 5, 20, 100] {
                    let group = episodes / groups;
                    if group * mean < 4 * batch {
                        continue; // most batches are of two groups, which mixes better
                    }
                    let shuffle = Shuffle::Groups {
                        size: GroupSize::Episodes(group),
                        unit: Unit::Episodes,
                    };
                    for deal in [Deal::Strata, Deal::Parts] {
                        let found = measured_with(&source, batch, shuffle, deal).vif;
                        let (batch, group) = (f64::from(batch), f64::from(group));
                        let expected = match deal {
                            Deal::Strata => lengths.vif(batch, group),
                            Deal::Parts => lengths.vif_in_parts(batch, group),
                        };
                        // Parts of equal episodes may begin and end with them.
                        let is_better = spread == 0.0 && deal == Deal::Parts && found < expected;
                        assert!(
                            is_better || (found / expected - 1.0).abs() < 0.12,
                            "{episodes} ± {spread}, batch {batch}, {groups} groups, {deal}: measured {found:.3}, computed {expected:.3}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn independent_samples_have_a_vif_of_one() {
        let source = source(1000, 50, 0.8);
        let mixing = measured(&source, 64, Shuffle::Global);
        assert!((mixing.vif - 1.0).abs() < 0.08, "{mixing:?}");
        assert!(
            (60.0..64.0).contains(&mixing.episodes_per_batch),
            "{mixing:?}"
        );
        // 64 samples in a row are of one or two episodes.
        let mixing = measured(&source, 64, Shuffle::Sequential);
        assert!(
            mixing.vif > 20.0 && mixing.episodes_per_batch < 4.0,
            "{mixing:?}"
        );
    }

    #[test]
    fn the_automatic_shuffle_mixes_as_promised_with_the_fewest_episodes() {
        for (batch, episodes, spread) in [
            (8, 200, 0.4),
            (32, 500, 0.0),
            (32, 500, 0.6),
            (256, 4000, 0.3),
        ] {
            let source = source(episodes, 80, spread);
            let auto = dealt_from_strata(batch);
            let shuffle = auto.choose(&[(source.clone(), 1.0)]).unwrap();
            let Shuffle::Groups {
                size: GroupSize::Episodes(size),
                unit,
            } = shuffle
            else {
                panic!("{shuffle:?}")
            };
            let vif = measured(&source, batch, shuffle).vif;
            assert!(vif < 1.33, "batch {batch}, groups of {size}: {vif}");
            let half = Shuffle::Groups {
                size: GroupSize::Episodes(size / 2),
                unit,
            };
            let vif = measured(&source, batch, half).vif;
            assert!(vif > 1.25, "batch {batch}, groups of {}: {vif}", size / 2);
        }
    }

    #[test]
    fn groups_in_parts_mix_no_worse_than_dealt_from_strata() {
        for (batch, episodes, spread) in [
            (8, 200, 0.4),
            (16, 200, 0.3),
            (32, 500, 0.0),
            (32, 500, 0.9),
            (256, 4000, 0.3),
        ] {
            let source = source(episodes, 80, spread);
            let strata = dealt_from_strata(batch);
            let parts = AutoShuffle {
                deal: Deal::Parts,
                ..strata
            };
            let vif = |auto: AutoShuffle| {
                let shuffle = auto.choose(&[(source.clone(), 1.0)]).unwrap();
                (
                    shuffle,
                    measured_with(&source, batch, shuffle, auto.deal).vif,
                )
            };
            let (before, after) = (vif(strata), vif(parts));
            let size = |shuffle| match shuffle {
                Shuffle::Groups {
                    size: GroupSize::Episodes(size),
                    ..
                } => f64::from(size),
                _ => panic!("{shuffle:?}"),
            };
            let larger = size(after.0) / size(before.0);
            assert!((1.0..1.15).contains(&larger), "{before:?} {after:?}");
            let ((_, before), (_, after)) = (before, after);
            assert!(
                after < 1.3 && (spread == 0.0 || after < 1.2 && after < before),
                "{batch}, {episodes} ± {spread}: {before} {after}"
            );
        }
    }

    #[test]
    fn groups_in_parts_are_large_enough_for_sixteen_ranks() {
        let auto = AutoShuffle {
            batch_size: 16,
            lanes: 1,
            deal: Deal::Parts,
            decodes: decodes(10.0),
            unit: Unit::Episodes,
        };
        for (episodes, mean) in [(200, 50), (1000, 30), (400, 20)] {
            let source = source(episodes, mean, 0.3);
            let shuffle = auto.choose(&[(source.clone(), 1.0)]).unwrap();
            let settings = Settings {
                batch_size: 16,
                shuffle,
                deal: Deal::Parts,
                ..Settings::default()
            };
            let order = Order::new(source, settings).unwrap();
            for world in [1, 2, 4, 8, 16] {
                let sharing = order.sharing(world, auto.decodes);
                assert!(
                    sharing <= 1.1,
                    "{episodes} of {mean}, {world} ranks: {sharing}"
                );
            }
        }
        // Three short demonstrations cannot be divided: what 16 ranks decode is said, not hidden.
        let few = source(3, 50, 0.2);
        let shuffle = auto.choose(&[(few.clone(), 1.0)]).unwrap();
        let settings = Settings {
            batch_size: 16,
            shuffle,
            deal: Deal::Parts,
            ..Settings::default()
        };
        assert!(Order::new(few, settings).unwrap().sharing(16, auto.decodes) > 1.8);
    }

    #[test]
    fn what_is_decoded_once_or_too_small_for_groups_is_shuffled_globally() {
        let auto = AutoShuffle {
            batch_size: 32,
            lanes: 4,
            deal: Deal::Strata,
            decodes: decodes(1.04),
            unit: Unit::Episodes,
        };
        let parts = |episodes| vec![(source(episodes, 50, 0.5), 1.0)];
        assert_eq!(auto.choose(&parts(1000)).unwrap(), Shuffle::Global);
        let overlapping = AutoShuffle {
            decodes: decodes(8.0),
            ..auto
        };
        assert_eq!(overlapping.choose(&parts(20)).unwrap(), Shuffle::Global);
        let Shuffle::Groups {
            size: GroupSize::Episodes(size),
            ..
        } = overlapping.choose(&parts(1000)).unwrap()
        else {
            panic!()
        };
        assert_eq!(size % 4, 0, "every lane gets as many");
        // In a mixture the source with the smallest share needs no more of the group than its share.
        let mixed = vec![(source(1000, 50, 0.5), 0.5), (source(800, 20, 0.5), 0.5)];
        let Shuffle::Groups {
            size: GroupSize::Episodes(mixed),
            ..
        } = overlapping.choose(&mixed).unwrap()
        else {
            panic!()
        };
        assert!((size / 2..=2 * size).contains(&mixed), "{size} {mixed}");
    }
}
