//! Whole episodes: which episodes each batch of a rank has, where a [`LengthOrder`] says so instead of an [`Order`](crate::Order).
//!
//! ```text
//! cursor ──LengthReader──▶ a step: S batches ──rank r of w──▶ S / w batches, numbered from 0 since the loader started
//! index of a sample = epoch · episodes + its place in the epoch's sorted list
//! ```
//!
//! The index is what augmentation draws by, and where a substitute is looked for: the same on any number of ranks, and after a
//! stop. Everything else (what stays in memory, substitutes) follows an order of the same episodes in a global shuffle.
//!
//! Samples that are longer than a maximum are cut to their first frames, when they are planned: what is cut is not
//! decoded, and no mask has it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use kino_dataset::{EpisodeSamples, Request, SampleFrames, Samples};

use crate::engine::LoaderOptions;
use crate::engine::options::{MAX_COUNT, no_windows};
use crate::error::{Result, invalid};
use crate::order::{Cursor, EpisodeBatch, LengthOrder, LengthReader, Order, SampleRef};

/// Walks along an order of whole episodes.
#[derive(Debug)]
pub(crate) struct WholeEpisodes {
    reader: LengthReader,
    cursor: Cursor,
    rank: u32,
    world: u32,
    request: Request,
    max_frames: Option<u32>,
    /// What is left of the step before the cursor.
    batches: VecDeque<EpisodeBatch>,
    /// The indices of batches by number, as far back as one may be in the making.
    ranges: BTreeMap<u64, Range<u64>>,
}

impl WholeEpisodes {
    /// From a place on; `order` is the order of the same episodes that everything else follows.
    pub(crate) fn new(
        lengths: &LengthOrder,
        order: &Order,
        windows: &[Samples],
        options: &LoaderOptions,
    ) -> Result<Self> {
        let first = windows.first().ok_or_else(no_windows)?;
        let counts: Vec<&[u32]> = order.sources().iter().map(|one| &*one.counts).collect();
        let is_same = matches!(counts[..], [counts] if counts.len() == lengths.len());
        if !is_same
            || counts
                .iter()
                .any(|counts| counts.iter().any(|&one| one != 1))
        {
            return Err(invalid(
                "batches of whole episodes need windows of one source with one sample per episode, those that the order was built from",
            ));
        }
        let mut reader = lengths.reader();
        let cursor = options.run.cursor;
        // Refuses a number of ranks that does not divide the step, before any thread starts.
        reader
            .step(cursor)?
            .rank(options.rank, options.world_size)?;
        Ok(Self {
            reader,
            cursor,
            rank: options.rank,
            world: options.world_size,
            request: first.request().clone(),
            max_frames: lengths.max_frames(),
            batches: VecDeque::new(),
            ranges: BTreeMap::new(),
        })
    }

    /// The seed of the order.
    pub(crate) fn seed(&self) -> u64 {
        self.reader.order().settings().seed
    }

    /// The samples of the next batch, which has this number; `planned` is the first that is not yet planned.
    pub(crate) fn look(&mut self, number: u64, planned: u64) -> Result<Vec<SampleRef>> {
        if self.batches.is_empty() {
            let step = self.reader.step(self.cursor)?;
            let own = step.rank(self.rank, self.world)?;
            self.batches.extend(own.iter().cloned());
            self.cursor = step.next;
        }
        let Some(batch) = self.batches.pop_front() else {
            return Err(invalid("a step has no batch for this rank"));
        };
        let end = batch.first_index + batch.episodes.len() as u64;
        self.ranges.insert(number, batch.first_index..end);
        let oldest = planned.saturating_sub(MAX_COUNT as u64);
        self.ranges = self.ranges.split_off(&oldest);
        let sample = |&episode: &u32| SampleRef {
            source: 0,
            variant: 0,
            epoch: batch.epoch,
            episode,
            sample: 0,
        };
        Ok(batch.episodes.iter().map(sample).collect())
    }

    /// The indices of a batch that was looked at.
    pub(crate) fn range(&self, number: u64) -> Result<Range<u64>> {
        let range = self.ranges.get(&number).cloned();
        range.ok_or_else(|| {
            invalid(format!(
                "batch {number} was not looked at; please report this"
            ))
        })
    }

    /// Cuts the windows of whole episodes that are too long.
    pub(crate) fn cut(&self, plan: &mut SampleFrames) {
        let Some(most) = self.max_frames else {
            return;
        };
        for (window, frames) in self.request.windows.iter().zip(&mut plan.windows) {
            if window.len().is_none() {
                frames.frames.truncate(most as usize);
                frames.other.truncate(most as usize);
                frames.state.truncate(most as usize);
            }
        }
    }

    /// The frames of an episode that samples have; `None` if they have all of its streams.
    pub(crate) fn wanted(
        &self,
        windows: &EpisodeSamples,
    ) -> kino_dataset::Result<Option<SampleFrames>> {
        if self.max_frames.is_none() {
            return Ok(None);
        }
        let mut plan = SampleFrames::default();
        windows.plan(0, &mut plan)?;
        self.cut(&mut plan);
        Ok(Some(plan))
    }
}

#[cfg(test)]
mod tests {
    use kino_dataset::{Array, Request, Selection};

    use super::*;
    use crate::engine::{Loader, Run, recording};
    use crate::order::{LengthSettings, Settings, Shuffle, Source};

    #[test]
    fn what_is_cut_stays_in_memory_and_not_in_the_first_batch_that_needs_it() {
        let (_folder, dataset) = recording::open(3);
        let request = r#"{"anchor": "episode", "windows": [{"stream": "front", "at": "all"}]}"#;
        let request: Request = serde_json::from_str(request).unwrap();
        let windows = Samples::bind(&dataset, request, &Selection::default()).unwrap();
        let settings = Settings {
            batch_size: 1,
            shuffle: Shuffle::Global,
            ..Settings::default()
        };
        let order = Order::new(Source::of(&windows).unwrap(), settings).unwrap();
        let lengths = LengthOrder::new("a", [20, 27, 34], LengthSettings::default()).unwrap();
        let options = LoaderOptions {
            run: Run {
                batches: Some(9),
                ..Run::default()
            },
            ..LoaderOptions::default()
        };
        let lengths = lengths.cut_to(Some(1));
        let all = vec![windows.clone()];
        let mut loader = Loader::start_whole(&lengths, order.clone(), all, options).unwrap();
        // Kept, so that no batch has the memory of another one, where the frame may still be.
        let mut batches = Vec::new();
        while let Some(batch) = loader.next_batch().unwrap() {
            let sample = windows.read(order.sample_index(&batch.samples()[0]));
            let sample = sample.unwrap();
            let (_, Array::Values { bytes, .. }) = &sample.fields[0] else {
                panic!("images");
            };
            assert_eq!(batch.array(0), &bytes[..9 * 7 * 3]);
            batches.push(batch);
        }
        assert_eq!(batches.len(), 9);
        assert_eq!(loader.report().frames_decoded, 3, "each is decoded once");
    }
}
