//! JPEG frames, decoded by nvJPEG into memory that we own: staging of a sender's images, or slots that are lent.
//!
//! ```text
//! files in host memory ──▶ check each size ──▶ wait for the memory's last use ──▶ decode ──▶ wait ──▶ hand over
//! ```
//!
//! nvJPEG's engine in hardware does not keep the order of the stream that it is given: it writes before what was asked of the
//! stream earlier is done (on an H200 in 40 of 40 attempts). With memory of a caching allocator, which is reused in the stream's
//! order, it overwrites other tensors. So it decodes only into [`DeviceMemory`] whose last use the *host* has waited for, and
//! the host waits for the result before anyone else sees the memory.

use std::sync::Arc;

use crate::device::{Device, DeviceMemory, Event, Stream};
use crate::error::{CudaError, Result};
use crate::ffi::{StreamHandle, Timing};
use crate::nvjpeg::{Engine, ImagePlace, Nvjpeg, RawDecoder};
use crate::ring::{self, Lease, Returned, Returns, Ring, Slot};

/// Bytes of a pixel: RGB.
const CHANNELS: usize = 3;

/// Decodes batches of JPEG frames on a device.
#[derive(Debug)]
pub struct JpegDecoder {
    device: Arc<Device>,
    raw: RawDecoder,
    engine: Engine,
    stream: Stream,
    done: Event,
}

/// Height and width of the frames of a batch, and what follows from them; nothing in it overflows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    size: (usize, usize),
    row_bytes: usize,
    pub(crate) frame_bytes: usize,
    /// All frames.
    pub(crate) bytes: usize,
}

impl Layout {
    pub(crate) fn new((height, width): (usize, usize), frames: usize) -> Result<Self> {
        let layout = || {
            let row_bytes = width.checked_mul(CHANNELS)?;
            let frame_bytes = row_bytes.checked_mul(height).filter(|&bytes| bytes > 0)?;
            let bytes = frame_bytes.checked_mul(frames)?;
            // An address on the device is signed in some of the functions that take one.
            isize::try_from(bytes).ok()?;
            Some(Self {
                size: (height, width),
                row_bytes,
                frame_bytes,
                bytes,
            })
        };
        layout().ok_or_else(|| CudaError::JpegSize {
            what: format!("{frames} frames of {height}×{width} cannot be in memory"),
        })
    }
}

impl JpegDecoder {
    /// A decoder with the engine in hardware, or with kernels where there is none.
    pub fn open(device: &Arc<Device>, library: &'static Nvjpeg) -> Result<Self> {
        Self::with_engine(device, library, Engine::Hardware)
            .or_else(|_| Self::with_engine(device, library, Engine::Default))
    }

    /// A decoder with one of the engines.
    pub fn with_engine(
        device: &Arc<Device>,
        library: &'static Nvjpeg,
        engine: Engine,
    ) -> Result<Self> {
        // First what frees itself: there is nothing to destroy if one of them fails.
        let stream = device.stream()?;
        let done = device.event(Timing::Off)?;
        let raw = device.within(|_| RawDecoder::new(library, engine))?;
        Ok(Self {
            device: Arc::clone(device),
            raw,
            engine,
            stream,
            done,
        })
    }

    /// Its engine.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Decodes frames, one behind the other, to the start of `memory`, and waits for them.
    ///
    /// Nothing on the device may use the memory meanwhile: the host waited for its last use.
    pub(crate) fn decode(
        &mut self,
        files: &[&[u8]],
        layout: Layout,
        memory: &DeviceMemory,
    ) -> Result<()> {
        let Layout { size, bytes, .. } = layout;
        if bytes > memory.bytes() {
            return Err(CudaError::JpegSize {
                what: format!("{bytes} bytes do not fit into {}", memory.bytes()),
            });
        }
        for (number, file) in files.iter().enumerate() {
            let found = self.device.within(|_| self.raw.size(file))?;
            if found != size {
                let ((height, width), (wanted_height, wanted_width)) = (found, size);
                return Err(CudaError::JpegSize {
                    what: format!(
                        "frame {number} is {height}×{width}, not {wanted_height}×{wanted_width}"
                    ),
                });
            }
        }
        let places = (0_u64..).map(|number| ImagePlace {
            address: memory.address() + number * layout.frame_bytes as u64,
            pitch: layout.row_bytes,
        });
        let frames: Vec<(&[u8], ImagePlace)> = files.iter().copied().zip(places).collect();
        let (raw, stream) = (&mut self.raw, self.stream.handle());
        let decoded = self.device.within(|_| raw.decode(&frames, stream));
        // Also after an error: what was started before it still reads the files and writes to the memory.
        self.done.record(stream)?;
        self.done.synchronize()?;
        decoded
    }
}

impl Drop for JpegDecoder {
    fn drop(&mut self) {
        let raw = &mut self.raw;
        self.device.give_back(|_| raw.destroy());
    }
}

/// Slots for decoded frames: lent, and decoded into again once the *host* has waited for their last use.
#[derive(Debug)]
pub struct JpegSlots {
    device: Arc<Device>,
    returns: Arc<Returns>,
    ring: Ring,
}

impl JpegSlots {
    /// Without slots: they are made when they are needed.
    pub fn new(device: &Arc<Device>) -> Self {
        Self {
            device: Arc::clone(device),
            returns: Returns::new(),
            ring: Ring::default(),
        }
    }

    /// Decodes frames of `size`, height and width, into a slot: uint8 [frames, height, width, 3], for what is asked of `stream`
    /// from now on. After an error the slot is free again.
    pub fn decode(
        &mut self,
        decoder: &mut JpegDecoder,
        files: &[&[u8]],
        size: (usize, usize),
        stream: StreamHandle,
    ) -> Result<Lease> {
        let layout = Layout::new(size, files.len())?;
        let slot = self.slot(layout.bytes)?;
        // By the host, not by a stream, which the engine does not heed.
        slot.synchronize_released()?;
        if let Err(error) = decoder.decode(files, layout, &slot.memory) {
            self.ring.put([slot]);
            return Err(error);
        }
        Ok(self.returns.lend(slot, stream))
    }

    fn slot(&mut self, bytes: usize) -> Result<Arc<Slot>> {
        let returned = self.returns.take();
        self.device
            .within(|driver| ring::record(&returned, driver))?;
        self.ring.put(returned.into_iter().map(Returned::into_slot));
        if let Some(slot) = self.ring.take(bytes)? {
            return Ok(slot);
        }
        drop(self.ring.surplus()?);
        if let Some(memory) = self.device.alloc(bytes)? {
            return Slot::new(&self.device, memory);
        }
        ring::retire(self.ring.drain())?;
        let held = self.returns.held();
        let memory = self.device.alloc(bytes)?;
        let memory = memory.ok_or(CudaError::OutOfMemory {
            bytes,
            live: held,
            held,
        })?;
        Slot::new(&self.device, memory)
    }
}

impl Drop for JpegSlots {
    fn drop(&mut self) {
        self.returns.close();
        let _gone = ring::retire(self.ring.drain());
    }
}
