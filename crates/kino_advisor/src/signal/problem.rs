//! The regression: features and targets of one arm, and how well each arm's fit predicts raw and compressed frames.
//!
//! ```text
//! columns   1 │ vectors, and random features of them │ images
//! scales    those of the raw frames, for every arm
//! ```

use std::ops::Range;

use super::arms::{ArmErrors, REGIONS, RawErrors};
use super::columns::{Column, ImageScale, Mixing, columns};
use super::encoder::Encoder;
use super::gather::Lane;
use super::layout::Role;
use super::random::Random;
use super::ridge::{Folds, Rows, ranges, squared_errors, to_f32};
use super::threads::map;

/// Random features of all vectors together, at most.
const MIXED: usize = 128;

/// Penalties relative to the number of rows.
const VECTOR_PENALTIES: [f64; 6] = [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0];
const IMAGE_PENALTIES: [f64; 7] = [1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0];

/// The targets that one stream gives.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) stream: String,
    columns: Range<usize>,
}

/// What is the same for all arms.
#[derive(Debug)]
pub(super) struct Problem<'a> {
    /// What was gathered of each stream: its codecs cannot be shared between threads.
    lanes: Vec<Data<'a>>,
    pub(super) folds: &'a [Range<usize>],
    near: &'a [bool],
    pub(super) seeds: usize,
    pub(super) groups: Vec<Group>,
    /// Per column of all vectors, and of all targets, that varies: lane, use, column, mean, 1 / standard deviation.
    vectors: Vec<Column>,
    targets: Vec<Column>,
    random_seed: u64,
}

/// What was gathered of a stream.
#[derive(Debug)]
struct Data<'a> {
    is_camera: bool,
    /// Features of an image, per seed.
    width: Option<usize>,
    /// Rows per version and use.
    tables: &'a [Vec<Rows>],
}

/// Which version of each lane an arm has: 0 is raw.
pub(super) type Versions = Vec<usize>;

/// Everything about one seed that all arms need.
#[derive(Debug)]
pub(super) struct Seed {
    number: usize,
    x: Rows,
    y: Rows,
    /// Of each target.
    ranges: Vec<[f32; 2]>,
    scales: Vec<Option<ImageScale>>,
    /// One row per vector column, one column per random feature; then its offsets and means.
    mixing: Mixing,
    /// The weights that raw frames teach, by fold left out.
    weights: Vec<Vec<f64>>,
}

impl<'a> Problem<'a> {
    pub(super) fn of(
        lanes: &'a [Lane],
        folds: &'a [Range<usize>],
        near: &'a [bool],
        (seeds, random_seed): (usize, u64),
    ) -> Self {
        let data = |lane: &'a Lane| Data {
            is_camera: lane.source.is_camera(),
            width: lane.encoder.as_ref().map(Encoder::width),
            tables: &lane.tables,
        };
        let mut found = Self {
            lanes: lanes.iter().map(data).collect(),
            folds,
            near,
            seeds,
            groups: Vec::new(),
            vectors: Vec::new(),
            targets: Vec::new(),
            random_seed,
        };
        for (lane, source) in lanes.iter().enumerate() {
            for (one, used) in source.source.uses.iter().enumerate() {
                let columns = columns(lane, one, &source.tables[0][one]);
                match used.role {
                    Role::Camera => {}
                    Role::Vector => found.vectors.extend(columns),
                    Role::Target => {
                        let start = found.targets.len();
                        found.targets.extend(columns);
                        let columns = start..found.targets.len();
                        let stream = source.source.name.clone();
                        found.groups.push(Group { stream, columns });
                    }
                }
            }
        }
        found.groups.retain(|group| !group.columns.is_empty());
        found
    }

    /// Whether a lane is an image.
    pub(super) fn is_camera(&self, lane: usize) -> bool {
        self.lanes[lane].is_camera
    }

    /// Whether there are images.
    pub(super) fn has_images(&self) -> bool {
        self.lanes.iter().any(|lane| lane.is_camera)
    }

    /// Whether there are vectors beside the images.
    pub(super) fn has_vectors(&self) -> bool {
        !self.vectors.is_empty()
    }

    pub(super) fn rows(&self) -> usize {
        self.near.len()
    }

    /// Columns of the features.
    pub(super) fn width(&self) -> usize {
        let images: usize = self.lanes.iter().filter_map(|lane| lane.width).sum();
        1 + self.vectors.len() + self.mixed() + images
    }

    fn mixed(&self) -> usize {
        MIXED.min(8 * self.vectors.len())
    }

    fn vector_width(&self) -> usize {
        1 + self.vectors.len() + self.mixed()
    }

    fn value(&self, column: &Column, versions: &[usize], row: usize) -> f64 {
        let table = &self.lanes[column.lane].tables[versions[column.lane]][column.one];
        let value = f64::from(table.values[row * table.cols + column.column]);
        column.scaled(value)
    }

    fn targets(&self, versions: &[usize]) -> Rows {
        let row = |row| {
            self.targets
                .iter()
                .map(move |column| to_f32(self.value(column, versions, row)))
        };
        Rows {
            cols: self.targets.len(),
            values: (0..self.rows()).flat_map(row).collect(),
        }
    }

    fn features(
        &self,
        versions: &[usize],
        (number, scales, mixing): (usize, &[Option<ImageScale>], &Mixing),
    ) -> Rows {
        let cols = self.width();
        let mut values = Vec::with_capacity(self.rows() * cols);
        for row in 0..self.rows() {
            values.push(1.0);
            let own: Vec<f64> = self
                .vectors
                .iter()
                .map(|column| self.value(column, versions, row))
                .collect();
            values.extend(own.iter().map(|value| to_f32(*value)));
            let mixed = mixing.of(&own);
            values.extend(
                mixed
                    .iter()
                    .zip(&mixing.means)
                    .map(|(value, mean)| to_f32(value - mean)),
            );
            for (lane, scale) in scales.iter().enumerate() {
                let Some(scale) = scale else { continue };
                let table = &self.lanes[lane].tables[versions[lane]][0];
                let width = table.cols / self.seeds;
                let start = row * table.cols + number * width;
                let image = &table.values[start..start + width];
                values.extend(
                    image
                        .iter()
                        .zip(&scale.means)
                        .map(|(value, mean)| (value - mean) * scale.scale),
                );
            }
        }
        Rows { cols, values }
    }

    /// Fits what raw frames teach; the errors of a seed are added to `errors`.
    pub(super) fn seed(
        &self,
        number: usize,
        penalties: &mut Vec<Vec<f64>>,
        errors: &mut RawErrors,
    ) -> Seed {
        let raw = vec![0; self.lanes.len()];
        let scales: Vec<_> = self
            .lanes
            .iter()
            .map(|lane| Some(ImageScale::of(&lane.tables[0][0], lane.width?, number)))
            .collect();
        let mixing = self.mixing(number);
        let x = self.features(&raw, (number, &scales, &mixing));
        let y = self.targets(&raw);
        let ranges = ranges(&y);
        let truth = (&y, &ranges[..]);
        let folds = Folds::of(&x, &y, self.folds);
        let base = x.first_cols(self.vector_width());
        let base_folds = Folds::of(&base, &y, self.folds);
        if penalties.is_empty() {
            *penalties = map(self.folds.len(), |fold| {
                self.penalties((&x, &folds), (&base, &base_folds), truth, fold)
            });
        }
        let vectors = self.vector_width();
        let found = map(self.folds.len(), |fold| {
            let rows = &self.folds[fold];
            let alone = base_folds.fit(&[fold], &penalties[fold][..vectors]);
            let weights = folds.fit(&[fold], &penalties[fold]);
            let constant = base_folds.constant(fold);
            let full = self.reduce(&squared_errors(&x, truth, rows, &weights), rows);
            let of_base =
                |weights: &[f64]| self.reduce(&squared_errors(&base, truth, rows, weights), rows);
            (full, of_base(&alone), of_base(&constant), weights)
        });
        let mut weights = Vec::new();
        let [mut full, mut alone, mut constant] = [const { Vec::new() }; 3];
        for (one, two, three, fitted) in found {
            full.push(one);
            alone.push(two);
            constant.push(three);
            weights.push(fitted);
        }
        errors.full.push(full);
        errors.vectors.push(alone);
        errors.constant.push(constant);
        Seed {
            number,
            x,
            y,
            ranges,
            scales,
            mixing,
            weights,
        }
    }

    /// Adds the errors of an arm, for one seed.
    pub(super) fn arm(
        &self,
        seed: &Seed,
        versions: &[usize],
        penalties: &[Vec<f64>],
        errors: &mut ArmErrors,
    ) {
        let x = self.features(versions, (seed.number, &seed.scales, &seed.mixing));
        let y = self.targets(versions);
        let folds = Folds::of(&x, &y, self.folds);
        let found = map(self.folds.len(), |fold| {
            let rows = &self.folds[fold];
            let weights = folds.fit(&[fold], &penalties[fold]);
            let of = |x: &Rows, y: &Rows, weights: &[f64]| {
                self.reduce(&squared_errors(x, (y, &seed.ranges), rows, weights), rows)
            };
            (
                of(&seed.x, &seed.y, &weights),
                of(&x, &y, &weights),
                of(&x, &y, &seed.weights[fold]),
            )
        });
        let [mut total, mut information, mut mismatch] = [const { Vec::new() }; 3];
        for (one, two, three) in found {
            total.push(one);
            information.push(two);
            mismatch.push(three);
        }
        errors.total.push(total);
        errors.information.push(information);
        errors.mismatch.push(mismatch);
    }

    /// Penalties for a fold, chosen on the next one: first of the vectors alone, then of the images beside them.
    fn penalties(
        &self,
        (x, folds): (&Rows, &Folds),
        (base, base_folds): (&Rows, &Folds),
        truth: (&Rows, &[[f32; 2]]),
        fold: usize,
    ) -> Vec<f64> {
        let inner = (fold + 1) % self.folds.len();
        let vectors = self.vector_width();
        let rows = self.rows() as f64;
        let loss = |x: &Rows, folds: &Folds, penalties: &[f64]| {
            let weights = folds.fit(&[fold, inner], penalties);
            let errors = squared_errors(x, truth, &self.folds[inner], &weights);
            errors.iter().map(|error| f64::from(*error)).sum::<f64>()
        };
        let with = |penalty: f64| {
            let mut all = vec![penalty * rows; vectors];
            all[0] = 0.0;
            all
        };
        let chosen = least(&VECTOR_PENALTIES, |penalty| {
            loss(base, base_folds, &with(penalty))
        });
        let chosen = with(chosen);
        if x.cols == vectors {
            return chosen;
        }
        let beside = |penalty: f64| {
            let mut all = chosen.clone();
            all.resize(x.cols, penalty * rows);
            all
        };
        let penalty = least(&IMAGE_PENALTIES, |penalty| loss(x, folds, &beside(penalty)));
        beside(penalty)
    }

    /// The mean of squared errors by group of targets and region.
    fn reduce(&self, errors: &[f32], rows: &Range<usize>) -> Vec<[f64; REGIONS]> {
        let cols = self.targets.len().max(1);
        let of_group = |group: &Group| {
            let mut sums = [[0.0; 2]; REGIONS];
            for (errors, near) in errors.chunks_exact(cols).zip(&self.near[rows.clone()]) {
                let own = &errors[group.columns.clone()];
                let mean =
                    own.iter().map(|error| f64::from(*error)).sum::<f64>() / own.len() as f64;
                for region in [0, if *near { 1 } else { 2 }] {
                    sums[region][0] += mean;
                    sums[region][1] += 1.0;
                }
            }
            sums.map(|[sum, count]| if count > 0.0 { sum / count } else { f64::NAN })
        };
        self.groups.iter().map(of_group).collect()
    }

    fn mixing(&self, number: usize) -> Mixing {
        let mut random = Random::new(self.random_seed ^ (0x6d69_7869_6e67 + number as u64));
        let (inputs, outputs) = (self.vectors.len(), self.mixed());
        let spread = 1.0 / (inputs.max(1) as f64).sqrt();
        let mut found = Mixing {
            weights: (0..inputs * outputs)
                .map(|_| spread * random.normal())
                .collect(),
            offsets: (0..outputs).map(|_| random.normal()).collect(),
            means: vec![0.0; outputs],
        };
        let raw = vec![0; self.lanes.len()];
        let mut sums = vec![0.0; outputs];
        for row in 0..self.rows() {
            let own: Vec<f64> = self
                .vectors
                .iter()
                .map(|column| self.value(column, &raw, row))
                .collect();
            let mixed = found.of(&own);
            sums.iter_mut()
                .zip(&mixed)
                .for_each(|(sum, value)| *sum += value);
        }
        found.means = sums
            .iter()
            .map(|sum| sum / self.rows().max(1) as f64)
            .collect();
        found
    }
}

fn least(penalties: &[f64], loss: impl Fn(f64) -> f64) -> f64 {
    let losses = penalties.iter().map(|penalty| (*penalty, loss(*penalty)));
    let best = losses.min_by(|a, b| a.1.total_cmp(&b.1));
    best.map_or(1.0, |(penalty, _)| penalty)
}
