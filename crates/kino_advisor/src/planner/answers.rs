//! What a practitioner asks, answered from the predictions.

use serde::{Deserialize, Serialize};

use super::predict::Predictor;
use super::search::{CandidatePlan, choose};
use super::{Limits, Question};
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
