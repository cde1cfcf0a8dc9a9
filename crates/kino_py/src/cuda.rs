//! Batches on a CUDA device: `kino_cuda` sends what the loader makes, DLPack hands it over.
//!
//! ```text
//! kino_loader::Loader ──▶ kino_cuda::Sender ──▶ next(stream): by key, a capsule of an array on the device, or texts
//!                                             └─ with FixedBatches: copied to the addresses of the first batch
//! ```

#![allow(
    unsafe_code,
    reason = "the handle of a stream comes from Python; the proof is at the block"
)]

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kino_codec::VideoCoding;
use kino_cuda::{
    CudaError, Device, DeviceMemory, Engine, Fetched, HostBatch, ImageOptions, ImageReport, Lease,
    Nvcuvid, Nvjpeg, OnRefusal, SendError, Sender, Source, StreamHandle, Taken, VideoReport,
};
use kino_loader::{
    ArrayInfo, Decode, DecodeTimes, GpuShare, LoaderError, Next, Pin, PinMemory, Size,
};
use kino_sync::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::cuda_images::{Arena, Forms, to_coding};
use crate::dlpack::{Array, DlDevice, DlType, capsule};
use crate::errors::{cuda_to_py, invalid, loader_to_py};
use crate::loader::Loader;

/// Python looks at signals this often while it waits for a batch.
const BETWEEN_SIGNALS: Duration = Duration::from_millis(50);

/// What a batch holds, without its memory.
#[derive(Debug)]
struct Meta {
    number: u64,
    first_index: u64,
    infos: Vec<ArrayInfo>,
    /// Where each array is in the batch's memory.
    offsets: Vec<u64>,
    texts: Vec<Vec<Vec<String>>>,
    bytes: usize,
}

impl Meta {
    fn new(arena: &Arena) -> Self {
        let batch = arena.batch();
        let infos = batch.infos().to_vec();
        let fields = 0..infos.len();
        Self {
            number: batch.number(),
            first_index: batch.first_index(),
            offsets: arena.offsets(),
            texts: fields.map(|idx| batch.texts(idx).to_vec()).collect(),
            bytes: arena.device_bytes(),
            infos,
        }
    }

    /// By key: a capsule, or shape and texts. Without `memory`, the texts only.
    fn arrays<'py>(
        &self,
        py: Python<'py>,
        device: DlDevice,
        address: u64,
        memory: Option<&Arc<dyn Any + Send + Sync>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let arrays = PyDict::new(py);
        let fields = self.infos.iter().zip(&self.offsets).zip(&self.texts);
        for ((info, offset), texts) in fields {
            let Some(dtype) = info.dtype else {
                arrays.set_item(&info.name, (&info.shape, texts))?;
                continue;
            };
            let Some(memory) = memory else {
                continue;
            };
            let dtype = DlType::new(dtype.name(), dtype.size())
                .ok_or_else(|| invalid(format!("DLPack has no dtype {}", dtype.name())))?;
            let array = Array {
                address: address + offset,
                device,
                dtype,
                shape: &info.shape,
                memory: Arc::clone(memory),
            };
            arrays.set_item(&info.name, capsule(py, array)?)?;
        }
        Ok(arrays)
    }
}

/// The loader, as the sender's source.
struct FromLoader {
    loader: kino_loader::Loader,
    forms: Forms,
}

impl Source for FromLoader {
    type Meta = Meta;
    type Batch = Arena;
    type Error = LoaderError;

    fn next(&mut self, within: Duration) -> Result<Fetched<Meta, Arena>, LoaderError> {
        Ok(match self.loader.next_batch_within(within)? {
            Next::Batch(batch) => {
                let arena = Arena::new(batch, &mut self.forms);
                Fetched::Batch(Meta::new(&arena), arena)
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

/// Memory at addresses that stay, for CUDA graphs: one place for each shape of a batch. It outlives the senders.
#[pyclass(frozen, module = "kinograph._core")]
#[derive(Default)]
pub(crate) struct FixedBatches {
    places: Mutex<Vec<(Vec<ArrayInfo>, Arc<DeviceMemory>)>>,
}

#[pymethods]
impl FixedBatches {
    #[new]
    fn new() -> Self {
        Self::default()
    }
}

impl FixedBatches {
    /// The place for batches like this one: its number, and its memory.
    fn place(&self, device: &Arc<Device>, meta: &Meta) -> PyResult<(usize, Arc<DeviceMemory>)> {
        let mut places = self.places.lock();
        let found = places.iter().position(|(infos, _)| *infos == meta.infos);
        if let Some(found) = found {
            return Ok((found, Arc::clone(&places[found].1)));
        }
        let memory = device.alloc(meta.bytes).map_err(cuda_to_py)?;
        let memory = memory.ok_or_else(|| {
            cuda_to_py(CudaError::OutOfMemory {
                bytes: meta.bytes,
                live: places.len(),
                held: places.len(),
            })
        })?;
        let memory = Arc::new(memory);
        places.push((meta.infos.clone(), Arc::clone(&memory)));
        Ok((places.len() - 1, memory))
    }
}

/// A batch for Python: number, first index, arrays, which fixed place it is in, and for how many seconds it was waited for
/// because the GPU was behind.
type Sent<'py> = (u64, u64, Bound<'py, PyDict>, Option<usize>, f64);

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
    fixed: Option<Py<FixedBatches>>,
    /// What the tensors are told.
    place: DlDevice,
    process: u32,
}

#[pymethods]
impl CudaSender {
    /// Takes over a loader, which hands out no batches itself any more. `device` is DLPack's: kind and number; tests with a fake
    /// driver, whose device memory is the host's, say kind 1. `jpeg` is for a loader whose images or video the device decodes: folders
    /// in which nvJPEG may be.
    #[new]
    #[pyo3(signature = (loader, device, fixed=None, jpeg=None))]
    fn new(
        py: Python<'_>,
        loader: PyRef<'_, Loader>,
        device: (i32, u32),
        fixed: Option<Py<FixedBatches>>,
        jpeg: Option<Vec<PathBuf>>,
    ) -> PyResult<Self> {
        let Some(source) = loader.take_over()? else {
            return Err(invalid("this loader is closed"));
        };
        let (kind, ordinal) = device;
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
            fixed,
            place: DlDevice {
                kind,
                id: i32::try_from(ordinal).unwrap_or_default(),
            },
            process: std::process::id(),
        })
    }

    /// The next batch, for what is asked of a stream from now on; `None` after the last. Of fixed places before `known` it
    /// has the texts only.
    #[pyo3(signature = (stream, known=0))]
    fn next<'py>(
        &self,
        py: Python<'py>,
        stream: usize,
        known: usize,
    ) -> PyResult<Option<Sent<'py>>> {
        self.check_process()?;
        // SAFETY: the handle of torch's current stream; torch never destroys its streams, and who makes one outside of torch
        // must keep it while tensors that were made for it exist, as for torch's own.
        let stream = unsafe { StreamHandle::from_handle(stream) };
        let asked = Instant::now();
        // A batch is usually ready: then the GIL is not released, which costs more than to look.
        let mut taken = self.sender.take(stream, Duration::ZERO);
        let mut behind = None;
        loop {
            match taken.map_err(send_to_py)? {
                Taken::Batch(batch) => {
                    let waited_s = behind.map_or(0.0, |before| self.behind_s() - before);
                    if self.gpu_share.follows_waits() {
                        self.note_wait(asked, behind.is_some(), waited_s);
                    }
                    let (number, first) = (batch.meta.number, batch.meta.first_index);
                    let (arrays, place) = self.hand_over(py, &batch.meta, batch.lease, known)?;
                    return Ok(Some((number, first, arrays, place, waited_s)));
                }
                Taken::End => return Ok(None),
                Taken::Later => py.check_signals()?,
            }
            behind = behind.or_else(|| Some(self.behind_s()));
            taken = py.detach(|| self.sender.take(stream, BETWEEN_SIGNALS));
        }
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

    /// The loop waited for a batch since `asked`, if it `waited`, but for `behind_s` in which the GPU was behind.
    fn note_wait(&self, asked: Instant, waited: bool, behind_s: f64) {
        let now = Instant::now();
        let Some(before) = self.handed.lock().replace(now) else {
            return;
        };
        let waited_s = if waited {
            (now - asked).as_secs_f64() - behind_s
        } else {
            0.0
        };
        self.gpu_share
            .waited(waited_s, (now - before).as_secs_f64(), || self.times());
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
        known: usize,
    ) -> PyResult<(Bound<'py, PyDict>, Option<usize>)> {
        let Some(fixed) = &self.fixed else {
            let address = lease.address();
            let memory: Arc<dyn Any + Send + Sync> = Arc::new(lease);
            let arrays = meta.arrays(py, self.place, address, Some(&memory))?;
            return Ok((arrays, None));
        };
        let (place, memory) = fixed.get().place(&self.device, meta)?;
        lease.copy_to(&self.device, &memory).map_err(cuda_to_py)?;
        let address = memory.address();
        let memory: Arc<dyn Any + Send + Sync> = memory;
        let wanted = (place >= known).then_some(&memory);
        let arrays = meta.arrays(py, self.place, address, wanted)?;
        Ok((arrays, Some(place)))
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
