//! The threads, and what they run on: three owners, who are asked by methods and tell each other by messages.
//!
//! ```text
//!              frames wanted, uses ahead              slots that waited for a page
//! ┌ planner ─┐ ─────────────────────────▶ ┌ store ──┐ ────────────────────────────▶ ┌ assembler ┐ ──▶ training loop
//! └──────────┘ ────────────── a batch, its samples ─┼─────────────────────────────▶ └───────────┘
//!      ▲       └── reads, pages ──▶ kino-read, kino-decode ──▶ their results go to store and assembler
//!      └ inbox ◀── a batch was taken, a sample could not be read, frames were given back
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `work.rs` | what a `kino-read` and a `kino-decode` thread does |
//! | `tasks.rs`, `reads.rs` | their queues: the most urgent task first, and of reads only what has memory and pays |
//! | `read_width.rs` | how many reads over a network are under way at once |
//! | `counts.rs`, `cpu.rs` | how many of them run, and how much CPU time they use |
//! | `stages.rs` | how their work is metered, and left out in a measurement run |
//!
//! Each owner has its own locks, behind its own methods. No thread holds those of two owners at once, but for one case: what
//! decodes a frame into its place in a batch holds that place while it notes that the page is decoded. A thread that holds the
//! lock of a page waits for nothing else.

mod counts;
mod cpu;
mod read_width;
mod reads;
mod stages;
mod tasks;
mod work;

pub use cpu::CpuShare;
pub(crate) use cpu::default_threads;
pub(crate) use stages::Stages;
pub use stages::Trial;
pub(crate) use tasks::{MostUrgent, Urgency};
pub(crate) use work::{decode_all, read_all};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kino_sync::Mutex;

use super::assembler::{Assembler, BatchJob, Waited};
use super::meter::{Meter, Moment};
use super::planner::{Inbox, Opening};
use super::store::{EpisodeFrames, EpisodeKey, FrameStore, PageId, SpanId};
use super::{Batch, LoaderOptions};
use crate::error::Result;
use counts::{TUNE_EVERY, ThreadCounts};
use cpu::Limit;
use reads::Reads;
use tasks::Tasks;

/// Over a network this many reads are queued, if there are so many: how large a read is best is known better later.
const ENOUGH_READS: usize = 256;

/// What the threads of a loader run on.
#[derive(Debug)]
pub(crate) struct Engine {
    /// What other threads tell the planner.
    pub(crate) inbox: Inbox,
    /// Episodes that are opened ahead of the planner.
    pub(crate) opening: Opening,
    pub(crate) store: FrameStore,
    pub(crate) assembler: Assembler,
    pub(crate) crew: Crew,
    pub(crate) stages: Stages,
}

impl Engine {
    /// What counts.
    pub(crate) fn meter(&self) -> &Meter {
        self.stages.meter()
    }

    /// A sample of a batch is done, whether it succeeded or failed. After the last one, the batch is delivered.
    pub(crate) fn end_sample(&self, batch: &BatchJob) {
        if let Some(done) = self.assembler.end_sample(batch) {
            self.deliver(batch.number, done);
        }
    }

    /// A batch is complete, or failed.
    pub(crate) fn deliver(&self, number: u64, done: Result<Batch>) {
        Meter::add(&self.meter().made, 1);
        self.assembler.deliver(number, done, self.meter().now());
    }

    /// Waits for batch `number`, for at most `time`.
    pub(crate) fn wait_for(&self, number: u64, time: Duration) -> Waited {
        // A deadline beyond the clock's range means no deadline.
        let until = Instant::now().checked_add(time);
        loop {
            let left = until.map_or(TUNE_EVERY, |until| {
                until.saturating_duration_since(Instant::now())
            });
            match self.assembler.wait_for(number, left.min(TUNE_EVERY)) {
                // More threads may shorten the wait.
                Waited::Later if !left.is_zero() => self.crew.tune(self.meter()),
                Waited::Done(done) => {
                    self.inbox.tell();
                    return Waited::Done(done);
                }
                other => return other,
            }
        }
    }

    /// Queue lengths and ready batches at this moment.
    pub(crate) fn moment(&self) -> Moment {
        let (reads, work) = self.crew.queued();
        let (ready, depth) = self.assembler.ready();
        Moment {
            ready: ready as f64,
            depth,
            reads_queued: reads as f64,
            work_queued: work as f64,
            ..Moment::default()
        }
    }

    /// Ends all threads.
    pub(crate) fn stop(&self) {
        self.crew.stop();
        self.assembler.stop();
        self.inbox.stop();
    }

    /// Lets all frames and batches go: a [`Watch`](super::Watch) may outlive the loader.
    pub(crate) fn clear(&self) {
        self.assembler.clear();
        self.store.clear();
    }
}

/// Something to read.
#[derive(Debug)]
enum Read {
    /// The indexes of episodes that will be needed.
    Episodes(Vec<EpisodeKey>),
    /// A span of pages.
    Span {
        /// The frames that the pages belong to.
        frames: Arc<EpisodeFrames>,
        /// The span.
        span: SpanId,
        /// The urgency of its pages.
        urgency: Urgency,
    },
}

/// Something to compute.
#[derive(Debug)]
enum Work {
    /// Decode a page whose bytes are in memory.
    Decode(Arc<EpisodeFrames>, PageId),
    /// Collate a sample whose frames are decoded.
    Collate(Arc<BatchJob>, usize),
}

/// The threads that read and those that decode: their queues, how many run, and their CPU time.
#[derive(Debug)]
pub(crate) struct Crew {
    work: Tasks<Work>,
    reads: Reads<Read>,
    counts: Mutex<ThreadCounts>,
    /// `None` if unlimited.
    cpu: Option<Limit>,
    is_stopped: AtomicBool,
}

impl Crew {
    /// As many threads as the options say. At most `stored_bytes` are read and not yet decoded; over a network, as many reads are
    /// under way as pays.
    pub(crate) fn new(options: &LoaderOptions, stored_bytes: u64, is_remote: bool) -> Self {
        let counts = ThreadCounts::new(options.decode_threads(), options.run.readers);
        Self {
            work: Tasks::new(counts.active().0),
            reads: if is_remote {
                Reads::remote(options.run.readers, stored_bytes)
            } else {
                Reads::new(options.run.readers, counts.active().1, stored_bytes)
            },
            counts: Mutex::new(counts),
            cpu: Limit::new(options.cpu, options.decode_threads()),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Queues groups of episodes to be opened, for a batch.
    pub(crate) fn open(&self, groups: impl IntoIterator<Item = Vec<EpisodeKey>>, batch: u64) {
        // The highest cost goes first: the batch's own reads are not known until its episodes are open.
        let groups = groups.into_iter();
        let tasks = groups.map(|keys| (u64::MAX, 0, Read::Episodes(keys)));
        self.reads.push(Urgency::needed(batch), tasks);
    }

    /// Queues spans for reading.
    pub(crate) fn read(
        &self,
        frames: &Arc<EpisodeFrames>,
        spans: impl IntoIterator<Item = SpanId>,
        urgency: Urgency,
    ) {
        let reads = spans.into_iter().map(|span| {
            let read = Read::Span {
                frames: Arc::clone(frames),
                span,
                urgency,
            };
            let bytes = frames.stored_bytes(span);
            (cost_of(bytes), bytes, read)
        });
        self.reads.push(urgency, reads);
    }

    /// Queues a page for decoding; among equally urgent pages the most expensive goes first.
    pub(crate) fn decode(&self, frames: &Arc<EpisodeFrames>, page: PageId, urgency: Urgency) {
        let work = Work::Decode(Arc::clone(frames), page);
        let cost = cost_of(frames.page_bytes(page));
        self.work.push(urgency, [(cost, work)]);
    }

    /// Queues the sample in a slot for collation.
    pub(crate) fn collate(&self, batch: Arc<BatchJob>, slot: usize) {
        let urgency = Urgency::needed(batch.number);
        self.work.push(urgency, [(0, Work::Collate(batch, slot))]);
    }

    /// Adjusts the number of active threads to the work there is.
    pub(crate) fn tune(&self, meter: &Meter) {
        let (reads, work) = self.queued();
        let tuned = self.counts.lock().tune(meter, [work, reads]);
        if let Some((decode, read)) = tuned {
            self.work.set_active(decode);
            self.reads.set_active(read);
        }
    }

    /// Queued reads, and queued pages and samples.
    pub(crate) fn queued(&self) -> (usize, usize) {
        (self.reads.len(), self.work.len())
    }

    /// Active decode threads and read threads, and the changes of the latter if they follow what was measured.
    pub(crate) fn active(&self) -> (usize, usize, Vec<(f64, usize)>) {
        let (readers, changes) = self.reads.width();
        let (decode, _) = self.counts.lock().active();
        (decode, readers, changes.unwrap_or_default())
    }

    /// All decode threads, and the active read threads: what can decode and what reads at once.
    pub(crate) fn for_reading(&self) -> (usize, usize) {
        let (readers, _) = self.reads.width();
        (self.counts.lock().all_decode(), readers)
    }

    /// Whether more reads are queued than are done soon.
    pub(crate) fn has_enough_reads(&self) -> bool {
        self.reads.len() >= ENOUGH_READS
    }

    /// Whether there will be too few soon.
    pub(crate) fn needs_reads(&self) -> bool {
        self.reads.len() < ENOUGH_READS / 2
    }

    /// Stored bytes that are read and not yet decoded: now, and the peak.
    pub(crate) fn stored_bytes(&self) -> (u64, u64) {
        self.reads.bytes()
    }

    /// Bytes that were read are not needed any more: their pages are decoded, or were not read after all.
    pub(crate) fn end_read(&self, bytes: u64) {
        self.reads.leave(bytes);
    }

    /// Whether the threads end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.work.close();
        self.reads.close();
    }
}

/// The cost of reading and decoding stored bytes, in powers of four. The scale is coarse so that pages of one stream
/// cost the same and are decoded in order: consecutive frames are then adjacent in memory, which makes copying them 10%
/// cheaper.
fn cost_of(bytes: u64) -> u64 {
    u64::from(bytes.max(1).ilog2() / 2)
}

/// Reports a panic of its thread to the training loop, which would otherwise wait forever.
#[derive(Debug)]
pub(crate) struct Alarm {
    pub(crate) engine: Arc<Engine>,
    pub(crate) name: String,
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.engine.assembler.lose(std::mem::take(&mut self.name));
            self.engine.stop();
        }
    }
}
