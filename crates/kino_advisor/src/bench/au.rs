//! How many steps per second keep an emulated accelerator busy for 90 % of the time.
//!
//! ```text
//! T      what a batch takes, alone
//! step   T/2 ─────────×──── ✓ ──── 3T        halved again and again: ✓ is held, × is not
//! ```
//!
//! Utilisation is by the formula of MLPerf Storage v3, steps × step time ÷ elapsed, as an emulation of what a loader supplies;
//! it is no MLPerf result. The rules that make such figures honest are part of the result.

use std::time::Duration;

use super::{BenchResult, Better};
use crate::doctor::{BusyCore, Emulated, Host, Length, Subject, fed, free};
use crate::error::{Result, invalid};

/// Runs of the bisection: the answer is within 3T / 2⁷, two percent of T.
const HALVINGS: usize = 7;

/// How to measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AuOptions {
    /// The step time of a real policy, in seconds, if there is one.
    pub step_s: Option<f64>,
    /// The utilisation that is to be held.
    pub held: f64,
    /// How long each run takes.
    pub seconds: f64,
    /// Runs at the answer.
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

/// Finds the highest step rate that is held.
pub fn bench_au(
    subject: &Subject,
    options: &AuOptions,
    host: &mut dyn Host,
) -> Result<BenchResult> {
    let counted = Duration::try_from_secs_f64(options.seconds)
        .map_err(|_| invalid("measure for longer than nothing"))?;
    if !(options.held > 0.0 && options.held < 1.0) || options.runs == 0 {
        return Err(invalid(
            "hold a part of the time above 0 and below 1, such as 0.9, in one run or more",
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
    host.begins("what a batch takes, alone");
    let busy = BusyCore::new();
    let alone = free(subject, length, host)?;
    drop(busy);
    result.add("batch, alone", (alone.batch_s * 1e3, "ms"), Better::Less);

    let (mut fails, mut holds) = (alone.batch_s / 2.0, alone.batch_s * 3.0);
    for _ in 0..HALVINGS {
        let step_s = f64::midpoint(fails, holds);
        match utilisation(subject, (length, step_s), host)? >= options.held {
            true => holds = step_s,
            false => fails = step_s,
        }
    }
    let each = repeat(subject, (length, holds), options.runs, host)?;
    result.add("step that is held", (holds * 1e3, "ms"), Better::Less);
    result.add(
        "steps that are held",
        (1.0 / holds, "per second"),
        Better::More,
    );
    add_runs(&mut result, "utilisation there", &each);
    if let Some(step_s) = options.step_s {
        result.set("step_ms", step_s * 1e3);
        let each = repeat(subject, (length, step_s), options.runs, host)?;
        add_runs(&mut result, "utilisation at the given step", &each);
        let kept = (step_s / holds).floor();
        result.add(
            "accelerators of that step that are kept busy",
            (kept, ""),
            Better::More,
        );
    }
    result.rules = rules(&result, options);
    Ok(result)
}

fn utilisation(
    subject: &Subject,
    (length, step_s): (Length, f64),
    host: &mut dyn Host,
) -> Result<f64> {
    host.begins(&format!("steps of {:.2} ms", step_s * 1e3));
    for windows in subject.windows.iter().flatten() {
        windows.dataset().forget_cached()?;
    }
    host.look_up()?;
    let step = Duration::try_from_secs_f64(step_s).unwrap_or_default();
    let run = fed(subject, (length, step_s), &mut Emulated { step })?;
    Ok(run.utilisation)
}

fn repeat(
    subject: &Subject,
    run: (Length, f64),
    runs: usize,
    host: &mut dyn Host,
) -> Result<Vec<f64>> {
    let mut each = (0..runs)
        .map(|_| utilisation(subject, run, host))
        .collect::<Result<Vec<_>>>()?;
    each.sort_by(f64::total_cmp);
    Ok(each)
}

/// The median of runs, the least and the most.
fn add_runs(result: &mut BenchResult, name: &str, sorted: &[f64]) {
    let places = [
        (String::new(), sorted.len() / 2),
        (", least of the runs".to_owned(), 0),
        (
            ", most of the runs".to_owned(),
            sorted.len().saturating_sub(1),
        ),
    ];
    for (part, place) in places {
        let value = sorted.get(place).copied().unwrap_or(0.0);
        result.add(&format!("{name}{part}"), (value, ""), Better::More);
    }
}

/// The rules for an honest emulation, and how each is kept here.
fn rules(result: &BenchResult, options: &AuOptions) -> Vec<String> {
    let stored = result.dataset.as_ref().map_or(0, |dataset| dataset.bytes);
    let times = stored as f64 / result.machine.memory_bytes.max(1) as f64;
    vec![
        "1. decoding, collating and the batch's memory are part of what is measured (MLPerf Storage leaves them out)".to_owned(),
        "2. one core is kept busy as the accelerator's training loop".to_owned(),
        "3. batches that lay ready before a run are not counted as steps".to_owned(),
        format!("4. the system is asked to forget the shards before each run; the dataset is {times:.2} times the memory (5 would be safe)"),
        "5. a step spins on a monotonic clock, it does not sleep".to_owned(),
        match options.step_s {
            Some(step_s) => format!("6. the step of {:.1} ms was given: it should be that of a named policy on a named accelerator", step_s * 1e3),
            None => "6. no step time was given: the rate is what this machine supplies, not what an accelerator asks for".to_owned(),
        },
        format!("7. {} runs at the answer, with the least and the most; runs on a quiet machine differ by less than 5 %", options.runs),
        "utilisation is by the formula of MLPerf Storage v3; this is no MLPerf result".to_owned(),
    ]
}
