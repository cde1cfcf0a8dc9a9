//! A request bound to a dataset: the list of all its samples.
//!
//! ```text
//! episodes   row 4        row 0     row 9
//! counts     3            0         2
//! samples    0  1  2                3  4         locate(3) is sample 0 of row 9
//! ```
//!
//! Binding costs memory for the selected episodes only. Where every stream of the request has as many frames
//! in each episode as the table says, and no window but the anchor stream's own drops anchors, the table is
//! enough. Otherwise every selected episode is opened once, to count: its index, and explicit times where a window
//! that drops anchors needs them.

use std::sync::Arc;

use kino_codec::FrameType;
use kino_format::Kind;
use kino_storage::at_once;

use super::blend::{Blend, blend};
use super::bound::Bound;
use super::episode::EpisodeSamples;
use super::mask::Mask;
use super::opened::OpenedEpisodes;
use super::request::{Anchor, At, Pad, Request, Window};
use super::survey::survey_all;
use crate::dataset::Dataset;
use crate::episode::Episode;
use crate::error::{Result, corrupt, invalid};
use crate::selection::Selection;

/// All samples of a request in the selected episodes of a dataset. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Samples {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    dataset: Dataset,
    bound: Arc<Bound>,
    rows: Vec<u32>,
    counts: Vec<u32>,
    /// How many samples there are up to the end of each episode.
    ends: Vec<u64>,
    sizes: Vec<u64>,
    source: CountSource,
    opened: OpenedEpisodes,
}

/// Where the number of samples came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountSource {
    /// From the episode table.
    Table,
    /// From the index of every selected episode.
    Episodes,
}

/// Where a sample lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// The episode's place among the selected ones.
    pub position: usize,
    /// Its row in the table.
    pub row: usize,
    /// Which sample of the episode.
    pub sample: u32,
}

impl Samples {
    /// Binds `request` to the selected episodes; refuses what they cannot serve, with the stream, the value and
    /// what would be right.
    pub fn bind(dataset: &Dataset, request: Request, selection: &Selection) -> Result<Self> {
        let rows = selection.rows(dataset)?;
        let first = rows.first().copied().unwrap_or(0) as usize;
        let bound = Arc::new(Bound::new(dataset, request, first)?);
        let (counted, source) = match from_table(&bound, dataset, &rows) {
            Some(counted) => (counted, CountSource::Table),
            None => (survey_all(&bound, dataset, &rows)?, CountSource::Episodes),
        };
        let (counts, sizes): (Vec<u32>, Vec<u64>) = counted.into_iter().unzip();
        let ends: Vec<u64> = counts
            .iter()
            .scan(0_u64, |sum, &count| {
                *sum += u64::from(count);
                Some(*sum)
            })
            .collect();
        if ends.last().is_none_or(|&len| len == 0) {
            return Err(no_sample(&bound.request, rows.len()));
        }
        Ok(Self {
            inner: Arc::new(Inner {
                dataset: dataset.clone(),
                bound,
                rows,
                counts,
                ends,
                sizes,
                source,
                opened: OpenedEpisodes::default(),
            }),
        })
    }

    /// The same samples of the same version, which was opened in another way; nothing is counted again.
    pub fn on(&self, dataset: &Dataset) -> Result<Self> {
        if dataset.id() != self.inner.dataset.id() {
            return Err(invalid(format!(
                "these samples are of version {}, the dataset is version {}; make the samples again",
                self.inner.dataset.id(),
                dataset.id()
            )));
        }
        Ok(Self {
            inner: Arc::new(Inner {
                dataset: dataset.clone(),
                bound: Arc::clone(&self.inner.bound),
                rows: self.inner.rows.clone(),
                counts: self.inner.counts.clone(),
                ends: self.inner.ends.clone(),
                sizes: self.inner.sizes.clone(),
                source: self.inner.source,
                opened: OpenedEpisodes::default(),
            }),
        })
    }

    /// How many samples there are.
    pub fn len(&self) -> u64 {
        self.inner.ends.last().copied().unwrap_or(0)
    }

    /// Whether there are none; binding refuses that.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows of the selected episodes, in the selection's order.
    pub fn episodes(&self) -> &[u32] {
        &self.inner.rows
    }

    /// The number of samples of each selected episode.
    pub fn counts(&self) -> &[u32] {
        &self.inner.counts
    }

    /// The decoded bytes of the requested streams of each selected episode.
    ///
    /// Counted by the table, text is taken at its mean length in the dataset.
    pub fn sizes(&self) -> &[u64] {
        &self.inner.sizes
    }

    /// Whether binding had to open the episodes.
    pub fn source(&self) -> CountSource {
        self.inner.source
    }

    /// The dataset.
    pub fn dataset(&self) -> &Dataset {
        &self.inner.dataset
    }

    /// The request.
    pub fn request(&self) -> &Request {
        &self.inner.bound.request
    }

    /// The masks of every sample.
    pub fn masks(&self) -> &[Mask] {
        &self.inner.bound.masks
    }

    /// What the stream of a window is.
    pub fn kind(&self, window: usize) -> Option<Kind> {
        let known = window < self.request().windows.len();
        known.then(|| self.inner.bound.kind(window))
    }

    /// The type of the frames of a window.
    pub fn frame_type(&self, window: usize) -> Option<&FrameType> {
        let known = window < self.request().windows.len();
        known.then(|| self.inner.bound.frame(window))
    }

    /// 64 hex digits that are equal for equal samples: the hash of dataset version, request and episodes.
    pub fn id(&self) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.inner.dataset.id().as_bytes());
        hasher.update(b"\n");
        hasher.update(self.request().canonical()?.as_bytes());
        hasher.update(b"\n");
        for row in &self.inner.rows {
            hasher.update(&row.to_le_bytes());
        }
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// Where sample `index` lies.
    pub fn locate(&self, index: u64) -> Result<Located> {
        let position = self.inner.ends.partition_point(|&end| end <= index);
        let Some(&row) = self.inner.rows.get(position) else {
            let len = self.len();
            return Err(invalid(format!(
                "there is no sample {index}; there are {len}, the last is {}",
                len.saturating_sub(1)
            )));
        };
        let start = self.inner.ends[position] - u64::from(self.inner.counts[position]);
        Ok(Located {
            position,
            row: row as usize,
            sample: u32::try_from(index - start).unwrap_or(u32::MAX),
        })
    }

    /// Blends two packed frames of a window's stream as the window resolves them: the first at weight 0, the second at
    /// weight 1. A window that takes single frames gives the first.
    pub fn blend(&self, window: usize, frames: [&[u8]; 2], weight: f64, out: &mut [u8]) {
        let resolve = self
            .request()
            .windows
            .get(window)
            .map(|window| window.resolve);
        let how = resolve.and_then(Blend::of);
        match (how, self.frame_type(window)) {
            (Some(how), Some(FrameType::Values(ty))) => {
                blend(how, ty.dtype(), frames, weight, out);
            }
            _ => out.copy_from_slice(frames[0]),
        }
    }

    /// Opens the selected episode at `position`: its index, and the explicit times that the request needs.
    pub fn episode(&self, position: usize) -> Result<EpisodeSamples> {
        let episode = self.inner.dataset.episode(self.row(position)?)?;
        self.samples_of(position, episode)
    }

    /// Opens several selected episodes, in their order; those of a remote dataset together, in as many round trips as one.
    pub fn episodes_at(&self, positions: &[usize]) -> Vec<Result<EpisodeSamples>> {
        let rows: Result<Vec<usize>> = positions.iter().map(|&at| self.row(at)).collect();
        let rows = match rows {
            Ok(rows) if self.inner.dataset.is_remote() && rows.len() > 1 => rows,
            _ => return positions.iter().map(|&at| self.episode(at)).collect(),
        };
        let opened = self.inner.dataset.episodes(&rows);
        let opened: Vec<_> = positions.iter().copied().zip(opened).collect();
        // Explicit times are pages of their own.
        at_once(&opened, |(position, episode)| match episode {
            Ok(episode) => self.samples_of(*position, episode.clone()),
            // The error cannot be cloned.
            Err(_) => self.episode(*position),
        })
    }

    fn row(&self, position: usize) -> Result<usize> {
        let row = self.inner.rows.get(position).map(|&row| row as usize);
        let len = self.inner.rows.len();
        row.ok_or_else(|| {
            invalid(format!(
                "no selected episode {position}; {len} are selected"
            ))
        })
    }

    fn samples_of(&self, position: usize, episode: Episode) -> Result<EpisodeSamples> {
        let bound = Arc::clone(&self.inner.bound);
        let counted = self.inner.counts[position];
        let first = self.inner.ends[position] - u64::from(counted);
        let opened = EpisodeSamples::of(bound, episode, first)?;
        if opened.len() != counted {
            let what = format!(
                "it has {} samples, but {counted} by the episode table",
                opened.len()
            );
            return Err(corrupt(opened.episode().place("windows"), what));
        }
        Ok(opened)
    }

    /// As [`episode`](Self::episode), but an episode that was opened a short while ago is not opened again.
    pub fn opened(&self, position: usize) -> Result<Arc<EpisodeSamples>> {
        self.inner.opened.get(position, || self.episode(position))
    }
}

/// Counts and sizes by the table alone, where that is enough.
///
/// The table has the length of each episode's longest stream. So no stream is longer than that in any episode,
/// and one that is as long in sum is as long in each.
fn from_table(bound: &Bound, dataset: &Dataset, rows: &[u32]) -> Option<Vec<(u32, u64)>> {
    let table = dataset.table();
    let frames_of = |row: usize| table.frames(row).unwrap_or(0);
    let all: u128 = (0..table.len()).map(|row| u128::from(frames_of(row))).sum();
    let is_full = |stream: &super::bound::BoundStream| {
        stream.episodes == table.len() as u64 && u128::from(stream.frames) == all
    };
    if !bound.streams.iter().all(is_full) {
        return None;
    }
    // A variant has the times of its stream.
    let base_of = |name: &str| {
        let stream = bound.streams.iter().find(|stream| stream.name == name);
        let base = stream.and_then(|stream| stream.variant_of.clone());
        base.unwrap_or_else(|| name.to_owned())
    };
    let is_plain = |window: &&Window| {
        let of_anchor = matches!(
            &bound.request.anchor,
            Anchor::Stream(name) if base_of(name) == base_of(&window.stream)
        );
        of_anchor && window.latency_ns == 0 && matches!(window.at, At::Steps(_))
    };
    let mut dropping = bound.request.windows.iter().filter(|window| window.drops());
    if !dropping.all(|window| is_plain(&window)) {
        return None;
    }
    let (first, last) = dropped(&bound.request);
    let bytes = frame_bytes(bound);
    let mut counted = Vec::with_capacity(rows.len());
    for &row in rows {
        let frames = u32::try_from(frames_of(row as usize))
            .ok()
            .filter(|&frames| frames > 0)?;
        let anchors = match bound.request.anchor {
            Anchor::Stream(_) => frames,
            Anchor::Episode => 1,
            Anchor::Rate(_) | Anchor::Shared => return None,
        };
        let samples = anchors.saturating_sub(first).saturating_sub(last);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "`as` saturates; an estimate for text, exact for numbers below 2⁵³ bytes"
        )]
        let size = (f64::from(frames) * bytes).round() as u64;
        counted.push((samples, size));
    }
    Some(counted)
}

/// Anchors lost at each end by arithmetic.
fn dropped(request: &Request) -> (u32, u32) {
    let (mut first, mut last) = (request.skip_first, request.skip_last);
    for window in request.windows.iter().filter(|window| window.drops()) {
        let At::Steps(steps) = &window.at else {
            continue;
        };
        let (low, high) = (steps.iter().min().copied(), steps.iter().max().copied());
        if let Some(low @ ..0) = low.filter(|_| window.before == Pad::Drop) {
            first = first.max(low.unsigned_abs());
        }
        if let Some(high @ 1..) = high.filter(|_| window.after == Pad::Drop) {
            last = last.max(high.unsigned_abs());
        }
    }
    (first, last)
}

/// Decoded bytes per frame of all requested streams together.
#[expect(
    clippy::cast_precision_loss,
    reason = "exact for frames below 2⁵³ bytes"
)]
fn frame_bytes(bound: &Bound) -> f64 {
    let requested = bound.streams.iter().enumerate();
    let requested = requested.filter(|(idx, _)| bound.stream_of.contains(idx));
    requested
        .map(|(_, stream)| match &stream.frame {
            FrameType::Values(ty) => ty.frame_bytes() as f64,
            FrameType::Text => stream.raw_bytes as f64 / stream.frames.max(1) as f64,
        })
        .sum()
}

fn no_sample(request: &Request, episodes: usize) -> crate::error::DatasetError {
    let mut dropping = request.windows.iter().filter(|window| window.drops());
    let why = match dropping.next() {
        Some(window) => format!(
            "{} drops the anchors near the ends; use fewer offsets, or pad with `edge` or `zero`",
            window.place()
        ),
        None => format!(
            "`skip_first={}` and `skip_last={}` skip every anchor; use smaller values",
            request.skip_first, request.skip_last
        ),
    };
    invalid(format!("no sample is left in {episodes} episodes: {why}"))
}
