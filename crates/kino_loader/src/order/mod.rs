//! The order: a pure function from an endless index to a sample.
//!
//! ```text
//! keys.rs                randomness without a state
//! permute.rs, deal.rs    permutations without memory
//! source.rs, slots.rs    the samples of a list of episodes, as lengths on a line
//! settings.rs            all that changes the order
//! lanes.rs               slices of a batch that read episodes of their own
//! own.rs                 the samples of an episode that one rank takes
//! layout.rs, endless.rs  one epoch of one source; one source, endlessly
//! mixture.rs             several sources under weights
//! reader.rs              index → sample, with the layouts of the epochs in use
//! ranks.rs, state.rs     who takes which indices; stop and resume
//! mixing.rs              how well it mixes, and the shuffle that mixes well enough
//! next_use.rs            when an episode comes again
//! draw.rs                randomness for augmentation
//! length*.rs             batches of whole episodes
//! ```
//!
//! `sample(i) = f(sources, settings, i)`, and nothing else: no number of ranks, threads or retries, no
//! time, no cache. What follows from this (any number of ranks, any stop, any restart) is tested
//! in `tests/elastic.rs`; the algorithm to the bit is `spec/order.md`.

mod deal;
mod draw;
mod endless;
mod keys;
mod lanes;
mod layout;
mod length_settings;
mod length_state;
mod lengths;
mod mixing;
mod mixture;
mod next_use;
mod own;
mod permute;
mod ranks;
mod reader;
mod settings;
mod slots;
mod source;
mod state;

use std::ops::Range;
use std::sync::Arc;

pub(crate) use draw::Draw;
pub use draw::Operation;
pub use endless::SampleRef;
pub use length_settings::{Batching, LengthSettings, Oversize};
pub use length_state::LengthState;
pub use lengths::{Cursor, EpisodeBatch, LengthOrder, LengthReader, Step};
pub use mixing::AutoShuffle;
pub(crate) use next_use::{NEVER, NextUses};
pub(crate) use own::{Own, Rank};
pub use ranks::Uneven;
pub use reader::OrderReader;
pub use settings::{Deal, GroupSize, LastBatch, Settings, Shuffle, Unit};
pub use source::Source;
pub use state::{Mismatch, State};

use endless::{Endless, Share, total_size};
use keys::{Key, Purpose};
use lanes::Lanes;
use mixture::{BLOCK, Mixture};
use settings::EpochLen;

use crate::error::{Result, invalid};

/// The algorithm: it changes when any index of any order would.
pub(crate) const ALGORITHM: &str = "kino-order-2";

/// Indices end here: no training comes near, and sums of two never overflow.
pub(crate) const MAX_INDEX: u64 = 1 << 62;

/// The most samples of an epoch of a mixture.
const MAX_EPOCH: u64 = 1 << 60;

/// The order of one source, or of a mixture. Cheap to clone.
///
/// ```
/// use kino_loader::{Order, Settings, Source};
///
/// let settings = Settings { seed: 7, batch_size: 4, ..Settings::default() };
/// let order = Order::new(Source::new("demos", vec![3, 2]), settings)?;
/// let mut samples = Vec::new();
/// order.reader().fill(0..5, &mut samples)?;
/// let mut samples: Vec<_> = samples.iter().map(|sample| order.sample_index(sample)).collect();
/// samples.sort();
/// assert_eq!(samples, [0, 1, 2, 3, 4]); // each sample once per epoch
/// # Ok::<(), kino_loader::LoaderError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Order {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    sources: Vec<Source>,
    tracks: Vec<Endless>,
    /// Samples before each episode of a source, where weights make its line another.
    first_samples: Vec<Option<Vec<u64>>>,
    mixture: Option<Mixture>,
    lanes: Lanes,
    epoch: EpochLen,
    /// Hash of the sources.
    data: String,
}

impl Order {
    /// The order of one source.
    pub fn new(source: Source, settings: Settings) -> Result<Self> {
        settings.check()?;
        source.check()?;
        if settings.epoch_size.is_some() {
            return Err(invalid(
                "`epoch_size` is for mixtures; an epoch of one source is all of its samples",
            ));
        }
        let track = Endless::new(&source, &settings, Share::WHOLE)?;
        settings
            .last_batch
            .check(track.line.positions, settings.batch_size)?;
        let epoch = track.epoch_len();
        Ok(Self::assemble(
            settings,
            vec![source],
            vec![track],
            None,
            epoch,
        ))
    }

    /// The order of several sources; a weight is a source's share of the samples. A mixture of one source is
    /// the order of that source.
    pub fn mixture(parts: Vec<(Source, f64)>, settings: Settings) -> Result<Self> {
        settings.check()?;
        let (mut sources, weights): (Vec<Source>, Vec<f64>) = parts.into_iter().unzip();
        sources.iter().try_for_each(Source::check)?;
        let mixture = Mixture::new(&weights)?;
        if sources.len() == 1 {
            return Self::new(sources.remove(0), settings);
        }
        let tracks = (0..)
            .zip(sources.iter().zip(&mixture.slots))
            .map(|(at, (source, &slots))| {
                let share = Share {
                    slots: u64::from(slots),
                    of: u64::from(BLOCK),
                };
                Endless::new(source, &track_settings(&settings, &sources, at), share)
            })
            .collect::<Result<Vec<_>>>()?;
        let lens = tracks.iter().map(|track| track.epoch_len().samples);
        let size = settings
            .epoch_size
            .unwrap_or_else(|| lens.fold(0, u64::saturating_add));
        if size > MAX_EPOCH {
            return Err(invalid(format!(
                "an epoch has {size} samples; use an `epoch_size` of at most {MAX_EPOCH}"
            )));
        }
        settings.last_batch.check(size, settings.batch_size)?;
        let epoch = settings.last_batch.epoch_len(size, settings.batch_size)?;
        Ok(Self::assemble(
            settings,
            sources,
            tracks,
            Some(mixture),
            epoch,
        ))
    }

    fn assemble(
        settings: Settings,
        sources: Vec<Source>,
        tracks: Vec<Endless>,
        mixture: Option<Mixture>,
        epoch: EpochLen,
    ) -> Self {
        let weighted = |source: &Source| source.weights.is_some();
        let first_samples = sources
            .iter()
            .map(|source| weighted(source).then(|| running_sum(&source.counts)))
            .collect();
        let data = hash_sources(&sources, mixture.as_ref());
        let short = (settings.last_batch == LastBatch::Short).then_some(epoch);
        // Each place of the batch has places of its own in every source, as it has a part of every group.
        let lanes = if settings.has_parts() {
            settings.batch_size
        } else {
            settings.lanes
        };
        let inner = Inner {
            lanes: Lanes::new(settings.batch_size, lanes, short),
            settings,
            sources,
            tracks,
            first_samples,
            mixture,
            epoch,
            data,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// A reader with its own layouts. Readers of one order agree; each thread takes its own.
    pub fn reader(&self) -> OrderReader {
        OrderReader::new(self.clone())
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// The sources.
    pub fn sources(&self) -> &[Source] {
        &self.inner.sources
    }

    /// Indices per epoch; where the last batch is short, the last of them have no sample.
    pub fn epoch_len(&self) -> u64 {
        self.inner.epoch.indices
    }

    /// Samples per epoch.
    pub fn epoch_samples(&self) -> u64 {
        self.inner.epoch.samples
    }

    /// Whether index `i` has a sample: not behind the end of a short last batch.
    pub fn has_sample(&self, i: u64) -> bool {
        let EpochLen { indices, samples } = self.inner.epoch;
        samples == indices || i % indices < samples
    }

    /// The epoch of index `i`; of the mixture, not of a source of it.
    pub fn epoch_of(&self, i: u64) -> u64 {
        i / self.inner.epoch.indices
    }

    /// The first index of an epoch.
    pub fn epoch_start(&self, epoch: u64) -> Result<u64> {
        epoch
            .checked_mul(self.inner.epoch.indices)
            .filter(|&start| start <= MAX_INDEX)
            .ok_or_else(|| past_the_end(&format!("epoch {epoch}")))
    }

    /// The batches that start in an epoch. Under `wrap` their number may differ by one between epochs, and the
    /// first index of an epoch may lie in the last batch of the epoch before.
    pub fn batches_of(&self, epoch: u64) -> Result<Range<u64>> {
        let batch = u64::from(self.inner.settings.batch_size);
        let start = self.epoch_start(epoch)?;
        Ok(start.div_ceil(batch)..(start + self.inner.epoch.indices).div_ceil(batch))
    }

    /// The index of a sample among all samples of its source.
    pub fn sample_index(&self, sample: &SampleRef) -> u64 {
        let (source, episode) = (sample.source as usize, sample.episode as usize);
        let first = match self.inner.first_samples.get(source) {
            Some(Some(firsts)) => firsts.get(episode).copied(),
            Some(None) => {
                let slots = &self.inner.tracks[source].line.slots;
                (episode <= slots.len()).then(|| slots.start(episode))
            }
            None => None,
        };
        debug_assert!(first.is_some(), "a sample of this order");
        first.unwrap_or(0) + u64::from(sample.sample)
    }

    /// Bytes that the order holds apart from the lists it was given; layouts belong to the readers.
    pub fn memory(&self) -> usize {
        let firsts = self.inner.first_samples.iter().flatten();
        let firsts: usize = firsts.map(|list| 8 * list.capacity()).sum();
        firsts + self.inner.tracks.iter().map(Endless::memory).sum::<usize>()
    }
}

/// The settings of source `at` of a mixture: a batch is one sample of each lane, or of each place of the batch.
fn track_settings(settings: &Settings, sources: &[Source], at: u64) -> Settings {
    let fits = match settings.shuffle {
        Shuffle::Groups {
            size: GroupSize::Bytes(bytes),
            ..
        } => sources
            .iter()
            .map(|source| {
                source
                    .sizes
                    .as_deref()
                    .map(|sizes| total_size(source, Some(sizes)))
            })
            .try_fold(0_u64, |sum, size| Some(sum.saturating_add(size?)))
            .is_some_and(|total| total <= bytes),
        Shuffle::Groups {
            size: GroupSize::Episodes(episodes),
            ..
        } => {
            let totals = sources.iter().map(|source| total_size(source, None));
            totals.fold(0, u64::saturating_add) <= u64::from(episodes)
        }
        _ => false,
    };
    let one_group = |unit| Shuffle::Groups {
        size: GroupSize::Fraction(1.0),
        unit,
    };
    let shuffle = match settings.shuffle {
        Shuffle::Groups { unit, .. } if fits && settings.has_parts() => one_group(unit),
        _ if fits => Shuffle::Global,
        shuffle => shuffle,
    };
    let batch_size = if settings.has_parts() {
        settings.batch_size
    } else {
        settings.lanes
    };
    Settings {
        seed: Key::new(settings.seed, Purpose::Source, [at, 0, 0]).seed(),
        batch_size,
        lanes: settings.lanes,
        shuffle,
        deal: settings.deal,
        last_batch: LastBatch::Wrap,
        epoch_size: None,
    }
}

/// The samples before each episode, and all of them.
fn running_sum(counts: &[u32]) -> Vec<u64> {
    let sums = counts.iter().scan(0_u64, |sum, &count| {
        *sum = sum.saturating_add(u64::from(count));
        Some(*sum)
    });
    std::iter::once(0).chain(sums).collect()
}

/// The hash of all that the sources say.
fn hash_sources(sources: &[Source], mixture: Option<&Mixture>) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(sources.len() as u64).to_le_bytes());
    for (at, source) in sources.iter().enumerate() {
        let slots = mixture.map_or(0, |mixture| mixture.slots[at]);
        hasher.update(&slots.to_le_bytes());
        source.hash_into(&mut hasher);
    }
    short_hex(&hasher)
}

/// The first 32 digits of a hash.
fn short_hex(hasher: &blake3::Hasher) -> String {
    hasher.finalize().to_hex()[..32].to_string()
}

/// The error of an index past the end.
fn past_the_end(what: &str) -> crate::LoaderError {
    invalid(format!("{what} is past the last index, {MAX_INDEX}"))
}
