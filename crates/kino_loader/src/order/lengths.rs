//! Batches of whole episodes, of similar length or under a budget of frames.
//!
//! ```text
//! epoch       episodes in a permutation, keyed (epoch)
//! stretches   | spread episodes            | spread episodes            | …     each sorted by length
//! batches     | b0 | b1 |  b2  |   b3   | b4 | b5 |  b6  |   b7   | …           cut from the sorted stretches
//! steps       head |   block 0    |   block 1    | … | rest                     S batches each, blocks permuted
//! ```
//!
//! A step is S batches, one or more for every rank; because they are neighbours in a sorted stretch, ranks
//! wait little for each other. How many batches an epoch has depends on the permutation, so an epoch seldom ends with
//! a step. Under `wrap` the end of an epoch and the head of the next are one step: the place in the order is a
//! [`Cursor`], and the head's length is the cursor's remainder modulo S, so no history is needed to go on.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::keys::{Key, Purpose};
use super::length_settings::{Batching, LengthSettings, frames_of};
use super::permute::Permutation;
use super::settings::{LastBatch, nearest_divisors};
use crate::error::{Result, invalid};

/// The last epoch.
const MAX_EPOCH: u64 = 1 << 62;

/// A place in the order: so many batches of an epoch are done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cursor {
    /// The epoch.
    pub epoch: u64,
    /// Batches of it that were taken.
    pub done: u64,
}

/// Some whole episodes that train together on one rank.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EpisodeBatch {
    /// The epoch.
    pub epoch: u64,
    /// The index of its first episode; those of the others follow. Epoch e has the indices from e · episodes on, in the
    /// sequence of its sorted stretches, whatever comes when.
    pub first_index: u64,
    /// Positions of the episodes in the list, by rising length.
    pub episodes: Vec<u32>,
}

/// What all ranks together take at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// As many batches as the settings say.
    pub batches: Vec<EpisodeBatch>,
    /// Where the next step starts.
    pub next: Cursor,
}

impl Step {
    /// The batches of rank `rank` of `world`, which must divide the step.
    pub fn rank(&self, rank: u32, world: u32) -> Result<&[EpisodeBatch]> {
        let size = u32::try_from(self.batches.len()).unwrap_or(u32::MAX);
        if rank >= world || !size.is_multiple_of(world) {
            return Err(invalid(format!(
                "rank {rank} of {world} cannot take part in steps of {size} batches: ranks count from 0, and their number must divide the step; use {} ranks",
                nearest_divisors(size, world)
            )));
        }
        let share = (size / world) as usize;
        let first = rank as usize * share;
        Ok(&self.batches[first..first + share])
    }
}

/// The order of whole episodes. Cheap to clone.
///
/// ```
/// use kino_loader::{Batching, Cursor, LengthOrder, LengthSettings};
///
/// let settings = LengthSettings { batching: Batching::Budget { frames: 600 }, step: 2, ..LengthSettings::default() };
/// let order = LengthOrder::new("demos", vec![100, 300, 290, 110], settings)?;
/// let step = order.reader().step(Cursor::default())?;
/// assert_eq!(step.batches.len(), 2);
/// # Ok::<(), kino_loader::LoaderError>(())
/// ```
#[derive(Debug, Clone)]
pub struct LengthOrder {
    pub(super) id: Arc<str>,
    pub(super) lengths: Arc<[u32]>,
    pub(super) settings: LengthSettings,
    spread: usize,
    max_frames: Option<u32>,
}

impl LengthOrder {
    /// The order of episodes that have `lengths` frames; `id` says which dataset and selection they are.
    pub fn new(
        id: impl Into<Arc<str>>,
        lengths: impl Into<Arc<[u32]>>,
        settings: LengthSettings,
    ) -> Result<Self> {
        let lengths = lengths.into();
        settings.check(&lengths)?;
        let spread = settings.spread_of(&lengths);
        Ok(Self {
            id: id.into(),
            spread: usize::try_from(spread).unwrap_or(usize::MAX).max(1),
            lengths,
            settings,
            max_frames: None,
        })
    }

    /// The settings.
    pub fn settings(&self) -> &LengthSettings {
        &self.settings
    }

    /// How many episodes there are.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are none, which is refused.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The frames that episodes are cut to, if they are.
    pub fn max_frames(&self) -> Option<u32> {
        self.max_frames
    }

    /// The same order, of episodes that are cut to so many frames when they are loaded.
    pub(crate) fn cut_to(self, max_frames: Option<u32>) -> Self {
        Self { max_frames, ..self }
    }

    /// A reader, which holds the batches of the epoch in use.
    pub fn reader(&self) -> LengthReader {
        LengthReader {
            order: self.clone(),
            epoch: None,
        }
    }

    /// The same order under another seed.
    pub(super) fn with_seed(&self, seed: u64) -> Self {
        let settings = LengthSettings {
            seed,
            ..self.settings
        };
        Self {
            settings,
            ..self.clone()
        }
    }

    /// All batches of an epoch, stretch after stretch.
    fn batches_of(&self, epoch: u64) -> Epoch {
        let count = self.lengths.len() as u64;
        let key = Key::new(self.settings.seed, Purpose::Episodes, [epoch, 0, 0]);
        let permutation = Permutation::new(count, key);
        let mut episodes: Vec<u32> = (0..count)
            .map(|place| u32::try_from(permutation.at(place)).unwrap_or(u32::MAX))
            .collect();
        let mut ends = Vec::new();
        let mut stretch_start = 0;
        for stretch in episodes.chunks_mut(self.spread) {
            stretch.sort_unstable_by_key(|&episode| (self.lengths[episode as usize], episode));
            let mut first = 0;
            for next in 1..=stretch.len() {
                if next == stretch.len() || !self.fits(&stretch[first..=next]) {
                    ends.push(stretch_start + next);
                    first = next;
                }
            }
            stretch_start += stretch.len();
        }
        Epoch {
            epoch,
            episodes,
            ends,
        }
    }

    /// Whether episodes by rising length may be one batch.
    fn fits(&self, episodes: &[u32]) -> bool {
        match self.settings.batching {
            Batching::Similar { batch } => episodes.len() <= batch as usize,
            Batching::Budget { frames } => episodes.last().is_none_or(|&longest| {
                frames_of(self.lengths[longest as usize]) * episodes.len() as u64 <= frames
            }),
        }
    }
}

/// The batches of an epoch: batch b is episodes `ends[b - 1]..ends[b]`.
#[derive(Debug)]
struct Epoch {
    epoch: u64,
    episodes: Vec<u32>,
    ends: Vec<usize>,
}

impl Epoch {
    fn len(&self) -> u64 {
        self.ends.len() as u64
    }

    fn batch(&self, at: u64) -> EpisodeBatch {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        EpisodeBatch {
            epoch: self.epoch,
            first_index: self.epoch * self.episodes.len() as u64 + start as u64,
            episodes: self.episodes[start..self.ends[at]].to_vec(),
        }
    }
}

/// Reads an order of whole episodes at any cursor.
#[derive(Debug)]
pub struct LengthReader {
    order: LengthOrder,
    epoch: Option<Epoch>,
}

impl LengthReader {
    /// The order that is read.
    pub fn order(&self) -> &LengthOrder {
        &self.order
    }

    /// The step at a cursor.
    pub fn step(&mut self, cursor: Cursor) -> Result<Step> {
        let size = u64::from(self.order.settings.step);
        let mut at = self.settle(cursor)?;
        let mut batches = Vec::new();
        while (batches.len() as u64) < size {
            let lack = size - batches.len() as u64;
            let end = self.end(at.epoch);
            let take = at.done..end.min(at.done + lack);
            // The step ends where a block of this epoch starts; that says how long its head is.
            let head = (at.done + lack) % size;
            at.done = take.end;
            self.read(at.epoch, head, take, &mut batches);
            if at.done < end {
                continue;
            }
            if self.order.settings.last_batch == LastBatch::Repeat {
                self.repeat(at.epoch, &mut batches);
            }
            at = Cursor {
                epoch: at.epoch + 1,
                done: 0,
            };
        }
        Ok(Step { batches, next: at })
    }

    /// The number of batches of an epoch, whatever becomes of the last ones.
    pub fn batches_in(&mut self, epoch: u64) -> Result<u64> {
        self.settle(Cursor { epoch, done: 0 })?;
        Ok(self.load(epoch).len())
    }

    /// The batches of an epoch before `cursor`, at most the last `count`.
    pub(super) fn before(&mut self, cursor: Cursor, count: u64) -> Result<Vec<EpisodeBatch>> {
        let at = self.settle(cursor)?;
        if at != cursor {
            return Ok(Vec::new());
        }
        let head = at.done % u64::from(self.order.settings.step);
        let places = at.done.saturating_sub(count)..at.done;
        let mut batches = Vec::new();
        self.read(at.epoch, head, places, &mut batches);
        Ok(batches)
    }

    /// A cursor at or behind the end of its epoch is the start of the next.
    fn settle(&mut self, cursor: Cursor) -> Result<Cursor> {
        if cursor.epoch >= MAX_EPOCH {
            return Err(invalid(format!(
                "epoch {} lies past the last, {MAX_EPOCH}",
                cursor.epoch
            )));
        }
        let mut at = cursor;
        while at.done >= self.end(at.epoch) {
            if at.done > self.load(at.epoch).len() {
                return Err(invalid(format!(
                    "epoch {} has {} batches, not {}",
                    at.epoch,
                    self.load(at.epoch).len(),
                    at.done
                )));
            }
            // `drop` may leave nothing of one epoch and something of the next, which has other batches.
            if at.epoch > cursor.epoch.saturating_add(100) {
                return Err(invalid(
                    "last_batch=\"drop\" leaves nothing of a hundred epochs: they have fewer batches than a step; use smaller steps or batches, or last_batch=\"wrap\"",
                ));
            }
            at = Cursor {
                epoch: at.epoch + 1,
                done: 0,
            };
        }
        Ok(at)
    }

    /// How many batches of the epoch are taken.
    fn end(&mut self, epoch: u64) -> u64 {
        let (last_batch, size) = (
            self.order.settings.last_batch,
            u64::from(self.order.settings.step),
        );
        let count = self.load(epoch).len();
        if last_batch == LastBatch::Drop {
            count - count % size
        } else {
            count
        }
    }

    fn load(&mut self, epoch: u64) -> &Epoch {
        if self.epoch.as_ref().is_some_and(|kept| kept.epoch != epoch) {
            self.epoch = None;
        }
        let order = &self.order;
        self.epoch.get_or_insert_with(|| order.batches_of(epoch))
    }

    /// Appends the batches at `places` of the epoch's sequence: head, permuted blocks, rest.
    fn read(&mut self, epoch: u64, head: u64, places: Range<u64>, to: &mut Vec<EpisodeBatch>) {
        let (seed, size) = (
            self.order.settings.seed,
            u64::from(self.order.settings.step),
        );
        let batches = self.load(epoch);
        let blocks = batches.len().saturating_sub(head) / size;
        let key = Key::new(seed, Purpose::Steps, [epoch, 0, 0]);
        let permutation = Permutation::new(blocks, key);
        let sequence = |place: u64| match place.checked_sub(head) {
            Some(behind) if behind / size < blocks => {
                head + permutation.at(behind / size) * size + behind % size
            }
            _ => place,
        };
        to.extend(places.map(|place| batches.batch(sequence(place))));
    }

    /// Fills a step with the epoch's sequence from its start.
    fn repeat(&mut self, epoch: u64, to: &mut Vec<EpisodeBatch>) {
        let size = self.order.settings.step as usize;
        while to.len() < size {
            let lack = (size - to.len()) as u64;
            let count = self.load(epoch).len();
            self.read(epoch, 0, 0..count.min(lack), to);
        }
    }
}
