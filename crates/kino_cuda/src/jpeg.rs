//! JPEG frames, decoded by nvJPEG into memory that we own.
//!
//! ```text
//! files in host memory ──▶ check each size ──▶ wait for the memory's last use ──▶ decode ──▶ wait ──▶ hand over
//! ```
//!
//! nvJPEG's engine in hardware does not keep the order of the stream that it is given: it writes before what was asked of the
//! stream earlier is done. With memory of a caching allocator, which is reused in the stream's order, it overwrites other
//! tensors (134 of 200 iterations in a published reproduction). So it decodes only into [`DeviceMemory`] whose last use the
//! *host* has waited for, and the host waits for the result before anyone else sees the memory.

use std::path::PathBuf;
use std::sync::Arc;

use crate::device::{Device, DeviceMemory, Event, Stream};
use crate::error::{CudaError, Result};
use crate::ffi::{StreamHandle, Timing};
use crate::nvjpeg::{self, Engine, ImagePlace, RawDecoder};
use crate::ring::{self, Lease, Returns, Ring, Slot};

/// Decodes batches of JPEG frames on a device.
#[derive(Debug)]
pub struct JpegDecoder {
    device: Arc<Device>,
    raw: RawDecoder,
    engine: Engine,
    version: String,
    stream: Stream,
    done: Event,
}

impl JpegDecoder {
    /// A decoder with the engine in hardware, or with kernels where there is none. `folders` are where nvJPEG may be.
    pub fn open(device: &Arc<Device>, folders: &[PathBuf]) -> Result<Self> {
        Self::with_engine(device, folders, Engine::Hardware)
            .or_else(|_| Self::with_engine(device, folders, Engine::Default))
    }

    /// A decoder with one of the engines.
    pub fn with_engine(device: &Arc<Device>, folders: &[PathBuf], engine: Engine) -> Result<Self> {
        let library = nvjpeg::open(folders)?;
        let raw = device.within(|_| RawDecoder::new(library, engine))?;
        Ok(Self {
            raw,
            engine,
            version: library.version(),
            stream: device.stream()?,
            done: device.event(Timing::Off)?,
            device: Arc::clone(device),
        })
    }

    /// Its engine.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// The version of nvJPEG.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Decodes frames of `height` × `width` × 3 bytes, one behind the other, to the start of `memory`, and waits for them.
    ///
    /// Nothing on the device may use the memory meanwhile: the host waited for its last use.
    pub fn decode(
        &mut self,
        files: &[&[u8]],
        (height, width): (usize, usize),
        memory: &DeviceMemory,
    ) -> Result<()> {
        let bytes = height * width * 3;
        if bytes
            .checked_mul(files.len())
            .is_none_or(|all| all > memory.bytes())
        {
            return Err(CudaError::JpegSize {
                what: format!("{} frames of {height}×{width} do not fit", files.len()),
            });
        }
        for (number, file) in files.iter().enumerate() {
            let found = self.device.within(|_| self.raw.size(file))?;
            if found != (height, width) {
                return Err(CudaError::JpegSize {
                    what: format!(
                        "frame {number} is {}×{}, not {height}×{width}",
                        found.0, found.1
                    ),
                });
            }
        }
        let places: Vec<ImagePlace> = (0..files.len() as u64)
            .map(|number| ImagePlace {
                memory: memory.raw(),
                offset: number * bytes as u64,
                pitch: width * 3,
            })
            .collect();
        let stream = self.stream.handle();
        let raw = &mut self.raw;
        self.device.within(|_| raw.decode(files, &places, stream))?;
        self.done.record(stream)?;
        self.done.synchronize()
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

    /// Decodes frames into a slot, for what is asked of `stream` from now on.
    pub fn decode(
        &mut self,
        decoder: &mut JpegDecoder,
        files: &[&[u8]],
        size: (usize, usize),
        stream: StreamHandle,
    ) -> Result<Lease> {
        self.ring.put(self.returns.collect()?);
        let bytes = size.0 * size.1 * 3 * files.len();
        let slot = match self.ring.take(bytes)? {
            Some(slot) => slot,
            None => {
                let memory = self.device.alloc(bytes)?;
                let memory = memory.ok_or_else(|| CudaError::OutOfMemory {
                    bytes,
                    live: self.returns.held(),
                    held: self.returns.held(),
                })?;
                Slot::new(&self.device, memory)?
            }
        };
        // By the host, not by a stream, which the engine does not heed.
        slot.synchronize_released()?;
        decoder.decode(files, size, &slot.memory)?;
        Ok(self.returns.lend(slot, stream))
    }
}

impl Drop for JpegSlots {
    fn drop(&mut self) {
        self.returns.close();
        let _gone = ring::retire(self.ring.drain());
    }
}

impl Drop for JpegDecoder {
    fn drop(&mut self) {
        let raw = &mut self.raw;
        self.device.give_back(|_| raw.destroy());
    }
}
