//! What Python gets of a batch on a device: a dict of tensors and texts.
//!
//! ```text
//! Meta + its memory ──▶ Lent: all arrays ──▶ capsules ──▶ to_tensor of the framework ──▶ dict
//!                  └─ with FixedBatches: copied to the memory of the first batch of this form, and its tensors
//! ```
//!
//! The training loop waits for this in every step, and a step leaves nothing of it in the caches: what is missing is each object
//! and each function that is touched, so a batch is one allocation here, keys are made once, and no function of Python is called.

use std::any::Any;
use std::sync::Arc;

use kino_cuda::{CudaError, Device, DeviceMemory, HostBatch, Lease};
use kino_loader::ArrayInfo;
use kino_sync::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::cuda_images::Arena;
use crate::dlpack::{Array, DlDevice, DlType, Lent};
use crate::errors::{cuda_to_py, invalid};

/// What a batch holds, without its memory.
#[derive(Debug)]
pub(crate) struct Meta {
    pub(crate) number: u64,
    layout: Arc<BatchLayout>,
    /// Of the arrays that are texts, in order.
    texts: Vec<Vec<Vec<String>>>,
}

/// The arrays of a batch, and where they are; most batches of a loader share one.
#[derive(Debug, PartialEq)]
pub(crate) struct BatchLayout {
    infos: Vec<ArrayInfo>,
    /// Where each array is in the batch's memory.
    offsets: Vec<u64>,
    /// `None` is text.
    dtypes: Vec<Option<DlType>>,
    bytes: usize,
}

impl Meta {
    /// Of a batch; `last` is the layout of the one before.
    pub(crate) fn new(arena: &Arena, last: &mut Option<Arc<BatchLayout>>) -> Self {
        let batch = arena.batch();
        let fields = 0..batch.infos().len();
        let is_text = |idx: &usize| batch.infos()[*idx].dtype.is_none();
        Self {
            number: batch.number(),
            layout: BatchLayout::of(arena, last),
            texts: fields
                .filter(is_text)
                .map(|idx| batch.texts(idx).to_vec())
                .collect(),
        }
    }
}

impl BatchLayout {
    fn of(arena: &Arena, last: &mut Option<Arc<Self>>) -> Arc<Self> {
        let (infos, offsets) = (arena.batch().infos(), arena.offsets());
        let bytes = arena.device_bytes();
        if let Some(last) = last
            && last.infos == infos
            && last.offsets == offsets
            && last.bytes == bytes
        {
            return Arc::clone(last);
        }
        let dtypes = infos.iter().map(|info| info.dtype);
        let dtypes = dtypes.map(|dtype| dtype.and_then(|one| DlType::new(one.name(), one.size())));
        let layout = Arc::new(Self {
            dtypes: dtypes.collect(),
            infos: infos.to_vec(),
            offsets,
            bytes,
        });
        *last = Some(Arc::clone(&layout));
        layout
    }
}

/// Makes the tensors of batches.
pub(crate) struct Tensors {
    /// The framework's function that makes a tensor of a capsule.
    to_tensor: Py<PyAny>,
    /// What tensors are told where they are.
    place: DlDevice,
    keys: Mutex<Keys>,
}

/// The keys of batches, by the array's place: they are the same in all batches of a loader.
#[derive(Default)]
struct Keys(Vec<(String, Py<PyString>)>);

impl Tensors {
    pub(crate) fn new(to_tensor: Py<PyAny>, place: DlDevice) -> Self {
        Self {
            to_tensor,
            place,
            keys: Mutex::default(),
        }
    }

    /// By key: a tensor, or texts.
    pub(crate) fn dict<'py>(
        &self,
        py: Python<'py>,
        meta: &Meta,
        address: u64,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let layout = &*meta.layout;
        let mut arrays = Vec::with_capacity(layout.infos.len());
        for ((info, offset), dtype) in layout.infos.iter().zip(&layout.offsets).zip(&layout.dtypes)
        {
            let Some(named) = info.dtype else { continue };
            arrays.push(Array {
                address: address + offset,
                dtype: dtype
                    .ok_or_else(|| invalid(format!("DLPack has no dtype {}", named.name())))?,
                shape: &info.shape,
            });
        }
        let lent = Lent::new(self.place, &arrays, memory)?;
        let to_tensor = self.to_tensor.bind(py);
        let dict = PyDict::new(py);
        let mut keys = self.keys.lock();
        let mut texts = meta.texts.iter();
        let mut tensors = 0;
        for (idx, info) in layout.infos.iter().enumerate() {
            let key = keys.key(py, idx, &info.name);
            if info.dtype.is_none() {
                dict.set_item(key, to_texts(py, info, texts.next())?)?;
                continue;
            }
            dict.set_item(key, to_tensor.call1((lent.capsule(py, tensors)?,))?)?;
            tensors += 1;
        }
        Ok(dict)
    }
}

impl Keys {
    fn key<'py>(&mut self, py: Python<'py>, idx: usize, name: &str) -> Bound<'py, PyString> {
        if let Some((known, key)) = self.0.get(idx)
            && known == name
        {
            return key.bind(py).clone();
        }
        let key = PyString::intern(py, name);
        self.0.truncate(idx);
        if self.0.len() == idx {
            self.0.push((name.to_owned(), key.clone().unbind()));
        }
        key
    }
}

/// The texts of an array: a list per sample if it has several steps.
fn to_texts<'py>(
    py: Python<'py>,
    info: &ArrayInfo,
    texts: Option<&Vec<Vec<String>>>,
) -> PyResult<Bound<'py, PyList>> {
    let texts = texts.map(Vec::as_slice).unwrap_or_default();
    if info.shape.len() > 1 {
        return PyList::new(py, texts);
    }
    PyList::new(py, texts.iter().flatten().collect::<Vec<_>>())
}

/// Memory at addresses that stay, for CUDA graphs: one place for each form of a batch. It outlives the senders.
#[pyclass(frozen, module = "kinograph._core")]
#[derive(Default)]
pub(crate) struct FixedBatches {
    places: Mutex<Vec<Place>>,
}

/// Where batches of a form are.
struct Place {
    layout: Arc<BatchLayout>,
    memory: Arc<DeviceMemory>,
    /// Of the first batch.
    tensors: Py<PyDict>,
}

#[pymethods]
impl FixedBatches {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Addresses are those of a process: a copy in another one is empty.
    fn __reduce__(slf: &Bound<'_, Self>) -> (Py<PyAny>, ()) {
        (slf.get_type().into_any().unbind(), ())
    }
}

impl FixedBatches {
    /// Copies a batch to the place of its form; its tensors, and its own texts.
    pub(crate) fn dict<'py>(
        &self,
        py: Python<'py>,
        device: &Arc<Device>,
        tensors: &Tensors,
        (meta, lease): (&Meta, &Lease),
    ) -> PyResult<Bound<'py, PyDict>> {
        let mut places = self.places.lock();
        let layout = &meta.layout;
        let known = places.iter().find(|place| place.layout == *layout);
        if let Some(place) = known {
            lease.copy_to(device, &place.memory).map_err(cuda_to_py)?;
            let dict = place.tensors.bind(py).copy()?;
            let texts = layout.infos.iter().filter(|info| info.dtype.is_none());
            for (info, texts) in texts.zip(&meta.texts) {
                dict.set_item(&info.name, to_texts(py, info, Some(texts))?)?;
            }
            return Ok(dict);
        }
        let memory = device.alloc(layout.bytes).map_err(cuda_to_py)?;
        let memory = memory.ok_or_else(|| {
            cuda_to_py(CudaError::OutOfMemory {
                bytes: layout.bytes,
                live: places.len(),
                held: places.len(),
            })
        })?;
        let memory = Arc::new(memory);
        lease.copy_to(device, &memory).map_err(cuda_to_py)?;
        let owner = Arc::clone(&memory);
        let dict = tensors.dict(py, meta, memory.address(), owner)?;
        places.push(Place {
            layout: Arc::clone(layout),
            memory,
            tensors: dict.copy()?.unbind(),
        });
        Ok(dict)
    }
}
