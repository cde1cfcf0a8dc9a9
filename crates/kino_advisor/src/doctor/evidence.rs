//! What the doctor saw: plain figures, from which verdict and changes follow.
//!
//! ```text
//! fed        the loop with its step            does it wait?
//! whole      the loader alone, as it is        T, seconds per batch
//! without    one stage taken away at a time    T without it: the difference is what it costs
//! nothing    all of them taken away            what planning and handing over cost
//! ```

use kino_dataset::Cost;
use kino_loader::ShuffleQuality;
use serde::{Deserialize, Serialize};

/// Everything that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Seconds of a step.
    pub step_s: f64,
    /// The compute ratio that is asked for.
    pub target: f64,
    /// What was measured.
    pub setting: Setting,
    /// The loop, with the step.
    pub fed: FedRun,
    /// The loader alone.
    pub whole: FreeRun,
    /// The loader with parts taken away; only looked at where the loop waits.
    pub without: Option<Differences>,
    /// The streams that are read, and what their codecs cost on this machine.
    pub streams: Vec<StreamCosts>,
}

/// What was measured, as far as verdict and changes depend on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The dataset's folder.
    pub dataset: String,
    /// The windows of a sample, as the request says them.
    pub windows: Vec<String>,
    /// Samples per batch.
    pub batch: u32,
    /// Cores of the machine.
    pub cores: usize,
    /// Bytes of memory of the machine; 0 if unknown.
    pub machine_bytes: u64,
    /// Processes that wanted to run in the minute before; those of others disturb all figures.
    pub load: f64,
    /// Threads that decode and collate.
    pub threads: usize,
    /// Threads that read.
    pub readers: usize,
    /// Cores that all threads together may use, if they are held to it.
    pub cpu_cores: Option<f64>,
    /// Batches ahead, if their number was given.
    pub prefetch: Option<usize>,
    /// The budget of decoded frames.
    pub memory_bytes: u64,
    /// Episodes that are read.
    pub episodes: usize,
    /// Decoded bytes of all that is read in an epoch.
    pub decoded_bytes: u64,
    /// Whether samples of all episodes are mixed at once, so that a frame comes back long after it was used.
    pub shuffles_everything: bool,
    /// What the shuffle gives and costs; `None` where that could not be measured.
    #[serde(default)]
    pub shuffle: Option<ShuffleQuality>,
    /// Whether images leave as floats.
    pub images_are_floats: bool,
    /// How storage was slowed down, in the user's words.
    pub emulated_storage: Option<String>,
}

/// A loop with a step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FedRun {
    /// Steps that count: those after the warm-up, less the batches that lay ready before.
    pub steps: usize,
    /// The part of the time in which the loop did not wait for a batch.
    pub compute_ratio: f64,
    /// Steps × the time of a step alone ÷ the time that they took: accelerator utilisation by MLPerf Storage's formula.
    pub utilisation: f64,
    /// Seconds that each step waited for its batch.
    pub waits_s: Vec<f64>,
    /// Seconds from the batch to the end of the step, on the average.
    pub step_s: f64,
    /// Batches that lay ready when each step asked for its own.
    pub ahead: Vec<usize>,
    /// Batches ahead that the loader wanted at the end.
    pub prefetch: usize,
}

/// A loader that is asked for batch after batch.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FreeRun {
    /// Batches that count.
    pub batches: usize,
    /// Those of the warm-up too.
    pub taken: usize,
    /// Seconds per batch.
    pub batch_s: f64,
    /// Seconds of each batch.
    pub each_s: Vec<f64>,
    /// Seconds of work per batch and stage, of all threads together.
    pub schedule_s: f64,
    /// The same of reading.
    pub fetch_s: f64,
    /// The same of decoding.
    pub decode_s: f64,
    /// The same of putting samples together.
    pub collate_s: f64,
    /// Stored bytes read per batch.
    pub fetch_bytes: f64,
    /// Decoded bytes per batch.
    pub decode_bytes: f64,
    /// Decoded bytes ÷ what is decoded if every frame is decoded once an epoch; 0 once everything stays.
    pub decode_excess: f64,
    /// Whether the warm-up lasted until the pool was full.
    pub is_steady: bool,
}

/// The loader with parts taken away.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Differences {
    /// Only reading is left.
    pub only_fetch: FreeRun,
    /// Stored bytes come from memory.
    pub without_fetch: FreeRun,
    /// Nothing is decoded.
    pub without_decode: FreeRun,
    /// Nothing is put into batches.
    pub without_collate: FreeRun,
    /// Without the share of the CPU that it is held to.
    pub without_cpu_limit: Option<FreeRun>,
    /// With as many batches ahead as the loader chooses.
    pub chosen_prefetch: Option<FreeRun>,
    /// The loop with a loader that does nothing: batches are only handed over.
    pub nothing: FedRun,
}

/// A stream that is read, and what codecs cost for such frames by the machine's record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamCosts {
    /// Its name.
    pub name: String,
    /// Its codec.
    pub codec: String,
    /// What it costs; `None` if nothing like it was measured.
    pub now: Option<Cost>,
    /// What was measured for frames of exactly this type.
    pub known: Vec<Cost>,
}

impl FreeRun {
    /// Standard deviation of a batch's time ÷ its mean.
    pub fn variation(&self) -> f64 {
        let count = self.each_s.len() as f64;
        if count < 2.0 || self.batch_s <= 0.0 {
            return 0.0;
        }
        let mean = self.each_s.iter().sum::<f64>() / count;
        let squares = self.each_s.iter().map(|each| (each - mean).powi(2));
        (squares.sum::<f64>() / count).sqrt() / mean.max(f64::MIN_POSITIVE)
    }
}
