//! A device and what it owns: memory, streams and events; and host memory that it can copy from without a detour.
//!
//! ```text
//! Device ──┬── DeviceMemory    freed when dropped
//!          ├── Stream          copies in order
//!          ├── Event           a place in a stream: wait for it, ask whether it is past
//!          └── Pinned          a range of host memory that is page-locked until dropped
//! ```
//!
//! Nothing here depends on which thread calls: each call makes the device's context current and restores what was.
//! In a forked process, where the driver cannot be used, everything is forgotten instead of freed.

use std::ffi::c_int;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;

use crate::error::{CudaError, Result};
use crate::ffi::{Driver, RawContext, RawEvent, RawMemory, StreamHandle, Timing};
use crate::library;

/// One GPU.
#[derive(Debug)]
pub struct Device {
    driver: &'static Driver,
    device: c_int,
    context: RawContext,
    ordinal: u32,
    /// The process that may use it.
    process: u32,
}

impl Device {
    /// The device with this ordinal; `CUDA_VISIBLE_DEVICES` counts, as in PyTorch.
    pub fn open(ordinal: u32) -> Result<Arc<Self>> {
        Self::of(library::driver()?, ordinal)
    }

    /// As [`open`](Self::open), with the driver in this file.
    pub fn open_with(library: impl Into<PathBuf>, ordinal: u32) -> Result<Arc<Self>> {
        Self::of(library::open(&[library.into()])?, ordinal)
    }

    fn of(driver: &'static Driver, ordinal: u32) -> Result<Arc<Self>> {
        let number = c_int::try_from(ordinal).map_err(|_| CudaError::NoDriver {
            what: format!("{ordinal} is not the number of a device"),
        })?;
        let (device, context) = driver.retain(number)?;
        Ok(Arc::new(Self {
            driver,
            device,
            context,
            ordinal,
            process: process::id(),
        }))
    }

    /// Its number.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Page-locks host memory, so that copies from it need no help of the CPU. What is returned must be dropped before
    /// the memory is freed: addresses that stay registered would make later copies read memory that is no longer there.
    pub fn pin(self: &Arc<Self>, memory: &mut [u8]) -> Result<Pinned> {
        let start = self.within(|driver| driver.register(memory))?;
        Ok(Pinned {
            device: Arc::clone(self),
            start,
        })
    }

    /// Memory on the device; `None` if there is not enough.
    pub fn alloc(self: &Arc<Self>, bytes: usize) -> Result<Option<DeviceMemory>> {
        let memory = self.within(|driver| driver.alloc(bytes.max(1)))?;
        Ok(memory.map(|memory| DeviceMemory {
            device: Arc::clone(self),
            memory,
            bytes,
        }))
    }

    pub(crate) fn stream(self: &Arc<Self>) -> Result<Stream> {
        let stream = self.within(Driver::create_stream)?;
        Ok(Stream {
            device: Arc::clone(self),
            stream,
        })
    }

    pub(crate) fn event(self: &Arc<Self>, timing: Timing) -> Result<Event> {
        let event = self.within(|driver| driver.create_event(timing))?;
        Ok(Event {
            device: Arc::clone(self),
            event,
        })
    }

    /// Makes a stream wait for an event.
    pub(crate) fn wait(&self, stream: StreamHandle, event: &Event) -> Result<()> {
        self.within(|driver| event.wait_with(driver, stream))
    }

    /// Starts a copy to the device; `from` must stay as it is until the stream has come past it.
    pub(crate) fn copy(&self, to: &DeviceMemory, from: &[u8], stream: StreamHandle) -> Result<()> {
        debug_assert!(
            from.len() <= to.bytes,
            "a batch is copied to a slot of its size"
        );
        let len = from.len().min(to.bytes);
        let from = from.get(..len).unwrap_or_default();
        self.within(|driver| driver.copy_to_device(to.memory, from, stream))
    }

    /// Starts a copy of the first bytes from one place on the device to another.
    pub(crate) fn copy_within(
        &self,
        to: &DeviceMemory,
        from: &DeviceMemory,
        stream: StreamHandle,
    ) -> Result<()> {
        let bytes = to.bytes.min(from.bytes);
        self.within(|driver| driver.copy_on_device(to.memory, from.memory, bytes, stream))
    }

    /// Starts a copy to an address on the device; the caller knows that there is room, and keeps both until the stream has come past.
    pub(crate) fn copy_to(&self, to: u64, from: &[u8], stream: StreamHandle) -> Result<()> {
        self.within(|driver| driver.copy_to_device(RawMemory(to), from, stream))
    }

    /// Starts a copy from an address on the device, as [`copy_to`](Self::copy_to).
    pub(crate) fn copy_from(&self, to: &mut [u8], from: u64, stream: StreamHandle) -> Result<()> {
        self.within(|driver| driver.copy_to_host(to, RawMemory(from), stream))
    }

    /// Starts a copy between two addresses on the device, as [`copy_to`](Self::copy_to).
    pub(crate) fn copy_between(
        &self,
        to: u64,
        from: u64,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        self.within(|driver| driver.copy_on_device(RawMemory(to), RawMemory(from), bytes, stream))
    }

    pub(crate) fn within<T>(&self, work: impl FnOnce(&Driver) -> Result<T>) -> Result<T> {
        self.driver.within(self.context, || work(self.driver))
    }

    /// Runs what gives something back to the driver; errors mean that the driver is gone, and everything with it.
    pub(crate) fn give_back(&self, work: impl FnOnce(&Driver)) {
        if process::id() != self.process {
            return;
        }
        let _gone = self.within(|driver| {
            work(driver);
            Ok(())
        });
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if process::id() == self.process {
            self.driver.release(self.device);
        }
    }
}

/// Memory on a device.
#[derive(Debug)]
pub struct DeviceMemory {
    device: Arc<Device>,
    memory: RawMemory,
    bytes: usize,
}

impl DeviceMemory {
    /// Its address on the device.
    pub fn address(&self) -> u64 {
        self.memory.0
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let memory = self.memory;
        self.device.give_back(|driver| driver.free(memory));
    }
}

/// Host memory that is page-locked for as long as this exists.
#[derive(Debug)]
pub struct Pinned {
    device: Arc<Device>,
    start: usize,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let start = self.start;
        self.device.give_back(|driver| {
            let _gone = driver.unregister(start);
        });
    }
}

/// A stream of our own.
#[derive(Debug)]
pub(crate) struct Stream {
    device: Arc<Device>,
    stream: StreamHandle,
}

impl Stream {
    /// Its handle, for calls that take any stream.
    pub(crate) fn handle(&self) -> StreamHandle {
        self.stream
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let stream = self.stream;
        self.device
            .give_back(|driver| driver.destroy_stream(stream));
    }
}

/// A place in a stream.
#[derive(Debug)]
pub(crate) struct Event {
    device: Arc<Device>,
    event: RawEvent,
}

impl Event {
    /// Puts it behind everything that was asked of a stream until now.
    pub(crate) fn record(&self, stream: StreamHandle) -> Result<()> {
        self.device
            .within(|driver| self.record_with(driver, stream))
    }

    /// [`record`](Self::record), within the device's context: several calls need it once.
    pub(crate) fn record_with(&self, driver: &Driver, stream: StreamHandle) -> Result<()> {
        driver.record(self.event, stream)
    }

    /// Makes a stream wait for it, within the device's context.
    pub(crate) fn wait_with(&self, driver: &Driver, stream: StreamHandle) -> Result<()> {
        driver.wait(stream, self.event)
    }

    pub(crate) fn is_past(&self) -> Result<bool> {
        self.device.within(|driver| driver.is_past(self.event))
    }

    /// Sleeps until the device has come past it.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.device.within(|driver| driver.synchronize(self.event))
    }

    /// Seconds on the device's clock since an earlier event; both are past.
    pub(crate) fn seconds_since(&self, earlier: &Self) -> Result<f64> {
        let elapsed = |driver: &Driver| driver.elapsed_ms(earlier.event, self.event);
        Ok(f64::from(self.device.within(elapsed)?) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let event = self.event;
        self.device.give_back(|driver| driver.destroy_event(event));
    }
}
