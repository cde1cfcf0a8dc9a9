//! How a loader works. Nothing here changes which samples come, or in which order.

use super::cpu::{CpuShare, default_threads};
use super::image::{ImageOptions, Normal};
use super::meter::Metering;
use super::trial::Trial;
use crate::order::Uneven;

/// How a loader works; nothing here changes which samples come, or in which order.
#[derive(Debug, Clone)]
pub struct LoaderOptions {
    /// This rank, and how many there are.
    pub rank: u32,
    /// How many ranks there are.
    pub world: u32,
    /// Whether ranks may have parts of different lengths.
    pub uneven: Uneven,
    /// The first global index; a multiple of the batch.
    pub first_index: u64,
    /// How many batches to make; endless if `None`.
    pub batches: Option<u64>,
    /// Decoded frames are held up to this many bytes; more only if a single batch needs more.
    ///
    /// Over and above it come about a tenth (stored bytes that wait to be decoded, and page memory that is kept for the
    /// next page), a page of whole frames per thread where images are made smaller, and the batches: those ahead, those that
    /// the user keeps, and up to 8 buffers that are used again.
    pub memory_bytes: u64,
    /// Threads that decode and collate, at most; 1 to 1024. Fewer work where fewer have something to do.
    pub threads: usize,
    /// Threads that read, at most; 1 to 1024. Two begin, and more come where storage is slow.
    pub readers: usize,
    /// All threads together may run for this part of the machine; as they like if `None`. It does not change `threads`.
    pub cpu: Option<CpuShare>,
    /// The most batches in preparation or ready; 1 to 1024. If `None`, it is chosen from how unevenly batches are made, such
    /// that they take at most a quarter of `memory_bytes` or 64 MiB, over and above it, but never fewer than two.
    pub depth: Option<usize>,
    /// How images are wanted.
    pub images: ImageOptions,
    /// What keys are normalised with; images must be floats, everything else becomes float32.
    pub normal: Vec<(String, Normal)>,
    /// What float64 and float16 streams become in a batch; as they are stored if `None`. Integers stay integers.
    pub dtype: Option<FloatDtype>,
    /// What happens to a sample that cannot be read.
    pub on_error: OnError,
    /// How much is measured.
    pub metering: Metering,
    /// Whether what each thread does when is kept from the beginning; [`Watch`](super::Watch) starts it later.
    pub is_traced: bool,
    /// How a run that is only measured differs; not at all for training.
    pub trial: Trial,
}

/// The dtype of floats that are not images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloatDtype {
    /// Single precision, rounded to nearest.
    F32,
}

/// What happens to a sample that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// Its batch is an error that says where the damage is.
    #[default]
    Raise,
    /// Another sample of the same group takes its place: the same one on every rank and in every run. It is counted.
    Substitute,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            rank: 0,
            world: 1,
            uneven: Uneven::Refuse,
            first_index: 0,
            batches: None,
            memory_bytes: 1 << 30,
            threads: default_threads(),
            readers: 8,
            cpu: None,
            depth: None,
            images: ImageOptions::default(),
            normal: Vec::new(),
            dtype: None,
            on_error: OnError::Raise,
            metering: Metering::Full,
            is_traced: false,
            trial: Trial::default(),
        }
    }
}
