//! Device memory of images.

/// Where an image is kept on the device; it goes back to the pool when this is dropped.
#[derive(Debug)]
pub struct ImageMemory {
    bytes: usize,
}

impl ImageMemory {
    /// Bytes of device memory that it occupies.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
