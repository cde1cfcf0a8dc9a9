//! Arrays of a batch for numpy, without a copy: the array owns the batch, the batch owns its memory.

#![allow(
    unsafe_code,
    reason = "numpy takes a pointer to the bytes; the proof is at the block"
)]

use kino_loader::Batch;
use numpy::PyArray1;
use numpy::ndarray::ArrayView1;
use pyo3::prelude::*;

/// A batch owned by Python; its arrays keep a reference to it. Not for users.
#[pyclass(frozen, module = "kinograph._core")]
pub(crate) struct BatchMemory {
    batch: Batch,
}

impl BatchMemory {
    /// The Python object for a batch.
    pub(crate) fn new(py: Python<'_>, batch: Batch) -> PyResult<Bound<'_, Self>> {
        Bound::new(py, Self { batch })
    }

    pub(crate) fn batch(&self) -> &Batch {
        &self.batch
    }
}

/// The bytes of one array of a batch, as a writable numpy array.
pub(crate) fn array<'py>(memory: &Bound<'py, BatchMemory>, idx: usize) -> Bound<'py, PyArray1<u8>> {
    let (start, len) = memory.get().batch().array_parts(idx);
    // SAFETY: `start` and `len` describe a range of the batch's memory, which is initialised and does not move while
    // the batch lives. The numpy array holds a reference to `memory`, which owns the batch, so the bytes outlive the
    // array. The ranges of two arrays do not overlap, each is lent once per batch, and nothing in Rust reads or
    // writes them after the batch was handed to Python: this is the only use of `array_parts`, and this crate never
    // calls `Batch::array`.
    unsafe {
        let view = ArrayView1::from_shape_ptr(len, start.cast_const());
        PyArray1::borrow_from_array(&view, memory.clone().into_any())
    }
}
