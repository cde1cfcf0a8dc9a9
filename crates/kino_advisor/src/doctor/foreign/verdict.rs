//! The verdict on a loader that is not ours: one cause and one sentence, a pure function of the evidence.
//!
//! ```text
//! does the loop wait?                                          no  ─▶ nothing, a slow step, or the start of workers
//! does it wait almost as much for one batch again and again?   yes ─▶ the step itself
//! is the loader fast enough on average?                        yes ─▶ jitter; without workers: workers
//! can it be taken apart?                                       no  ─▶ the loader
//! otherwise: the stage that costs most; if it computes, and more workers help and have cores, workers
//! ```

use super::evidence::{ForeignDifferences, ForeignEvidence, LoaderKind};
use crate::doctor::evidence::FreeRun;
use crate::doctor::verdict::{Cause, ENOUGH, IDLE, MOST, Verdict};

/// More workers are the answer if they bring a batch below this fraction of its time.
const WORKERS_HELP: f64 = 0.75;

/// A second pass counts as faster if it takes this fraction of the first, or less.
const WARM: f64 = 0.9;

/// What each stage costs: seconds per batch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Stages {
    pub(super) storage: f64,
    pub(super) decode: f64,
    pub(super) collate: f64,
    pub(super) transfer: f64,
}

impl Stages {
    /// The differences between the runs, but no more than was measured inside the workers; what `__getitem__` costs is
    /// divided by how long it was blocked.
    ///
    /// Runs are short, and other processes delay some batches. So medians are compared, and a difference between two runs
    /// alone does not make a stage expensive. Nor does a fast second pass: what the page cache saves is blocked time.
    pub(super) fn of(evidence: &ForeignEvidence, without: &ForeignDifferences) -> Option<Self> {
        let typical = |run: &FreeRun| evidence.typical_s(run);
        let whole = typical(&evidence.whole);
        // Runs vary: one with less to do does not cost more.
        let items = typical(without.without_dataset.as_ref()?).min(whole);
        let ready = typical(without.without_collate.as_ref()?).min(items);
        let run = &evidence.whole;
        let workers = evidence.setting.num_workers.max(1) as f64;
        let dataset = (whole - items).min((run.fetch_s + run.decode_s) / workers);
        let collate = (items - ready).min(run.collate_s / workers);
        // Passing runs beside the making: it can only cost the time in which workers were not making batches.
        let idle = (whole - run.made_s() / workers).max(0.0);
        let blocked = run.fetch_s / (run.fetch_s + run.decode_s).max(f64::MIN_POSITIVE);
        // Of the mean, which counts for the throughput.
        let scale = run.batch_s / whole.max(f64::MIN_POSITIVE);
        Some(Self {
            storage: blocked * dataset * scale,
            decode: (1.0 - blocked) * dataset * scale,
            collate: collate * scale,
            transfer: ready.min(idle) * scale,
        })
    }

    fn largest(&self) -> Cause {
        let stages = [
            (Cause::Storage, self.storage),
            (Cause::Decode, self.decode),
            (Cause::Collate, self.collate),
            (Cause::Transfer, self.transfer),
        ];
        let largest = stages.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
        largest.map_or(Cause::Loader, |(cause, _)| cause)
    }
}

/// Derives the verdict from the evidence.
pub(super) fn judge(evidence: &ForeignEvidence) -> Verdict {
    let cause = cause(evidence);
    Verdict {
        cause,
        met: matches!(cause, Cause::Nothing | Cause::SlowStep),
        sentence: sentence(evidence, cause),
    }
}

fn cause(evidence: &ForeignEvidence) -> Cause {
    let (step, whole) = (evidence.step_s, evidence.whole.batch_s);
    let waiting = evidence.without.as_ref();
    let Some(without) = waiting.filter(|_| evidence.fed.compute_ratio < evidence.target) else {
        return if evidence.fed.compute_ratio * (1.0 - evidence.start_share()) < evidence.target {
            Cause::WorkerStart
        } else if whole <= step * IDLE {
            Cause::SlowStep
        } else {
            Cause::Nothing
        };
    };
    let left = 1.0 - without.nothing.compute_ratio;
    let is_most = left >= MOST * (1.0 - evidence.fed.compute_ratio);
    if without.nothing.compute_ratio < evidence.target && is_most {
        return Cause::HandOver;
    }
    let is_enough = whole <= step * ENOUGH;
    match (evidence.setting.kind, evidence.setting.num_workers) {
        (LoaderKind::Batches, _) => return Cause::Loader,
        // The loop makes its batches itself: a worker would make them during the step.
        (_, 0) if is_enough => return Cause::Workers,
        (_, 0) => {}
        _ if is_enough => return Cause::Jitter,
        _ => {}
    }
    let Some(stages) = Stages::of(evidence, without) else {
        return Cause::Loader;
    };
    let stage = stages.largest();
    let more = without.more_workers.as_ref();
    let helps = more.is_some_and(|more| {
        more.num_workers <= evidence.setting.cores && more.run.batch_s <= whole * WORKERS_HELP
    });
    if helps && matches!(stage, Cause::Decode | Cause::Collate) {
        return Cause::Workers;
    }
    stage
}

fn sentence(evidence: &ForeignEvidence, cause: Cause) -> String {
    let ms = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
    let (step, whole) = (ms(evidence.step_s), ms(evidence.whole.batch_s));
    let waits = format!(
        "the training loop computes {:.1} % of the time (target: {:.1} %)",
        evidence.fed.compute_ratio * 100.0,
        evidence.target * 100.0
    );
    let timing = format!("loading a batch takes {whole}, a step {step}");
    let setting = &evidence.setting;
    let workers = setting.num_workers;
    let without = evidence.without.clone().unwrap_or_default();
    let stages = Stages::of(evidence, &without).unwrap_or_default();
    let of_batch = |stage_s: f64| format!("{} of the {whole} of a batch", ms(stage_s));
    let why = match cause {
        Cause::SlowStep => {
            return format!("Nothing to fix: the training step dominates; {timing}; {waits}.");
        }
        Cause::WorkerStart => format!(
            "Starting workers ({workers}) is the bottleneck: {} of every epoch, {:.1} % of its time",
            ms(evidence.start_s),
            evidence.start_share() * 100.0
        ),
        Cause::HandOver => format!(
            "The step itself is the bottleneck, not the data: with one batch again and again the training loop still computes only {:.1} % of the time",
            without.nothing.compute_ratio * 100.0
        ),
        Cause::Jitter => format!(
            "Uneven batch times are the bottleneck: {timing}, but the slowest of {} batches took {} and at most {} are prefetched",
            evidence.whole.each_s.len(),
            ms(evidence.whole.each_s.iter().copied().fold(0.0, f64::max)),
            evidence.ahead()
        ),
        Cause::Workers if workers == 0 => format!(
            "Too few workers are the bottleneck: with `num_workers=0` the training loop makes its batches itself, between steps; {timing}"
        ),
        Cause::Workers => {
            let more = without.more_workers.as_ref();
            format!(
                "Too few workers are the bottleneck: with {workers}, {timing}; with {} it takes {}",
                more.map_or(0, |more| more.num_workers),
                ms(more.map_or(0.0, |more| more.run.batch_s))
            )
        }
        Cause::Storage => format!(
            "Storage is the bottleneck: `__getitem__` waits for {}{}; a step takes {step}",
            of_batch(stages.storage),
            reread(evidence, &without)
        ),
        Cause::Decode => format!(
            "Decoding is the bottleneck: `__getitem__` computes for {}; a step takes {step}",
            of_batch(stages.decode)
        ),
        Cause::Collate => format!(
            "Collating is the bottleneck: `collate_fn` takes {}; a step takes {step}",
            of_batch(stages.collate)
        ),
        Cause::Transfer => format!(
            "Passing batches from the workers to the training loop is the bottleneck: batches that are ready still take {} each ({:.1} MB, {:.1} MB of it pickled); a step takes {step}",
            ms(stages.transfer),
            setting.batch_bytes as f64 / 1e6,
            setting.pickled_bytes as f64 / 1e6
        ),
        Cause::Loader => {
            format!(
                "The loader is the bottleneck, and cannot be taken apart from outside: {timing}"
            )
        }
        Cause::Nothing | Cause::Memory | Cause::CpuShare => {
            return format!("Nothing to fix: {waits}; {timing}.");
        }
    };
    format!("{why}; {waits}.")
}

/// What a second pass over the same samples says about the storage.
fn reread(evidence: &ForeignEvidence, without: &ForeignDifferences) -> String {
    match &without.without_fetch {
        Some(run) if run.batch_s <= evidence.whole.batch_s * WARM => format!(
            " (from the page cache a batch takes {:.1} ms)",
            run.batch_s * 1e3
        ),
        Some(_) => {
            " (also when the same samples are read again, so for opening files, a network or a lock rather than for bytes)"
                .to_owned()
        }
        None => String::new(),
    }
}
