//! What training frames look like, and how much they differ among themselves.
//!
//! ```text
//! figure of every frame looked at ──▶ mean, std ──▶ limit: how far the frames of one episode lie from the others', at most
//!                                                   in standard deviations, plus a margin
//! ```
//!
//! A live frame is unusual if it is further away than every training frame is from the other episodes. The limit is
//! therefore wide where recordings vary, and narrow in a simulator where they do not; no threshold is guessed. Of few episodes,
//! it is wider: they do not show how much others would vary. The mean of live frames is compared with it, which varies less
//! than single frames do: false alarms are rare.

use std::collections::BTreeMap;

use kino_codec::ValueType;
use kino_dataset::{Appearance, Dataset, Figure, JpegSeen, JpegTrace};
use serde::{Deserialize, Serialize};

use super::how_stored::spread;
use super::parity::Parity;
use crate::error::{Result, invalid};

/// Episodes that are looked at.
const EPISODES: usize = 64;

/// Frames of each.
const FRAMES: usize = 8;

/// With fewer episodes, more frames of each are looked at, up to this many in all.
const LEAST_FRAMES: usize = 64;

/// No difference below so many standard deviations is unusual, however alike training frames are.
const LEAST_LIMIT: f64 = 3.0;

/// How much further away than any training frame a live frame must be.
const MARGIN: f64 = 1.15;

/// Steps fit as well as this only if they are those of a JPEG file.
const FIT: f64 = 0.3;

/// And as surely.
const SIGMAS: f64 = 8.0;

/// Which frames are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrainingData<'d> {
    /// The episodes, by row; every one if `None`. Of many, some.
    pub rows: Option<&'d [usize]>,
}

/// What the training frames of all cameras look like.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reference {
    /// By stream.
    pub streams: BTreeMap<String, StreamReference>,
}

/// What the training frames of one camera look like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamReference {
    /// Frames that were looked at.
    pub frames: usize,
    /// Episodes they are from.
    pub episodes: usize,
    /// The spread of each figure.
    pub figures: BTreeMap<Figure, Spread>,
    /// Red minus blue in each cell of a 4 × 4 grid: mean and standard deviation; empty for grey images.
    pub red_blue: Vec<(f64, f64)>,
    /// How far the colors of a frame are from these at most, with the margin.
    pub red_blue_limit: f64,
    /// The fewest and most black rows or columns at the top, bottom, left and right.
    pub borders: [(usize, usize); 4],
    /// The largest value.
    pub max: u8,
    /// The JPEG quality whose traces fit the frames best, of an episode in the middle; `None` if there are too few details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jpeg: Option<JpegSeen>,
    /// The best fit in any episode.
    pub jpeg_fit: f64,
}

/// How a figure varies over training frames.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Its mean.
    pub mean: f64,
    /// Its standard deviation, and at least what rounding may cause.
    pub std: f64,
    /// What is unusual: more standard deviations than this.
    pub limit: f64,
}

/// The limit for frames that were at most so many standard deviations from those of other episodes.
///
/// The spread of few episodes is known badly; the factor is close to that of Student's quantiles to normal ones, at 1 in 1000.
fn limit(most: f64, episodes: usize) -> f64 {
    let few = 1.0 + 3.0 / (episodes.max(2) - 1) as f64;
    few * (MARGIN * most).max(LEAST_LIMIT)
}

/// Whether the traces are those of a JPEG file.
pub(super) fn is_jpeg(seen: Option<JpegSeen>) -> Option<JpegSeen> {
    seen.filter(|seen| seen.fit > FIT && seen.sigmas > SIGMAS)
}

impl Parity {
    /// Looks at training frames of every camera, so that live frames can be compared with them without the dataset.
    pub fn look_at(&mut self, dataset: &Dataset, data: TrainingData<'_>) -> Result<()> {
        let mut reference = Reference::default();
        for key in &self.keys {
            let ty = key.stored.value_type()?;
            if Appearance::of(&vec![0; ty.frame_bytes()], &ty).is_none() {
                continue;
            }
            let name = &key.stored.stream;
            if let Some(found) = StreamReference::of(dataset, name, data, &ty)? {
                reference.streams.insert(name.clone(), found);
            }
        }
        self.reference = Some(reference);
        Ok(())
    }
}

impl StreamReference {
    /// Looks at frames of a stream; `None` if no episode has any.
    fn of(
        dataset: &Dataset,
        name: &str,
        data: TrainingData<'_>,
        ty: &ValueType,
    ) -> Result<Option<Self>> {
        let all: Vec<usize> = (0..dataset.len()).collect();
        let rows = data.rows.unwrap_or(&all);
        let mut episodes = Vec::new();
        let mut traces = Vec::new();
        let frames = FRAMES.max(LEAST_FRAMES.div_ceil(rows.len().max(1)));
        for place in spread(rows.len(), EPISODES) {
            let episode = dataset.episode(rows[place])?;
            if episode.streams().all(|stream| stream.name != name) {
                continue;
            }
            let stream = episode.stream(name)?;
            let mut trace = JpegTrace::default();
            let mut seen = Vec::new();
            let count = stream.len().min(frames);
            for number in 0..count {
                let frame = (2 * number + 1) * stream.len() / (2 * count);
                let pixels = stream.read(frame..frame + 1)?;
                trace.add(&pixels, ty);
                seen.extend(Appearance::of(&pixels, ty));
            }
            traces.extend(trace.find());
            if !seen.is_empty() {
                episodes.push(seen);
            }
        }
        Ok(Self::from_frames(&episodes, traces))
    }

    fn from_frames(episodes: &[Vec<Appearance>], mut traces: Vec<JpegSeen>) -> Option<Self> {
        let looked_at = episodes.len();
        let groups = quarters(episodes);
        let frames = || groups.iter().copied().flatten();
        frames().next()?;
        let figures = Figure::ALL.into_iter().filter_map(|figure| {
            let values: Vec<Vec<f64>> = groups
                .iter()
                .map(|group| group.iter().filter_map(|one| one.figure(figure)).collect())
                .collect();
            let spread = Spread::of(&values, figure.resolution(), looked_at);
            spread.map(|spread| (figure, spread))
        });
        let red_blue = cells(frames());
        let distances = groups.iter().enumerate().flat_map(|(number, group)| {
            let others = groups
                .iter()
                .enumerate()
                .filter(move |(other, _)| *other != number);
            let cells = cells(others.flat_map(|(_, group)| *group));
            group
                .iter()
                .map(move |one| distance(&one.red_blue, &cells, 1.0))
        });
        let most = distances.fold(0.0, f64::max);
        traces.sort_by(|a, b| a.fit.total_cmp(&b.fit));
        Some(Self {
            frames: frames().count(),
            episodes: looked_at,
            figures: figures.collect(),
            // Swapped colors must also be much nearer, so few episodes are evidence enough.
            red_blue_limit: (MARGIN * most).max(LEAST_LIMIT),
            red_blue,
            borders: std::array::from_fn(|side| {
                let borders = || frames().map(|one| one.borders[side]);
                (
                    borders().min().unwrap_or_default(),
                    borders().max().unwrap_or_default(),
                )
            }),
            max: frames().map(|one| one.max).max().unwrap_or_default(),
            jpeg: traces.get(traces.len() / 2).copied(),
            jpeg_fit: traces.last().map_or(0.0, |seen| seen.fit),
        })
    }

    /// Whether a reference that may come from a file can be compared with.
    pub(super) fn check(&self) -> Result<()> {
        let spreads = self.figures.values();
        let are_finite = spreads
            .flat_map(|one| [one.mean, one.std, one.limit])
            .chain(self.red_blue.iter().flat_map(|&(mean, std)| [mean, std]))
            .all(f64::is_finite);
        if are_finite && self.figures.values().all(|one| one.std > 0.0) {
            return Ok(());
        }
        Err(invalid(
            "the reference in the parity file is damaged; write it again with `ds.parity().save(path)`",
        ))
    }
}

/// The episodes; of fewer than four, their quarters, so that there is something to compare with.
fn quarters(episodes: &[Vec<Appearance>]) -> Vec<&[Appearance]> {
    if episodes.len() >= 4 {
        return episodes.iter().map(Vec::as_slice).collect();
    }
    let quarter = |frames: &'_ Vec<Appearance>| frames.len().div_ceil(4).max(1);
    episodes
        .iter()
        .flat_map(|frames| frames.chunks(quarter(frames)))
        .collect()
}

impl Spread {
    /// Of values by group, which are from so many episodes; `None` if there are none.
    pub(super) fn of(groups: &[Vec<f64>], resolution: f64, episodes: usize) -> Option<Self> {
        let all: Vec<f64> = groups.iter().flatten().copied().collect();
        let (mean, std) = mean_and_std(all.iter().copied())?;
        let mut most = 0.0_f64;
        for (number, group) in groups.iter().enumerate() {
            let others = groups
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != number);
            let others = others.flat_map(|(_, values)| values.iter().copied());
            let Some((mean, std)) = mean_and_std(others) else {
                continue;
            };
            let away = |value: &f64| (value - mean).abs() / std.max(resolution);
            most = group.iter().map(away).fold(most, f64::max);
        }
        Some(Self {
            mean,
            std: std.max(resolution),
            limit: limit(most, episodes),
        })
    }

    /// How many standard deviations a value is away.
    pub fn away(&self, value: f64) -> f64 {
        (value - self.mean).abs() / self.std
    }

    /// Whether that is unusual.
    pub fn is_unusual(&self, value: f64) -> bool {
        self.away(value) > self.limit
    }
}

fn mean_and_std(values: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    let count = values.clone().count() as f64;
    if count == 0.0 {
        return None;
    }
    let mean = values.clone().sum::<f64>() / count;
    let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
    Some((mean, (squares / (count - 1.0).max(1.0)).sqrt()))
}

/// Mean and standard deviation of each cell.
fn cells<'a>(frames: impl Iterator<Item = &'a Appearance> + Clone) -> Vec<(f64, f64)> {
    let count = frames.clone().next().map_or(0, |one| one.red_blue.len());
    let cell = |number: usize| {
        let values = frames
            .clone()
            .filter_map(move |one| one.red_blue.get(number).copied());
        // One grey level is rounding.
        mean_and_std(values).map(|(mean, std)| (mean, std.max(1.0)))
    };
    (0..count).filter_map(cell).collect()
}

/// How far colors are from their means, in standard deviations; with a sign of −1, those of swapped channels.
pub(super) fn distance(red_blue: &[f64], cells: &[(f64, f64)], sign: f64) -> f64 {
    let squares = red_blue
        .iter()
        .zip(cells)
        .map(|(value, (mean, std))| ((sign * value - mean) / std).powi(2));
    (squares.sum::<f64>() / cells.len().max(1) as f64).sqrt()
}
