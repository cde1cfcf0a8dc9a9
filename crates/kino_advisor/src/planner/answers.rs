//! What a practitioner asks, answered from the predictions.

use serde::{Deserialize, Serialize};

use super::fewer_decodes::{FewerDecodes, fewer_decodes};
use super::predict::Predictor;
use super::search::{CandidatePlan, choose};
use super::{Limits, Planned, Question};
use crate::html::to_quantity;
use crate::idle_cost::{GpuPrice, IdleCost};

/// What follows from the predictions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Answers {
    /// Does it fit in memory, decoded or as it is stored?
    pub memory: MemoryFit,
    /// What the host needs, for this model and for one that steps twice as fast.
    pub needs: Vec<HostNeeds>,
    /// Epochs that each plan completes in the time given, in the order of the plans; empty if none was given.
    pub epochs: Vec<f64>,
    /// The share of the episodes that each plan could store within the limit on bytes; empty without one.
    pub episodes_share: Vec<f64>,
    /// What each limit costs: its name, and the compute ratio and bytes of the choice without it.
    pub without_limit: Vec<(String, f64, f64)>,
    /// Where memory for decoded frames is what limits the compute ratio: options of the loader that would raise it.
    #[serde(default)]
    pub fewer_decodes: Vec<FewerDecodes>,
    /// What the GPUs of this host cost while they wait for data; `None` without a price.
    pub idle_cost: Option<IdleCost>,
}

/// Whether everything fits in memory.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MemoryFit {
    /// Decoded bytes of everything that is loaded.
    pub decoded_bytes: f64,
    /// Memory for decoded frames, of one rank.
    pub loader_bytes: f64,
    /// Whether all decoded frames fit: then nothing is decoded after the first epoch.
    pub decoded_fits: bool,
    /// Memory that is left for stored bytes.
    pub page_cache_bytes: f64,
    /// Whether the chosen plan's stored bytes fit: then nothing is read after the first epoch.
    pub stored_fits: bool,
    /// The largest plan whose stored bytes fit, by its number: the highest quality that stays in memory.
    pub largest_that_fits: Option<usize>,
}

/// What a host needs per GPU to keep it busy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct HostNeeds {
    /// Seconds of a step.
    pub step_s: f64,
    /// Cores for loading, without the one that runs the training loop.
    pub cores: f64,
    /// Cores for decoding, by kind of stream.
    pub cores_by_kind: Vec<(String, f64)>,
    /// Bytes per second of storage.
    pub read_bytes_per_s: f64,
    /// Bytes of memory for decoded frames.
    pub memory_bytes: f64,
}

pub(super) fn answer(predictor: &Predictor<'_>, plans: &[CandidatePlan], chosen: usize) -> Answers {
    let Some(choice) = plans.get(chosen) else {
        return Answers::default();
    };
    let question = predictor.question;
    let limits = &question.limits;
    let epochs = question.hours.map(|hours| {
        let count = |plan: &CandidatePlan| hours * 3600.0 / plan.prediction.epoch_s.max(1e-9);
        plans.iter().map(count).collect()
    });
    let share = limits.max_bytes.map(|most| {
        let share = |plan: &CandidatePlan| (most as f64 / plan.prediction.bytes.max(1.0)).min(1.0);
        plans.iter().map(share).collect()
    });
    let gpus = u32::try_from(question.ranks).unwrap_or(u32::MAX);
    let price = question
        .gpu_price
        .and_then(|price| GpuPrice::new(price, gpus).ok());
    Answers {
        memory: memory(predictor, plans, choice),
        needs: [1.0, 2.0]
            .map(|speed| needs(predictor, choice, speed))
            .to_vec(),
        epochs: epochs.unwrap_or_default(),
        episodes_share: share.unwrap_or_default(),
        without_limit: without_limits(plans, limits),
        fewer_decodes: fewer_decodes(predictor, choice),
        idle_cost: price.map(|price| price.idle_cost(choice.prediction.compute_ratio)),
    }
}

fn memory(predictor: &Predictor<'_>, plans: &[CandidatePlan], choice: &CandidatePlan) -> MemoryFit {
    let loader = &predictor.measured.loader;
    let page_cache = predictor.page_cache();
    let fitting = plans.iter().enumerate();
    let fitting =
        fitting.filter(|(_, plan)| plan.is_allowed && plan.prediction.bytes <= page_cache);
    let largest = fitting.max_by(|a, b| a.1.prediction.bytes.total_cmp(&b.1.prediction.bytes));
    MemoryFit {
        decoded_bytes: loader.decoded_bytes,
        loader_bytes: loader.memory_bytes as f64,
        decoded_fits: loader.decodes == 0.0,
        page_cache_bytes: page_cache,
        stored_fits: choice.prediction.is_page_cached,
        largest_that_fits: largest.map(|(idx, _)| idx),
    }
}

/// For one rank, if the model were `speed` times as fast.
fn needs(predictor: &Predictor<'_>, choice: &CandidatePlan, speed: f64) -> HostNeeds {
    let question = Question {
        step_s: predictor.question.step_s / speed,
        ranks: 1,
        ..predictor.question.clone()
    };
    let faster = Predictor {
        question: &question,
        ..*predictor
    };
    let prediction = faster.predict(&choice.codecs);
    let by_kind = prediction.decode_by_kind.iter();
    HostNeeds {
        step_s: question.step_s,
        cores: prediction.cores,
        cores_by_kind: by_kind
            .map(|(kind, seconds)| (kind.clone(), seconds / question.step_s))
            .collect(),
        read_bytes_per_s: prediction.read_bytes_per_s,
        memory_bytes: predictor.measured.loader.memory_bytes as f64,
    }
}

fn without_limits(plans: &[CandidatePlan], limits: &Limits) -> Vec<(String, f64, f64)> {
    let mut found = Vec::new();
    let mut add = |name: &str, limits: Limits| {
        let (idx, _) = choose(plans, &limits);
        if let Some(plan) = plans.get(idx) {
            let prediction = &plan.prediction;
            found.push((name.to_owned(), prediction.compute_ratio, prediction.bytes));
        }
    };
    if limits.max_bytes.is_some() {
        add(
            "bytes",
            Limits {
                max_bytes: None,
                ..*limits
            },
        );
    }
    if limits.max_pack_s.is_some() {
        add(
            "pack time",
            Limits {
                max_pack_s: None,
                ..*limits
            },
        );
    }
    found
}

impl Planned {
    /// What follows for memory, the host, time and money.
    pub fn answer_lines(&self) -> Vec<String> {
        let answers = &self.answers;
        let memory = &answers.memory;
        let mut lines = vec![format!(
            "Memory: decoded, it is {}; {} for decoded frames, {} left for the page cache.{}",
            to_quantity(memory.decoded_bytes, "B"),
            to_quantity(memory.loader_bytes, "B"),
            to_quantity(memory.page_cache_bytes, "B"),
            match (memory.decoded_fits, memory.stored_fits) {
                (true, _) => " It fits decoded: nothing is decoded after the first epoch.",
                (false, true) =>
                    " It fits as it is stored: nothing is read from storage after the first epoch.",
                (false, false) => " It fits neither decoded nor as it is stored.",
            }
        )];
        if let Some(plan) = memory.largest_that_fits.and_then(|idx| self.plans.get(idx)) {
            lines.push(format!(
                "The largest plan that stays in the page cache: {} ({}).",
                self.plan_name(plan),
                to_quantity(plan.prediction.bytes, "B")
            ));
        }
        for needs in &answers.needs {
            let kinds = needs.cores_by_kind.iter();
            let kinds: Vec<String> = kinds
                .filter(|(_, cores)| *cores >= 0.005)
                .map(|(kind, cores)| format!("{kind} {cores:.2}"))
                .collect();
            lines.push(format!(
                "A GPU with steps of {} needs {:.2} cores to load (decoding: {}), {} of storage and {} of memory.",
                to_quantity(needs.step_s, "s"),
                needs.cores,
                if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") },
                to_quantity(needs.read_bytes_per_s, "B/s"),
                to_quantity(needs.memory_bytes, "B"),
            ));
        }
        if let (Some(hours), Some(epochs)) = (self.question.hours, answers.epochs.get(self.chosen))
        {
            lines.push(format!("In {hours} h: {epochs:.1} epochs."));
        }
        if let Some(share) = answers
            .episodes_share
            .get(self.chosen)
            .filter(|share| **share < 1.0)
        {
            lines.push(format!(
                "The limit on bytes holds {:.0} % of the episodes with this plan.",
                100.0 * share
            ));
        }
        for (name, ratio, bytes) in &answers.without_limit {
            lines.push(format!(
                "Without the limit on {name}: compute ratio {ratio:.3} in {}.",
                to_quantity(*bytes, "B")
            ));
        }
        for verified in &self.verified {
            let name = self
                .plans
                .get(verified.plan)
                .map(|plan| self.plan_name(plan));
            lines.push(format!(
                "Verified, {}: compute ratio {:.3} predicted, {:.3} measured; {} predicted, {} measured.",
                name.unwrap_or_default(),
                verified.predicted,
                verified.measured,
                to_quantity(verified.predicted_bytes, "B"),
                to_quantity(verified.measured_bytes, "B"),
            ));
        }
        lines.extend(
            answers
                .idle_cost
                .map(|cost| format!("In steady state, {cost}.")),
        );
        lines
    }
}
