//! Substitutes: the planner replaces samples that cannot be read.
//!
//! ```text
//! index 42, attempt 0, 1, 2 …  ──order──▶ other samples of the same group; takes the first that opens and fits
//! ```
//!
//! The choice depends only on the order and the damage, so every rank and every run finds the same substitute.

use std::sync::Arc;

use kino_dataset::DatasetError;

use super::Planner;
use super::inbox::FailedSample;
use super::plan::start;
use crate::engine::assembler::{Planned, SampleJob, steps_of};
use crate::engine::store::SlotId;
use crate::engine::threads::Engine;

/// Substitutes tried before the batch fails.
pub(crate) const MAX_ATTEMPTS: u64 = 64;

impl Planner {
    /// Schedules other samples in place of those that could not be read.
    pub(crate) fn replace(&mut self, engine: &Engine, failed: Vec<FailedSample>) {
        for one in failed {
            let SlotId { batch, slot } = one.slot;
            let Some(batch) = engine.assembler.batch(batch) else {
                continue;
            };
            match self.substitute(engine, &one) {
                Ok(Some(planned)) => {
                    batch.samples()[slot] = planned.sample;
                    start(engine, &batch, slot, planned.job);
                }
                // The loader is stopping.
                Ok(None) => return,
                Err(error) => {
                    batch.fail(slot, error);
                    engine.end_sample(&batch);
                }
            }
        }
    }

    /// Schedules the first substitute that can be opened; `None` if the loader is stopping, the sample's own error if
    /// there is no substitute.
    ///
    /// Its windows are no longer than those of the sample it replaces. The limit comes from that sample and not from the batch,
    /// because the other samples of the batch differ from rank to rank.
    pub(crate) fn substitute(
        &mut self,
        engine: &Engine,
        failed: &FailedSample,
    ) -> Result<Option<Planned>, Arc<DatasetError>> {
        let SlotId { batch, slot } = failed.slot;
        let error = || Arc::clone(&failed.error);
        let Ok(range) = self.rank_range(batch) else {
            return Err(error());
        };
        for attempt in failed.attempt..MAX_ATTEMPTS {
            let index = range.start + slot as u64;
            let Ok(sample) = self.reader.substitute(index, attempt) else {
                return Err(error());
            };
            self.add_use(engine, &sample, batch);
            let Ok(job) = self.plan_sample(engine, &sample, batch) else {
                continue;
            };
            let Some(job) = job else {
                return Ok(None);
            };
            let fits = failed.steps.as_ref().is_none_or(|most| {
                steps_of(&job.plan)
                    .zip(most)
                    .all(|(len, most)| len <= *most)
            });
            if fits {
                let attempt = attempt + 1;
                let job = SampleJob { attempt, ..job };
                return Ok(Some(Planned { sample, job }));
            }
            engine.store.give_back(&job.blocks);
        }
        Err(error())
    }
}
