//! Substitutes: the scheduler finds another sample for one that cannot be read.
//!
//! ```text
//! index 42, attempt 0, 1, 2 …  ──order──▶ other samples of the same group, the first that can be opened and fits
//! ```
//!
//! Which one that is depends on the order and the damage alone, so every rank and every run finds the same.

use std::sync::Arc;

use kino_dataset::DatasetError;

use super::collate::steps_of;
use super::episodes::key_of;
use super::scheduler::Scheduler;
use super::shared::Shared;
use super::start::{Planned, Spot, start};
use super::worker::{MAX_ATTEMPTS, Replace, finish_sample, release};

impl Scheduler {
    /// Plans other samples in the place of those that could not be read.
    pub(super) fn replace(&mut self, shared: &Shared, replace: Vec<Replace>) {
        for one in replace {
            let (number, slot) = (one.batch.number, one.slot);
            let spot = Spot { number, slot };
            let failed = (one.attempt, one.error);
            match self.substitute(shared, spot, failed, Some(&one.steps)) {
                Ok(Some(planned)) => {
                    one.batch.samples()[slot] = planned.sample;
                    start(shared, planned.into_job(&one.batch, slot));
                }
                // The loader stops.
                Ok(None) => return,
                Err(error) => {
                    one.batch.fail(slot, error);
                    finish_sample(shared, &one.batch);
                }
            }
        }
    }

    /// Plans the first substitute from an attempt on that can be opened; `None` if the loader stops, the error of the
    /// sample if there is none.
    ///
    /// It is no longer than `steps`, those of the sample that it replaces: the others of the batch differ from rank to
    /// rank, the sample does not.
    pub(super) fn substitute(
        &mut self,
        shared: &Shared,
        spot: Spot,
        (first, error): (u64, Arc<DatasetError>),
        steps: Option<&[usize]>,
    ) -> Result<Option<Planned>, Arc<DatasetError>> {
        let Ok(range) = self.rank_range(spot.number) else {
            return Err(error);
        };
        for attempt in first..MAX_ATTEMPTS {
            let index = range.start + spot.slot as u64;
            let Ok(sample) = self.reader.substitute(index, attempt) else {
                return Err(error);
            };
            if !self.pooled.is_empty() {
                shared.cache().add_use(key_of(&sample), spot.number);
            }
            let Ok(planned) = self.plan_sample(shared, &sample, spot.number) else {
                continue;
            };
            let Some((plan, blocks)) = planned else {
                return Ok(None);
            };
            if steps.is_none_or(|most| steps_of(&plan).zip(most).all(|(len, most)| len <= *most)) {
                let attempt = attempt + 1;
                return Ok(Some(Planned {
                    sample,
                    attempt,
                    plan,
                    blocks,
                }));
            }
            release(shared, &blocks);
        }
        Err(error)
    }
}
