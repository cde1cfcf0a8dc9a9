//! What to change in a loader that is not ours, each with the compute ratio measured or predicted for it.
//!
//! Without workers, a step and its batch add up; with workers they overlap, as in `model.rs`.

use super::evidence::{ForeignDifferences, ForeignEvidence};
use super::verdict::Stages;
use crate::doctor::changes::ranked;
use crate::doctor::model::{compute_ratio, replay};
use crate::doctor::remedy::{Change, Remedy};
use crate::doctor::verdict::{Cause, Verdict};

/// A stage below this fraction of a batch is not worth a change.
const STAGE: f64 = 0.1;

/// Starting workers below this fraction of an epoch is not worth a change.
const START: f64 = 0.01;

/// The largest `prefetch_factor` to recommend: each is a batch in memory, for every worker.
const MAX_PREFETCH_FACTOR: usize = 16;

/// The changes that would help, the best first: those that were measured, then those with an upper bound.
pub(super) fn changes(evidence: &ForeignEvidence, verdict: &Verdict) -> Vec<Change> {
    let mut advice = Advice {
        evidence,
        changes: Vec::new(),
    };
    if let Some(without) = evidence.without.as_ref().filter(|_| !verdict.met) {
        advice.collect(without, verdict.cause);
    }
    advice.start();
    advice.kinograph();
    let (bounds, mut found): (Vec<_>, Vec<_>) = advice
        .changes
        .into_iter()
        .partition(|change| is_bound(&change.remedy));
    found = ranked(found);
    found.extend(ranked(bounds));
    if found.is_empty() {
        found.push(Change {
            remedy: Remedy::Nothing,
            how: if verdict.met {
                "change nothing".to_owned()
            } else {
                "no option of the loader would help: make the step itself faster, or use a host with more cores".to_owned()
            },
            batch_s: evidence.whole.batch_s,
            compute_ratio: evidence.fed.compute_ratio,
            gain: 1.0,
            is_available: true,
        });
    }
    found
}

/// Whether only an upper bound is known of what a change brings: such changes come last.
fn is_bound(remedy: &Remedy) -> bool {
    matches!(
        remedy,
        Remedy::Staging
            | Remedy::CheaperItems
            | Remedy::CheaperCollate
            | Remedy::CheaperTransfer
            | Remedy::FasterLoader
    )
}

struct Advice<'e> {
    evidence: &'e ForeignEvidence,
    changes: Vec<Change>,
}

impl Advice<'_> {
    fn collect(&mut self, without: &ForeignDifferences, cause: Cause) {
        if cause == Cause::HandOver {
            return;
        }
        self.workers(without);
        self.prefetch(cause);
        self.pinned(without);
        let stages = Stages::of(self.evidence, without).filter(|_| cause != Cause::Jitter);
        if let Some(stages) = stages {
            self.stages(&stages);
        }
        if cause == Cause::Loader {
            self.add(
                Remedy::FasterLoader,
                "make the loader faster (upper bound: predicted for batches that are ready)"
                    .to_owned(),
                self.evidence.setting.num_workers,
                0.0,
            );
        }
    }

    /// A change after which a batch takes `batch_s` alone, with this many workers.
    fn add(&mut self, remedy: Remedy, how: String, workers: usize, batch_s: f64) {
        let evidence = self.evidence;
        let batch_s = batch_s * self.in_the_loop();
        let ratio = if workers == 0 {
            evidence.step_s / (evidence.step_s + batch_s).max(f64::MIN_POSITIVE)
        } else {
            let ahead = workers * evidence.setting.prefetch_factor.unwrap_or(2);
            compute_ratio(evidence.step_s, batch_s, evidence.variation(), ahead)
        };
        self.add_ratio(remedy, how, batch_s, ratio);
    }

    fn add_ratio(&mut self, remedy: Remedy, how: String, batch_s: f64, ratio: f64) {
        self.changes.push(Change {
            remedy,
            how,
            batch_s,
            compute_ratio: ratio,
            gain: ratio / self.evidence.fed.compute_ratio.max(1e-6),
            is_available: true,
        });
    }

    /// What a batch took in the loop ÷ what it took alone: the step and the loader share the cores.
    fn in_the_loop(&self) -> f64 {
        let (step_s, whole) = (self.evidence.step_s, self.evidence.whole.batch_s);
        if self.evidence.setting.num_workers == 0 || whole <= step_s {
            return 1.0;
        }
        (self.evidence.period_s() / whole).clamp(0.5, 2.0)
    }

    /// More workers as measured, and one for each core but one.
    fn workers(&mut self, without: &ForeignDifferences) {
        let Some(more) = &without.more_workers else {
            return;
        };
        let setting = &self.evidence.setting;
        let (now, measured) = (setting.num_workers, more.num_workers);
        self.add(
            Remedy::NumWorkers(measured),
            format!("`num_workers={measured}` instead of {now} (loader measured)"),
            measured,
            more.run.batch_s,
        );
        let most = setting.cores.saturating_sub(1);
        if most <= measured {
            return;
        }
        let passing = without.without_collate.as_ref();
        let passing = passing.map_or(0.0, |run| run.batch_s);
        let batch_s = (more.run.batch_s * measured as f64 / most as f64).max(passing);
        self.add(
            Remedy::NumWorkers(most),
            format!(
                "`num_workers={most}` instead of {now} ({} cores, one kept free for the training loop; extrapolated from {measured} workers)",
                setting.cores
            ),
            most,
            batch_s,
        );
    }

    /// A deeper prefetch: the batch times, replayed against the step.
    fn prefetch(&mut self, cause: Cause) {
        let evidence = self.evidence;
        let (workers, each_s) = (evidence.setting.num_workers, &evidence.whole.each_s);
        let Some(now) = evidence.setting.prefetch_factor.filter(|_| workers > 0) else {
            return;
        };
        if cause != Cause::Jitter {
            return;
        }
        let ratio = |factor: usize| replay(each_s, evidence.step_s, factor * workers);
        let deeper = (1..5).map(|doubled| (now.max(1) << doubled).min(MAX_PREFETCH_FACTOR));
        let best = deeper
            .clone()
            .find(|&factor| ratio(factor) >= evidence.target)
            .or(deeper.clone().next_back())
            .filter(|&factor| factor > now && ratio(factor) > ratio(now));
        if let Some(factor) = best {
            self.add_ratio(
                Remedy::PrefetchFactor(factor),
                format!("`prefetch_factor={factor}` instead of {now}"),
                evidence.whole.batch_s,
                ratio(factor),
            );
        }
    }

    fn pinned(&mut self, without: &ForeignDifferences) {
        if let Some(run) = &without.pinned {
            self.add_ratio(
                Remedy::PinMemory,
                "`pin_memory=True`, and copy batches with `non_blocking=True` (loop measured)"
                    .to_owned(),
                self.evidence.whole.batch_s,
                run.compute_ratio,
            );
        }
    }

    /// Each stage that costs something, taken away completely: the most that a change of it can bring.
    fn stages(&mut self, stages: &Stages) {
        let setting = &self.evidence.setting;
        let (workers, whole) = (setting.num_workers, self.evidence.whole.batch_s);
        let is_worth = |stage_s: f64| stage_s >= STAGE * whole;
        let per_sample = |stage_s: f64| match setting.batch {
            // Workers share the batches, so that a sample takes longer than its part of a batch.
            Some(batch) if batch > 0 => {
                let sample_s = stage_s * workers.max(1) as f64 / batch as f64;
                format!("{:.2} ms per sample", sample_s * 1e3)
            }
            _ => format!("{:.1} ms per batch", stage_s * 1e3),
        };
        if is_worth(stages.storage) {
            let how = format!(
                "copy the files to a faster local disk, or read fewer and larger pieces: `__getitem__` is blocked for {} (upper bound)",
                per_sample(stages.storage)
            );
            self.add(Remedy::Staging, how, workers, whole - stages.storage);
        }
        if is_worth(stages.decode) {
            let how = format!(
                "decode and transform less in `__getitem__`, which computes for {} (upper bound)",
                per_sample(stages.decode)
            );
            self.add(Remedy::CheaperItems, how, workers, whole - stages.decode);
        }
        if is_worth(stages.collate) {
            let how = format!(
                "do less in `collate_fn`, for example convert and normalize on the GPU: it takes {} (upper bound)",
                per_sample(stages.collate)
            );
            self.add(Remedy::CheaperCollate, how, workers, whole - stages.collate);
        }
        if workers > 0 && is_worth(stages.transfer) {
            let made = self.evidence.whole.made_s() / workers as f64;
            let how = if setting.pickled_bytes > setting.batch_bytes / 2 {
                "return tensors from the workers, which pass through shared memory; other objects are pickled (upper bound: nothing to pass)"
            } else {
                "pass fewer bytes: uint8 instead of floats, smaller images (upper bound: nothing to pass)"
            };
            self.add(Remedy::CheaperTransfer, how.to_owned(), workers, made);
        }
    }

    /// Workers that are kept between epochs.
    fn start(&mut self) {
        let share = self.evidence.start_share();
        if share < START {
            return;
        }
        let ratio = self.evidence.fed.compute_ratio;
        self.changes.push(Change {
            remedy: Remedy::PersistentWorkers,
            how: format!(
                "`persistent_workers=True`: starting workers takes {:.1} % of every epoch",
                share * 100.0
            ),
            batch_s: self.evidence.whole.batch_s,
            compute_ratio: ratio,
            gain: 1.0 / (1.0 - share).max(1e-6),
            is_available: true,
        });
    }

    /// A Kinograph loader, as measured.
    fn kinograph(&mut self) {
        if let Some(moved) = &self.evidence.kinograph {
            let fed = &moved.fed;
            self.add_ratio(
                Remedy::Kinograph,
                format!("move to Kinograph: {} (loop measured)", moved.loader),
                moved.whole.batch_s,
                fed.compute_ratio,
            );
        }
    }
}
