//! Substitutes: the scheduler replaces samples that cannot be read.
//!
//! ```text
//! index 42, attempt 0, 1, 2 …  ──order──▶ other samples of the same group; takes the first that opens and fits
//! ```
//!
//! The choice depends only on the order and the damage, so every rank and every run finds the same substitute.

use std::sync::Arc;

use kino_dataset::DatasetError;

use super::Scheduler;
use super::inbox::FailedSample;
use super::plan::{Planned, Spot, start};
use crate::engine::assembler::steps_of;
use crate::engine::shared::Shared;
use crate::engine::store::SlotId;
use crate::engine::threads::{MAX_ATTEMPTS, finish_sample};

impl Scheduler {
    /// Schedules other samples in place of those that could not be read.
    pub(crate) fn replace(&mut self, shared: &Shared, failed: Vec<FailedSample>) {
        for FailedSample {
            slot: SlotId {
                batch: number,
                slot,
            },
            attempt,
            steps,
            error,
        } in failed
        {
            let spot = Spot {
                number,
                slot,
                attempt,
            };
            let Some(batch) = shared.batch(number) else {
                continue;
            };
            match self.substitute(shared, spot, error, Some(&steps)) {
                Ok(Some(planned)) => {
                    batch.samples()[slot] = planned.sample;
                    start(shared, &batch, slot, &planned.into_job());
                }
                // The loader is stopping.
                Ok(None) => return,
                Err(error) => {
                    batch.fail(slot, error);
                    finish_sample(shared, &batch);
                }
            }
        }
    }

    /// Schedules the first substitute that can be opened; `None` if the loader is stopping, the sample's own error if
    /// there is no substitute.
    ///
    /// Its windows are no longer than `steps`, those of the sample it replaces. The limit comes from that sample and
    /// not from the batch, because the other samples of the batch differ from rank to rank.
    pub(crate) fn substitute(
        &mut self,
        shared: &Shared,
        spot: Spot,
        error: Arc<DatasetError>,
        steps: Option<&[usize]>,
    ) -> Result<Option<Planned>, Arc<DatasetError>> {
        let Ok(range) = self.rank_range(spot.number) else {
            return Err(error);
        };
        for attempt in spot.attempt..MAX_ATTEMPTS {
            let index = range.start + spot.slot as u64;
            let Ok(sample) = self.reader.substitute(index, attempt) else {
                return Err(error);
            };
            self.add_use(shared, &sample, spot.number);
            let Ok(planned) = self.plan_sample(shared, &sample, spot.number) else {
                continue;
            };
            let Some((sample_frames, blocks)) = planned else {
                return Ok(None);
            };
            let fits = steps.is_none_or(|most| {
                steps_of(&sample_frames)
                    .zip(most)
                    .all(|(len, most)| len <= *most)
            });
            if fits {
                return Ok(Some(Planned {
                    sample,
                    attempt: attempt + 1,
                    plan: sample_frames,
                    blocks,
                }));
            }
            shared.store.give_back(&blocks);
        }
        Err(error)
    }
}
