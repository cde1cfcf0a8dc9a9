//! One run of a loader that is drained as fast as it delivers, and what was measured in it.
//!
//! ```text
//! | warm-up: until the cache is full, or half the time | counted |
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kino_dataset::{Samples, Storage, Window};
use kino_loader::{
    Batch, Decode, Loader, LoaderOptions, Next, Order, Report, Run, Shuffle, Stage, Trial,
};

use super::evidence::FreeRun;
use crate::error::{Result, invalid};
use crate::machine::cpu_s;

/// The host is asked at least this often whether to continue.
const LOOK_UP: Duration = Duration::from_millis(50);

/// The cache counts as full if it has not grown for this long.
const SETTLED: Duration = Duration::from_millis(250);

/// The fewest batches to count, however long they take.
pub(super) const LEAST: usize = 4;

/// The most individual times to keep.
pub(super) const KEPT: usize = 1 << 14;

/// A loader as it would be started, and what it would read.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The order of the samples.
    pub order: Order,
    /// The variants of each source of the order.
    pub windows: Vec<Vec<Samples>>,
    /// How the loader runs.
    pub options: LoaderOptions,
}

/// The caller that runs the training loop: takes batches, and may cancel.
pub trait Host {
    /// Runs one step on a batch.
    fn step(&mut self, batch: Batch) -> Result<()>;

    /// Repeats the last step on the same batch; `false` if there is nothing to repeat, because the step is emulated.
    fn again(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Called regularly; an error ends the measurement.
    fn look_up(&mut self) -> Result<()> {
        Ok(())
    }

    /// Announces the next measurement.
    fn begins(&mut self, _what: &str) {}
}

/// An emulated accelerator: the step spins on the clock, because a real training loop keeps a core busy.
#[derive(Debug, Clone, Copy)]
pub struct Emulated {
    /// How long a step takes.
    pub step: Duration,
}

impl Host for Emulated {
    fn step(&mut self, batch: Batch) -> Result<()> {
        drop(batch);
        let began = Instant::now();
        while began.elapsed() < self.step {
            std::hint::spin_loop();
        }
        Ok(())
    }
}

/// How long a run takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Length {
    pub(crate) counted: Duration,
    /// The most batches to take, if limited.
    pub(crate) batches: Option<u64>,
}

impl Subject {
    /// The same loader over emulated storage; each dataset gets its share of the bytes to keep in memory.
    pub fn on(&self, storage: Storage) -> Result<Self> {
        let count = self.windows.iter().map(Vec::len).sum::<usize>().max(1);
        let each = Storage {
            keep_bytes: storage.keep_bytes / count as u64,
            ..storage
        };
        let on = |windows: &Samples| Ok(windows.on(&windows.dataset().on(each)?)?);
        let variants = |variants: &Vec<Samples>| variants.iter().map(on).collect();
        Ok(Self {
            windows: self.windows.iter().map(variants).collect::<Result<_>>()?,
            ..self.clone()
        })
    }

    /// The same loader with stages disabled. Emulated slowdowns of the other stages remain.
    pub(crate) fn without(&self, decode: bool, collate: bool) -> Self {
        let mut other = self.clone();
        let trial = self.options.run.trial;
        other.options.run.trial = Trial {
            without_decode: decode,
            without_collate: collate,
            decode_pause: if decode {
                Duration::ZERO
            } else {
                trial.decode_pause
            },
            collate_pause: if collate {
                Duration::ZERO
            } else {
                trial.collate_pause
            },
        };
        other
    }

    /// Decoded bytes of everything that an epoch reads.
    pub(crate) fn decoded_bytes(&self) -> u64 {
        kino_loader::decoded_bytes(&self.windows, &self.options.images)
    }

    /// Episodes that are read.
    pub(crate) fn episodes(&self) -> usize {
        let first = self.windows.iter().filter_map(|variants| variants.first());
        first.map(|windows| windows.episodes().len()).sum()
    }

    /// Whether a global shuffle needs frames again that no longer fit in memory.
    pub(crate) fn reads_anew(&self) -> bool {
        self.order.settings().shuffle == Shuffle::Global
            && self.decoded_bytes() > self.options.memory_bytes()
    }

    /// Streams and frames of a sample, for people: `wrist × 2`.
    pub(crate) fn window_names(&self) -> Vec<String> {
        let first = self.windows.first().and_then(|variants| variants.first());
        let windows = first.into_iter().flat_map(|one| &one.request().windows);
        let name = |window: &Window| match window.len() {
            Some(len) => format!("{} × {len}", window.key),
            None => format!("{} × all", window.key),
        };
        windows.map(name).collect()
    }

    /// Samples of one epoch.
    pub(crate) fn samples(&self) -> u64 {
        let first = self.windows.iter().filter_map(|variants| variants.first());
        first.map(Samples::len).sum()
    }

    /// Decoded bytes per sample, if every frame is decoded once per epoch.
    fn once_bytes(&self) -> f64 {
        let samples = self.samples();
        let variants = self.windows.first().map_or(1, Vec::len).max(1);
        self.decoded_bytes() as f64 / variants as f64 / samples.max(1) as f64
    }

    pub(super) fn start(&self, batches: Option<u64>) -> Result<Loader> {
        let options = LoaderOptions {
            run: Run {
                batches: batches.or(self.options.run.batches),
                ..self.options.run.clone()
            },
            // No device takes part: what is measured, and what a step gets, is decoded by the CPU.
            decode: Decode::Cpu,
            ..self.options.clone()
        };
        Ok(Loader::start(
            self.order.clone(),
            self.windows.clone(),
            options,
        )?)
    }
}

/// The next batch; `None` after the last.
pub(super) fn take(loader: &mut Loader, host: &mut dyn Host) -> Result<Option<Batch>> {
    host.look_up()?;
    loop {
        match loader.next_batch_within(LOOK_UP)? {
            Next::Batch(batch) => return Ok(Some(batch)),
            Next::End => return Ok(None),
            Next::Later => host.look_up()?,
        }
    }
}

/// Detects when the cache has filled up.
pub(super) struct WarmUp {
    began: Instant,
    limit: Duration,
    taken: usize,
    peak: u64,
    grew: Instant,
}

impl WarmUp {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            began: Instant::now(),
            limit,
            taken: 0,
            peak: 0,
            grew: Instant::now(),
        }
    }

    /// Counts one more batch; `Some` once the warm-up is over, with whether the cache is full.
    pub(super) fn ends(&mut self, report: &Report) -> Option<bool> {
        self.taken += 1;
        if report.cache_peak_bytes > self.peak + self.peak / 64 {
            self.peak = report.cache_peak_bytes;
            self.grew = Instant::now();
        }
        let has_settled = self.grew.elapsed() >= SETTLED && self.taken >= 2 * report.prefetch_depth;
        let is_late = self.began.elapsed() >= self.limit && self.taken >= LEAST;
        (has_settled || is_late).then_some(has_settled)
    }
}

/// Drains the loader; the time of a batch.
pub(crate) fn free(subject: &Subject, length: Length, host: &mut dyn Host) -> Result<FreeRun> {
    let mut loader = subject.start(length.batches)?;
    let mut warm = WarmUp::new(length.counted / 2);
    let mut is_steady = None;
    // If there are few batches, most must be counted.
    let most_warm = length.batches.map_or(u64::MAX, |batches| batches / 4);
    while is_steady.is_none() && (warm.taken as u64) < most_warm {
        if take(&mut loader, host)?.is_none() {
            break;
        }
        is_steady = warm.ends(&loader.report());
    }
    let (before, began, cpu) = (loader.report(), Instant::now(), cpu_s());
    let (mut each_s, mut last) = (Vec::new(), began);
    let mut batches = 0_usize;
    while began.elapsed() < length.counted || batches < LEAST {
        if take(&mut loader, host)?.is_none() {
            break;
        }
        batches += 1;
        let now = Instant::now();
        if each_s.len() < KEPT {
            each_s.push(now.duration_since(last).as_secs_f64());
        }
        last = now;
    }
    if batches == 0 {
        return Err(too_short());
    }
    let seconds = last.duration_since(began).as_secs_f64();
    let cpu = cpu
        .zip(cpu_s())
        .map_or(0.0, |(before, after)| after - before);
    let mut run = per_batch(&before, &loader.report(), batches);
    run.cpu_s = cpu / batches as f64;
    run.taken = warm.taken + batches;
    run.batch_s = seconds / batches as f64;
    run.each_s = each_s;
    run.is_steady = is_steady.unwrap_or(false) || subject.reads_anew();
    let samples = f64::from(subject.order.settings().batch_size)
        / f64::from(subject.options.world_size.max(1));
    run.decode_excess = run.decode_bytes / (samples * subject.once_bytes()).max(1.0);
    Ok(run)
}

fn per_batch(before: &Report, after: &Report, batches: usize) -> FreeRun {
    let each = batches.max(1) as f64;
    let find = |report: &Report, stage: Stage| {
        let found = report.stages.iter().find(|one| one.stage == stage);
        found.map_or((0.0, 0.0, 0.0), |one| {
            (one.busy_s, one.bytes as f64, one.tasks as f64)
        })
    };
    let spent = |stage| {
        let (before, after) = (find(before, stage), find(after, stage));
        let per_batch = |before: f64, after: f64| (after - before) / each;
        (
            per_batch(before.0, after.0),
            per_batch(before.1, after.1),
            per_batch(before.2, after.2),
        )
    };
    FreeRun {
        reads: spent(Stage::Fetch).2,
        batches,
        schedule_s: spent(Stage::Schedule).0,
        fetch_s: spent(Stage::Fetch).0,
        decode_s: spent(Stage::Decode).0,
        collate_s: spent(Stage::Collate).0,
        fetch_bytes: spent(Stage::Fetch).1,
        decode_bytes: spent(Stage::Decode).1,
        ..FreeRun::default()
    }
}

pub(super) fn too_short() -> crate::AdvisorError {
    invalid("the dataset has too few batches to measure; use more episodes or a smaller batch size")
}

/// Keeps a core busy, as the training loop would, while the loader is measured alone.
#[derive(Debug)]
pub(crate) struct BusyCore {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BusyCore {
    pub(crate) fn new() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("kino-step".to_owned());
        let spin = move || {
            while !stopped.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        Self {
            stop,
            // If the thread cannot be started, the figures are slightly too good.
            thread: thread.spawn(spin).ok(),
        }
    }
}

impl Drop for BusyCore {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
