//! What a sender takes from its source, and what it gives to the training loop.

use std::time::Duration;

use crate::error::CudaError;
use crate::images::{ImageArray, ImageReport};
use crate::ring::Lease;

/// A batch in host memory, and images.
pub trait HostBatch: Send + 'static {
    /// All of its bytes, which neither move nor change before it is dropped.
    fn bytes(&self) -> &[u8];

    /// Arrays that are put together on the device.
    fn images(&self) -> &[ImageArray] {
        &[]
    }

    /// Bytes of the batch on the device: those of `bytes`, and the arrays of images behind them.
    fn device_bytes(&self) -> usize {
        self.bytes().len()
    }
}

/// Where batches come from.
pub trait Source: Send + 'static {
    /// What describes a batch, and goes to the training loop with it.
    type Meta: Send + 'static;
    /// The batch itself.
    type Batch: HostBatch;
    /// What goes wrong here.
    type Error: Send + 'static;

    /// Waits for the next batch, for at most this long.
    fn next(&mut self, within: Duration) -> Result<Fetched<Self::Meta, Self::Batch>, Self::Error>;
}

/// What a source has.
#[derive(Debug)]
pub enum Fetched<M, B> {
    /// A batch.
    Batch(M, B),
    /// Nothing yet.
    Later,
    /// There are no more.
    End,
}

/// What the training loop gets.
#[derive(Debug)]
pub enum Taken<M> {
    /// A batch.
    Batch(Arrived<M>),
    /// Nothing yet.
    Later,
    /// There are no more.
    End,
}

/// A batch on the device; what is asked of the stream that it was taken for finds it there.
#[derive(Debug)]
pub struct Arrived<M> {
    /// What the source said about it.
    pub meta: M,
    /// Its memory.
    pub lease: Lease,
}

/// What went wrong.
#[derive(Debug)]
pub enum SendError<E> {
    /// With the source.
    Source(E),
    /// With the device.
    Cuda(CudaError),
}

impl<E> From<CudaError> for SendError<E> {
    fn from(error: CudaError) -> Self {
        Self::Cuda(error)
    }
}

/// What a sender did so far.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SendReport {
    /// Batches that were copied.
    pub batches: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Seconds that the copies took, on the device's clock.
    pub busy_s: f64,
    /// Seconds for which a copy waited because the GPU still worked with all slots: the training loop is ahead of it.
    pub behind_s: f64,
    /// Slots on the device.
    pub slots: usize,
    /// What was done with images, if the sender takes any.
    pub images: Option<ImageReport>,
}
