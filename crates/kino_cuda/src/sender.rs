//! Sends batches to a device ahead of the training loop, in order, from a thread of its own.
//!
//! ```text
//! Source::next ──▶ images: decode ──▶ a slot: copy, gather ──▶ ready ──▶ take
//!                                                 └─ the host's arena is dropped once the copy is done, and reused by the source
//! ```
//!
//! Four things must not be used too early, and each has one guard:
//!
//! | | by | guard |
//! |---|---|---|
//! | the host's arena and images | the next batch | this thread owns them until `copied` is past |
//! | the batch | the training loop | its stream waits for `copied` |
//! | the slot | the next batch | the tensors hold a lease; behind it, `released` on the training loop's stream |
//! | device memory | what is allocated there after it is freed | it is freed after `released` |

mod pace;
mod sending;

use std::collections::VecDeque;
use std::process;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kino_sync::{Condvar, Mutex, MutexGuard};

use crate::device::Device;
use crate::error::{CudaError, Result};
use crate::ffi::StreamHandle;
use crate::images::{ImageOptions, Images};
use crate::ring::{self, Returned, Returns, Ring, Slot};
use crate::source::{Arrived, SendError, SendReport, Source, Taken};
use pace::Pace;
use sending::Sending;

/// While one batch is trained on, one is ready and one is being copied.
const DEPTH: usize = 2;

/// The thread looks this often whether it was closed, while its source has no batch.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Sends the batches of a source. Dropping it stops its thread.
#[derive(Debug)]
pub struct Sender<M, E> {
    shared: Arc<Shared<M, E>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    process: u32,
}

#[derive(Debug)]
struct Shared<M, E> {
    device: Arc<Device>,
    returns: Arc<Returns>,
    state: Mutex<State<M, E>>,
    /// Notified when a batch is ready, or none will come.
    ready: Condvar,
    /// Notified when the training loop waits for a batch, or none will come. That a batch was taken, or that a slot came back, is
    /// looked for, unless the loop is too fast for that: [`Pace`].
    room: Condvar,
}

#[derive(Debug)]
struct State<M, E> {
    ready: VecDeque<(M, Arc<Slot>)>,
    ring: Ring,
    /// What ended the thread; raised once, in place of the batch that did not come.
    error: Option<SendError<E>>,
    has_ended: bool,
    /// Whether the training loop waits for a batch.
    is_waited_for: bool,
    pace: Pace,
    /// Since when the thread waits for the GPU.
    behind: Option<Instant>,
    report: SendReport,
}

impl<M: Send + 'static, E: Send + 'static> Sender<M, E> {
    /// Starts the thread, for batches without images.
    pub fn start(device: &Arc<Device>, source: impl Source<Meta = M, Error = E>) -> Result<Self> {
        Self::run(device, source, None)
    }

    /// Starts the thread, for batches with and without images.
    pub fn start_with(
        device: &Arc<Device>,
        source: impl Source<Meta = M, Error = E>,
        options: ImageOptions,
    ) -> Result<Self> {
        Self::run(device, source, Some(options))
    }

    fn run(
        device: &Arc<Device>,
        source: impl Source<Meta = M, Error = E>,
        options: Option<ImageOptions>,
    ) -> Result<Self> {
        let stream = Arc::new(device.stream()?);
        let images = options.map(|options| Images::new(device, &stream, options));
        let images = images.transpose()?;
        let shared = Arc::new(Shared {
            device: Arc::clone(device),
            returns: Returns::new(),
            state: Mutex::new(State {
                ready: VecDeque::new(),
                ring: Ring::default(),
                error: None,
                has_ended: false,
                is_waited_for: false,
                pace: Pace::default(),
                behind: None,
                report: SendReport {
                    images: images.as_ref().map(Images::report),
                    ..SendReport::default()
                },
            }),
            ready: Condvar::new(),
            room: Condvar::new(),
        });
        let alarm = Alarm(Arc::clone(&shared));
        let run = move || {
            // Moved into the thread, so that it is dropped however the thread ends.
            let alarm = alarm;
            let sending = Sending {
                shared: &alarm.0,
                stream,
                images,
            };
            let error = sending.run(source).err();
            alarm.0.end(error);
        };
        let thread = std::thread::Builder::new().name("kino-send".to_owned());
        let thread = thread.spawn(run).map_err(|error| CudaError::Thread {
            what: format!("cannot start: {error}; raise the process limit"),
        })?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
            process: process::id(),
        })
    }

    /// Waits for the next batch, for at most `within`, and makes `stream` wait for its copy.
    pub fn take(
        &self,
        stream: StreamHandle,
        within: Duration,
    ) -> std::result::Result<Taken<M>, SendError<E>> {
        let shared = &*self.shared;
        let mut returned = shared.returns.take();
        let mut state = shared.state.lock();
        if state.ready.is_empty() {
            drop(state);
            // The thread may need them for the batch.
            shared.put(std::mem::take(&mut returned))?;
            state = shared.wait_for_batch(within);
        }
        let Some((meta, slot)) = state.ready.pop_front() else {
            if !state.has_ended {
                return Ok(Taken::Later);
            }
            return state.error.take().map_or(Ok(Taken::End), Err);
        };
        let is_fast = state.pace.took(Instant::now());
        drop(state);
        // The lease first: if the wait fails, the slot comes back.
        let lease = shared.returns.lend(Arc::clone(&slot), stream);
        shared.device.within(|driver| {
            ring::record(&returned, driver)?;
            slot.wait_copied(driver, stream)
        })?;
        shared.free(returned);
        if is_fast {
            shared.room.notify_all();
        }
        Ok(Taken::Batch(Arrived { meta, lease }))
    }

    /// What was done so far.
    pub fn report(&self) -> SendReport {
        let state = self.shared.state.lock();
        let mut report = state.report.clone();
        report.behind_s += state
            .behind
            .map_or(0.0, |since| since.elapsed().as_secs_f64());
        report
    }
}

impl<M, E> Sender<M, E> {
    /// Stops the thread, and drops what was not taken. Batches that were taken stay valid.
    pub fn close(&self) {
        if process::id() != self.process {
            return;
        }
        self.shared.end(None);
        if let Some(thread) = self.thread.lock().take() {
            // A panic was noted by its `Alarm` already.
            drop(thread.join());
        }
        self.shared.returns.close();
        let mut state = self.shared.state.lock();
        let ready = std::mem::take(&mut state.ready);
        let free = state.ring.drain();
        drop(state);
        drop(ready);
        let _gone = ring::retire(free);
    }
}

impl<M, E> Drop for Sender<M, E> {
    fn drop(&mut self) {
        if process::id() != self.process {
            // The thread belongs to the other process, and locks may be held forever.
            std::mem::forget(self.thread.get_mut().take());
            std::mem::forget(Arc::clone(&self.shared));
            return;
        }
        self.close();
    }
}

impl<M, E> Shared<M, E> {
    /// No more batches come; `error` takes the place of the next one.
    fn end(&self, error: Option<SendError<E>>) {
        let mut state = self.state.lock();
        if !state.has_ended {
            state.has_ended = true;
            state.error = error;
        }
        drop(state);
        self.ready.notify_all();
        self.room.notify_all();
    }

    /// Waits until a batch may be made ready; `false` once closed.
    fn wait_for_room(&self) -> bool {
        let mut state = self.state.lock();
        while state.ready.len() >= DEPTH && !state.has_ended {
            let pause = state.pace.pause();
            state = self.room.wait_for(state, pause);
        }
        !state.has_ended
    }

    /// The training loop waits for a batch, for at most `within`.
    fn wait_for_batch(&self, within: Duration) -> MutexGuard<'_, State<M, E>> {
        let mut state = self.state.lock();
        if within.is_zero() {
            return state;
        }
        state.is_waited_for = true;
        self.room.notify_all();
        let until = Instant::now() + within;
        while state.ready.is_empty() && !state.has_ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.ready.wait_for(state, left);
        }
        state.is_waited_for = false;
        state
    }

    /// Slots that came back may be used again, behind what used their batches.
    fn put(&self, returned: Vec<Returned>) -> Result<()> {
        if returned.is_empty() {
            return Ok(());
        }
        self.device
            .within(|driver| ring::record(&returned, driver))?;
        self.free(returned);
        Ok(())
    }

    /// Slots whose events are recorded may be used again.
    fn free(&self, returned: Vec<Returned>) {
        let slots = returned.into_iter().map(Returned::into_slot);
        self.state.lock().ring.put(slots);
    }

    /// Waits for a slot to come back because the device has no memory left; `false` once closed.
    fn wait_for_return(&self, bytes: usize) -> Result<bool> {
        let held_before = self.returns.held();
        let mut state = self.state.lock();
        loop {
            if state.has_ended {
                return Ok(false);
            }
            let has_returned = self.returns.held() < held_before || !state.ring.is_empty();
            if has_returned {
                return Ok(true);
            }
            if state.is_waited_for && state.ready.is_empty() {
                return Err(CudaError::OutOfMemory {
                    bytes,
                    live: state.report.slots,
                    held: self.returns.held(),
                });
            }
            let pause = state.pace.pause();
            state = self.room.wait_for(state, pause);
        }
    }

    /// Counts slots that are freed.
    fn freed(&self, slots: &[Arc<Slot>]) -> MutexGuard<'_, State<M, E>> {
        let mut state = self.state.lock();
        state.report.slots = state.report.slots.saturating_sub(slots.len());
        state
    }
}

/// Tells the training loop if the thread panics.
#[derive(Debug)]
struct Alarm<M, E>(Arc<Shared<M, E>>);

impl<M, E> Drop for Alarm<M, E> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(Some(SendError::Cuda(CudaError::Thread {
                what: "panicked; please report this with what it printed".to_owned(),
            })));
        }
    }
}
