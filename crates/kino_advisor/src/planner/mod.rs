//! The planner: which codec each stream should have, for this data, this storage, this machine and this model.
//!
//! ```text
//! whole.rs     what is planned for: a recording, or a part of one
//! streams.rs   a sample of each stream × candidate codecs      bytes, decode and encode time, error
//! loader.rs    the loader on the sample, with and without decoding   CPU per batch, reads, decodes per frame
//! storage.rs   the storage, measured cold and warm, or given   bandwidth, latency
//!        └──▶ predict.rs   a plan → batch time, compute ratio, cores, bytes, epoch     a pure function
//!                └──▶ search.rs   candidate plans → Pareto front → the chosen one      a pure function
//! signal.rs    `signal(…)` bounds → the codecs that keep them, before plans are compared; verdicts on plans
//! split.rs     images stored as recorded, decoded, resized or normalised   where to materialise
//! verify.rs    a plan, packed and loaded → prediction beside measurement
//! fewer_decodes.rs   more memory, or smaller shuffle groups → what they would bring
//! answers.rs   what follows: fits in memory, epochs per hour, what a GPU needs
//! text.rs, html.rs, plan_file.rs   the choice for people, and the plan for `pack` and `repack`
//! ```
//!
//! Nothing is lost, and no image is stored smaller, unless the caller allows it. What that would bring is shown all the same.

mod answers;
mod fewer_decodes;
mod html;
mod loader;
mod plan_file;
mod predict;
mod search;
mod signal;
mod split;
mod storage;
mod streams;
#[cfg(test)]
mod tests;
mod text;
mod verify;
mod whole;

use kino_dataset::{Plan, SlowStorage};
use serde::{Deserialize, Serialize};

pub use answers::{Answers, HostNeeds, MemoryFit};
pub use fewer_decodes::FewerDecodes;
pub use loader::LoaderCost;
pub use predict::Prediction;
pub use search::CandidatePlan;
pub use signal::{PROBING, ProbedPlans, SignalOptions};
pub use split::SplitPoint;
pub use storage::StorageCost;
pub use streams::{CodecOption, StreamOptions};
pub use verify::Verified;
pub use whole::Whole;

use crate::doctor::{Host, Subject};
use crate::error::{Result, invalid};
use crate::idle_cost::GpuPrice;
use crate::machine::{cores, memory_bytes};
use crate::signal::FoundBounds;

/// What to choose for, from which codecs, and how long to measure.
#[derive(Debug, Clone)]
pub struct PlannerOptions {
    /// What to choose for.
    pub question: Question,
    /// The storage; `None` measures the one that the sample is on.
    pub storage: Option<SlowStorage>,
    /// What may be lost: the bounds of its rules and its quality, and around which events nothing is. Its codecs have no effect,
    /// but for a `signal(…)` bound, which tries no others.
    pub bounds: Plan,
    /// What to ask the probe.
    pub signal: SignalOptions,
    /// Foreign codecs that may be chosen, by name: every reader of the dataset needs them too. Others are only compared.
    pub foreign: Vec<String>,
    /// Whether images may be stored in the size that the loader resizes them to: nothing else can be made of them then.
    pub allow_resize: bool,
    /// How long each run of the loader is measured, in seconds.
    pub seconds: f64,
    /// Decoded bytes of each stream to measure codecs on, at most.
    pub sample_bytes: usize,
}

impl Default for PlannerOptions {
    fn default() -> Self {
        Self {
            question: Question::default(),
            storage: None,
            bounds: Plan::lossless(),
            signal: SignalOptions::default(),
            foreign: Vec::new(),
            allow_resize: false,
            seconds: 1.0,
            sample_bytes: 16 << 20,
        }
    }
}

/// Limits of the chosen plan; `None` sets none.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of the dataset.
    pub max_bytes: Option<u64>,
    /// Seconds to pack it on this machine.
    pub max_pack_s: Option<f64>,
}

/// The model, the host and the limits that a plan is chosen for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Seconds of a training step.
    pub step_s: f64,
    /// Training processes on the host, one per GPU; they share cores, storage and memory.
    pub ranks: usize,
    /// Cores of the host.
    pub cores: usize,
    /// Memory of the host.
    pub memory_bytes: u64,
    /// Limits that the chosen plan must keep.
    pub limits: Limits,
    /// Price of a GPU hour, in any currency.
    pub gpu_price: Option<f64>,
    /// Hours of training, for the number of epochs.
    pub hours: Option<f64>,
}

impl Default for Question {
    /// Steps of 100 ms, in one process on this machine.
    fn default() -> Self {
        Self {
            step_s: 0.1,
            ranks: 1,
            cores: cores(),
            memory_bytes: memory_bytes(),
            limits: Limits::default(),
            gpu_price: None,
            hours: None,
        }
    }
}

/// Everything that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurements {
    /// The recording.
    pub whole: Whole,
    /// Streams and steps of a sample, for people.
    pub windows: Vec<String>,
    /// The storage.
    pub storage: StorageCost,
    /// The loader.
    pub loader: LoaderCost,
    /// Every stream, with its candidate codecs.
    pub streams: Vec<StreamOptions>,
    /// What may be lost, as it was asked.
    #[serde(default)]
    pub bounds: Plan,
    /// What its `signal(…)` bounds became.
    #[serde(default)]
    pub signal: Option<FoundBounds>,
}

/// What was measured, what follows for every candidate plan, and the choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// What was asked.
    pub question: Question,
    /// What was measured.
    pub measured: Measurements,
    /// Candidate plans, the smallest first.
    pub plans: Vec<CandidatePlan>,
    /// The number of the chosen one.
    pub chosen: usize,
    /// Whether it keeps the limits; otherwise none does, and the smallest was chosen.
    pub is_within_limits: bool,
    /// Images as they are recorded, decoded, resized and normalised; empty if the loader does not resize any.
    #[serde(default)]
    pub split_points: Vec<SplitPoint>,
    /// What follows for memory, time and money.
    pub answers: Answers,
    /// Plans whose predictions were compared with measurements.
    #[serde(default)]
    pub verified: Vec<Verified>,
    /// What the probe says of the plans that lose something, if it was asked.
    #[serde(default)]
    pub probed: Option<ProbedPlans>,
}

/// Measures a sample, predicts what candidate plans would do, and chooses one.
///
/// `subject` is the loader of the training loop on the sample, a dataset; `whole` is what the sample stands for.
pub fn choose_plan(
    subject: &Subject,
    whole: &Whole,
    options: &PlannerOptions,
    host: &mut dyn Host,
) -> Result<Planned> {
    check(options)?;
    let windows = subject.windows.first().and_then(|all| all.first());
    let windows = windows.ok_or_else(|| invalid("the training loop requests no stream"))?;
    let dataset = windows.dataset();
    let signal = signal::measure_bounds(subject, options, host)?;
    let streams = streams::measure_streams(subject, whole, (options, signal.as_ref()), host)?;
    host.begins("the storage");
    let storage = storage::measure_storage(dataset, options, subject.options.run.readers)?;
    let loader = loader::measure_loader(subject, whole, &streams, options, host)?;
    let measured = Measurements {
        whole: whole.clone(),
        windows: subject.window_names(),
        storage,
        loader,
        streams,
        bounds: options.bounds.clone(),
        signal,
    };
    let mut planned = Planned::of(measured, options.question.clone());
    if options.signal.verdicts {
        planned.probe(subject, options, host)?;
    }
    Ok(planned)
}

impl Planned {
    /// Predicts and chooses; nothing is measured.
    fn of(measured: Measurements, question: Question) -> Self {
        let predictor = predict::Predictor {
            now: if measured.whole.is_packed {
                "as it is"
            } else {
                "default"
            },
            measured: &measured,
            loader: &measured.loader,
            question: &question,
        };
        let plans = search::candidate_plans(&predictor);
        let (chosen, is_within_limits) = search::choose(&plans, &question.limits);
        let answers = answers::answer(&predictor, &plans, chosen);
        Self {
            split_points: split::split_points(&predictor, plans.get(chosen)),
            plans,
            chosen,
            is_within_limits,
            answers,
            measured,
            question,
            verified: Vec::new(),
            probed: None,
        }
    }

    /// The chosen plan.
    pub fn choice(&self) -> Option<&CandidatePlan> {
        self.plans.get(self.chosen)
    }

    /// The choice for another model, host, storage or limit, from the same measurements.
    pub fn what_if(&self, question: Question, storage: Option<SlowStorage>) -> Self {
        let mut measured = self.measured.clone();
        if let Some(given) = storage {
            measured.storage.set(given);
        }
        Self {
            probed: self.probed.clone(),
            ..Self::of(measured, question)
        }
    }
}

fn check(options: &PlannerOptions) -> Result<()> {
    let question = &options.question;
    if !(question.step_s > 0.0 && question.step_s <= 3600.0) {
        return Err(invalid(
            "the step time must be above 0 and at most one hour",
        ));
    }
    if question.ranks == 0 || question.cores == 0 {
        return Err(invalid(
            "a host has at least one core and one training process",
        ));
    }
    if !(options.seconds > 0.0 && options.seconds <= 600.0) {
        return Err(invalid(
            "the measuring time (`seconds`) must be above 0 and at most 600",
        ));
    }
    for name in &options.foreign {
        kino_codec::foreign_codec_text(name).map_err(|error| invalid(error.to_string()))?;
    }
    let gpus = u32::try_from(question.ranks).unwrap_or(u32::MAX);
    let price = question.gpu_price.map(|price| GpuPrice::new(price, gpus));
    price.transpose().map(drop)
}
