//! The verdict: one cause and one sentence, a pure function of the evidence.
//!
//! ```text
//! does the loop wait?                 no  ─▶ nothing to fix, or the step is all there is
//! does it wait almost as much for a loader that does nothing?    yes ─▶ handing over
//! could the loader make enough, on the average?   yes ─▶ jitter
//! is it held to a share of the CPU that binds?      ─▶ the share
//! otherwise: the stage without which a batch is made soonest; decoding frames again and again is memory
//! ```

use serde::{Deserialize, Serialize};

use super::evidence::{Differences, Evidence};

/// A loader that needs less than this part of a step is no matter at all.
const IDLE: f64 = 1.0 / 3.0;

/// A loader that needs less than this part of a step makes enough on the average.
const ENOUGH: f64 = 0.95;

/// A limit binds if a batch takes less than this part of its time without it.
const BINDS: f64 = 0.8;

/// What is left of the waiting without any stage is the hand-over's fault if it is more than this part of it.
const MOST: f64 = 0.5;

/// A frame that is decoded more often than this an epoch is decoded again and again.
const AGAIN: f64 = 1.5;

/// What keeps the loop waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Nothing: the target is met.
    Nothing,
    /// Nothing, and the loader could do several times as much.
    SlowStep,
    /// Reading stored bytes.
    Storage,
    /// Decoding.
    Decode,
    /// Putting frames into batches: cutting, converting, normalising, copying.
    Collate,
    /// Planning, handing a batch over, and what the step does with it.
    HandOver,
    /// Batches come unevenly, though fast enough on the average.
    Jitter,
    /// Frames are decoded again and again, because too few fit into memory.
    Memory,
    /// The share of the CPU that the loader is held to.
    CpuShare,
}

/// What the doctor says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What keeps the loop waiting.
    pub cause: Cause,
    /// Whether the target is met.
    pub met: bool,
    /// The same in a sentence, with figures.
    pub sentence: String,
}

/// Judges what was seen.
pub fn judge(evidence: &Evidence) -> Verdict {
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
        return match whole <= step * IDLE {
            true => Cause::SlowStep,
            false => Cause::Nothing,
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

/// The stage without which a batch is made soonest; if none is worth much alone, the one whose threads are the busiest.
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
        "the loop computes for {:.1} % of the time (asked for: {:.1} %)",
        ratio * 100.0,
        evidence.target * 100.0
    );
    let Some(without) = evidence.without.as_ref() else {
        return match cause {
            Cause::SlowStep => format!(
                "Nothing to fix: the step of {step} is all there is, a batch takes {whole}; {waits}."
            ),
            _ => format!("Nothing to fix: {waits}, and a batch takes {whole} of a step of {step}."),
        };
    };
    let taken = |name: &str, batch_s: f64| {
        format!(
            "a batch takes {whole}, without {name} {}, and the step is {step}",
            ms(batch_s)
        )
    };
    let why = match cause {
        Cause::Nothing | Cause::SlowStep => return format!("Nothing to fix: {waits}."),
        Cause::Storage => format!(
            "Storage is the limit: {}",
            taken("reading", without.without_fetch.batch_s)
        ),
        Cause::Decode => format!(
            "Decoding is the limit: {}",
            taken("it", without.without_decode.batch_s)
        ),
        Cause::Collate => format!(
            "Putting frames into batches is the limit: {}",
            taken("it", without.without_collate.batch_s)
        ),
        Cause::HandOver => format!(
            "Handing batches over is the limit: even a loader that does nothing leaves the loop at {:.1} %",
            without.nothing.compute_ratio * 100.0
        ),
        Cause::Jitter => format!(
            "Unevenness is the limit: a batch takes {whole} on the average, less than the step of {step}, but the slowest of {} took {} with {} ahead",
            evidence.whole.each_s.len(),
            ms(evidence.whole.each_s.iter().copied().fold(0.0, f64::max)),
            evidence.fed.prefetch
        ),
        Cause::Memory => format!(
            "Memory is the limit: every frame is decoded {:.1} times an epoch, because too few fit; {}",
            evidence.whole.decode_excess,
            taken("decoding", without.without_decode.batch_s)
        ),
        Cause::CpuShare => format!(
            "The CPU's share is the limit: held to {:.2} cores {}",
            evidence.setting.cpu_cores.unwrap_or(0.0),
            taken(
                "that limit",
                without
                    .without_cpu_limit
                    .as_ref()
                    .map_or(0.0, |run| run.batch_s)
            )
        ),
    };
    format!("{why}; {waits}.")
}
