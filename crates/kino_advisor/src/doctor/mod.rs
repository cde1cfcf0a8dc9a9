//! The doctor: does the training loop wait for data, what for, and what would help.
//!
//! ```text
//! 1  fed      the loop with its step                                             does it wait?  ─▶ no: done
//! 2  free     the loader alone: all stages, then one disabled at a time           ─▶ which stage?
//! 3  nothing  the loop with a loader that does no work                           ─▶ or is it the hand-over?
//! ```
//!
//! The measurements are the [`Evidence`]; [`judge`] derives a [`Verdict`] from it and [`changes`] a ranked list, both
//! pure functions. Runs without reading take their bytes from memory, where a first pass has put them. While the
//! loader runs alone one core is kept busy, as the training loop would do.
//!
//! | file | holds |
//! |---|---|
//! | `run.rs`, `fed.rs` | one run, without a step and with one, and what is counted |
//! | `evidence.rs` | the measurements |
//! | `verdict.rs`, `changes.rs`, `remedy.rs`, `model.rs` | what follows from them |
//! | `text.rs`, `html.rs` | the diagnosis as text and as HTML |
//! | `foreign/` | all of this for a loader that is not ours |

mod changes;
mod evidence;
mod fed;
mod foreign;
mod html;
mod model;
mod remedy;
mod run;
#[cfg(test)]
mod tests;
mod text;
mod verdict;

use std::time::Duration;

use kino_codec::FrameType;
use kino_dataset::{CostRecord, Dataset, Storage, StreamSummary};
use kino_loader::{ImageDtype, PerKey, Ranks, Shuffle, ShuffleQuality};
use serde::{Deserialize, Serialize};

pub use foreign::{ForeignDiagnosis, ForeignEvidence, Found, examine};
pub use remedy::Remedy;
pub use run::{Emulated, Host, Subject};
pub use verdict::Cause;

use changes::changes;
pub(crate) use evidence::FreeRun;
use evidence::{Differences, Evidence, Setting, StreamCosts, VariantCost};
pub(crate) use fed::fed;
use fed::{rounds, step_alone};
pub(crate) use model::compute_ratio;
use remedy::Change;
pub(crate) use run::{BusyCore, Length, free};
pub(crate) use text::quantile;
use verdict::{Verdict, judge};

use crate::error::{Result, invalid};
use crate::idle_cost::{GpuPrice, Idle};
use crate::machine::{cores, load, memory_bytes};

/// How to run the doctor.
#[derive(Debug, Clone)]
pub struct DoctorOptions {
    /// Seconds of a step; `None` measures the host's own step.
    pub step_s: Option<f64>,
    /// The compute ratio to reach.
    pub target: f64,
    /// How long the loop is measured, in seconds; every other run takes half as long.
    pub seconds: f64,
    /// Cores that the loader may be advised to use.
    pub cores: usize,
    /// Stored bytes to keep in memory for runs without reading.
    pub keep_bytes: u64,
    /// Whether to keep a core busy while the loader runs alone.
    pub reserve_core: bool,
    /// Emulated storage.
    pub storage: Storage,
    /// The emulated storage as the user wrote it, for the report.
    pub storage_words: Option<String>,
    /// What codecs cost on this machine.
    pub costs: CostRecord,
    /// What a GPU costs, to give waiting a price.
    pub gpu_price: Option<GpuPrice>,
}

impl Default for DoctorOptions {
    fn default() -> Self {
        Self {
            step_s: None,
            target: 0.95,
            seconds: 10.0,
            cores: cores(),
            keep_bytes: (memory_bytes() / 8).clamp(64 << 20, 4 << 30),
            reserve_core: cores() > 1,
            storage: Storage::default(),
            storage_words: None,
            costs: CostRecord::default(),
            gpu_price: None,
        }
    }
}

/// What the doctor found, from the evidence of our loader or of [another](ForeignEvidence).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis<E = Evidence> {
    /// The verdict.
    pub verdict: Verdict,
    /// How much the loop waits, and what that costs.
    #[serde(default)]
    pub idle: Idle,
    /// What to change, the best first.
    pub changes: Vec<Change>,
    /// The measurements.
    pub evidence: E,
}

impl Diagnosis {
    /// Derives the verdict and the changes from the evidence.
    fn of(evidence: Evidence, gpu_price: Option<GpuPrice>) -> Self {
        let verdict = judge(&evidence);
        Self {
            changes: changes(&evidence, &verdict),
            verdict,
            idle: Idle::of(evidence.fed.compute_ratio, gpu_price),
            evidence,
        }
    }
}

/// Examines a loader: runs it with the host's step and with stages disabled, for about five times `seconds` if the
/// loop waits.
pub fn diagnose(
    subject: &Subject,
    options: &DoctorOptions,
    host: &mut dyn Host,
) -> Result<Diagnosis> {
    let counted = check(options)?;
    // Measured before this process adds its own load.
    let load = load();
    let slowed = options.storage != Storage::default();
    let subject = if slowed {
        subject.on(options.storage)?
    } else {
        subject.clone()
    };
    let step_s = match options.step_s {
        Some(step_s) => step_s,
        None => {
            host.begins("the step alone");
            let alone = step_alone(&subject, counted / 4, host)?;
            alone.ok_or_else(|| {
                invalid("pass the time of a step, or a step function that can be run repeatedly")
            })?
        }
    };
    host.begins("the loop with its step");
    let length = Length {
        counted,
        batches: None,
    };
    let mut fed = fed(&subject, length, 0, step_s, host)?;
    if options.step_s.is_none() {
        // The host's own step: where it is slower than alone, the loader slows it down, and that counts as waiting.
        fed.compute_ratio = fed.utilisation;
    }
    let examiner = Examiner {
        subject: &subject,
        options,
        length: Length {
            counted: counted / 2,
            batches: None,
        },
        step_s,
    };
    let whole = examiner.free("the loader alone", &subject, host)?;
    let without = if fed.compute_ratio < options.target {
        Some(examiner.take_apart(host)?)
    } else {
        None
    };
    let evidence = Evidence {
        step_s,
        target: options.target,
        setting: setting(&subject, options, load),
        fed,
        whole,
        without,
        streams: stream_costs(&subject, &options.costs),
    };
    Ok(Diagnosis::of(evidence, options.gpu_price))
}

fn check(options: &DoctorOptions) -> Result<Duration> {
    if !(options.target > 0.0 && options.target <= 1.0) {
        return Err(invalid(format!(
            "the target {} is not a fraction above 0 and up to 1; use for example 0.95",
            options.target
        )));
    }
    if options
        .step_s
        .is_some_and(|step| !(step > 0.0 && step <= 3600.0))
    {
        return Err(invalid(
            "the step time must be above 0 and at most one hour",
        ));
    }
    let counted = Duration::try_from_secs_f64(options.seconds).ok();
    let counted = counted.filter(|time| !time.is_zero() && time.as_secs() <= 3600);
    counted.ok_or_else(|| {
        invalid("the measuring time (`seconds`) must be above 0 and at most one hour")
    })
}

/// Runs the loader with stages disabled.
struct Examiner<'e> {
    subject: &'e Subject,
    options: &'e DoctorOptions,
    length: Length,
    step_s: f64,
}

impl Examiner<'_> {
    fn free(&self, what: &str, subject: &Subject, host: &mut dyn Host) -> Result<FreeRun> {
        self.free_for(what, subject, self.length, host)
    }

    fn free_for(
        &self,
        what: &str,
        subject: &Subject,
        length: Length,
        host: &mut dyn Host,
    ) -> Result<FreeRun> {
        host.begins(what);
        let busy = self.options.reserve_core.then(BusyCore::new);
        let run = free(subject, length, host);
        drop(busy);
        run
    }

    fn take_apart(&self, host: &mut dyn Host) -> Result<Differences> {
        let kept = self.subject.on(Storage {
            keep_bytes: self.options.keep_bytes,
            ..self.options.storage
        })?;
        let only_fetch = self.free("reading only", &kept.without(true, true), host)?;
        // Only over the batches whose bytes the first pass has put into memory.
        let filled = Length {
            batches: Some((only_fetch.taken as u64).max(8)),
            ..self.length
        };
        let without_fetch = self.free_for("without reading", &kept, filled, host)?;
        let subject = self.subject;
        let without_decode = self.free("without decoding", &subject.without(true, false), host)?;
        let without_collate =
            self.free("without collating", &subject.without(false, true), host)?;
        let without_cpu_limit = match subject.options.cpu {
            Some(_) => {
                let mut other = subject.clone();
                other.options.cpu = None;
                Some(self.free("without the CPU limit", &other, host)?)
            }
            None => None,
        };
        let chosen_prefetch = match subject.options.prefetch {
            Some(_) => {
                let mut other = subject.clone();
                other.options.prefetch = None;
                Some(self.free("with adaptive prefetch", &other, host)?)
            }
            None => None,
        };
        host.begins("a loader that does no work");
        let mut idle = kept.without(true, true);
        idle.options.cpu = None;
        idle.options.prefetch = None;
        let nothing = rounds(&idle, filled, self.step_s, host)?;
        Ok(Differences {
            only_fetch,
            without_fetch,
            without_decode,
            without_collate,
            without_cpu_limit,
            chosen_prefetch,
            nothing,
        })
    }
}

fn setting(subject: &Subject, options: &DoctorOptions, load: f64) -> Setting {
    let first = subject
        .windows
        .first()
        .and_then(|variants| variants.first());
    let shuffle = ShuffleQuality::of(
        &subject.order,
        &subject.windows,
        &subject.options.images,
        subject.options.memory_bytes(),
        Ranks {
            world: subject.options.world_size,
            local: 1,
        },
    );
    let shuffle = shuffle.ok();
    let in_groups = matches!(subject.order.settings().shuffle, Shuffle::Groups { .. });
    Setting {
        dataset: first.map_or(String::new(), |windows| {
            windows.dataset().path().display().to_string()
        }),
        windows: subject.window_names(),
        batch: subject.order.settings().batch_size,
        cores: options.cores,
        machine_bytes: memory_bytes(),
        load,
        threads: subject.options.decode_threads(),
        readers: subject.options.run.readers,
        cpu_cores: subject.options.cpu.map(|share| share.cores()),
        prefetch: subject.options.prefetch,
        memory_bytes: subject.options.memory_bytes(),
        episodes: subject.episodes(),
        decoded_bytes: subject.decoded_bytes(),
        shuffles_everything: subject.reads_anew(),
        group_is_too_large: in_groups
            && shuffle.is_some_and(|one| one.memory_needed > subject.options.memory_bytes()),
        shuffle,
        images_are_floats: subject.options.images.dtype != ImageDtype::U8,
        has_random_jpeg: subject.options.images.random_jpeg != PerKey::None,
        emulated_storage: options.storage_words.clone(),
    }
}

/// The streams that are read, with the costs of their codecs from the machine's cost record.
fn stream_costs(subject: &Subject, costs: &CostRecord) -> Vec<StreamCosts> {
    let mut streams = Vec::new();
    for windows in subject.windows.iter().flatten() {
        for (idx, window) in windows.request().windows.iter().enumerate() {
            let all = windows.dataset().manifest().streams.iter();
            let named = |stream: &&StreamSummary| stream.name == window.stream;
            let (Some(stream), Some(frame)) = (all.clone().find(named), windows.frame_type(idx))
            else {
                continue;
            };
            if streams
                .iter()
                .any(|known: &StreamCosts| known.name == stream.name)
            {
                continue;
            }
            let codec = stream.codecs.first().cloned().unwrap_or_default();
            let spec = codec.parse().ok();
            let frame_text = frame.to_string();
            let known = costs.costs().iter().filter(|cost| cost.frame == frame_text);
            streams.push(StreamCosts {
                name: stream.name.clone(),
                now: spec.and_then(|spec| costs.cost(&spec, frame)),
                codec,
                known: known.cloned().collect(),
                variants: variant_costs(windows.dataset(), &stream.name, costs),
            });
        }
    }
    streams
}

/// The variants of a stream, with the costs of their codecs; without those of which none is known.
fn variant_costs(dataset: &Dataset, stream: &str, costs: &CostRecord) -> Vec<VariantCost> {
    let streams = dataset.manifest().streams.iter();
    let variants = streams.filter(|one| one.variant_of.as_deref() == Some(stream));
    let known = variants.filter_map(|one| {
        let frame = FrameType::values(one.dtype.parse().ok()?, &one.shape).ok()?;
        let spec = one.codecs.first()?.parse().ok()?;
        Some(VariantCost {
            variant: one.variant()?.to_owned(),
            cost: costs.cost(&spec, &frame)?,
        })
    });
    known.collect()
}
