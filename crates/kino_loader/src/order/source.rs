//! What is ordered: the samples of a list of episodes, as lengths on a line.
//!
//! ```text
//! unweighted   U = 1      a sample is 1 long             point of position p: p
//! weighted     U = 2^20   a sample is ⌊w·U + ½⌋ long     point of position p: p·U + φ,  W mod U ≤ φ < U
//!
//! |--ep 0, w = 2--|-ep 1, w = ½-|      W = Σ count·len, n = ⌊W/U⌋ positions
//!   ^   ^   ^   ^    ^     ^           the sample under a point is the sample
//! ```
//!
//! With points U apart a sample comes ⌊w⌋ or ⌈w⌉ times, and exactly w times for whole w. The phase φ starts at
//! W mod U because then n points fit in every epoch and none is cut off at the end.

use std::sync::Arc;

use super::keys::{Key, Purpose, below};
use super::slots::Slots;
use crate::error::{Result, invalid};

/// The length of a sample of weight 1 on a weighted line.
const WEIGHT_UNIT: u64 = 1 << 20;
/// The most positions of an epoch.
const MAX_POSITIONS: u64 = 1 << 48;
/// The largest weight of an episode.
const MAX_WEIGHT: f32 = 1_048_576.0;

/// The samples of one dataset, under one request and selection.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// What the samples are: the dataset's version and the request. Two sources with one id have the same samples.
    pub id: String,
    /// Its name in messages; the id by default.
    pub name: String,
    /// Samples per selected episode. A filter or a split is a shorter list.
    pub counts: Arc<[u32]>,
    /// Decoded bytes per episode, for groups of a number of bytes.
    pub sizes: Option<Arc<[u64]>>,
    /// How often an episode's samples come per epoch; 1 where there are none.
    pub weights: Option<Arc<[f32]>>,
    /// The shard of each episode, for groups of whole shards.
    pub shards: Option<Arc<[u32]>>,
    /// Curriculum: (first epoch, id of the dataset) of the same episodes packed in other ways.
    pub variants: Vec<(u64, String)>,
}

impl Source {
    /// A source of episodes with so many samples each.
    pub fn new(id: impl Into<String>, counts: impl Into<Arc<[u32]>>) -> Self {
        let id = id.into();
        Self {
            name: id.clone(),
            id,
            counts: counts.into(),
            sizes: None,
            weights: None,
            shards: None,
            variants: Vec::new(),
        }
    }

    /// Refuses lists that do not fit together.
    pub(crate) fn check(&self) -> Result<()> {
        let episodes = self.counts.len();
        if u32::try_from(episodes).is_err() {
            return Err(invalid(format!(
                "source `{}` has {episodes} episodes; an order takes at most {}",
                self.name,
                u32::MAX
            )));
        }
        for (name, len) in [
            ("sizes", self.sizes.as_ref().map(|list| list.len())),
            ("weights", self.weights.as_ref().map(|list| list.len())),
            ("shards", self.shards.as_ref().map(|list| list.len())),
        ] {
            if let Some(len) = len.filter(|&len| len != episodes) {
                return Err(invalid(format!(
                    "source `{}` has {episodes} episodes but {len} {name}; there must be one for each",
                    self.name
                )));
            }
        }
        let starts = self.variants.first().is_none_or(|(epoch, _)| *epoch == 0);
        let rises = self.variants.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !(starts && rises) {
            return Err(invalid(format!(
                "the variants of source `{}` must start at epoch 0 and name later epochs in turn",
                self.name
            )));
        }
        Ok(())
    }

    /// Adds the source to a hash, as `spec/order.md` lays it out.
    pub(crate) fn hash_into(&self, hasher: &mut blake3::Hasher) {
        let text = |hasher: &mut blake3::Hasher, text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        text(hasher, &self.id);
        hash_list(hasher, Some(&self.counts), |one| one.to_le_bytes());
        hash_list(hasher, self.sizes.as_deref(), |one| one.to_le_bytes());
        hash_list(hasher, self.weights.as_deref(), |one| one.to_le_bytes());
        hash_list(hasher, self.shards.as_deref(), |one| one.to_le_bytes());
        hasher.update(&(self.variants.len() as u64).to_le_bytes());
        for (epoch, id) in &self.variants {
            hasher.update(&epoch.to_le_bytes());
            text(hasher, id);
        }
    }
}

/// One byte, 1 if there is a list; then its length and its values.
fn hash_list<T: Copy, const N: usize>(
    hasher: &mut blake3::Hasher,
    list: Option<&[T]>,
    bytes: fn(T) -> [u8; N],
) {
    hasher.update(&[u8::from(list.is_some())]);
    let Some(list) = list else { return };
    hasher.update(&(list.len() as u64).to_le_bytes());
    let mut block = Vec::with_capacity(8192 * N);
    for part in list.chunks(8192) {
        block.clear();
        part.iter()
            .for_each(|&one| block.extend_from_slice(&bytes(one)));
        hasher.update(&block);
    }
}

/// The samples of a source as lengths on a line, episode after episode as they are listed.
#[derive(Debug)]
pub(crate) struct Line {
    counts: Arc<[u32]>,
    /// Each episode's samples.
    pub(crate) slots: Slots<()>,
    /// How long a sample of each episode is; all 1 where there is no list.
    lens: Option<Arc<[u64]>>,
    unit: u64,
    /// Positions of an epoch.
    pub(crate) positions: u64,
    /// The mean number of positions of an episode that has a length, rounded up.
    pub(crate) depth: u64,
}

impl Line {
    /// The line of a source that was checked.
    pub(crate) fn new(source: &Source) -> Result<Self> {
        let lens = source
            .weights
            .as_deref()
            .map(|weights| weight_lens(&source.name, weights))
            .transpose()?;
        let len = |episode: usize| lens.as_ref().map_or(1, |lens| lens[episode]);
        let mut end = 0_u64;
        let unit = if lens.is_some() { WEIGHT_UNIT } else { 1 };
        for (episode, &count) in source.counts.iter().enumerate() {
            end = u64::from(count)
                .checked_mul(len(episode))
                .and_then(|length| end.checked_add(length))
                .filter(|&end| end / unit <= MAX_POSITIONS && end <= 1 << 62)
                .ok_or_else(|| {
                    invalid(format!(
                        "source `{}` has more than {MAX_POSITIONS} samples at episode {episode}; select fewer episodes or use smaller weights",
                        source.name
                    ))
                })?;
        }
        if end / unit == 0 {
            return Err(invalid(format!(
                "source `{}` has no samples: {} episodes are selected; check the selection, the request and the weights",
                source.name,
                source.counts.len()
            )));
        }
        let comes = |(episode, count): (usize, &u32)| u64::from(*count > 0 && len(episode) > 0);
        let comers: u64 = source.counts.iter().enumerate().map(comes).sum();
        let lengths = source.counts.iter().enumerate();
        let lengths = lengths.map(|(episode, &count)| (u64::from(count) * len(episode), ()));
        Ok(Self {
            counts: source.counts.clone(),
            slots: Slots::new(lengths),
            lens,
            unit,
            positions: end / unit,
            depth: (end / unit).div_ceil(comers.max(1)),
        })
    }

    /// How long the samples of an episode are together.
    pub(crate) fn length(&self, episode: u32) -> u64 {
        let at = episode as usize;
        let len = self.lens.as_ref().map_or(1, |lens| lens[at]);
        u64::from(self.counts[at]) * len
    }

    /// φ of an epoch.
    pub(crate) fn phase(&self, seed: u64, epoch: u64) -> u64 {
        if self.unit == 1 {
            return 0;
        }
        let rest = self.slots.end() % self.unit;
        let draw = Key::new(seed, Purpose::Phase, [epoch, 0, 0]).draw(0);
        rest + below(draw, self.unit - rest)
    }

    /// The point of a position.
    pub(crate) fn point(&self, position: u64, phase: u64) -> u64 {
        position * self.unit + phase
    }

    /// How many positions have their point before `point`.
    pub(crate) fn positions_before(&self, point: u64, phase: u64) -> u64 {
        point.saturating_sub(phase).div_ceil(self.unit)
    }

    /// The sample of `episode` that lies `offset` behind the episode's start.
    pub(crate) fn sample(&self, episode: u32, offset: u64) -> u32 {
        let sample = match &self.lens {
            Some(lens) => offset / lens[episode as usize].max(1),
            None => offset,
        };
        debug_assert!(sample <= u64::from(u32::MAX), "a sample of the episode");
        u32::try_from(sample).unwrap_or(u32::MAX)
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.slots.memory() + 8 * self.lens.as_ref().map_or(0, |lens| lens.len())
    }
}

/// Weights in fixed point; a weight above 0 is at least the least there is.
fn weight_lens(name: &str, weights: &[f32]) -> Result<Arc<[u64]>> {
    weights
        .iter()
        .enumerate()
        .map(|(episode, &weight)| {
            if !(0.0..=MAX_WEIGHT).contains(&weight) {
                return Err(invalid(format!(
                    "the weight of episode {episode} of source `{name}` is {weight}; it must be from 0 to {MAX_WEIGHT}"
                )));
            }
            let len = (f64::from(weight) * 1_048_576.0 + 0.5).floor();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "0 ≤ len ≤ 2^40, whole"
            )]
            let len = len as u64;
            Ok(len.max(u64::from(weight > 0.0)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weighted(weights: &[f32]) -> Result<Line> {
        let mut source = Source::new("a", vec![3; weights.len()]);
        source.weights = Some(weights.into());
        source.check()?;
        Line::new(&source)
    }

    #[test]
    fn bad_weights_are_refused_with_the_episode() {
        for bad in [f32::NAN, -1.0, f32::INFINITY, 2e6] {
            let error = weighted(&[1.0, bad]).unwrap_err().to_string();
            assert!(error.contains("episode 1"), "{error}");
        }
        let error = weighted(&[0.0, 0.0]).unwrap_err().to_string();
        assert!(error.contains("no samples"), "{error}");
    }

    #[test]
    fn lists_that_do_not_fit_together_are_refused() {
        let mut source = Source::new("a", vec![1, 2]);
        source.sizes = Some(vec![1].into());
        assert!(source.check().unwrap_err().to_string().contains("1 sizes"));
        let mut source = Source::new("a", vec![1, 2]);
        source.variants = vec![(1, "b".into())];
        assert!(source.check().is_err());
        source.variants = vec![(0, "b".into()), (0, "c".into())];
        assert!(source.check().is_err());
    }

    #[test]
    fn too_many_samples_are_refused_not_overflowed() {
        let source = Source::new("a", vec![u32::MAX; 70_000]);
        assert!(Line::new(&source).is_err());
        let mut source = Source::new("a", vec![u32::MAX; 3]);
        source.weights = Some(vec![MAX_WEIGHT; 3].into());
        assert!(Line::new(&source).is_err());
    }

    #[test]
    fn all_points_lie_on_the_line_in_every_epoch() {
        let line = weighted(&[0.3, 1.7, 0.0, 2.0]).unwrap();
        let end = line.slots.end();
        assert_eq!(line.positions, 12);
        for epoch in 0..2000 {
            let phase = line.phase(5, epoch);
            assert!(line.point(line.positions - 1, phase) < end);
            assert!(line.point(line.positions, phase) >= end);
        }
    }
}
