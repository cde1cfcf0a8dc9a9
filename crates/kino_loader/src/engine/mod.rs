//! The engine: produces batches in order, ahead of the training loop, on its own threads.
//!
//! ```text
//! scheduler ──▶ reads ──▶ kino-read threads ──▶ work ──▶ kino-decode threads ──▶ ready ──▶ next()
//!  order, windows      one span each                   one page or sample each     in order
//!     └── scout: counts upcoming uses, so that the cache knows what to keep
//! ```
//!
//! Decode threads never wait for storage, and read threads never decode. The scheduler limits the number of batches in
//! flight; those batches and the memory budget bound everything else.
//!
//! | file | holds |
//! |---|---|
//! | `scheduler.rs`, `scout.rs`, `episodes.rs`, `replace.rs`, `start.rs` | the samples and pages that come next |
//! | `controller.rs`, `threads.rs`, `cpu.rs` | how many batches ahead, how many threads, how much CPU time |
//! | `episode_frames.rs`, `pages.rs`, `frame_cache.rs` | decoded frames |
//! | `residency.rs`, `fixed_set.rs`, `partial.rs`, `caching.rs` | which of them stay, and for how long |
//! | `stored_tier.rs` | stored pages that stay in memory |
//! | `collate.rs`, `fields.rs` | a batch in preparation |
//! | `image.rs`, `crop.rs`, `random_jpeg.rs`, `convert.rs`, and `resize.rs` of `kino_dataset` | conversion of images and other values |
//! | `buffers.rs`, `page_buffer.rs` | memory that is reused |
//! | `quality.rs` | how well a shuffle mixes, and what it costs |
//! | `in_flight.rs` | limit on bytes that are read but not yet decoded |
//! | `options.rs`, `check.rs` | the options, and their validation before any thread starts |
//! | `shared.rs`, `tasks.rs`, `worker.rs` | the task queues, and the threads that serve them |
//! | `meter/`, `watch.rs` | where the time goes |
//! | `trial.rs` | runs with a stage disabled, to measure what it costs |

mod ahead;
mod augment;
mod buffers;
mod caching;
mod check;
mod collate;
mod color_jitter;
mod controller;
mod convert;
mod cpu;
mod crop;
mod delivery;
mod direct;
mod elements;
mod episode_frames;
mod episodes;
mod fields;
mod fixed_set;
mod flip;
mod frame_cache;
mod gather;
mod image;
mod in_flight;
mod meter;
mod options;
mod page_buffer;
mod pages;
mod partial;
mod quality;
mod random_jpeg;
mod replace;
mod residency;
mod resized_crop;
mod scheduler;
mod scout;
mod shared;
mod start;
mod stored_tier;
mod tasks;
mod threads;
mod trial;
mod urgency;
mod watch;
mod whole_episodes;
mod worker;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kino_dataset::Samples;
use kino_sync::{Condvar, Mutex};

pub use buffers::{Pin, PinMemory};
pub use caching::decoded_bytes;
pub use color_jitter::ColorJitter;
pub use controller::MAX_PREFETCH;
pub use cpu::CpuShare;
pub use delivery::{Delivery, FrameOptions};
pub use fields::ArrayInfo;
pub use image::{ImageDtype, ImageOptions, Layout, Normal, PerKey};
pub use kino_dataset::{ResizeMode, Size};
pub use meter::{Moment, Report, Stage, TraceLog, WaitReport, Waits};
pub use options::{LoaderOptions, OnError, Run, VectorDtype};
pub use quality::{Ranks, ShuffleQuality, available_memory, group_bytes};
pub use random_jpeg::{RandomJpeg, Subsampling};
pub use resized_crop::RandomResizedCrop;
pub use stored_tier::{TierRoom, TierTimes};
pub use trial::Trial;
pub use watch::Watch;

use buffers::Filled;
use controller::Controller;
use cpu::Limit;
use episodes::Opening;
use fields::Fields;
use frame_cache::FrameCache;
use in_flight::InFlightLimit;
use meter::Meter;
use page_buffer::PageShelf;
use scheduler::Scheduler;
use shared::{Alarm, Flight, Shared, Waited};
use stored_tier::StoredTier;
use tasks::Tasks;
use threads::ThreadCounts;
use whole_episodes::WholeEpisodes;

use crate::error::{Result, invalid};
use crate::order::{LengthOrder, Order, SampleRef};

/// Unused page buffers are kept up to the budget divided by this, on top of the budget.
const SHELF_SHARE: u64 = 16;

/// Stored bytes waiting to be decoded take up to the budget divided by this, on top of the budget…
const IN_FLIGHT_SHARE: u64 = 32;

/// … but at least this many if the budget is small: a few spans, so that decoders do not wait for the next read.
const IN_FLIGHT_BYTES: u64 = 4 << 20;

/// Prepares batches ahead of the training loop. Dropping it stops its threads.
#[derive(Debug)]
pub struct Loader {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    next: u64,
    end: Option<u64>,
    /// When the last batch was handed over; `None` once the next one is requested.
    handed: Option<Instant>,
    /// Time spent waiting for the next batch so far: the caller may request it several times.
    waited: Duration,
}

/// The result of waiting for a batch.
#[derive(Debug)]
pub enum Next {
    /// The batch.
    Batch(Batch),
    /// It is not ready yet.
    Later,
    /// There are no more batches.
    End,
}

/// A batch: arrays whose memory does not move until the batch is dropped.
#[derive(Debug)]
pub struct Batch {
    number: u64,
    first_index: u64,
    infos: Vec<ArrayInfo>,
    filled: Filled,
    texts: Vec<Vec<Vec<String>>>,
    samples: Vec<SampleRef>,
    substituted: usize,
    is_real: bool,
}

impl Batch {
    /// Its number: its global indices start at `number · batch size`. Batches of whole episodes are counted from 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The index of its first sample on this rank; those of the others follow.
    pub fn first_index(&self) -> u64 {
        self.first_index
    }

    /// Whether it holds real data: `false` if a [`Trial`] disabled a stage.
    pub fn is_real(&self) -> bool {
        self.is_real
    }

    /// Name, dtype and shape of its arrays.
    pub fn infos(&self) -> &[ArrayInfo] {
        &self.infos
    }

    /// The bytes of an array; empty for text.
    pub fn array(&self, idx: usize) -> &[u8] {
        self.filled.field(idx)
    }

    /// Pointer and length in bytes of an array, for the owner of the batch to write into.
    ///
    /// Do not use [`array`](Self::array) while the pointer is in use.
    pub fn array_parts(&self, idx: usize) -> (*mut u8, usize) {
        self.filled.field_parts(idx)
    }

    /// The memory of all arrays as one range, for a single copy to a device.
    ///
    /// Do not use it while a pointer from [`array_parts`](Self::array_parts) is in use.
    pub fn arena(&self) -> &[u8] {
        self.filled.arena()
    }

    /// Where an array is in the arena; empty for text.
    pub fn array_range(&self, idx: usize) -> Range<usize> {
        self.filled.range(idx)
    }

    /// The texts of an array, per sample; empty for numeric arrays.
    pub fn texts(&self, idx: usize) -> &[Vec<String>] {
        self.texts.get(idx).map_or(&[], |texts| texts)
    }

    /// The samples of this rank.
    pub fn samples(&self) -> &[SampleRef] {
        &self.samples
    }
}

impl Loader {
    /// Starts the threads. `windows` holds the variants of each source of the order; one if there is no curriculum.
    pub fn start(order: Order, windows: Vec<Vec<Samples>>, options: LoaderOptions) -> Result<Self> {
        Self::launch(order, None, windows, options)
    }

    /// Starts the threads of a loader of whole episodes, from the cursor of `options.run` on. `order` is an order of the same
    /// samples: what stays in memory and what stands in for damaged episodes follow it, but not which sample comes when.
    pub fn start_whole(
        lengths: &LengthOrder,
        order: Order,
        windows: Vec<Samples>,
        options: LoaderOptions,
    ) -> Result<Self> {
        check::check_options(&options)?;
        let whole = WholeEpisodes::new(lengths, &order, &windows, &options)?;
        Self::launch(order, Some(whole), vec![windows], options)
    }

    fn launch(
        order: Order,
        whole: Option<WholeEpisodes>,
        windows: Vec<Vec<Samples>>,
        options: LoaderOptions,
    ) -> Result<Self> {
        check::check_options(&options)?;
        check::check_windows(&order, &windows, &options.images)?;
        let seed = whole
            .as_ref()
            .map_or(order.settings().seed, WholeEpisodes::seed);
        let scheduler = Scheduler::new(order, whole, &windows, &options)?;
        let (next, end) = scheduler.batches();
        let first = windows.first().and_then(|variants| variants.first());
        let first = first.ok_or_else(check::no_windows)?;
        let thread_counts = ThreadCounts::new(options.decode_threads(), options.run.readers);
        let ahead = controller::most_bytes(options.memory_bytes());
        let controller = Controller::new(options.prefetch, ahead);
        let shared = Arc::new(Shared {
            fields: Fields::new(first, &options, seed)?,
            block_of: scheduler.block_of(),
            windows,
            work: Tasks::new(thread_counts.active().0),
            reads: Tasks::new(thread_counts.active().1),
            cache: Mutex::new(FrameCache::new(scheduler.budget())),
            tier: StoredTier::default(),
            flight: Mutex::new(Flight::new(controller)),
            ready: Condvar::new(),
            room: Condvar::new(),
            waits_for_room: AtomicBool::new(false),
            on_error: options.on_error,
            trial: options.run.trial,
            meter: Meter::new(),
            shelf: Arc::default(),
            pages: PageShelf::new(to_usize(options.memory_bytes() / SHELF_SHARE)),
            in_flight: InFlightLimit::new(
                (options.memory_bytes() / IN_FLIGHT_SHARE).max(IN_FLIGHT_BYTES),
            ),
            opening: Opening::default(),
            thread_counts: Mutex::new(thread_counts),
            cpu: Limit::new(options.cpu, options.decode_threads()),
            running: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        });
        if options.run.is_traced {
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
        loader.spawn("kino-schedule", {
            let shared = Arc::clone(&loader.shared);
            move || scheduler.run(&shared)
        })?;
        for thread in 0..options.run.readers {
            let shared = Arc::clone(&loader.shared);
            loader.spawn("kino-read", move || worker::read(&shared, thread))?;
        }
        for thread in 0..options.decode_threads() {
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
            // Moved into the thread, so that it is dropped however the thread ends.
            let _alarm = alarm;
            run();
        });
        let thread = thread.map_err(|error| {
            invalid(format!(
                "cannot start thread {name}: {error}; set fewer `threads` or raise the process limit"
            ))
        })?;
        self.threads.push(thread);
        Ok(())
    }

    /// The next batch; blocks until it is ready. `None` after the last one.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        loop {
            match self.next_batch_within(Duration::from_secs(3600))? {
                Next::Batch(batch) => return Ok(Some(batch)),
                Next::End => return Ok(None),
                Next::Later => {}
            }
        }
    }

    /// The next batch, if it is ready within `time`: for callers that must check for signals now and then.
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
        // An error takes the place of its batch: a caller that continues gets the next one.
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

    /// Page-locks the memory of batches from now on: they go to a device.
    pub fn pin_batches(&self, pinning: Arc<dyn PinMemory>) {
        self.shared.shelf.pin_with(pinning);
    }

    /// What the loader has done so far.
    pub fn report(&self) -> Report {
        self.watch().report()
    }

    /// A handle for observing the loader from another thread, even while the training loop waits for a batch.
    pub fn watch(&self) -> Watch {
        Watch::new(&self.shared)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked was reported by its `Alarm` already.
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
    fn a_thread_that_panics_is_an_error_and_not_a_hang() {
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
            // Batches that were ready before the panic are still delivered.
            if let Err(error) = loader.next_batch() {
                break error;
            }
        };
        assert!(matches!(error, LoaderError::ThreadLost { .. }), "{error}");
        assert!(error.to_string().contains("kino-test"));
        assert!(loader.next_batch().is_err(), "the error persists");
    }
}
