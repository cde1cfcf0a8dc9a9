//! Which frames of an episode are decoded ahead: those of the samples that this rank takes.
//!
//! ```text
//! episode   | 0 1 2 3 4 5 6 7 8 9 … |      in groups that are dealt in parts, rank 0 takes the samples 0 to 4 and rank 1 the rest
//! rank 1            4 5 6 7 8 9 …          of windows of two frames: the run, and the frame before it
//! ```
//!
//! Frames that are not decoded ahead are decoded when a sample needs them. In a global shuffle, where a rank takes samples
//! anywhere in an episode, that is all of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use kino_dataset::{EpisodeSamples, Fit, Result, SampleFrames};

use super::collate::frames_of;
use super::episodes::key_of;
use super::frame_cache::EpisodeKey;
use super::scheduler::Scheduler;
use super::shared::Shared;
use crate::order::{Own, Rank, SampleRef};

/// Frames of the streams of an episode, by position of the stream that stores them, and fit.
#[derive(Debug, Default)]
pub(super) enum Ahead {
    /// All of them.
    #[default]
    All,
    /// Those of some samples that follow each other.
    Run(BTreeMap<(usize, Fit), Range<u32>>),
    /// None.
    Nothing,
}

impl Ahead {
    /// For the samples of an episode that a rank takes. `requested` are the windows whose frames are wanted.
    pub(super) fn of(
        own: &Own,
        episode: &EpisodeSamples,
        requested: &[usize],
        fits: &Arc<[Fit]>,
    ) -> Result<Self> {
        let run = match own {
            Own::All => return Ok(Self::All),
            Own::Scattered => return Ok(Self::Nothing),
            Own::Run(run) => run,
        };
        let mut ranges = BTreeMap::<_, Range<u32>>::new();
        let mut add = |position, fit, range: Range<u32>| {
            let known = ranges.entry((position, fit)).or_insert(range.clone());
            *known = known.start.min(range.start)..known.end.max(range.end);
        };
        // Windows move on with the samples, so the first and the last one bound the frames of all.
        let (mut first, mut last) = (SampleFrames::default(), SampleFrames::default());
        episode.plan(run.start, &mut first)?;
        episode.plan(run.end.saturating_sub(1).max(run.start), &mut last)?;
        for &window in requested {
            let Some(stream) = episode.stream(window) else {
                continue;
            };
            let planned = [&first, &last].into_iter();
            let planned = planned.filter_map(|plan| plan.windows.get(window));
            let frames = || planned.clone().flat_map(frames_of);
            let (Some(from), Some(to)) = (frames().min(), frames().max()) else {
                continue;
            };
            let fit = fits.get(window).copied().unwrap_or_default();
            let ((at_from, from), (at_to, to)) = (stream.place_of(from), stream.place_of(to));
            if at_from == at_to {
                add(at_from, fit, from..to.saturating_add(1));
            } else {
                // Frames that it shares with another stream come first.
                add(at_from, fit, from..u32::MAX);
                add(at_to, fit, 0..to.saturating_add(1));
            }
        }
        Ok(Self::Run(ranges))
    }

    /// Whether some of these frames of a stored stream are among them.
    pub(super) fn has(&self, stream: (usize, Fit), frames: &Range<u32>) -> bool {
        match self {
            Self::All => true,
            Self::Nothing => false,
            Self::Run(ranges) => ranges
                .get(&stream)
                .is_some_and(|range| range.start < frames.end && frames.start < range.end),
        }
    }
}

impl Scheduler {
    /// Notes which samples this rank takes of the episodes that come into view with a batch.
    pub(super) fn find_runs(&mut self, shared: &Shared, first: u64, samples: &[SampleRef]) {
        if !self.order.is_shared(self.world) {
            return;
        }
        let cache = shared.cache();
        let indices = (first..).zip(samples);
        let unseen = indices.map(|(index, sample)| (index, key_of(sample)));
        let unseen: Vec<_> = unseen.filter(|(_, key)| !cache.has(*key)).collect();
        drop(cache);
        let rank = Rank::new(self.rank, self.world);
        for (index, key) in unseen {
            match self.reader.own(index, rank) {
                Own::Run(run) => self.runs.insert(key, run),
                Own::All | Own::Scattered => self.runs.remove(&key),
            };
        }
    }

    /// The samples of an episode that this rank takes, as far as is known.
    pub(super) fn own(&self, key: EpisodeKey) -> Own {
        // A rank that takes a whole episode takes all of its samples.
        if self.whole.is_some() {
            return Own::All;
        }
        if self.order.is_scattered(key.source, self.world) {
            return Own::Scattered;
        }
        let run = self.runs.get(&key).cloned();
        run.map_or(Own::All, Own::Run)
    }
}
