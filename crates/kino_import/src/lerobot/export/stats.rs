//! Statistics of a column per episode and over all of them, as LeRobot's normalisation needs them.
//!
//! | of | values | shape |
//! |---|---|---|
//! | numeric | each element over the frames | that of a frame, `[1]` for a scalar |
//! | 8-bit images | each channel over pixels of some frames, divided by 255 | `[3, 1, 1]` |
//!
//! `std` is the population std. A quantile is an existing value: the smallest one that is not exceeded by at least that
//! fraction of the values. Over several episodes, `mean` and `std` are those of all values; a quantile is the
//! frame-weighted mean of the episodes' quantiles, as in LeRobot. NaN and infinity are skipped.
//!
//! Images are sampled as in LeRobot: all of up to 100 frames, n^0.75 of more, and every k-th pixel of images of 300
//! pixels and more.

use serde_json::{Map, Value, json};

use kino_codec::ValueType;

use super::columns::ImageSize;
use crate::values::{to_f64, to_whole};

pub(super) const QUANTILES: [(&str, f64); 5] = [
    ("q01", 0.01),
    ("q10", 0.10),
    ("q50", 0.50),
    ("q90", 0.90),
    ("q99", 0.99),
];

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stats {
    pub(super) shape: Vec<usize>,
    /// The number of sampled frames.
    pub(super) count: u64,
    elements: Vec<Element>,
}

/// Statistics of one element of it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Element {
    min: f64,
    max: f64,
    mean: f64,
    std: f64,
    quantiles: [f64; QUANTILES.len()],
}

impl Stats {
    /// Of packed numeric frames; `None` if an element is never finite.
    pub(super) fn of_numbers(packed: &[u8], ty: &ValueType) -> Option<Self> {
        let (size, elements) = (ty.dtype().size(), ty.elements());
        let frame = ty.frame_bytes();
        let mut found = Vec::with_capacity(elements);
        for element in 0..elements {
            let at = element * size;
            let frames = packed.chunks_exact(frame);
            let values = frames.map(|frame| to_f64(ty.dtype(), &frame[at..at + size]));
            let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
            values.sort_by(f64::total_cmp);
            found.push(Element::of_sorted(&values)?);
        }
        Some(Self {
            shape: match ty.shape() {
                [] => vec![1],
                shape => shape.to_vec(),
            },
            count: (packed.len() / frame.max(1)) as u64,
            elements: found,
        })
    }

    /// Adds those of another episode.
    pub(super) fn add(&mut self, other: &Self) {
        let (here, there) = (self.count as f64, other.count as f64);
        let share = there / (here + there).max(1.0);
        for (a, b) in self.elements.iter_mut().zip(&other.elements) {
            let mean = a.mean + (b.mean - a.mean) * share;
            let spread = |one: &Element| one.std.powi(2) + (one.mean - mean).powi(2);
            let variance = spread(a) * (1.0 - share) + spread(b) * share;
            for (quantile, other) in a.quantiles.iter_mut().zip(b.quantiles) {
                *quantile += (other - *quantile) * share;
            }
            a.min = a.min.min(b.min);
            a.max = a.max.max(b.max);
            (a.mean, a.std) = (mean, variance.sqrt());
        }
        self.count += other.count;
    }

    /// `min`, `max`, `mean`, `std` and, if requested, the quantiles: a value for each element.
    pub(super) fn kinds(&self, quantiles: Quantiles) -> Vec<(&'static str, Vec<f64>)> {
        let of = |pick: &dyn Fn(&Element) -> f64| self.elements.iter().map(pick).collect();
        let mut kinds: Vec<(_, Vec<f64>)> = vec![
            ("min", of(&|element| element.min)),
            ("max", of(&|element| element.max)),
            ("mean", of(&|element| element.mean)),
            ("std", of(&|element| element.std)),
        ];
        if quantiles == Quantiles::Wanted {
            let names = QUANTILES.iter().enumerate();
            kinds.extend(names.map(|(idx, (name, _))| (*name, of(&|one| one.quantiles[idx]))));
        }
        kinds
    }

    /// As stored in `stats.json`.
    pub(super) fn to_json(&self, quantiles: Quantiles) -> Value {
        let kinds = self.kinds(quantiles).into_iter();
        let mut object: Map<_, _> = kinds
            .map(|(kind, values)| (kind.to_owned(), nested(&self.shape, &values)))
            .collect();
        object.insert("count".to_owned(), json!([self.count]));
        Value::Object(object)
    }
}

/// Whether quantiles are written: v2.1 has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantiles {
    Wanted,
    Left,
}

fn nested(shape: &[usize], values: &[f64]) -> Value {
    match shape.split_first() {
        None => json!(values.first()),
        Some((&dim, inner)) => {
            let parts = values.chunks((values.len() / dim.max(1)).max(1));
            Value::Array(parts.map(|part| nested(inner, part)).collect())
        }
    }
}

impl Element {
    fn of_sorted(values: &[f64]) -> Option<Self> {
        let (min, max) = (*values.first()?, *values.last()?);
        let len = values.len() as f64;
        let mean = values.iter().sum::<f64>() / len;
        let squares = values.iter().map(|value| (value - mean).powi(2));
        let std = (squares.sum::<f64>() / len).sqrt();
        let quantiles = QUANTILES.map(|(_, share)| {
            let at = usize::try_from(rank(share, values.len() as u64));
            at.ok()
                .and_then(|at| values.get(at))
                .copied()
                .unwrap_or(max)
        });
        Some(Self {
            min,
            max,
            mean,
            std,
            quantiles,
        })
    }
}

/// The index of a quantile among sorted values.
fn rank(share: f64, len: u64) -> u64 {
    to_whole((share * len as f64).ceil()).saturating_sub(1)
}

/// How often each channel has each of its 256 values.
#[derive(Debug, Clone)]
pub(super) struct Channels {
    frames: u64,
    counts: [[u64; 256]; 3],
}

impl Channels {
    pub(super) fn new() -> Self {
        Self {
            frames: 0,
            counts: [[0; 256]; 3],
        }
    }

    /// Adds an 8-bit image: grayscale counts as three equal channels, alpha is skipped.
    pub(super) fn add(&mut self, pixels: &[u8], size: ImageSize) {
        let ImageSize {
            height,
            width,
            channels,
        } = size;
        let step = pixel_step(height, width);
        for row in pixels.chunks_exact((width * channels).max(1)).step_by(step) {
            for pixel in row.chunks_exact(channels.max(1)).step_by(step) {
                for (channel, counts) in self.counts.iter_mut().enumerate() {
                    let value = pixel.get(channel).or(pixel.first()).copied().unwrap_or(0);
                    counts[usize::from(value)] += 1;
                }
            }
        }
        self.frames += 1;
    }

    /// The statistics; `None` without images.
    pub(super) fn finish(&self) -> Option<Stats> {
        let elements = self.counts.iter().map(Element::of_counts);
        Some(Stats {
            shape: vec![3, 1, 1],
            count: self.frames,
            elements: elements.collect::<Option<_>>()?,
        })
    }
}

impl Element {
    fn of_counts(counts: &[u64; 256]) -> Option<Self> {
        let scaled = |value: usize| value as f64 / 255.0;
        let total: u64 = counts.iter().sum();
        let there = || (0..256).filter(|&value| counts[value] > 0);
        let weighted = |of: &dyn Fn(f64) -> f64| {
            let sum: f64 = there()
                .map(|value| of(scaled(value)) * counts[value] as f64)
                .sum();
            sum / total as f64
        };
        let mean = weighted(&|value| value);
        let std = weighted(&|value| (value - mean).powi(2)).sqrt();
        let quantiles = QUANTILES.map(|(_, share)| {
            let (rank, mut below) = (rank(share, total), 0);
            let found = there().find(|&value| {
                below += counts[value];
                below > rank
            });
            scaled(found.unwrap_or(255))
        });
        Some(Self {
            min: scaled(there().next()?),
            max: scaled(there().next_back()?),
            mean,
            std,
            quantiles,
        })
    }
}

/// The sampling stride of pixels and rows.
fn pixel_step(height: usize, width: usize) -> usize {
    match height.max(width) {
        0..300 => 1,
        larger => larger / 150,
    }
}

/// The frames of an episode whose images are sampled.
pub(super) fn sampled(frames: usize) -> Vec<usize> {
    const FEW: u64 = 100;
    const MOST: u64 = 10_000;
    let wanted = to_whole((frames as f64).powf(0.75)).min(MOST);
    let wanted = wanted.max(FEW.min(frames as u64));
    let step = (frames as f64 - 1.0) / (wanted as f64 - 1.0).max(1.0);
    let at = |idx: u64| to_whole((idx as f64 * step).round_ties_even());
    let at = (0..wanted)
        .map(at)
        .filter_map(|at| usize::try_from(at).ok());
    at.collect()
}

#[cfg(test)]
mod tests {
    use kino_codec::Dtype;

    use super::*;

    fn stats(values: &[f64]) -> Stats {
        let packed: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        Stats::of_numbers(&packed, &ValueType::new(Dtype::F64, &[]).unwrap()).unwrap()
    }

    fn close(a: &Stats, b: &Stats) {
        assert_eq!((a.count, &a.shape), (b.count, &b.shape));
        let both = a
            .kinds(Quantiles::Left)
            .into_iter()
            .zip(b.kinds(Quantiles::Left));
        for ((kind, a), (_, b)) in both {
            for (a, b) in a.iter().zip(b) {
                assert!((a - b).abs() < 1e-12, "{kind}: {a} {b}");
            }
        }
    }

    #[test]
    fn merged_episodes_equal_one_episode_of_all_values() {
        let values: Vec<f64> = (0..97_i32)
            .map(|idx| f64::from(idx * idx % 31) - 7.5)
            .collect();
        let mut sum = stats(&values[..10]);
        sum.add(&stats(&values[10..33]));
        sum.add(&stats(&values[33..]));
        close(&sum, &stats(&values));
    }

    #[test]
    fn a_quantile_is_an_existing_value() {
        let values: Vec<f64> = (1..=200_i32).rev().map(f64::from).collect();
        let kinds = stats(&values).kinds(Quantiles::Wanted);
        let found: Vec<_> = kinds[4..]
            .iter()
            .map(|(name, values)| (*name, values[0]))
            .collect();
        let expected = [
            ("q01", 2.0),
            ("q10", 20.0),
            ("q50", 100.0),
            ("q90", 180.0),
            ("q99", 198.0),
        ];
        assert_eq!(found, expected);
        assert_eq!(stats(&[3.0]).kinds(Quantiles::Wanted)[8].1, [3.0]);
    }

    #[test]
    fn non_finite_values_are_skipped() {
        let one = stats(&[f64::NAN, 1.0, f64::INFINITY, 3.0]);
        assert_eq!(one.to_json(Quantiles::Left)["mean"], json!([2.0]));
        assert_eq!(one.count, 4);
        let ty = ValueType::new(Dtype::F64, &[]).unwrap();
        assert_eq!(Stats::of_numbers(&f64::NAN.to_le_bytes(), &ty), None);
    }

    #[test]
    fn channel_statistics_are_those_of_values_divided_by_255() {
        let pixels: Vec<u8> = (0..=254_u8).step_by(2).cycle().take(5 * 4 * 3).collect();
        let size = |height, width, channels| ImageSize {
            height,
            width,
            channels,
        };
        let mut channels = Channels::new();
        channels.add(&pixels, size(5, 4, 3));
        let found = channels.finish().unwrap();
        assert_eq!((found.count, found.shape.as_slice()), (1, &[3, 1, 1][..]));
        for channel in 0..3 {
            let values = pixels[channel..].iter().step_by(3);
            let mut values: Vec<_> = values.map(|&value| f64::from(value) / 255.0).collect();
            values.sort_by(f64::total_cmp);
            let naive = Element::of_sorted(&values).unwrap();
            let found = found.elements[channel];
            assert!((found.mean - naive.mean).abs() < 1e-12);
            assert!((found.std - naive.std).abs() < 1e-12);
            assert_eq!((found.min, found.max), (naive.min, naive.max));
            assert_eq!(found.quantiles, naive.quantiles);
        }
        let mut grey = Channels::new();
        grey.add(&[7, 9], size(1, 2, 1));
        assert_eq!(grey.counts[0], grey.counts[2]);
        assert!(Channels::new().finish().is_none());
    }

    #[test]
    fn images_are_sampled_like_numpy() {
        assert_eq!(sampled(1), [0]);
        assert_eq!(sampled(7), [0, 1, 2, 3, 4, 5, 6]);
        // np.round(np.linspace(0, 149, 100)).astype(int)
        let found = sampled(150);
        assert_eq!((found.len(), &found[..5]), (100, &[0, 2, 3, 5, 6][..]));
        assert_eq!(found[99], 149);
        let found = sampled(1000);
        assert_eq!((found.len(), found[1], found[176]), (177, 6, 999));
        assert_eq!((pixel_step(299, 200), pixel_step(480, 640)), (1, 4));
    }
}
