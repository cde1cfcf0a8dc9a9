//! What was measured of a loader that is not ours, by `python/kinograph/_doctor_foreign.py`.
//!
//! ```text
//! fed       the loop with its step                               does it wait?
//! whole     the loader alone, over samples it has not read yet   T, seconds per batch
//! without   one more stage taken away each time                  T without it
//!   fetch     the same samples again, now in the page cache
//!   dataset   `__getitem__` returns items that are ready          collating and passing remain
//!   collate   workers return batches that are ready              passing remains
//! nothing   the loop over one batch, again and again             does the waiting end?
//! ```
//!
//! In a [`FreeRun`] of such a loader, `fetch_s` is the time in which `__getitem__` was blocked (storage, locks, sleep),
//! `decode_s` the time in which it computed or waited for a core, both per batch and over all workers.

use serde::{Deserialize, Serialize};

use crate::doctor::evidence::{FedRun, FreeRun, variation};
use crate::doctor::quantile;

/// Everything that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForeignEvidence {
    /// Seconds per step, alone.
    pub step_s: f64,
    /// The compute ratio to reach.
    pub target: f64,
    /// What was measured, and how it was configured.
    pub setting: ForeignSetting,
    /// Seconds from asking for an iterator to its first batch.
    pub start_s: f64,
    /// The training loop, with its step.
    pub fed: FedRun,
    /// The loader alone.
    pub whole: FreeRun,
    /// The loader with stages taken away; only measured if the loop waits.
    pub without: Option<ForeignDifferences>,
    /// A Kinograph loader in the same loop, if one was given.
    #[serde(default)]
    pub kinograph: Option<Moved>,
}

/// What kind of loader it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoaderKind {
    /// A `DataLoader` over a dataset with `__getitem__`.
    MapStyle,
    /// A `DataLoader` over a dataset with `__iter__`.
    IterableStyle,
    /// Any iterable of batches.
    Batches,
}

/// The configuration, as far as the verdict and the changes depend on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForeignSetting {
    /// The loader and its dataset, by their classes.
    pub loader: String,
    /// What kind of loader it is.
    pub kind: LoaderKind,
    /// Samples per batch, if known.
    pub batch: Option<u64>,
    /// Batches of an epoch, if known.
    pub epoch_batches: Option<u64>,
    /// Worker processes; with 0, batches are made by the training loop itself.
    pub num_workers: usize,
    /// Batches ahead for each worker.
    pub prefetch_factor: Option<usize>,
    /// Whether batches are copied to page-locked memory.
    pub pin_memory: bool,
    /// Whether workers are kept between epochs.
    pub persistent_workers: bool,
    /// Bytes of a batch.
    pub batch_bytes: u64,
    /// Those of them that are not in tensors, so that workers pickle them.
    pub pickled_bytes: u64,
    /// Whether the loader alone read samples that no earlier run had read.
    pub is_first_pass: bool,
    /// Bytes of files that were dropped from the page cache before each first pass; 0 if none were named.
    pub dropped_bytes: u64,
    /// The clock that timed compute: `cpu` or `cuda`.
    pub clock: String,
    /// Cores of the machine.
    pub cores: usize,
    /// Runnable processes in the minute before the run.
    pub load: f64,
}

/// The loader with stages taken away.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ForeignDifferences {
    /// The same samples again, from the page cache.
    pub without_fetch: Option<FreeRun>,
    /// Items are ready.
    pub without_dataset: Option<FreeRun>,
    /// Batches are ready, and only passed on.
    pub without_collate: Option<FreeRun>,
    /// Half of the samples per batch.
    pub half_batch: Option<FreeRun>,
    /// More worker processes.
    pub more_workers: Option<MoreWorkers>,
    /// The loop, with batches in page-locked memory.
    pub pinned: Option<FedRun>,
    /// The loop over one batch, again and again.
    pub nothing: FedRun,
}

/// The loader with another number of worker processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MoreWorkers {
    /// How many.
    pub num_workers: usize,
    /// The loader alone.
    pub run: FreeRun,
}

/// A Kinograph loader in the same loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// The loader.
    pub loader: String,
    /// Samples per batch.
    pub batch: u64,
    /// Whether the step was emulated, because its batches have another form.
    pub is_step_emulated: bool,
    /// The training loop.
    pub fed: FedRun,
    /// The loader alone.
    pub whole: FreeRun,
}

impl ForeignEvidence {
    /// Batches that are made ahead of the loop.
    pub(super) fn ahead(&self) -> usize {
        self.setting.num_workers * self.setting.prefetch_factor.unwrap_or(0)
    }

    /// Coefficient of variation of the batch times.
    pub(super) fn variation(&self) -> f64 {
        variation(&self.rounds_s(&self.whole))
    }

    /// Median seconds of a batch.
    pub(super) fn typical_s(&self, run: &FreeRun) -> f64 {
        let rounds = self.rounds_s(run);
        if rounds.is_empty() {
            return run.batch_s;
        }
        quantile(&rounds, 0.5)
    }

    /// Mean seconds of a batch in each round of the workers. Those that start together finish together, which
    /// prefetching hides: only what varies from round to round counts.
    fn rounds_s(&self, run: &FreeRun) -> Vec<f64> {
        let workers = self.setting.num_workers.max(1);
        let rounds = run.each_s.chunks_exact(workers);
        rounds
            .map(|round| round.iter().sum::<f64>() / workers as f64)
            .collect()
    }

    /// Seconds of a batch in the loop, per step.
    pub(super) fn period_s(&self) -> f64 {
        self.step_s / self.fed.compute_ratio.max(1e-6)
    }

    /// The fraction of an epoch that goes into starting workers; 0 if the length of an epoch is unknown.
    pub(super) fn start_share(&self) -> f64 {
        let setting = &self.setting;
        let Some(batches) = setting.epoch_batches.filter(|&batches| batches > 0) else {
            return 0.0;
        };
        if setting.num_workers == 0 || setting.persistent_workers {
            return 0.0;
        }
        // A worker that is kept still needs the time of a batch for its first one.
        let workers = setting.num_workers as f64;
        let start_s = (self.start_s - self.whole.batch_s * workers).max(0.0);
        start_s / (start_s + batches as f64 * self.period_s())
    }
}
