//! Arrays of a batch for numpy, without a copy: the array keeps the batch, the batch keeps its memory.

#![allow(
    unsafe_code,
    reason = "numpy is told where bytes lie by pointer; the proof is at the block"
)]

use kino_loader::Batch;
use numpy::PyArray1;
use numpy::ndarray::ArrayView1;
use pyo3::prelude::*;

/// A batch that Python owns; arrays of it hold on to it. Nothing that people use.
#[pyclass(frozen, module = "kinograph._core")]
pub(crate) struct BatchMemory {
    batch: Batch,
}

impl BatchMemory {
    /// Python's object for a batch.
    pub(crate) fn new(py: Python<'_>, batch: Batch) -> PyResult<Bound<'_, Self>> {
        Bound::new(py, Self { batch })
    }

    pub(crate) fn batch(&self) -> &Batch {
        &self.batch
    }
}

/// The bytes of one array of a batch, as a numpy array that may be written.
pub(crate) fn array<'py>(memory: &Bound<'py, BatchMemory>, idx: usize) -> Bound<'py, PyArray1<u8>> {
    let (start, len) = memory.get().batch().array_parts(idx);
    // SAFETY: `start` and `len` are a part of the batch's memory, initialised and not moved while the batch lives. The
    // numpy array holds a reference to `memory`, which owns the batch, so the bytes outlive it. The parts of two arrays
    // do not overlap, each is lent once per batch, and nothing in Rust reads or writes them after a batch was handed over: this
    // is the only use of `array_parts`, and `Batch::array` is not called by this crate.
    unsafe {
        let view = ArrayView1::from_shape_ptr(len, start.cast_const());
        PyArray1::borrow_from_array(&view, memory.clone().into_any())
    }
}
