//! The engine: batches in order, made ahead of the training loop by threads of its own.
//!
//! ```text
//! scheduler ──▶ reads ──▶ kino-read threads ──▶ work ──▶ kino-decode threads ──▶ ready ──▶ next()
//!  order, windows      a span each                     a page or a sample each     in order
//!     └── scout: counts the uses ahead, so that the cache knows what to keep
//! ```
//!
//! A thread that decodes never waits for storage, and one that reads never decodes. The scheduler lets only so many
//! batches into flight; everything else is bounded by them and by the memory budget.
//!
//! | file | holds |
//! |---|---|
//! | `scheduler.rs`, `scout.rs`, `episodes.rs`, `replace.rs`, `start.rs` | which samples and pages come next |
//! | `controller.rs`, `threads.rs`, `cpu.rs` | how far ahead, with how many threads, for how much of the time |
//! | `episode_frames.rs`, `pages.rs`, `frame_cache.rs`, `caching.rs` | decoded frames, and for how long |
//! | `collate.rs`, `fields.rs` | a batch in the making |
//! | `image.rs`, `resize.rs`, `crop.rs`, `convert.rs` | what becomes of images and numbers |
//! | `buffers.rs`, `page_buffer.rs` | memory that is used again |
//! | `in_flight.rs` | bytes between reading and decoding |
//! | `options.rs`, `check.rs` | what is asked for, and what is refused before a thread starts |
//! | `shared.rs`, `tasks.rs`, `worker.rs` | what waits for a thread, and the threads |
//! | `meter/`, `watch.rs` | where the time goes |
//! | `trial.rs` | runs with a stage taken away, to measure what it costs |

mod buffers;
mod caching;
mod check;
mod collate;
mod controller;
mod convert;
mod cpu;
mod crop;
mod elements;
mod episode_frames;
mod episodes;
mod fields;
mod frame_cache;
mod gather;
mod image;
mod in_flight;
mod meter;
mod options;
mod page_buffer;
mod pages;
mod replace;
mod resize;
mod scheduler;
mod scout;
mod shared;
mod start;
mod tasks;
mod threads;
mod trial;
mod watch;
mod worker;

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kino_dataset::Samples;

pub use caching::decoded_bytes;
pub use cpu::{CpuShare, default_threads};
pub use fields::{ArrayInfo, ArrayType};
pub use image::{CropPlace, ImageDtype, ImageOptions, Normal, PerKey};
pub use meter::{
    Metering, Moment, Report, Stage, StageReport, TraceEvent, TraceLog, WaitBucket, WaitReport,
};
pub use options::{FloatDtype, LoaderOptions, OnError};
pub use resize::Size;
pub use trial::Trial;
pub use watch::Watch;

use buffers::Filled;
use controller::Controller;
use cpu::Limit;
use episodes::Opening;
use fields::Fields;
use frame_cache::FrameCache;
use in_flight::Gate;
use meter::Meter;
use page_buffer::PageShelf;
use scheduler::Scheduler;
use shared::{Alarm, Flight, Shared, Waited};
use tasks::Tasks;
use threads::Crews;

use crate::error::{Result, invalid};
use crate::order::{Order, SampleRef};

/// Page memory that nobody uses is kept up to this part of the budget, over and above it.
const SHELF_SHARE: u64 = 16;

/// Stored bytes that wait to be decoded take up to this part of the budget, over and above it…
const GATE_SHARE: u64 = 32;

/// … and this many where the budget is small: a few spans, so that nobody waits for the next read.
const GATE_BYTES: u64 = 4 << 20;

/// Batches ahead take up to this part of the budget, over and above it, where their number is chosen…
const AHEAD_SHARE: u64 = 4;

/// … and this many bytes where the budget is small.
const AHEAD_BYTES: u64 = 64 << 20;

/// Makes batches ahead of whoever asks for them. Dropping it ends its threads.
#[derive(Debug)]
pub struct Loader {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    next: u64,
    end: Option<u64>,
    /// When the last batch was handed over; `None` as soon as the next is asked for.
    handed: Option<Instant>,
    /// How long the next batch was waited for until now: it may be asked for several times.
    waited: Duration,
}

/// What came of waiting for a batch.
#[derive(Debug)]
pub enum Next {
    /// It is here.
    Batch(Batch),
    /// Not yet.
    Later,
    /// There are no more.
    End,
}

/// A batch: arrays that stay where they are until it is dropped.
#[derive(Debug)]
pub struct Batch {
    number: u64,
    infos: Vec<ArrayInfo>,
    filled: Filled,
    texts: Vec<Vec<Vec<String>>>,
    samples: Vec<SampleRef>,
    substituted: usize,
    is_real: bool,
}

impl Batch {
    /// Its number: the global indices are `number · batch …`.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it holds what it should: not if a [`Trial`] took a stage away.
    pub fn is_real(&self) -> bool {
        self.is_real
    }

    /// What its arrays are.
    pub fn infos(&self) -> &[ArrayInfo] {
        &self.infos
    }

    /// The bytes of an array; empty for text.
    pub fn array(&self, idx: usize) -> &[u8] {
        self.filled.field(idx)
    }

    /// The first byte and the number of bytes of an array, for whoever owns the batch and writes into it.
    ///
    /// As long as this is used, [`array`](Self::array) must not be.
    pub fn array_parts(&self, idx: usize) -> (*mut u8, usize) {
        self.filled.field_parts(idx)
    }

    /// The texts of an array, per sample; empty for numbers.
    pub fn texts(&self, idx: usize) -> &[Vec<String>] {
        self.texts.get(idx).map_or(&[], |texts| texts)
    }

    /// The samples of this rank.
    pub fn samples(&self) -> &[SampleRef] {
        &self.samples
    }
}

impl Loader {
    /// Starts the threads. `windows` has, for each source of the order, its variants; one if there is no curriculum.
    pub fn start(order: Order, windows: Vec<Vec<Samples>>, options: LoaderOptions) -> Result<Self> {
        check::check_options(&options)?;
        check::check_windows(&order, &windows, &options.images)?;
        let seed = order.settings().seed;
        let scheduler = Scheduler::new(order, &windows, &options)?;
        let (next, end) = scheduler.batches();
        let first = windows.first().and_then(|variants| variants.first());
        let first = first.ok_or_else(|| invalid("a loader of no windows"))?;
        let crews = Crews::new(options.threads, options.readers);
        let ahead = (options.memory_bytes / AHEAD_SHARE).max(AHEAD_BYTES);
        let controller = Controller::new(options.depth, ahead);
        let shared = Arc::new(Shared {
            fields: Fields::new(first, &options, seed)?,
            block_of: scheduler.block_of(),
            windows,
            work: Tasks::new(crews.active().0),
            reads: Tasks::new(crews.active().1),
            cache: Mutex::new(FrameCache::new(options.memory_bytes)),
            flight: Mutex::new(Flight::new(controller)),
            ready: Condvar::new(),
            room: Condvar::new(),
            waits_for_room: AtomicBool::new(false),
            on_error: options.on_error,
            trial: options.trial,
            meter: Meter::new(options.metering),
            shelf: Arc::default(),
            pages: PageShelf::new(to_usize(options.memory_bytes / SHELF_SHARE)),
            gate: Gate::new((options.memory_bytes / GATE_SHARE).max(GATE_BYTES)),
            opening: Opening::default(),
            crews: Mutex::new(crews),
            cpu: Limit::new(options.cpu, options.threads),
            running: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        if options.is_traced {
            shared.meter.start_trace();
        }
        let mut loader = Self {
            shared,
            threads: Vec::new(),
            next,
            end,
            handed: None,
            waited: Duration::ZERO,
        };
        loader.spawn("kino-plan", {
            let shared = Arc::clone(&loader.shared);
            move || scheduler.run(&shared)
        })?;
        for thread in 0..options.readers {
            let shared = Arc::clone(&loader.shared);
            loader.spawn("kino-read", move || worker::read(&shared, thread))?;
        }
        for thread in 0..options.threads {
            let shared = Arc::clone(&loader.shared);
            loader.spawn("kino-decode", move || worker::work(&shared, thread))?;
        }
        Ok(loader)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let alarm = Alarm {
            shared: Arc::clone(&self.shared),
            name: name.to_owned(),
        };
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || {
            // Taken along, so that it is dropped when the thread ends, one way or the other.
            let _alarm = alarm;
            run();
        });
        let thread = thread.map_err(|error| invalid(format!("cannot start a thread: {error}")))?;
        self.threads.push(thread);
        Ok(())
    }

    /// The next batch; waits for it. `None` after the last.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        loop {
            match self.next_batch_within(Duration::from_secs(3600))? {
                Next::Batch(batch) => return Ok(Some(batch)),
                Next::End => return Ok(None),
                Next::Later => {}
            }
        }
    }

    /// The next batch, if it comes within a time: for callers who have to look up now and then.
    pub fn next_batch_within(&mut self, time: Duration) -> Result<Next> {
        if self.end.is_some_and(|end| self.next >= end) {
            return Ok(Next::End);
        }
        if let Some(handed) = self.handed.take() {
            self.shared.flight().controller.taken(handed.elapsed());
            self.shared.tune();
        }
        let (found, took) = self
            .shared
            .meter
            .measure(Stage::Wait, || (self.shared.wait_for(self.next, time), 0));
        self.waited += took;
        let done = match found {
            Waited::Done(done) => done,
            Waited::Later => return Ok(Next::Later),
            Waited::Never => return Ok(Next::End),
        };
        // An error takes the place of its batch: whoever goes on gets the one after.
        self.next = self.next.saturating_add(1);
        self.handed = Some(Instant::now());
        let waited = std::mem::take(&mut self.waited);
        let batch = done?;
        self.shared.meter.handed(waited, || self.shared.moment());
        Meter::add(&self.shared.meter.batches, 1);
        Meter::add(&self.shared.meter.samples, batch.samples.len());
        Meter::add(&self.shared.meter.substituted, batch.substituted);
        Ok(Next::Batch(batch))
    }

    /// What it did so far.
    pub fn report(&self) -> Report {
        self.watch().report()
    }

    /// Looks at it from elsewhere, also while a batch is waited for.
    pub fn watch(&self) -> Watch {
        Watch::new(&self.shared)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so; there is nothing left to do for it.
            drop(thread.join());
        }
        self.shared.clear();
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[path = "../../tests/loader/recording.rs"]
mod recording;

#[cfg(test)]
mod tests {
    use kino_dataset::{Request, Selection};

    use super::*;
    use crate::error::LoaderError;
    use crate::order::{Settings, Source};

    #[test]
    fn a_thread_that_panics_is_an_error_and_not_a_wait_without_end() {
        let (_folder, dataset) = recording::open(3);
        let request = r#"{"anchor": {"stream": "actions"}, "windows": [{"stream": "front", "at": {"steps": [0]}}]}"#;
        let request: Request = serde_json::from_str(request).unwrap();
        let windows = Samples::bind(&dataset, request, &Selection::default()).unwrap();
        let order = Order::new(Source::of(&windows).unwrap(), Settings::default()).unwrap();
        let mut loader =
            Loader::start(order, vec![vec![windows]], LoaderOptions::default()).unwrap();
        assert!(loader.next_batch().unwrap().is_some());
        loader.spawn("kino-test", || panic!("on purpose")).unwrap();
        let error = loop {
            // Batches that were ready before still come.
            if let Err(error) = loader.next_batch() {
                break error;
            }
        };
        assert!(matches!(error, LoaderError::ThreadLost { .. }), "{error}");
        assert!(error.to_string().contains("kino-test"));
        assert!(loader.next_batch().is_err(), "it stays so");
    }
}
