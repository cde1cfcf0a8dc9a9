//! JPEG frames decoded on a CUDA device, for `kinograph`'s own measurements: nothing public uses it yet.

#![allow(
    unsafe_code,
    reason = "the handle of a stream comes from Python; the proof is at the block"
)]

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use kino_cuda::{Device, Engine, JpegDecoder, JpegSlots, Nvjpeg, StreamHandle};
use kino_sync::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::dlpack::{Array, DlDevice, DlType, Lent};
use crate::errors::{cuda_to_py, invalid};

/// Decodes batches of JPEG frames into memory that is its own.
#[pyclass(frozen, module = "kinograph._core")]
pub(crate) struct CudaJpeg {
    inner: Mutex<(JpegDecoder, JpegSlots)>,
    library: &'static Nvjpeg,
    place: DlDevice,
}

#[pymethods]
impl CudaJpeg {
    /// A decoder on a device; `engine` is `hardware`, `default`, or the best there is.
    #[new]
    #[pyo3(signature = (ordinal, folders, engine=None))]
    fn new(ordinal: u32, folders: Vec<PathBuf>, engine: Option<&str>) -> PyResult<Self> {
        let device = Device::open(ordinal).map_err(cuda_to_py)?;
        let library = Nvjpeg::find(&folders).map_err(cuda_to_py)?;
        let decoder = match engine {
            None => JpegDecoder::open(&device, library),
            Some("hardware") => JpegDecoder::with_engine(&device, library, Engine::Hardware),
            Some("default") => JpegDecoder::with_engine(&device, library, Engine::Default),
            Some(other) => return Err(invalid(format!("nvJPEG has no engine `{other}`"))),
        };
        let slots = JpegSlots::new(&device);
        Ok(Self {
            inner: Mutex::new((decoder.map_err(cuda_to_py)?, slots)),
            library,
            place: DlDevice {
                kind: 2,
                id: i32::try_from(ordinal).unwrap_or_default(),
            },
        })
    }

    /// The engine and the version of nvJPEG.
    fn describe(&self) -> (String, String) {
        let engine = self.inner.lock().0.engine();
        (format!("{engine:?}"), self.library.version())
    }

    /// Decodes frames of one size: a capsule of uint8 [frames, height, width, 3], for what is asked of `stream` from now on.
    fn decode<'py>(
        &self,
        py: Python<'py>,
        files: Vec<Bound<'py, PyBytes>>,
        size: (usize, usize),
        stream: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the handle of torch's current stream; torch never destroys its streams.
        let stream = unsafe { StreamHandle::from_handle(stream) };
        let bytes: Vec<&[u8]> = files.iter().map(|file| file.as_bytes()).collect();
        let lease = py.detach(|| {
            let mut inner = self.inner.lock();
            let (decoder, slots) = &mut *inner;
            slots.decode(decoder, &bytes, size, stream)
        });
        let lease = lease.map_err(cuda_to_py)?;
        let dtype = DlType::new("uint8", 1).ok_or_else(|| invalid("uint8 is unknown"))?;
        let address = lease.address();
        let memory: Arc<dyn Any + Send + Sync> = Arc::new(lease);
        let array = Array {
            address,
            dtype,
            shape: &[files.len(), size.0, size.1, 3],
        };
        Lent::new(self.place, &[array], memory)?.capsule(py, 0)
    }
}
