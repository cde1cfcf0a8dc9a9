//! How a loader works: what a user may choose that changes neither which samples come nor their order.
//!
//! Options are declared once. These fields are the keywords of `kinograph.torch.Loader` and the keys of the JSON that
//! Python hands over; what they mean is said in [`crate::OPTIONS`], from which the command line and the documentation
//! are made. Options that change the order are [`Settings`](crate::Settings).

use kino_dataset::{ByteSize, Samples};
use serde::{Deserialize, Serialize};

use super::cpu::{CpuShare, default_threads};
use super::image::{ImageOptions, Normal};
use super::trial::Trial;
use crate::order::{Cursor, Uneven};

/// The memory budget if nothing is known about the dataset.
const DEFAULT_MEMORY: ByteSize = ByteSize::new(1 << 30);

/// How a loader works; nothing here changes which samples come, or in which order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoaderOptions {
    /// This rank, counted from 0.
    pub rank: u32,
    /// How many ranks train together.
    pub world_size: u32,
    /// Whether ranks may have slices of different lengths.
    pub uneven: Uneven,
    /// The memory budget of decoded frames; exceeded only if a single batch needs more.
    ///
    /// On top of it come about a tenth (stored bytes waiting to be decoded, and page memory kept for reuse), one page
    /// of full-size frames per thread where images are resized, and the batches: those prefetched, those that the
    /// user keeps, and up to 8 buffers kept for reuse.
    pub memory: Option<ByteSize>,
    /// The most threads that decode and collate, 1 to 1024; fewer run where fewer have work.
    pub threads: Option<usize>,
    /// The share of the machine's CPU time that all threads together may use.
    pub cpu: Option<CpuShare>,
    /// The most batches in preparation or ready, 1 to 1024. If `None`, it follows from how unevenly batches are made:
    /// at least two, and at most a quarter of `memory` or 64 MiB on top of it.
    pub prefetch: Option<usize>,
    /// How images are delivered.
    pub images: ImageOptions,
    /// What keys are normalised with: images must be floats, everything else becomes float32.
    #[serde(rename = "scales")]
    pub normal: Vec<(String, Normal)>,
    /// What float64 and float16 streams become in a batch; as stored if `None`. Integers stay integers.
    pub dtype: Option<VectorDtype>,
    /// What happens to a sample that cannot be read.
    pub on_error: OnError,
    /// Where this run starts and how it is measured.
    #[serde(skip_serializing)]
    pub run: Run,
}

/// What differs from one start of a loader to the next. None of it is an option.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Run {
    /// The first global index; a multiple of the batch.
    pub first_index: u64,
    /// Where batches of whole episodes start, which have no global index to start at.
    pub cursor: Cursor,
    /// How many batches to make; endless if `None`.
    pub batches: Option<u64>,
    /// The most threads that read, 1 to 1024. Two begin, and more follow where storage is slow.
    pub readers: usize,
    /// Whether every thread's tasks are recorded from the beginning; [`Watch`](super::Watch) starts it later.
    pub is_traced: bool,
    /// How a run that is only measured differs; not at all for training.
    #[serde(skip)]
    pub trial: Trial,
    /// Whether stored pages are never kept in memory, however slow storage is; to measure what they bring.
    #[serde(skip)]
    pub is_without_stored_tier: bool,
}

/// The dtype of floats that are not images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum VectorDtype {
    /// Single precision, rounded to nearest.
    #[serde(rename = "float32")]
    F32,
}

/// What happens to a sample that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// Its batch is an error that says where the damage is.
    #[default]
    Raise,
    /// Another sample of the same group takes its place, the same one on every rank and in every run. It is counted.
    Skip,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            first_index: 0,
            cursor: Cursor::default(),
            batches: None,
            readers: 8,
            is_traced: false,
            trial: Trial::default(),
            is_without_stored_tier: false,
        }
    }
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            rank: 0,
            world_size: 1,
            uneven: Uneven::Refuse,
            memory: None,
            threads: None,
            cpu: None,
            prefetch: None,
            images: ImageOptions::default(),
            normal: Vec::new(),
            dtype: None,
            on_error: OnError::Raise,
            run: Run::default(),
        }
    }
}

/// Read threads for remote storage, where a read takes as long as a round trip, however small it is.
const REMOTE_READERS: usize = 64;

impl LoaderOptions {
    /// The same with more read threads if a dataset is remote: they wait for the network and need no core.
    pub(super) fn for_storage(mut self, windows: &[Vec<Samples>]) -> Self {
        let mut samples = windows.iter().flatten();
        if samples.any(|samples| samples.dataset().is_remote()) {
            self.run.readers = self.run.readers.max(REMOTE_READERS);
        }
        self
    }

    /// The memory budget in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.unwrap_or(DEFAULT_MEMORY).bytes()
    }

    /// Threads that decode and collate: those asked for, else as many as the CPU share can use, else all cores but one.
    pub fn decode_threads(&self) -> usize {
        let chosen = || self.cpu.map_or_else(default_threads, CpuShare::threads);
        self.threads.unwrap_or_else(chosen)
    }
}
