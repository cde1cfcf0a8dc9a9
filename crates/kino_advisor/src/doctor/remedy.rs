//! What can be changed, and the predicted effect of a change.

use serde::{Deserialize, Serialize};

use super::evidence::Evidence;
use super::verdict::Verdict;

/// A possible change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// This many decoding threads.
    Threads(usize),
    /// This prefetch depth; `None` lets the loader choose.
    Prefetch(Option<usize>),
    /// A budget for all decoded frames, in bytes.
    Memory(u64),
    /// Shuffling in groups of episodes of this many decoded bytes, instead of globally.
    Pool(u64),
    /// No CPU limit.
    CpuShare,
    /// Another codec for one stream.
    Codec {
        /// The stream.
        stream: String,
        /// The codec.
        codec: String,
    },
    /// Another encoding of a stream, which the dataset has.
    Variant {
        /// The stream.
        stream: String,
        /// The variant.
        variant: String,
    },
    /// A copy on faster storage.
    Staging,
    /// Images as uint8, converted to floats on the GPU.
    Bytes,
    /// Fewer images that are compressed as JPEG at random, or smaller ones.
    RandomJpeg,
    /// Images of half the width and height.
    SmallerImages,
    /// Decoding on the GPU.
    GpuDecode,
    /// Larger batches or fewer arrays, so fewer hand-overs per sample.
    FewerHandOvers,
    /// This many worker processes.
    NumWorkers(usize),
    /// This many batches ahead for each worker process.
    PrefetchFactor(usize),
    /// Worker processes that are kept between epochs.
    PersistentWorkers,
    /// Batches in page-locked memory.
    PinMemory,
    /// A `__getitem__` that computes less.
    CheaperItems,
    /// A `collate_fn` that does less.
    CheaperCollate,
    /// Fewer bytes from worker processes, as tensors.
    CheaperTransfer,
    /// A faster loader, where nothing more is known.
    FasterLoader,
    /// A Kinograph loader.
    Kinograph,
    /// Nothing.
    Nothing,
}

/// A change, and its predicted effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// What to change.
    pub remedy: Remedy,
    /// How to change it, in words, with the option to use.
    pub how: String,
    /// Seconds per batch after the change.
    pub batch_s: f64,
    /// Compute ratio after the change.
    pub compute_ratio: f64,
    /// Steps per second after the change ÷ steps per second now.
    pub gain: f64,
    /// Whether this version of the library can do it.
    pub is_available: bool,
}

/// What is left to say if no change would help.
pub(super) fn nothing(evidence: &Evidence, verdict: &Verdict) -> Change {
    let how = if verdict.met {
        "change nothing"
    } else {
        "no loader option would help: make the step itself faster, or use a host with more cores"
    };
    Change {
        remedy: Remedy::Nothing,
        how: how.to_owned(),
        batch_s: evidence.whole.batch_s,
        compute_ratio: evidence.fed.compute_ratio,
        gain: 1.0,
        is_available: true,
    }
}
