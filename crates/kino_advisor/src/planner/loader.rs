//! The loader on the sample: how much CPU time a batch takes with and without decoding, and how often it decodes.

use std::time::Duration;

use kino_dataset::ByteSize;
use kino_loader::{Ranks, Shuffle, ShuffleQuality};
use serde::{Deserialize, Serialize};

use super::streams::StreamOptions;
use super::{PlannerOptions, Whole};
use crate::doctor::{FreeRun, Host, Length, Subject, free};
use crate::error::{Result, invalid};

/// What the loader costs beside the codecs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoaderCost {
    /// Samples per batch of one rank.
    pub batch: f64,
    /// Samples of the whole recording.
    pub samples: f64,
    /// Decoded bytes of everything that is loaded, as it is requested.
    pub decoded_bytes: f64,
    /// How often a frame is decoded per epoch, after the first; 0 if all decoded frames stay in memory.
    pub decodes: f64,
    /// How often a frame was decoded per epoch while the loader was measured.
    pub measured_decodes: f64,
    /// Whether frames are decoded for one sample at a time, so that a frame costs as much as one read at random.
    pub is_random: bool,
    /// Of those, the share that stays decoded in memory.
    pub kept: f64,
    /// CPU seconds per batch, and the same without decoding.
    pub cpu_s: f64,
    /// CPU seconds per batch without decoding.
    pub rest_cpu_s: f64,
    /// CPU seconds of scheduling and reading per batch, which do not run on the decoding threads.
    pub aside_cpu_s: f64,
    /// Stored bytes and reads per batch, as it was measured.
    pub bytes: f64,
    /// Reads per batch, as it was measured.
    pub reads: f64,
    /// Coefficient of variation of the time of a batch.
    pub variation: f64,
    /// Memory for decoded frames.
    pub memory_bytes: u64,
    /// How much of it the loader may use for stored pages instead.
    #[serde(default)]
    pub movable_bytes: f64,
    /// Threads that decode and collate.
    pub threads: usize,
    /// How samples are shuffled.
    pub order: Shuffle,
    /// What that gives, and the memory it needs, in the sample.
    pub shuffle: ShuffleQuality,
}

/// Runs the loader on the sample.
pub(super) fn measure_loader(
    subject: &Subject,
    whole: &Whole,
    streams: &[StreamOptions],
    options: &PlannerOptions,
    host: &mut dyn Host,
) -> Result<LoaderCost> {
    let scale = scale(subject, whole);
    let loader_bytes = loader_bytes(subject, scale, options)?;
    let mut subject = subject.clone();
    // The sample must fit into memory as badly as the whole recording would.
    subject.options.memory = Some(to_size(loader_bytes as f64 / scale));
    let counted = Duration::try_from_secs_f64(options.seconds)
        .map_err(|_| invalid("the measuring time (`seconds`) must be positive"))?;
    let length = Length {
        counted,
        batches: None,
    };
    host.begins("the loader");
    let all = free(&subject, length, host)?;
    host.begins("the loader without decoding");
    let rest = free(&subject.without(true, false), length, host)?;
    let shuffle = ShuffleQuality::of(
        &subject.order,
        &subject.windows,
        &subject.options.images,
        subject.options.memory_bytes(),
        Ranks::ONE,
    )?;
    let alone = ShuffleQuality::of(
        &subject.order,
        &subject.windows,
        &subject.options.images,
        1,
        Ranks::ONE,
    )?;
    let fits = shuffle.memory_for_all <= subject.options.memory_bytes();
    let decodes = match (fits, all.is_steady) {
        (true, _) => 0.0,
        (false, true) => all.decode_excess,
        (false, false) => shuffle.decodes_per_frame,
    };
    let kept = kept(&shuffle, &alone, subject.options.memory_bytes());
    let decoded_bytes = subject.decoded_bytes() as f64 * scale;
    let is_random = subject.reads_anew() && streams.iter().any(|stream| stream.window > 0.0);
    let movable_bytes = if is_random {
        // A fixed set of whole episodes.
        let episode = decoded_bytes / (whole.loaded() as f64).max(1.0);
        (loader_bytes as f64 / episode.max(1.0)).floor() * episode
    } else {
        // What the groups in work do not need.
        let beside = subject.options.memory_bytes();
        beside.saturating_sub(shuffle.memory_needed) as f64 * scale
    };
    let settings = subject.order.settings();
    let batch = f64::from(settings.batch_size) / f64::from(subject.options.world_size.max(1));
    let samples = subject.samples() as f64 * scale;
    Ok(LoaderCost {
        batch,
        samples,
        decoded_bytes,
        decodes,
        measured_decodes: all.decode_excess,
        is_random,
        kept,
        cpu_s: cpu_s(&all),
        rest_cpu_s: cpu_s(&rest),
        aside_cpu_s: rest.schedule_s + rest.fetch_s.min(rest.schedule_s.max(cpu_s(&rest) / 4.0)),
        bytes: all.fetch_bytes,
        reads: all.reads,
        variation: all.variation(),
        memory_bytes: loader_bytes,
        movable_bytes,
        threads: subject.options.decode_threads(),
        order: settings.shuffle,
        shuffle,
    })
}

/// The share of the frames that stays decoded where samples are read by themselves: from the decodes with this memory,
/// and with none.
fn kept(shuffle: &ShuffleQuality, alone: &ShuffleQuality, memory_bytes: u64) -> f64 {
    let most = alone.decodes_per_frame - 1.0;
    let kept = if most > 0.0 {
        (alone.decodes_per_frame - shuffle.decodes_per_frame) / most
    } else {
        memory_bytes as f64 / shuffle.memory_for_all.max(1) as f64
    };
    kept.clamp(0.0, 1.0)
}

/// The memory of one rank's loader on the whole recording: its share of what is given, or what a loader chooses.
fn loader_bytes(subject: &Subject, scale: f64, options: &PlannerOptions) -> Result<u64> {
    let ranks = u32::try_from(options.question.ranks)
        .unwrap_or(u32::MAX)
        .max(1);
    if subject.options.memory.is_some() {
        return Ok(subject.options.memory_bytes() / u64::from(ranks));
    }
    let sample = ShuffleQuality::of(
        &subject.order,
        &subject.windows,
        &subject.options.images,
        u64::MAX,
        Ranks::ONE,
    )?;
    let scale = scale * f64::from(ranks);
    let of_host = ShuffleQuality {
        memory_needed: to_size(sample.memory_needed as f64 * scale).bytes(),
        memory_for_all: to_size(sample.memory_for_all as f64 * scale).bytes(),
        ..sample
    };
    Ok(of_host.default_memory(options.question.memory_bytes, ranks) / u64::from(ranks))
}

pub(super) fn to_size(bytes: f64) -> ByteSize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and `as` saturates"
    )]
    let bytes = bytes.max(1.0) as u64;
    ByteSize::new(bytes)
}

/// CPU seconds per batch; where the system does not count them, the times of the stages.
fn cpu_s(run: &FreeRun) -> f64 {
    if run.cpu_s > 0.0 {
        run.cpu_s
    } else {
        run.schedule_s + run.fetch_s + run.decode_s + run.collate_s
    }
}

/// How many times the frames of the sample the whole recording has, in episodes that can be loaded.
pub(super) fn scale(subject: &Subject, whole: &Whole) -> f64 {
    let samples = subject.windows.first().and_then(|all| all.first());
    let Some(samples) = samples else {
        return 1.0;
    };
    let streams = samples.dataset().manifest().streams.iter();
    let taken = streams.filter(|stream| whole.counts.frames.contains_key(&stream.name));
    let here: u64 = taken.map(|stream| stream.frames).sum();
    let all: u64 = whole.counts.complete_frames.values().sum();
    (all as f64 / here.max(1) as f64).max(1.0)
}
