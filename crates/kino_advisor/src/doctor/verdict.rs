//! The verdict: one cause and one sentence, a pure function of the evidence.
//!
//! ```text
//! does the loop wait?                                             no  ─▶ nothing to fix, or the step dominates
//! does it wait almost as much for a loader that does no work?     yes ─▶ handing over
//! is the loader fast enough on average?                           yes ─▶ jitter
//! is a CPU limit what slows it down?                              yes ─▶ the CPU limit
//! otherwise: the stage whose removal helps most; if frames are decoded several times per epoch, memory
//! ```

use serde::{Deserialize, Serialize};

use super::evidence::{Differences, Evidence};

/// Below this fraction of a step the loader is irrelevant.
pub(super) const IDLE: f64 = 1.0 / 3.0;

/// Below this fraction of a step the loader is fast enough on average.
pub(super) const ENOUGH: f64 = 0.95;

/// A limit binds if removing it brings a batch below this fraction of its time.
const BINDS: f64 = 0.8;

/// Handing over is to blame if at least this fraction of the waiting remains with all stages disabled.
pub(super) const MOST: f64 = 0.5;

/// Decoding a frame more often than this per epoch counts as repeated decoding.
const AGAIN: f64 = 1.5;

/// What keeps the loop waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Nothing: the target is met.
    Nothing,
    /// Nothing, and the loader is several times faster than needed.
    SlowStep,
    /// Reading stored bytes.
    Storage,
    /// Decoding.
    Decode,
    /// Collating frames into batches: cropping, converting, normalizing, copying.
    Collate,
    /// Planning, handing a batch over, and what the step does with it.
    HandOver,
    /// Batches arrive unevenly, though fast enough on average.
    Jitter,
    /// Frames are decoded several times per epoch, because too few fit in memory.
    Memory,
    /// The CPU limit of the loader.
    CpuShare,
    /// Too few worker processes (another loader).
    Workers,
    /// Passing batches from worker processes to the training loop (another loader).
    Transfer,
    /// Starting worker processes for every epoch (another loader).
    WorkerStart,
    /// The loader, which cannot be taken apart from outside.
    Loader,
}

/// The doctor's verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What keeps the loop waiting.
    pub cause: Cause,
    /// Whether the target is met.
    pub met: bool,
    /// The verdict as a sentence, with figures.
    pub sentence: String,
}

/// Derives the verdict from the evidence.
pub(super) fn judge(evidence: &Evidence) -> Verdict {
    let cause = cause(evidence);
    let met = matches!(cause, Cause::Nothing | Cause::SlowStep);
    Verdict {
        cause,
        met,
        sentence: sentence(evidence, cause),
    }
}

fn cause(evidence: &Evidence) -> Cause {
    let (step, whole) = (evidence.step_s, evidence.whole.batch_s);
    let Some(without) = evidence
        .without
        .as_ref()
        .filter(|_| evidence.fed.compute_ratio < evidence.target)
    else {
        return if whole <= step * IDLE {
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
    let is_enough = |batch_s: f64| batch_s <= step * ENOUGH;
    let deeper = without.chosen_prefetch.as_ref();
    if is_enough(whole) || deeper.is_some_and(|run| is_enough(run.batch_s)) {
        return Cause::Jitter;
    }
    let unlimited = without.without_cpu_limit.as_ref();
    if unlimited.is_some_and(|run| run.batch_s <= whole * BINDS) {
        return Cause::CpuShare;
    }
    let stage = binding(evidence, without);
    if stage != Cause::Collate && evidence.whole.decode_excess >= AGAIN && evidence.whole.is_steady
    {
        return Cause::Memory;
    }
    stage
}

/// The stage whose removal speeds a batch up most; if none matters much alone, the one with the busiest threads.
fn binding(evidence: &Evidence, without: &Differences) -> Cause {
    let whole = evidence.whole.batch_s;
    let stages = [
        (Cause::Storage, without.without_fetch.batch_s),
        (Cause::Decode, without.without_decode.batch_s),
        (Cause::Collate, without.without_collate.batch_s),
    ];
    let best = stages
        .into_iter()
        .min_by(|(_, a), (_, b)| a.total_cmp(b))
        .filter(|(_, batch_s)| *batch_s <= whole * 0.9);
    if let Some((stage, _)) = best {
        return stage;
    }
    let run = &evidence.whole;
    let threads = evidence.setting.threads.max(1) as f64;
    let readers = evidence.setting.readers.max(1) as f64;
    let (reading, working) = (
        run.fetch_s / readers,
        (run.decode_s + run.collate_s) / threads,
    );
    match (reading > working, run.decode_s >= run.collate_s) {
        (true, _) => Cause::Storage,
        (false, true) => Cause::Decode,
        (false, false) => Cause::Collate,
    }
}

fn sentence(evidence: &Evidence, cause: Cause) -> String {
    let ms = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
    let (step, whole) = (ms(evidence.step_s), ms(evidence.whole.batch_s));
    let ratio = evidence.fed.compute_ratio;
    let waits = format!(
        "the training loop computes {:.1} % of the time (target: {:.1} %)",
        ratio * 100.0,
        evidence.target * 100.0
    );
    let Some(without) = evidence.without.as_ref() else {
        return match cause {
            Cause::SlowStep => format!(
                "Nothing to fix: the training step dominates. A step takes {step}, loading a batch {whole}; {waits}."
            ),
            _ => format!("Nothing to fix: {waits}. A step takes {step}, loading a batch {whole}."),
        };
    };
    let timing = |name: &str, batch_s: f64| {
        format!(
            "loading a batch takes {whole}, or {} without {name}; a step takes {step}",
            ms(batch_s)
        )
    };
    let why = match cause {
        // The last four are causes of other loaders only.
        Cause::Nothing
        | Cause::SlowStep
        | Cause::Workers
        | Cause::Transfer
        | Cause::WorkerStart
        | Cause::Loader => return format!("Nothing to fix: {waits}."),
        Cause::Storage => format!(
            "Storage is the bottleneck: {}",
            timing("reading", without.without_fetch.batch_s)
        ),
        Cause::Decode => format!(
            "Decoding is the bottleneck: {}",
            timing("decoding", without.without_decode.batch_s)
        ),
        Cause::Collate => format!(
            "Collating is the bottleneck: {}",
            timing("collating", without.without_collate.batch_s)
        ),
        Cause::HandOver => format!(
            "Handing batches over is the bottleneck: even with a loader that does no work the training loop computes only {:.1} % of the time",
            without.nothing.compute_ratio * 100.0
        ),
        Cause::Jitter => format!(
            "Uneven batch times are the bottleneck: loading a batch takes {whole} on average, less than the {step} of a step, but the slowest of {} batches took {} and only {} are prefetched",
            evidence.whole.each_s.len(),
            ms(evidence.whole.each_s.iter().copied().fold(0.0, f64::max)),
            evidence.fed.prefetch
        ),
        Cause::Memory => format!(
            "Memory is the bottleneck: too few decoded frames fit, so each frame is decoded {:.1} times per epoch; {}",
            evidence.whole.decode_excess,
            timing("decoding", without.without_decode.batch_s)
        ),
        Cause::CpuShare => format!(
            "The CPU limit is the bottleneck: with {:.2} cores, {}",
            evidence.setting.cpu_cores.unwrap_or(0.0),
            timing(
                "the limit",
                without
                    .without_cpu_limit
                    .as_ref()
                    .map_or(0.0, |run| run.batch_s)
            )
        ),
    };
    format!("{why}; {waits}.")
}
