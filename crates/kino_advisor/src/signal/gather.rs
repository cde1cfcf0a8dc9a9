//! Frames of a sample of episodes, raw and through every codec, as features and targets.
//!
//! ```text
//! episode ──▶ runs of consecutive frames ──▶ raw ─────────┬─▶ at the anchors ─▶ resized ─▶ features
//!                                            each variant ─┘
//! ```
//!
//! One run of one camera is in memory at a time; what stays are the features, in rows that are sorted by fold.

use std::ops::Range;
use std::time::Instant;

use kino_dataset::{Episode, Resize, ResizeScratch, Stream, to_numbers};

use super::ProbeHost;
use super::encoder::Encoder;
use super::layout::{Role, Source, Use};
use super::losses::{Run, Variant};
use super::moments::near;
use super::ridge::{Rows, to_f32};
use crate::error::{Result, invalid};
use kino_dataset::EventRule;

/// A run of a camera holds about this many bytes, and at most so many frames.
const RUN_BYTES: usize = 32 << 20;
const RUN_FRAMES: usize = 256;

/// A source, what its frames become, and how images become features.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) source: Source,
    pub(super) variants: Vec<Variant>,
    pub(super) encoder: Option<Encoder>,
    /// Rows per version (raw, then the variants) and use.
    pub(super) tables: Vec<Vec<Rows>>,
}

/// What is known about every row.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) folds: Vec<Range<usize>>,
    pub(super) near: Vec<bool>,
    pub(super) episodes: usize,
    /// Seconds that the codecs and reading took, and those that features took.
    pub(super) run_s: f64,
    pub(super) feature_s: f64,
}

/// The anchors of an episode, and their times.
pub(super) fn anchors_of(episode: &Episode, anchor: &str, most: usize) -> Result<Vec<usize>> {
    let stream = episode.stream(anchor)?;
    let count = most.min(stream.len());
    Ok((0..count)
        .map(|idx| idx * stream.len() / count.max(1))
        .collect())
}

/// Whether an episode has a frame of everything.
pub(super) fn is_complete(episode: &Episode, sources: &[Source]) -> bool {
    sources.iter().all(|source| {
        episode.stream(&source.name).is_ok_and(|stream| {
            !stream.is_empty() && stream.frame_type().as_values() == Some(&source.ty)
        })
    })
}

impl Gathered {
    /// Adds the rows of an episode.
    pub(super) fn add(
        &mut self,
        (episode, anchors): (&Episode, &[usize]),
        lanes: &mut [Lane],
        (anchor, rules): (usize, &[EventRule]),
        host: &mut dyn ProbeHost,
    ) -> Result<()> {
        let stream = episode.stream(&lanes[anchor].source.name)?;
        let all = stream.times_ns(0..stream.len())?;
        let times: Vec<i64> = anchors
            .iter()
            .filter_map(|idx| all.get(*idx).copied())
            .collect();
        self.near.extend(near(episode, rules, &times)?);
        for lane in lanes {
            let stream = episode.stream(&lane.source.name)?;
            let clock = stream.times_ns(0..stream.len())?;
            // The frame that is there at the anchor: the last one before it, or the first of all.
            let at = |time: &i64| clock.partition_point(|one| one <= time).saturating_sub(1);
            let places: Vec<usize> = times.iter().map(at).collect();
            // Per variant, which frames stay as they are.
            let exact = lane.variants.iter().map(|variant| match &variant.exact {
                Some(exact) => exact.frames(episode, &clock),
                None => Ok(Vec::new()),
            });
            let exact = exact.collect::<Result<Vec<_>>>()?;
            if lane.source.is_camera() {
                self.add_images((episode.id(), &exact), &stream, lane, (&places, host))?;
            } else {
                lane.add_values((episode.id(), &exact), &stream, &places, host)?;
            }
        }
        self.episodes += 1;
        Ok(())
    }

    fn add_images(
        &mut self,
        (episode, exact): (&str, &[Vec<bool>]),
        stream: &Stream,
        lane: &mut Lane,
        (places, host): (&[usize], &mut dyn ProbeHost),
    ) -> Result<()> {
        let size = lane.source.ty.frame_bytes().max(1);
        let run_frames = (RUN_BYTES / size).clamp(1, RUN_FRAMES);
        for first in (0..stream.len()).step_by(run_frames) {
            let end = stream.len().min(first + run_frames);
            let inside: Vec<usize> = places
                .iter()
                .filter(|at| (first..end).contains(at))
                .map(|at| at - first)
                .collect();
            if inside.is_empty() {
                continue;
            }
            host.look_up()?;
            let began = Instant::now();
            let frames = stream.read(first..end)?;
            self.run_s += began.elapsed().as_secs_f64();
            let used = pick(&frames, size, &inside);
            self.add_features(lane, 0, (used.clone(), lane.source.fit))?;
            for number in 0..lane.variants.len() {
                let began = Instant::now();
                let variant = &mut lane.variants[number];
                let is_single = variant.is_single();
                let exact = exact[number].get(first..end).unwrap_or_default();
                let of_used: Vec<bool> = inside
                    .iter()
                    .filter_map(|at| exact.get(*at).copied())
                    .collect();
                let run = Run {
                    episode,
                    first,
                    frames: if is_single { &used } else { &frames },
                    exact: if is_single { &of_used } else { exact },
                };
                let mut after = variant.apply(&lane.source, &run, host)?;
                if !is_single {
                    after = pick(&after, variant.ty.frame_bytes(), &inside);
                }
                let fit = variant.fit;
                self.run_s += began.elapsed().as_secs_f64();
                if after == used && variant.ty == lane.source.ty {
                    lane.repeat_raw(number + 1, inside.len());
                } else {
                    self.add_features(lane, number + 1, (after, fit))?;
                }
            }
        }
        Ok(())
    }

    fn add_features(
        &mut self,
        lane: &mut Lane,
        version: usize,
        (mut frames, fit): (Vec<u8>, Option<Resize>),
    ) -> Result<()> {
        let began = Instant::now();
        if let Some(fit) = fit {
            frames = fit
                .to_resized(&mut frames, &mut ResizeScratch::default())
                .map_err(|what| invalid(format!("stream `{}`: {what}", lane.source.name)))?;
        }
        if let Some(encoder) = &mut lane.encoder {
            let table = &mut lane.tables[version][0];
            encoder.add(&lane.source.name, &frames, table)?;
        }
        self.feature_s += began.elapsed().as_secs_f64();
        Ok(())
    }
}

/// The frames at these places of a run.
fn pick(frames: &[u8], size: usize, places: &[usize]) -> Vec<u8> {
    let mut out = Vec::with_capacity(places.len() * size);
    places
        .iter()
        .for_each(|at| out.extend_from_slice(&frames[at * size..(at + 1) * size]));
    out
}

impl Lane {
    pub(super) fn new(
        source: Source,
        variants: Vec<Variant>,
        encoder: Option<Encoder>,
        seeds: usize,
    ) -> Self {
        let cols = |one: &Use| match (&encoder, one.role) {
            (Some(encoder), Role::Camera) => seeds * encoder.width(),
            _ => one.elements.len() * one.steps.len(),
        };
        let empty = |one: &Use| Rows {
            cols: cols(one),
            values: Vec::new(),
        };
        let row: Vec<Rows> = source.uses.iter().map(empty).collect();
        Self {
            tables: vec![row; 1 + variants.len()],
            source,
            variants,
            encoder,
        }
    }

    /// Forgets all rows.
    pub(super) fn clear(&mut self) {
        self.tables
            .iter_mut()
            .flatten()
            .for_each(|rows| rows.values.clear());
        for variant in &mut self.variants {
            variant.is_identical = true;
            (variant.bytes, variant.frames) = (0, 0);
        }
    }

    /// The last rows of raw images again, for frames that came back as they were.
    fn repeat_raw(&mut self, version: usize, rows: usize) {
        if let [raw, variants @ ..] = &mut self.tables[..] {
            let values = &raw[0].values;
            let last = &values[values.len() - rows * raw[0].cols..];
            variants[version - 1][0].values.extend_from_slice(last);
        }
    }

    fn add_values(
        &mut self,
        (episode, exact): (&str, &[Vec<bool>]),
        stream: &Stream,
        places: &[usize],
        host: &mut dyn ProbeHost,
    ) -> Result<()> {
        let frames = stream.read(0..stream.len())?;
        let elements = self.source.ty.elements();
        let raw = to_numbers(&self.source.ty, &frames);
        self.push_values(0, &raw, places);
        for (number, exact) in exact.iter().enumerate() {
            let run = Run {
                episode,
                first: 0,
                frames: &frames,
                exact,
            };
            let variant = &mut self.variants[number];
            let mut values = to_numbers(&self.source.ty, &variant.apply(&self.source, &run, host)?);
            variant.round(&mut values, elements);
            self.push_values(number + 1, &values, places);
        }
        Ok(())
    }

    fn push_values(&mut self, version: usize, values: &[f64], places: &[usize]) {
        let elements = self.source.ty.elements().max(1);
        let last = (values.len() / elements).saturating_sub(1);
        for (one, table) in self.source.uses.iter().zip(&mut self.tables[version]) {
            for place in places {
                let at = |step: isize, element: usize| {
                    let row = place.saturating_add_signed(step).min(last);
                    values
                        .get(row * elements + element)
                        .copied()
                        .filter(|value| value.is_finite())
                        .unwrap_or(0.0)
                };
                for step in &one.steps {
                    table.values.extend(one.elements.iter().map(|&element| {
                        let value = at(*step, element);
                        // Inputs before the anchor are given as the change since then.
                        let is_change = one.role == Role::Vector && *step < 0;
                        to_f32(if is_change {
                            at(0, element) - value
                        } else {
                            value
                        })
                    }));
                }
            }
        }
    }
}
