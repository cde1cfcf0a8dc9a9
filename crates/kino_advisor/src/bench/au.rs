//! The highest step rate at which an emulated accelerator is kept 90 % busy.
//!
//! ```text
//! T      time to load a batch, alone
//! step   T/2 ─────────×──── ✓ ──── 3T        bisection: ✓ is sustained, × is not
//! ```
//!
//! Utilisation is steps × step time ÷ elapsed time, as MLPerf Storage v3 defines it, for an emulation of what a
//! loader supplies; it is not an MLPerf result. The rules that make such figures honest are part of the result.

use std::time::Duration;

use super::{BenchResult, Better};
use crate::doctor::{BusyCore, Emulated, Host, Length, Subject, fed, free};
use crate::error::{Result, invalid};

/// Runs of the bisection: the answer is within 3T / 2⁷, two percent of T.
const HALVINGS: usize = 7;

/// How to measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AuOptions {
    /// The step time of a real policy in seconds, if known.
    pub step_s: Option<f64>,
    /// The utilisation to sustain.
    pub held: f64,
    /// Seconds per run.
    pub seconds: f64,
    /// Runs at the step time found.
    pub runs: usize,
}

impl Default for AuOptions {
    fn default() -> Self {
        Self {
            step_s: None,
            held: 0.9,
            seconds: 5.0,
            runs: 5,
        }
    }
}

/// Finds the highest step rate that is sustained.
pub fn bench_au(
    subject: &Subject,
    options: &AuOptions,
    host: &mut dyn Host,
) -> Result<BenchResult> {
    let counted = Duration::try_from_secs_f64(options.seconds)
        .map_err(|_| invalid("the measuring time (`seconds`) must be positive"))?;
    if !(options.held > 0.0 && options.held < 1.0) || options.runs == 0 {
        return Err(invalid(
            "the utilisation to sustain (`held`) must be above 0 and below 1, for example 0.9, and `runs` at least 1",
        ));
    }
    let windows = subject
        .windows
        .first()
        .and_then(|variants| variants.first());
    let mut result = BenchResult::new("au", windows.map(|windows| windows.dataset()));
    result.describe(subject);
    result.set("held", options.held);
    result.set("seconds", options.seconds);
    let length = Length {
        counted,
        batches: None,
    };
    host.begins("the time to load a batch, alone");
    let busy = BusyCore::new();
    let alone = free(subject, length, host)?;
    drop(busy);
    result.add(
        "time per batch, loader alone",
        alone.batch_s * 1e3,
        "ms",
        Better::Less,
    );

    let (mut fails, mut holds) = (alone.batch_s / 2.0, alone.batch_s * 3.0);
    for _ in 0..HALVINGS {
        let step_s = f64::midpoint(fails, holds);
        if utilisation(subject, length, step_s, host)? >= options.held {
            holds = step_s
        } else {
            fails = step_s
        }
    }
    let each = repeat(subject, length, holds, options.runs, host)?;
    result.add("shortest sustained step", holds * 1e3, "ms", Better::Less);
    result.add(
        "sustained step rate",
        1.0 / holds,
        "per second",
        Better::More,
    );
    add_runs(&mut result, "utilisation at that rate", &each);
    if let Some(step_s) = options.step_s {
        result.set("step_ms", step_s * 1e3);
        let each = repeat(subject, length, step_s, options.runs, host)?;
        add_runs(&mut result, "utilisation at the given step", &each);
        let kept = (step_s / holds).floor();
        result.add(
            "accelerators kept busy at the given step",
            kept,
            "",
            Better::More,
        );
    }
    result.rules = rules(&result, options);
    Ok(result)
}

fn utilisation(subject: &Subject, length: Length, step_s: f64, host: &mut dyn Host) -> Result<f64> {
    host.begins(&format!("steps of {:.2} ms", step_s * 1e3));
    for windows in subject.windows.iter().flatten() {
        windows.dataset().forget_cached()?;
    }
    host.look_up()?;
    let step = Duration::try_from_secs_f64(step_s).unwrap_or_default();
    let run = fed(subject, length, 0, step_s, &mut Emulated { step })?;
    Ok(run.utilisation)
}

fn repeat(
    subject: &Subject,
    length: Length,
    step_s: f64,
    runs: usize,
    host: &mut dyn Host,
) -> Result<Vec<f64>> {
    let mut each = (0..runs)
        .map(|_| utilisation(subject, length, step_s, host))
        .collect::<Result<Vec<_>>>()?;
    each.sort_by(f64::total_cmp);
    Ok(each)
}

/// The median, the minimum and the maximum of the runs.
fn add_runs(result: &mut BenchResult, name: &str, sorted: &[f64]) {
    let places = [
        (String::new(), sorted.len() / 2),
        (", lowest run".to_owned(), 0),
        (", highest run".to_owned(), sorted.len().saturating_sub(1)),
    ];
    for (part, place) in places {
        let value = sorted.get(place).copied().unwrap_or(0.0);
        result.add(&format!("{name}{part}"), value, "", Better::More);
    }
}

/// The rules for an honest emulation, and how each is followed here.
fn rules(result: &BenchResult, options: &AuOptions) -> Vec<String> {
    let stored = result.dataset.as_ref().map_or(0, |dataset| dataset.bytes);
    let times = stored as f64 / result.machine.memory_bytes.max(1) as f64;
    vec![
        "1. decoding, collating and batch memory are included (MLPerf Storage omits them)".to_owned(),
        "2. one core is kept busy, as by a training loop".to_owned(),
        "3. batches that were ready before a run do not count as steps".to_owned(),
        format!("4. the shards are dropped from the page cache before each run; the dataset has {times:.2} times the size of the memory (5 times would rule out caching)"),
        "5. a step spins on a monotonic clock instead of sleeping".to_owned(),
        match options.step_s {
            Some(step_s) => format!("6. the step time of {:.1} ms was given; publish it with the policy and the accelerator it was measured on", step_s * 1e3),
            None => "6. no step time was given: the rate is what this machine supplies, not what an accelerator needs".to_owned(),
        },
        format!("7. {} runs at the step time found, with the lowest and the highest; on an idle machine they differ by less than 5 %", options.runs),
        "utilisation as MLPerf Storage v3 defines it; this is not an MLPerf result".to_owned(),
    ]
}
