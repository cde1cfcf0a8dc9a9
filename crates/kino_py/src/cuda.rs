//! Batches on a CUDA device: `kino_cuda` sends what the loader makes, DLPack hands it over.
//!
//! ```text
//! kino_loader::Loader ──▶ kino_cuda::Sender ──▶ next: by key, a tensor on the device or texts (`cuda_tensors.rs`)
//! ```

#![allow(
    unsafe_code,
    reason = "the handle of a stream comes from Python; the proof is at the block"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kino_codec::VideoCoding;
use kino_cuda::{
    CudaError, Device, Engine, Fetched, ImageOptions, ImageReport, Lease, Nvcuvid, Nvjpeg,
    OnRefusal, SendError, Sender, Source, StreamHandle, Taken, VideoReport,
};
use kino_loader::{Decode, DecodeTimes, GpuShare, LoaderError, Next, Pin, PinMemory, Size};
use kino_sync::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::cuda_images::{Arena, Forms, to_coding};
use crate::cuda_tensors::{BatchLayout, FixedBatches, Meta, Tensors};
use crate::dlpack::DlDevice;
use crate::errors::{cuda_to_py, invalid, loader_to_py};
use crate::loader::Loader;

/// Python looks at signals this often while it waits for a batch.
const BETWEEN_SIGNALS: Duration = Duration::from_millis(50);

/// The loader, as the sender's source.
struct FromLoader {
    loader: kino_loader::Loader,
    forms: Forms,
    /// Of the last batch.
    layout: Option<Arc<BatchLayout>>,
}

impl Source for FromLoader {
    type Meta = Meta;
    type Batch = Arena;
    type Error = LoaderError;

    fn next(&mut self, within: Duration) -> Result<Fetched<Meta, Arena>, LoaderError> {
        Ok(match self.loader.next_batch_within(within)? {
            Next::Batch(batch) => {
                let arena = Arena::new(batch, &mut self.forms);
                Fetched::Batch(Meta::new(&arena, &mut self.layout), arena)
            }
            Next::Later => Fetched::Later,
            Next::End => Fetched::End,
        })
    }
}

/// Page-locks the loader's batches, and notes why if it cannot.
#[derive(Debug)]
struct Pinning {
    device: Arc<Device>,
    failed: Mutex<Option<CudaError>>,
}

impl PinMemory for Pinning {
    fn pin(&self, memory: &mut [u8]) -> Option<Pin> {
        match self.device.pin(memory) {
            Ok(pinned) => Some(Box::new(pinned)),
            Err(error) => {
                *self.failed.lock() = Some(error);
                None
            }
        }
    }
}

/// A batch for Python: its number, tensors and texts, and for how many seconds it was waited for because the GPU was behind.
type Sent<'py> = (u64, Bound<'py, PyDict>, f64);

/// Sends a loader's batches to a CUDA device ahead of the training loop.
#[pyclass(frozen, module = "kinograph._core")]
pub(crate) struct CudaSender {
    sender: Sender<Meta, LoaderError>,
    device: Arc<Device>,
    pinning: Arc<Pinning>,
    gpu_share: Arc<GpuShare>,
    /// Why there is no NVDEC, if video needs it.
    no_video: Option<String>,
    /// When the last batch was handed over.
    handed: Mutex<Option<Instant>>,
    /// Seconds that the training loop waited for batches.
    waited_s: Mutex<f64>,
    fixed: Option<Py<FixedBatches>>,
    tensors: Tensors,
    /// Gives the handle of the stream that the caller works with.
    stream: Py<PyAny>,
    process: u32,
}

#[pymethods]
impl CudaSender {
    /// Takes over a loader, which hands out no batches itself any more. `device` is DLPack's: kind and number, and then `stream` and `to_tensor`; tests with a fake
    /// driver, whose device memory is the host's, say kind 1. `stream` gives the handle of the stream that its caller works with, and
    /// `to_tensor` makes a tensor of a DLPack capsule. `jpeg` is for a loader whose images or video the device decodes: folders in
    /// which nvJPEG may be.
    #[new]
    #[pyo3(signature = (loader, device, fixed=None, jpeg=None))]
    fn new(
        py: Python<'_>,
        loader: PyRef<'_, Loader>,
        device: (i32, u32, Py<PyAny>, Py<PyAny>),
        fixed: Option<Py<FixedBatches>>,
        jpeg: Option<Vec<PathBuf>>,
    ) -> PyResult<Self> {
        let Some(source) = loader.take_over()? else {
            return Err(invalid("this loader is closed"));
        };
        let (kind, ordinal, stream, to_tensor) = device;
        let place = DlDevice {
            kind,
            id: i32::try_from(ordinal).unwrap_or_default(),
        };
        let gpu_share = source.gpu_share();
        let started = py.detach(|| {
            let found = jpeg.map(|folders| find(&folders, &gpu_share)).transpose()?;
            let (options, no_video) = found.unzip();
            let device = Device::open(ordinal)?;
            let pinning = Arc::new(Pinning {
                device: Arc::clone(&device),
                failed: Mutex::new(None),
            });
            source.pin_batches(Arc::clone(&pinning) as Arc<dyn PinMemory>);
            let source = FromLoader {
                loader: source,
                forms: Forms::default(),
                layout: None,
            };
            let sender = match options {
                None => Sender::start(&device, source)?,
                Some(options) => Sender::start_with(&device, source, options)?,
            };
            Ok((device, pinning, sender, no_video.flatten()))
        });
        let (device, pinning, sender, no_video) = started.map_err(cuda_to_py)?;
        Ok(Self {
            sender,
            device,
            pinning,
            gpu_share,
            no_video,
            handed: Mutex::new(None),
            waited_s: Mutex::new(0.0),
            fixed,
            tensors: Tensors::new(to_tensor, place),
            stream,
            process: std::process::id(),
        })
    }

    /// The next batch, for what is asked of the caller's stream from now on; `None` after the last.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Sent<'py>>> {
        self.check_process()?;
        let stream = self.stream.bind(py).call0()?.extract()?;
        // SAFETY: the handle of torch's current stream; torch never destroys its streams, and who makes one outside of torch
        // must keep it while tensors that were made for it exist, as for torch's own.
        let stream = unsafe { StreamHandle::from_handle(stream) };
        // A batch is usually ready: then the GIL is not released, which costs more than to look.
        match self
            .sender
            .take(stream, Duration::ZERO)
            .map_err(send_to_py)?
        {
            Taken::Batch(batch) => {
                if self.gpu_share.follows_waits() {
                    self.note_wait(0.0);
                }
                Ok(Some((
                    batch.meta.number,
                    self.hand_over(py, &batch.meta, batch.lease)?,
                    0.0,
                )))
            }
            Taken::End => Ok(None),
            Taken::Later => self.wait_for_next(py, stream),
        }
    }

    /// Seconds that the training loop waited for batches.
    fn waited_s(&self) -> f64 {
        *self.waited_s.lock()
    }

    /// Seconds that copies took, batches, bytes; seconds for which the GPU was behind; slots on the device.
    fn report(&self) -> PyResult<(f64, u64, u64, f64, usize)> {
        self.check_process()?;
        let report = self.sender.report();
        Ok((
            report.busy_s,
            report.batches,
            report.bytes,
            report.behind_s,
            report.slots,
        ))
    }

    /// What was done with images, as JSON; `None` if the device decodes none.
    fn image_report(&self) -> PyResult<Option<String>> {
        self.check_process()?;
        let report = self.images();
        let no_video = self.no_video.as_deref();
        Ok(report.map(|report| to_json(&report, &self.gpu_share, no_video)))
    }

    /// Why batches could not be page-locked, if so: they are then copied more slowly.
    fn unpinned(&self) -> Option<String> {
        self.pinning.failed.lock().as_ref().map(ToString::to_string)
    }

    /// Ends its thread and the loader's. Tensors that were handed out stay valid.
    fn close(&self, py: Python<'_>) {
        if self.check_process().is_ok() {
            py.detach(|| self.sender.close());
        }
    }
}

impl CudaSender {
    fn images(&self) -> Option<ImageReport> {
        self.sender.report().images
    }

    /// The next batch, which is not there yet.
    fn wait_for_next<'py>(
        &self,
        py: Python<'py>,
        stream: StreamHandle,
    ) -> PyResult<Option<Sent<'py>>> {
        let (asked, behind_before_s) = (Instant::now(), self.behind_s());
        let batch = loop {
            let taken = py.detach(|| self.sender.take(stream, BETWEEN_SIGNALS));
            match taken.map_err(send_to_py)? {
                Taken::Batch(batch) => break batch,
                Taken::End => return Ok(None),
                Taken::Later => py.check_signals()?,
            }
        };
        // Not for what the GPU had to do first.
        let behind_s = self.behind_s() - behind_before_s;
        let waited_s = asked.elapsed().as_secs_f64() - behind_s;
        *self.waited_s.lock() += waited_s;
        if self.gpu_share.follows_waits() {
            self.note_wait(waited_s);
        }
        let dict = self.hand_over(py, &batch.meta, batch.lease)?;
        Ok(Some((batch.meta.number, dict, behind_s)))
    }

    /// The loop takes a batch for which it waited so long.
    fn note_wait(&self, waited_s: f64) {
        let now = Instant::now();
        if let Some(before) = self.handed.lock().replace(now) {
            let total_s = (now - before).as_secs_f64();
            self.gpu_share.waited(waited_s, total_s, || self.times());
        }
    }

    /// What an image takes, if an engine in hardware decodes it: others would take the CPU as long as it takes alone. With JPEG and
    /// video, the mean of what was decoded so far.
    fn times(&self) -> Option<DecodeTimes> {
        let report = self.images()?;
        let is_hardware = report.engine == Some(Engine::Hardware);
        let jpeg = report.compared.filter(|_| is_hardware);
        let video = report
            .video
            .and_then(|video| Some((video.compared?, video.decoded)));
        let all = [jpeg.map(|compared| (compared, report.decoded)), video];
        let (mut images, mut cpu_s, mut gpu_s) = (0.0, 0.0, 0.0);
        for (compared, decoded) in all.into_iter().flatten() {
            let decoded = decoded.max(1) as f64;
            images += decoded;
            cpu_s += compared.cpu_s * decoded;
            gpu_s += compared.gpu_s * decoded;
        }
        (images > 0.0).then(|| DecodeTimes {
            cpu_s: cpu_s / images,
            gpu_s: gpu_s / images,
        })
    }

    fn behind_s(&self) -> f64 {
        self.sender.report().behind_s
    }

    fn hand_over<'py>(
        &self,
        py: Python<'py>,
        meta: &Meta,
        lease: Lease,
    ) -> PyResult<Bound<'py, PyDict>> {
        if let Some(fixed) = &self.fixed {
            let batch = (meta, &lease);
            return fixed.get().dict(py, &self.device, &self.tensors, batch);
        }
        let address = lease.address();
        self.tensors.dict(py, meta, address, Arc::new(lease))
    }

    fn check_process(&self) -> PyResult<()> {
        if std::process::id() == self.process {
            return Ok(());
        }
        Err(invalid(
            "this loader belongs to the process that made it; make a new one after the fork",
        ))
    }
}

impl Drop for CudaSender {
    fn drop(&mut self) {
        // Its threads may be waiting for the GIL, to decode with a foreign codec.
        if self.check_process().is_ok() {
            Python::attach(|py| py.detach(|| self.sender.close()));
        }
    }
}

/// The libraries that a loader's images need, and why there is none for video. Without one that is all it asks for, the GPU would have
/// nothing to decode, which is an error.
fn find(
    folders: &[PathBuf],
    share: &Arc<GpuShare>,
) -> Result<(ImageOptions, Option<String>), CudaError> {
    let needs = share.needs();
    let jpeg = needs.jpeg.then(|| Nvjpeg::find(folders)).transpose()?;
    let video = needs.video.then(Nvcuvid::find).transpose();
    let (video, no_video) = match video {
        Ok(video) => (video, None),
        Err(error) if share.decode() == Decode::Gpu && !needs.jpeg => return Err(error),
        Err(error) => {
            for coding in VideoCoding::ALL {
                share.refuse_video(coding, None);
            }
            (None, Some(error.to_string()))
        }
    };
    let refused = Arc::clone(share);
    let on_refusal = OnRefusal(Arc::new(move |codec, (height, width)| {
        if let Some(coding) = to_coding(codec) {
            refused.refuse_video(coding, Some(Size { height, width }));
        }
    }));
    let options = ImageOptions {
        jpeg,
        engine: None,
        video,
        on_refusal,
    };
    Ok((options, no_video))
}

/// By name, as `LoaderReport.gpu_decode` has it.
fn to_json(report: &ImageReport, share: &GpuShare, no_video: Option<&str>) -> String {
    let compared = report.compared.as_ref();
    serde_json::json!({
        "engine": report.engine.map(|engine| format!("{engine:?}").to_lowercase()),
        "nvjpeg": report.version,
        "share": share.fraction(),
        "decoded": report.decoded,
        "refused": report.refused,
        "uploaded": report.uploaded,
        "decode_s": report.decode_s,
        "largest_difference": compared.map(|compared| compared.largest_difference),
        "cpu_s": compared.map(|compared| compared.cpu_s),
        "gpu_s": compared.map(|compared| compared.gpu_s),
        "bytes": report.bytes,
        "peak_bytes": report.peak_bytes,
        "video": video_json(report.video.as_ref(), no_video),
    })
    .to_string()
}

/// The part of video; null if the loader has none.
fn video_json(video: Option<&VideoReport>, no_video: Option<&str>) -> serde_json::Value {
    let unused = VideoReport::default();
    let report = match (video, no_video) {
        (None, None) => return serde_json::Value::Null,
        (video, _) => video.unwrap_or(&unused),
    };
    let compared = report.compared.as_ref();
    serde_json::json!({
        "engines": report.engines,
        "decoded": report.decoded,
        "refused": report.refused,
        "decode_s": report.decode_s,
        "largest_difference": compared.map(|compared| compared.largest_difference),
        "cpu_s": compared.map(|compared| compared.cpu_s),
        "gpu_s": compared.map(|compared| compared.gpu_s),
        "decoders": report.decoders,
        "decoder_bytes": report.decoder_bytes,
        "note": report.note.as_deref().or(no_video),
    })
}

fn send_to_py(error: SendError<LoaderError>) -> PyErr {
    match error {
        SendError::Source(error) => loader_to_py(error),
        SendError::Cuda(error) => cuda_to_py(error),
    }
}
