//! A loop with a step between batches, and what was measured in it.
//!
//! ```text
//! | wait | step | wait | step | …          compute ratio: steps ÷ (steps + waits)
//! ```
//!
//! Batches that were ready when counting began were made earlier. For each of them that has not been replaced at the
//! end, one step is not counted, so that a loader that drains its prefetched batches does not look faster than it is.

use std::time::{Duration, Instant};

use kino_loader::Loader;

use super::evidence::FedRun;
use super::run::{Emulated, Host, KEPT, LEAST, Length, Subject, WarmUp, take, too_short};
use crate::error::Result;

/// At least this many batches use freshly allocated memory.
const FRESH: usize = 4;

/// A loader may settle for this many times as long as the loop is counted.
const MOST_SETTLING: u32 = 4;

/// Step times, as they are counted.
#[derive(Debug, Default)]
struct Steps {
    waited_s: f64,
    stepped_s: f64,
    run: FedRun,
}

impl Steps {
    /// Waits for a batch and runs its step; `false` after the last batch.
    fn count(&mut self, loader: &mut Loader, host: &mut dyn Host) -> Result<bool> {
        let (ahead, _) = loader.watch().ready();
        let asked = Instant::now();
        let Some(batch) = take(loader, host)? else {
            return Ok(false);
        };
        let came = Instant::now();
        host.step(batch)?;
        let wait = came.duration_since(asked).as_secs_f64();
        self.waited_s += wait;
        self.stepped_s += came.elapsed().as_secs_f64();
        self.run.steps += 1;
        if self.run.waits_s.len() < KEPT {
            self.run.waits_s.push(wait);
            self.run.ahead.push(ahead);
        }
        Ok(true)
    }

    /// The result, if `stock` steps used batches that were made before; `step_s` is the time of a step alone.
    fn finish(self, stock: usize, step_s: f64) -> Result<FedRun> {
        let mut run = self.run;
        if run.steps == 0 {
            return Err(too_short());
        }
        run.step_s = self.stepped_s / run.steps as f64;
        run.steps -= stock.min(run.steps - 1);
        let computed = run.steps as f64 * run.step_s;
        run.compute_ratio = computed / (computed + self.waited_s).max(f64::MIN_POSITIVE);
        let alone = step_s / run.step_s.max(f64::MIN_POSITIVE);
        run.utilisation = alone.min(1.0) * run.compute_ratio;
        Ok(run)
    }
}

/// Runs a loop with the host's step; `step_s` is the time of a step alone.
///
/// What the loader does in its first `settle` batches is not counted, as far as they do not take too long.
pub(crate) fn fed(
    subject: &Subject,
    length: Length,
    settle: u64,
    step_s: f64,
    host: &mut dyn Host,
) -> Result<FedRun> {
    let mut loader = subject.start(length.batches)?;
    let mut warm = WarmUp::new(length.counted / 2);
    let (mut is_warm, mut taken, began) = (false, 0, Instant::now());
    while !is_warm || (taken < settle && began.elapsed() < length.counted * MOST_SETTLING) {
        let Some(batch) = take(&mut loader, host)? else {
            return Err(too_short());
        };
        host.step(batch)?;
        taken += 1;
        is_warm |= warm.ends(&loader.report()).is_some();
    }
    let mut steps = Steps::default();
    let ((ready, _), began) = (loader.watch().ready(), Instant::now());
    while began.elapsed() < length.counted || steps.run.steps < LEAST {
        if !steps.count(&mut loader, host)? {
            break;
        }
    }
    let (left, prefetch) = loader.watch().ready();
    steps.run.prefetch = prefetch;
    steps.finish(ready.saturating_sub(left), step_s)
}

/// Runs an emulated loop over the same few batches repeatedly. The first of each round are not counted: their memory
/// is freshly allocated.
pub(crate) fn rounds(
    subject: &Subject,
    length: Length,
    step_s: f64,
    host: &mut dyn Host,
) -> Result<FedRun> {
    let step = Duration::try_from_secs_f64(step_s).unwrap_or_default();
    let mut emulated = Emulated { step };
    let mut steps = Steps::default();
    let began = Instant::now();
    while began.elapsed() < length.counted || steps.run.steps < LEAST {
        host.look_up()?;
        let mut loader = subject.start(length.batches)?;
        let most = length.batches.map_or(usize::MAX, |batches| {
            usize::try_from(batches / 2).unwrap_or(usize::MAX)
        });
        for _ in 0..most.clamp(1, 2 * loader.watch().ready().1.max(FRESH)) {
            let first = take(&mut loader, host)?.ok_or_else(too_short)?;
            emulated.step(first)?;
        }
        let before = steps.run.steps;
        while steps.count(&mut loader, &mut emulated)? {
            if began.elapsed() >= length.counted {
                break;
            }
        }
        if steps.run.steps == before {
            return Err(too_short());
        }
        steps.run.prefetch = loader.watch().ready().1;
    }
    steps.finish(0, step_s)
}

/// Seconds of a step on a batch that is already there; `None` if the host only emulates steps.
pub(crate) fn step_alone(
    subject: &Subject,
    time: Duration,
    host: &mut dyn Host,
) -> Result<Option<f64>> {
    let mut loader = subject.start(None)?;
    let batch = take(&mut loader, host)?.ok_or_else(too_short)?;
    // The loader's threads must not compete for the cores.
    drop(loader);
    host.step(batch)?;
    let (began, mut each) = (Instant::now(), Vec::new());
    while each.len() < LEAST || began.elapsed() < time && each.len() < KEPT {
        host.look_up()?;
        let start = Instant::now();
        if !host.again()? {
            return Ok(None);
        }
        each.push(start.elapsed().as_secs_f64());
    }
    each.sort_by(f64::total_cmp);
    Ok(each.get(each.len() / 2).copied())
}
