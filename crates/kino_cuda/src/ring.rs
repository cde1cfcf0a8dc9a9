//! Device memory for batches: slots that go round between the copying thread and the training loop.
//!
//! ```text
//! free ──▶ copied to ──▶ ready ──▶ Lease (the tensors of a batch) ──▶ returned ──▶ free, behind an event on the
//!  ▲ or a new one, if none fits                                                    stream that used the batch
//!  └──────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A [`Lease`] ends wherever the last tensor dies, in any thread and perhaps while a CUDA graph is captured, so it calls
//! nothing of the driver: the slot is put aside, and the event is recorded when the next batch is taken. By then every
//! kernel that reads the batch was launched.

use std::collections::VecDeque;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kino_sync::Mutex;

use crate::device::{Device, DeviceMemory, Event};
use crate::error::Result;
use crate::ffi::{Driver, StreamHandle, Timing};

/// Free slots that are kept; more were needed while the user held many batches.
const KEPT: usize = 4;

/// Device memory for one batch.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) memory: DeviceMemory,
    /// Before the copy.
    begun: Event,
    /// Behind the copy.
    pub(crate) copied: Event,
    /// Whether the host knows that `copied` is past.
    is_copied: AtomicBool,
    /// Behind the last use of the batch; past if there was none.
    released: Event,
}

impl Slot {
    pub(crate) fn new(device: &Arc<Device>, memory: DeviceMemory) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            memory,
            begun: device.event(Timing::On)?,
            copied: device.event(Timing::On)?,
            is_copied: AtomicBool::new(false),
            released: device.event(Timing::Off)?,
        }))
    }

    /// The copy of another batch begins on a stream.
    pub(crate) fn begin(&self, stream: StreamHandle) -> Result<()> {
        self.is_copied.store(false, Ordering::Relaxed);
        self.begun.record(stream)
    }

    /// Sleeps until the copy is done; its seconds.
    pub(crate) fn synchronize_copied(&self) -> Result<f64> {
        self.copied.synchronize()?;
        // Whoever sees this launches kernels later, which see what was copied.
        self.is_copied.store(true, Ordering::Release);
        self.copied.seconds_since(&self.begun)
    }

    /// Makes a stream wait for the copy, unless it is done.
    pub(crate) fn wait_copied(&self, driver: &Driver, stream: StreamHandle) -> Result<()> {
        if self.is_copied.load(Ordering::Acquire) {
            return Ok(());
        }
        self.copied.wait_with(driver, stream)
    }

    /// Whether the GPU has done everything that used the batch.
    pub(crate) fn is_released(&self) -> Result<bool> {
        self.released.is_past()
    }

    /// Sleeps until the GPU has done everything that used the batch.
    pub(crate) fn synchronize_released(&self) -> Result<()> {
        self.released.synchronize()
    }

    /// Makes a stream wait until the GPU has done everything that used the batch.
    pub(crate) fn wait_released(&self, device: &Device, stream: StreamHandle) -> Result<()> {
        device.wait(stream, &self.released)
    }
}

/// A slot that came back, and the stream that used its batch.
#[derive(Debug)]
pub(crate) struct Returned {
    slot: Arc<Slot>,
    stream: StreamHandle,
}

impl Returned {
    /// Puts an event behind everything that was asked of the stream.
    pub(crate) fn record(&self, driver: &Driver) -> Result<()> {
        self.slot.released.record_with(driver, self.stream)
    }

    /// The slot, once the event is recorded.
    pub(crate) fn into_slot(self) -> Arc<Slot> {
        self.slot
    }
}

/// Where slots come back to; outlived by the tensors.
#[derive(Debug)]
pub(crate) struct Returns {
    /// `None` once the sender is closed: what comes back is freed.
    slots: Mutex<Option<Vec<Returned>>>,
    held: AtomicUsize,
    process: u32,
}

impl Returns {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            slots: Mutex::new(Some(Vec::new())),
            held: AtomicUsize::new(0),
            process: process::id(),
        })
    }

    /// How many batches the user references.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Lends a slot to the user of `stream`.
    pub(crate) fn lend(self: &Arc<Self>, slot: Arc<Slot>, stream: StreamHandle) -> Lease {
        self.held.fetch_add(1, Ordering::Relaxed);
        Lease {
            slot: Some(slot),
            stream,
            returns: Arc::clone(self),
        }
    }

    /// The slots that came back.
    pub(crate) fn take(&self) -> Vec<Returned> {
        let mut slots = self.slots.lock();
        slots.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// From now on what comes back is freed.
    pub(crate) fn close(&self) {
        let returned = self.slots.lock().take();
        for Returned { slot, stream } in returned.unwrap_or_default() {
            free(&slot, stream);
        }
    }
}

/// Puts an event behind everything that used the batches of slots.
pub(crate) fn record(returned: &[Returned], driver: &Driver) -> Result<()> {
    returned.iter().try_for_each(|one| one.record(driver))
}

/// Waits for the last use of a slot, which is freed next.
fn free(slot: &Slot, stream: StreamHandle) {
    let waited = slot.released.record(stream);
    // Without the driver there is nothing left to wait for.
    let _gone = waited.and_then(|()| slot.released.synchronize());
}

/// A batch on the device: its memory is not reused before this is dropped and the stream is done with it.
#[derive(Debug)]
pub struct Lease {
    /// `None` only while it is dropped.
    slot: Option<Arc<Slot>>,
    stream: StreamHandle,
    returns: Arc<Returns>,
}

impl Lease {
    /// The address of the batch on the device.
    pub fn address(&self) -> u64 {
        self.slot.as_ref().map_or(0, |slot| slot.memory.address())
    }

    /// Copies the batch to other memory of the device, in the order of the stream that it was taken for.
    pub fn copy_to(&self, device: &Device, to: &DeviceMemory) -> Result<()> {
        match &self.slot {
            Some(slot) => device.copy_within(to, &slot.memory, self.stream),
            None => Ok(()),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else {
            return;
        };
        if process::id() != self.returns.process {
            // A lock may be held by a thread that does not exist in this process.
            std::mem::forget(slot);
            return;
        }
        self.returns.held.fetch_sub(1, Ordering::Relaxed);
        let mut slots = self.returns.slots.lock();
        match slots.as_mut() {
            Some(slots) => slots.push(Returned {
                slot,
                stream: self.stream,
            }),
            None => {
                drop(slots);
                free(&slot, self.stream);
            }
        }
    }
}

/// Slots that no batch is in.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    free: VecDeque<Arc<Slot>>,
}

impl Ring {
    pub(crate) fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    pub(crate) fn put(&mut self, slots: impl IntoIterator<Item = Arc<Slot>>) {
        self.free.extend(slots);
    }

    /// A slot for a batch: one that the GPU is done with, else the one that it will be done with first.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<Option<Arc<Slot>>> {
        // A slot that is much too large is left for a batch that needs it.
        let fits = |slot: &Slot| {
            let size = slot.memory.bytes();
            size >= bytes && size / 2 <= bytes
        };
        let mut first = None;
        for (idx, slot) in self.free.iter().enumerate().filter(|(_, slot)| fits(slot)) {
            if slot.is_released()? {
                return Ok(self.free.remove(idx));
            }
            first = first.or(Some(idx));
        }
        Ok(first.and_then(|idx| self.free.remove(idx)))
    }

    /// Slots to free: the oldest of too many that the GPU is done with.
    pub(crate) fn surplus(&mut self) -> Result<Vec<Arc<Slot>>> {
        let mut surplus = Vec::new();
        while self.free.len() > KEPT && self.free[0].is_released()? {
            surplus.extend(self.free.pop_front());
        }
        Ok(surplus)
    }

    /// All slots, to free them: the device has no memory left.
    pub(crate) fn drain(&mut self) -> Vec<Arc<Slot>> {
        self.free.drain(..).collect()
    }
}

/// Waits until the GPU is done with slots, and frees them.
pub(crate) fn retire(slots: Vec<Arc<Slot>>) -> Result<()> {
    slots
        .iter()
        .try_for_each(|slot| slot.released.synchronize())
}
