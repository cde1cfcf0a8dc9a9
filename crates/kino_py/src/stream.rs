//! One stream of one episode: frames are decoded directly into numpy's memory.
//!
//! Python allocates the array and passes its bytes, so no frame is copied after decoding.

use std::cell::RefCell;

use kino_codec::Scratch;
use kino_dataset::Clock;
use numpy::{PyArray1, PyReadwriteArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{invalid, to_py};

/// Signals are checked after this many bytes of frames, so that Ctrl-C stops a long read.
const BYTES_BETWEEN_SIGNALS: usize = 64 << 20;

thread_local! {
    /// Codec buffers and the JPEG decompressor, reused from one read to the next.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
}

/// One stream of one episode.
#[pyclass(frozen, module = "kinograph._core")]
pub(crate) struct Stream {
    pub(crate) inner: kino_dataset::Stream,
}

#[pymethods]
impl Stream {
    fn __len__(&self) -> usize {
        self.inner.len()
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.inner.schema().name
    }

    /// Its kind: `vector`, `image`, `depth` or `text`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.inner.schema().kind.name()
    }

    /// numpy's name of its dtype, or `text`.
    #[getter]
    fn dtype(&self) -> &str {
        &self.inner.schema().dtype
    }

    /// The shape of one frame.
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.inner.schema().shape.clone()
    }

    /// The codec and its parameters, as text.
    #[getter]
    fn codec(&self) -> &str {
        &self.inner.schema().codec
    }

    /// Frames per second, or `None` if timestamps are explicit.
    fn rate_hz(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        match py.detach(|| self.inner.clock()).map_err(to_py)? {
            Clock::Regular(clock) => Ok(Some(clock.rate_hz())),
            Clock::Explicit(_) => Ok(None),
        }
    }

    /// The timestamps of all frames.
    fn read_timestamps_ns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let times = py
            .detach(|| self.inner.times_ns(0..self.inner.len()))
            .map_err(to_py)?;
        Ok(PyArray1::from_vec(py, times))
    }

    /// First and end index of the frames with `start_s ≤ t < end_s`, in seconds from the episode's start.
    fn frames_between(&self, py: Python<'_>, start_s: f64, end_s: f64) -> PyResult<(usize, usize)> {
        let frames = py
            .detach(|| self.inner.frames_between(start_s..end_s))
            .map_err(to_py)?;
        Ok((frames.start, frames.end))
    }

    /// Reads frames `first..end` into the bytes of an array, which must have exactly their size.
    fn read_into(
        &self,
        py: Python<'_>,
        first: usize,
        end: usize,
        mut out: PyReadwriteArray1<'_, u8>,
    ) -> PyResult<()> {
        let out = out
            .as_slice_mut()
            .map_err(|_| invalid("the array is not contiguous"))?;
        py.detach(|| SCRATCH.with_borrow_mut(|scratch| self.read_all(first, end, out, scratch)))
    }

    /// Reads text frames.
    fn read_text(&self, py: Python<'_>, first: usize, end: usize) -> PyResult<Vec<String>> {
        py.detach(|| self.inner.read_text(first..end))
            .map_err(to_py)
    }

    /// The stored file of a frame, if the codec stores files.
    fn read_bitstream<'py>(
        &self,
        py: Python<'py>,
        frame: usize,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let file = py
            .detach(|| self.inner.read_bitstream(frame))
            .map_err(to_py)?;
        Ok(file.map(|file| PyBytes::new(py, &file)))
    }
}

impl Stream {
    fn read_all(
        &self,
        first: usize,
        end: usize,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> PyResult<()> {
        let frame_bytes = self
            .inner
            .frame_type()
            .as_values()
            .map_or(0, |ty| ty.frame_bytes());
        if out.len() <= BYTES_BETWEEN_SIGNALS || frame_bytes == 0 {
            return self
                .inner
                .read_into(first..end, out, scratch)
                .map_err(to_py);
        }
        if end
            .checked_sub(first)
            .and_then(|frames| frames.checked_mul(frame_bytes))
            != Some(out.len())
        {
            return Err(invalid(format!(
                "the array has {} bytes, which is not the size of frames {first} to {end}",
                out.len()
            )));
        }
        let step = (BYTES_BETWEEN_SIGNALS / frame_bytes).max(1);
        for (first, piece) in (first..end)
            .step_by(step)
            .zip(out.chunks_mut(step * frame_bytes))
        {
            let last = first + piece.len() / frame_bytes;
            self.inner
                .read_into(first..last, piece, scratch)
                .map_err(to_py)?;
            Python::attach(|py| py.check_signals())?;
        }
        Ok(())
    }
}
