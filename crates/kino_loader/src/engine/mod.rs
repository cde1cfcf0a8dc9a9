//! The engine: produces batches in order, ahead of the training loop, on its own threads.
//!
//! ```text
//! planner ──▶ reads ──▶ kino-read ──▶ pages ──▶ kino-decode ──▶ frames ──▶ kino-decode ──▶ batches ──▶ next()
//!  order                 one span each           one page each   (store)    one sample each (assembler)  in order
//! ```
//!
//! Three owners, each a folder with its own locks behind its own methods (`threads/mod.rs` draws what they tell each other):
//!
//! | owner | has | is told |
//! |---|---|---|
//! | the *planner* | which samples and pages come next, what stays in memory | a batch was taken, a sample could not be read, there is room |
//! | the *frame store* | decoded frames, their budget, the slots that wait for a page | uses ahead, bytes read, pages decoded, samples done |
//! | the *assembler* | the slots and the memory of batches, those that are ready | a batch is planned, pages came, a sample is done |
//!
//! Decode threads never wait for storage, and read threads never decode. The assembler limits the number of batches in
//! flight; those batches and the memory budget bound everything else.
//!
//! | folder | holds |
//! |---|---|
//! | `planner/`, `store/`, `assembler/` | the three owners |
//! | `threads/` | the threads and their task queues, how many run, and how much CPU time they use |
//! | `image/` | what becomes of images and other values on the way: crop, flip, jitter, dtype, layout |
//! | `meter/` | where the time goes |
//! | `options.rs` | the options, and their validation before any thread starts |

mod assembler;
mod image;
mod meter;
mod options;
mod planner;
mod store;
mod threads;

use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kino_dataset::Samples;

pub use assembler::{ArrayInfo, ImageArray, ImageForm, MAX_PREFETCH, Pin, PinMemory, PlacedImage};
pub use image::{
    ColorJitter, Delivery, FrameOptions, ImageDtype, ImageOptions, Layout, Normal, PerKey,
    RandomJpeg, RandomResizedCrop, Subsampling,
};
pub use kino_dataset::{ResizeMode, Size};
pub use meter::{
    LoopStep, LoopSteps, LoopTimes, Moment, Report, Stage, TraceLog, WaitReport, Watch,
};
pub use options::{LoaderOptions, OnError, Run, VectorDtype};
pub use planner::{
    Ranks, ShuffleQuality, TierRoom, TierTimes, available_memory, decoded_bytes, group_bytes,
};
pub use store::{Decode, DecodeTimes, DeviceImage, DevicePage, GpuNeeds, GpuShare};
pub use threads::{CpuShare, Trial};

use assembler::{Assembler, Fields, Filled, Waited};
use meter::Meter;
use options::{check_options, check_windows, no_windows};
use planner::{Inbox, Opening, Planner, WholeEpisodes};
use store::{FrameStore, most_stored_bytes};
use threads::{Alarm, Crew, Engine, Stages, decode_all, read_all};

use crate::error::{Result, invalid};
use crate::order::{LengthOrder, Order, SampleRef};

/// Prepares batches ahead of the training loop. Dropping it stops its threads.
#[derive(Debug)]
pub struct Loader {
    engine: Arc<Engine>,
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
    beside: Box<Beside>,
    samples: Vec<SampleRef>,
    substituted: usize,
    is_real: bool,
}

/// What a batch has beside its memory, per array.
#[derive(Debug)]
struct Beside {
    /// Per sample.
    texts: Vec<Vec<Vec<String>>>,
    /// What becomes of images that a device puts together; `None` for other arrays.
    forms: Arc<[Option<Arc<ImageForm>>]>,
    /// In the order of the array.
    images: Vec<Vec<Option<PlacedImage>>>,
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
        self.beside.texts.get(idx).map_or(&[], |texts| texts)
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
        check_options(&options)?;
        let whole = WholeEpisodes::new(lengths, &order, &windows, &options)?;
        Self::launch(order, Some(whole), vec![windows], options)
    }

    fn launch(
        order: Order,
        whole: Option<WholeEpisodes>,
        windows: Vec<Vec<Samples>>,
        options: LoaderOptions,
    ) -> Result<Self> {
        check_options(&options)?;
        let options = options.for_storage(&windows);
        check_windows(&order, &windows, &options.images)?;
        let seed = whole
            .as_ref()
            .map_or(order.settings().seed, WholeEpisodes::seed);
        let planner = Planner::new(order, whole, &windows, &options)?;
        let (next, end) = planner.batches();
        let first = windows.first().and_then(|variants| variants.first());
        let fields = Fields::new(first.ok_or_else(no_windows)?, &options, seed)?;
        let windows: Arc<[Vec<Samples>]> = windows.into();
        let block_of = planner.block_of();
        let needs = options.gpu_needs(&windows, &fields.fits);
        let gpu_share = GpuShare::new(options.decode, options.decode_threads(), needs);
        let gpu_share = Arc::new(gpu_share);
        let opening = Opening::new(Arc::clone(&windows));
        let engine = Arc::new(Engine {
            inbox: Inbox::default(),
            crew: Crew::new(
                &options,
                most_stored_bytes(planner.budget()),
                opening.is_remote(),
            ),
            opening,
            store: FrameStore::new(planner.budget(), gpu_share),
            assembler: Assembler::new(windows, fields, block_of, &options),
            stages: Stages::new(&options.run),
        });
        let mut loader = Self {
            engine,
            threads: Vec::new(),
            next,
            end,
            handed: None,
            waited: Duration::ZERO,
        };
        let engine = Arc::clone(&loader.engine);
        loader.spawn("kino-schedule", move || planner.run(&engine))?;
        for thread in 0..options.run.readers {
            let engine = Arc::clone(&loader.engine);
            loader.spawn("kino-read", move || read_all(&engine, thread))?;
        }
        for thread in 0..options.decode_threads() {
            let engine = Arc::clone(&loader.engine);
            loader.spawn("kino-decode", move || decode_all(&engine, thread))?;
        }
        Ok(loader)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let alarm = Alarm {
            engine: Arc::clone(&self.engine),
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
            self.engine.assembler.taken(handed.elapsed());
            self.engine.crew.tune(self.engine.meter());
        }
        let engine = &self.engine;
        let wait = || (engine.wait_for(self.next, time), 0);
        let (found, took) = engine.meter().measure(Stage::Wait, wait);
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
        let meter = self.engine.meter();
        meter.handed(waited, || self.engine.moment());
        Meter::add(&meter.batches, 1);
        Meter::add(&meter.samples, batch.samples.len());
        Meter::add(&meter.substituted, batch.substituted);
        Ok(Next::Batch(batch))
    }

    /// Page-locks the memory of batches from now on: they go to a device.
    pub fn pin_batches(&self, pinning: Arc<dyn PinMemory>) {
        self.engine.assembler.pin_with(pinning);
    }

    /// Which images the device of the batches decodes.
    pub fn gpu_share(&self) -> Arc<GpuShare> {
        Arc::clone(self.engine.store.gpu_share())
    }

    /// What the loader has done so far.
    pub fn report(&self) -> Report {
        self.watch().report()
    }

    /// A handle for observing the loader from another thread, even while the training loop waits for a batch.
    pub fn watch(&self) -> Watch {
        Watch::new(&self.engine)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.engine.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked was reported by its `Alarm` already.
            drop(thread.join());
        }
        self.engine.clear();
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
