//! Device memory of images: pieces of large slabs, each taken for as long as its image lives.
//!
//! ```text
//! slab, 8 MiB │ piece │ piece │ piece │ …     pieces of one slab have one size      free: by size, the pieces to take next
//! ```
//!
//! Only work on the sender's own stream touches it, so a piece that was dropped is taken again at once: what is written to it
//! next comes, on that stream, behind what reads it now.

use std::collections::HashMap;
use std::process;
use std::sync::Arc;

use kino_sync::Mutex;

use crate::device::{Device, DeviceMemory};
use crate::error::{CudaError, Result};

/// Slabs have this size, or that of one piece.
const SLAB: usize = 8 << 20;

/// Where an image is kept on the device; its memory is free for other images when this is dropped.
#[derive(Debug)]
pub struct ImageMemory {
    pool: Arc<Pool>,
    piece: Piece,
    size: (usize, usize),
}

/// A part of a slab.
#[derive(Debug, Clone, Copy)]
struct Piece {
    slab: u64,
    address: u64,
    bytes: usize,
}

/// The memory of a sender's images.
#[derive(Debug)]
pub(crate) struct Pool {
    device: Arc<Device>,
    state: Mutex<State>,
    process: u32,
}

#[derive(Debug, Default)]
struct State {
    free: HashMap<usize, Vec<Piece>>,
    slabs: HashMap<u64, Slab>,
    made: u64,
    bytes: usize,
    peak_bytes: usize,
}

#[derive(Debug)]
struct Slab {
    memory: DeviceMemory,
    /// Pieces that are taken.
    taken: usize,
}

impl ImageMemory {
    /// Bytes of device memory that it occupies.
    pub fn bytes(&self) -> usize {
        self.piece.bytes
    }

    pub(crate) fn address(&self) -> u64 {
        self.piece.address
    }

    /// Height and width of the image.
    pub(crate) fn size(&self) -> (usize, usize) {
        self.size
    }

    pub(crate) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }
}

impl Drop for ImageMemory {
    fn drop(&mut self) {
        // In a forked process the lock may be held by a thread that does not exist there.
        if process::id() == self.pool.process {
            self.pool.put(self.piece);
        }
    }
}

impl Pool {
    pub(crate) fn new(device: &Arc<Device>) -> Arc<Self> {
        Arc::new(Self {
            device: Arc::clone(device),
            state: Mutex::default(),
            process: process::id(),
        })
    }

    /// Memory for an image of this height and width.
    pub(crate) fn take(self: &Arc<Self>, size: (usize, usize)) -> Result<ImageMemory> {
        let bytes = piece_bytes(size).ok_or_else(|| CudaError::Image {
            what: format!("{} × {} pixels cannot be in memory", size.0, size.1),
        })?;
        let mut found = self.state.lock().take(bytes);
        if found.is_none() {
            self.grow(bytes)?;
            found = self.state.lock().take(bytes);
        }
        let piece = found.ok_or_else(|| self.exhausted(bytes))?;
        Ok(ImageMemory {
            pool: Arc::clone(self),
            piece,
            size,
        })
    }

    /// Bytes of all slabs, now and at most.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.bytes, state.peak_bytes)
    }

    /// Frees the slabs that hold no image; whether there were any.
    pub(crate) fn trim(&self) -> bool {
        let empty = self.state.lock().cut_empty();
        // The driver waits for what still uses them.
        !empty.is_empty()
    }

    /// Adds a slab for pieces of this size.
    fn grow(&self, bytes: usize) -> Result<()> {
        let pieces = (SLAB / bytes).max(1);
        let mut memory = self.device.alloc(pieces * bytes)?;
        if memory.is_none() && self.trim() {
            memory = self.device.alloc(pieces * bytes)?;
        }
        if memory.is_none() {
            memory = self.device.alloc(bytes)?;
        }
        let memory = memory.ok_or_else(|| self.exhausted(bytes))?;
        self.state.lock().add(memory, bytes);
        Ok(())
    }

    fn exhausted(&self, bytes: usize) -> CudaError {
        let held = self.bytes().0;
        CudaError::ImageMemory { bytes, held }
    }

    fn put(&self, piece: Piece) {
        let mut state = self.state.lock();
        state.free.entry(piece.bytes).or_default().push(piece);
        if let Some(slab) = state.slabs.get_mut(&piece.slab) {
            slab.taken -= 1;
        }
    }
}

impl State {
    fn take(&mut self, bytes: usize) -> Option<Piece> {
        let piece = self.free.get_mut(&bytes)?.pop()?;
        self.slabs.get_mut(&piece.slab)?.taken += 1;
        Some(piece)
    }

    fn add(&mut self, memory: DeviceMemory, bytes: usize) {
        let slab = self.made;
        self.made += 1;
        self.bytes += memory.bytes();
        self.peak_bytes = self.peak_bytes.max(self.bytes);
        let pieces = (0..memory.bytes() / bytes).map(|idx| Piece {
            slab,
            address: memory.address() + (idx * bytes) as u64,
            bytes,
        });
        self.free.entry(bytes).or_default().extend(pieces);
        self.slabs.insert(slab, Slab { memory, taken: 0 });
    }

    fn cut_empty(&mut self) -> Vec<Slab> {
        let empty: Vec<Slab> = self
            .slabs
            .extract_if(|_, slab| slab.taken == 0)
            .map(|(_, slab)| slab)
            .collect();
        self.bytes -= empty.iter().map(|slab| slab.memory.bytes()).sum::<usize>();
        let slabs = &self.slabs;
        self.free.retain(|_, pieces| {
            pieces.retain(|piece| slabs.contains_key(&piece.slab));
            !pieces.is_empty()
        });
        empty
    }
}

/// The size of the piece for an image: at most a part in 64 larger, so that sizes are few. `None` if there is no such image.
fn piece_bytes((height, width): (usize, usize)) -> Option<usize> {
    let bytes = height.checked_mul(width)?.checked_mul(3)?;
    // Far below what overflows anywhere; kernels count pixels of an image in 31 bits.
    let bytes = (1..1 << 31).contains(&bytes).then_some(bytes)?;
    Some(bytes.next_multiple_of((bytes.next_power_of_two() / 64).max(256)))
}
