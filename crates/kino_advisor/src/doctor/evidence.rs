//! The evidence: the measured figures from which the verdict and the changes follow.
//!
//! ```text
//! fed        the loop with its step             does it wait?
//! whole      the loader alone, unchanged        T, seconds per batch
//! without    one stage disabled at a time        T without it: the difference is its cost
//! nothing    all stages disabled                the cost of planning and handing over
//! ```

use kino_dataset::Cost;
use kino_loader::ShuffleQuality;
use serde::{Deserialize, Serialize};

/// Everything that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Seconds per step.
    pub step_s: f64,
    /// The compute ratio to reach.
    pub target: f64,
    /// What was measured, and how it was configured.
    pub setting: Setting,
    /// The training loop, with its step.
    pub fed: FedRun,
    /// The loader alone.
    pub whole: FreeRun,
    /// The loader with stages disabled; only measured if the loop waits.
    pub without: Option<Differences>,
    /// The streams that are read, and what codecs cost for them on this machine.
    pub streams: Vec<StreamCosts>,
}

/// The configuration, as far as the verdict and the changes depend on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The dataset's folder.
    pub dataset: String,
    /// The windows of a sample, with their lengths.
    pub windows: Vec<String>,
    /// Samples per batch.
    pub batch: u32,
    /// Cores of the machine.
    pub cores: usize,
    /// Bytes of memory of the machine; 0 if unknown.
    pub machine_bytes: u64,
    /// Runnable processes in the minute before the run; other processes distort the figures.
    pub load: f64,
    /// Threads that decode and collate.
    pub threads: usize,
    /// Threads that read.
    pub readers: usize,
    /// CPU limit of all threads together, in cores, if one is set.
    pub cpu_cores: Option<f64>,
    /// Prefetch depth, if it was set.
    pub prefetch: Option<usize>,
    /// Budget for decoded frames.
    pub memory_bytes: u64,
    /// Episodes that are read.
    pub episodes: usize,
    /// Decoded bytes of everything that an epoch reads.
    pub decoded_bytes: u64,
    /// Whether the shuffle is global, so that a frame is needed again long after it was used.
    pub shuffles_everything: bool,
    /// Whether samples are shuffled in groups of which not even one fits in the memory.
    #[serde(default)]
    pub group_is_too_large: bool,
    /// What the shuffle gives and costs; `None` where that could not be measured.
    #[serde(default)]
    pub shuffle: Option<ShuffleQuality>,
    /// Whether images leave as floats.
    pub images_are_floats: bool,
    /// Whether some images are compressed as JPEG and decoded again.
    #[serde(default)]
    pub has_random_jpeg: bool,
    /// How storage was slowed down, as the user wrote it.
    pub emulated_storage: Option<String>,
}

/// A training loop that takes a batch per step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FedRun {
    /// Steps counted: those after the warm-up, minus batches that were already ready when counting began.
    pub steps: usize,
    /// The fraction of the time in which the loop did not wait for a batch.
    pub compute_ratio: f64,
    /// Steps × the time of a step alone ÷ elapsed time: accelerator utilisation as MLPerf Storage defines it.
    pub utilisation: f64,
    /// Seconds that each step waited for its batch.
    pub waits_s: Vec<f64>,
    /// Mean seconds of a step, from receiving the batch.
    pub step_s: f64,
    /// Batches ready when each step requested its batch.
    pub ahead: Vec<usize>,
    /// The loader's prefetch depth at the end of the run.
    pub prefetch: usize,
}

/// A loader that is drained as fast as it delivers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FreeRun {
    /// Batches counted.
    pub batches: usize,
    /// Batches taken, including those of the warm-up.
    pub taken: usize,
    /// Mean samples per batch; 0 if not counted.
    pub samples: f64,
    /// Seconds per batch.
    pub batch_s: f64,
    /// Seconds of each batch.
    pub each_s: Vec<f64>,
    /// Seconds of planning per batch, over all threads.
    pub schedule_s: f64,
    /// Seconds of reading per batch, over all threads.
    pub fetch_s: f64,
    /// Seconds of decoding per batch, over all threads.
    pub decode_s: f64,
    /// Seconds of collating per batch, over all threads.
    pub collate_s: f64,
    /// CPU seconds per batch, over all threads and processes; 0 if not measured.
    #[serde(default)]
    pub cpu_s: f64,
    /// Stored bytes read per batch.
    pub fetch_bytes: f64,
    /// Decoded bytes per batch.
    pub decode_bytes: f64,
    /// Decoded bytes ÷ the bytes decoded if every frame is decoded once per epoch; 0 once all frames stay cached.
    pub decode_excess: f64,
    /// Reads per batch.
    #[serde(default)]
    pub reads: f64,
    /// Whether the warm-up lasted until the cache was full.
    pub is_steady: bool,
}

/// The loader with stages disabled.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Differences {
    /// Reading only.
    pub only_fetch: FreeRun,
    /// Stored bytes come from memory instead of storage.
    pub without_fetch: FreeRun,
    /// Nothing is decoded.
    pub without_decode: FreeRun,
    /// Nothing is collated.
    pub without_collate: FreeRun,
    /// Without the configured CPU limit; `None` if there is none.
    pub without_cpu_limit: Option<FreeRun>,
    /// With the prefetch depth that the loader chooses; `None` if it already does.
    pub chosen_prefetch: Option<FreeRun>,
    /// The training loop with a loader that does no work: batches are only handed over.
    pub nothing: FedRun,
}

/// A stream that is read, and what codecs cost for such frames according to the machine's cost record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamCosts {
    /// Its name.
    pub name: String,
    /// Its codec.
    pub codec: String,
    /// What it costs; `None` if nothing comparable was measured.
    pub now: Option<Cost>,
    /// Costs measured for frames of exactly this type.
    pub known: Vec<Cost>,
    /// The other encodings of it that the dataset has.
    #[serde(default)]
    pub variants: Vec<VariantCost>,
}

/// Another encoding of a stream, and what its codec costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VariantCost {
    /// The variant: `small` of `wrist@small`.
    pub variant: String,
    /// What its codec costs.
    pub cost: Cost,
}

impl FreeRun {
    /// Coefficient of variation of the batch times: std ÷ mean.
    pub fn variation(&self) -> f64 {
        if self.batch_s <= 0.0 {
            return 0.0;
        }
        variation(&self.each_s)
    }

    /// Seconds of making a batch, over all threads.
    pub(super) fn made_s(&self) -> f64 {
        self.fetch_s + self.decode_s + self.collate_s
    }
}

/// Coefficient of variation: std ÷ mean; 0 for fewer than two times.
pub(super) fn variation(times_s: &[f64]) -> f64 {
    let count = times_s.len() as f64;
    if count < 2.0 {
        return 0.0;
    }
    let mean = times_s.iter().sum::<f64>() / count;
    let squares = times_s.iter().map(|each| (each - mean).powi(2));
    (squares.sum::<f64>() / count).sqrt() / mean.max(f64::MIN_POSITIVE)
}
