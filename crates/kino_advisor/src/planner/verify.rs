//! Prediction beside measurement: the loop with an emulated step, on a sample that was packed with a plan.

use std::time::Duration;

use kino_dataset::{SlowStorage, Storage};
use serde::{Deserialize, Serialize};

use super::loader::{scale, to_size};
use super::{Planned, StorageCost};
use crate::doctor::{Emulated, Host, Length, Subject, fed};
use crate::error::{Result, invalid};

/// How long the loop is measured.
const COUNTED: Duration = Duration::from_secs(4);

/// What was predicted for a plan, and what was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verified {
    /// The number of the plan among the candidates.
    pub plan: usize,
    /// The predicted compute ratio.
    pub predicted: f64,
    /// The measured compute ratio.
    pub measured: f64,
    /// Predicted bytes of the whole recording.
    pub predicted_bytes: f64,
    /// Bytes of the sample, scaled to the whole recording.
    pub measured_bytes: f64,
}

impl StorageCost {
    /// The same storage, to be emulated; `None` if it is the one that the sample is on.
    fn emulated(&self) -> Option<SlowStorage> {
        self.is_given.then(|| SlowStorage {
            bytes_per_s: self.bytes_per_s,
            latency: Duration::try_from_secs_f64(self.latency_s).unwrap_or_default(),
            stall: None,
        })
    }
}

impl Planned {
    /// Runs a training loop with emulated steps on a sample that was packed with candidate plan `plan`.
    ///
    /// `subject` is the loader on that sample. Steps keep a core busy, as a training loop does.
    pub fn verify(&self, plan: usize, subject: &Subject, host: &mut dyn Host) -> Result<Verified> {
        let candidate = self
            .plans
            .get(plan)
            .ok_or_else(|| invalid(format!("there is no plan {plan}")))?;
        let scale = scale(subject, &self.measured.whole);
        let mut subject = subject.clone();
        let memory = self.measured.loader.memory_bytes as f64 / scale;
        subject.options.memory = Some(to_size(memory));
        if let Some(slow) = self.measured.storage.emulated() {
            subject = subject.on(Storage {
                slow: Some(slow),
                keep_bytes: 0,
            })?;
        }
        let step_s = self.question.step_s;
        let step = Duration::try_from_secs_f64(step_s).unwrap_or_default();
        host.begins("the loop with its step");
        let mut looping = Looping {
            step: Emulated { step },
            host,
        };
        let length = Length {
            counted: COUNTED,
            batches: None,
        };
        let run = fed(&subject, length, settle(&subject), step_s, &mut looping)?;
        Ok(Verified {
            plan,
            predicted: candidate.prediction.compute_ratio,
            measured: run.compute_ratio,
            predicted_bytes: candidate.prediction.bytes,
            measured_bytes: self.whole_bytes(&subject),
        })
    }

    /// Bytes of the whole recording if each of its streams takes as much per frame as in the sample.
    fn whole_bytes(&self, subject: &Subject) -> f64 {
        let samples = subject.windows.first().and_then(|all| all.first());
        let streams = samples.map(|samples| samples.dataset().manifest().streams.iter());
        let bytes = streams.into_iter().flatten().map(|stream| {
            let frames = self.measured.whole.counts.frames.get(&stream.name);
            let scale = frames.map_or(0.0, |&all| all as f64 / stream.frames.max(1) as f64);
            stream.bytes as f64 * scale
        });
        bytes.sum()
    }
}

/// Batches in which a loader decides what stays in memory, and reads it: two epochs, and another.
fn settle(subject: &Subject) -> u64 {
    let batch = u64::from(subject.order.settings().batch_size).max(1);
    3 * subject.order.epoch_len() / batch
}

/// Emulated steps, which the host may interrupt.
struct Looping<'h> {
    step: Emulated,
    host: &'h mut dyn Host,
}

impl Host for Looping<'_> {
    fn step(&mut self, batch: kino_loader::Batch) -> Result<()> {
        self.step.step(batch)
    }

    fn look_up(&mut self) -> Result<()> {
        self.host.look_up()
    }
}
