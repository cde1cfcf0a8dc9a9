//! Memory for other libraries, by DLPack: a capsule that a framework makes a tensor of, without a copy.
//!
//! ```text
//! capsule ──▶ Lent { DlManaged { data, device, dtype, shape, strides, deleter }, memory }
//! a tensor that dies calls `deleter`, in any thread; a capsule that was not taken is dropped with its `Lent`
//! ```

#![allow(
    unsafe_code,
    reason = "structs of another library's C interface; each unsafe block carries its proof"
)]

use std::any::Any;
use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;

/// The name of a capsule that has not been taken yet.
const NAME: &CStr = c"dltensor";

/// `DLDevice`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct DlDevice {
    /// 1 is the CPU, 2 CUDA.
    pub(crate) kind: c_int,
    /// Its number.
    pub(crate) id: c_int,
}

/// `DLDataType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct DlType {
    code: u8,
    bits: u8,
    lanes: u16,
}

impl DlType {
    /// The type with one of our names.
    pub(crate) fn new(name: &str, bytes: usize) -> Option<Self> {
        let code = match name.trim_end_matches(|letter: char| letter.is_ascii_digit()) {
            "int" => 0,
            "uint" => 1,
            "float" => 2,
            "bfloat" => 4,
            "bool" => 6,
            _ => return None,
        };
        let bits = u8::try_from(8 * bytes).ok()?;
        Some(Self {
            code,
            bits,
            lanes: 1,
        })
    }
}

/// `DLTensor`.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    ndim: c_int,
    dtype: DlType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct DlManaged {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: unsafe extern "C" fn(*mut Self),
}

/// What a capsule owns. `managed` is first: its address is that of the whole.
#[repr(C)]
struct Lent {
    managed: DlManaged,
    /// The shape, then the strides: what `managed` points to.
    sizes: Vec<i64>,
    memory: Arc<dyn Any + Send + Sync>,
}

/// An array to lend.
#[derive(Debug)]
pub(crate) struct Array<'a> {
    /// Where it is.
    pub(crate) address: u64,
    pub(crate) device: DlDevice,
    pub(crate) dtype: DlType,
    pub(crate) shape: &'a [usize],
    /// What keeps the memory alive.
    pub(crate) memory: Arc<dyn Any + Send + Sync>,
}

/// A capsule for an array.
pub(crate) fn capsule<'py>(py: Python<'py>, array: Array<'_>) -> PyResult<Bound<'py, PyAny>> {
    let too_large = |_| PyMemoryError::new_err("an array is too large for DLPack");
    let shape: Result<Vec<i64>, _> = array
        .shape
        .iter()
        .map(|&size| i64::try_from(size))
        .collect();
    let mut sizes = shape.map_err(too_large)?;
    let ndim = sizes.len();
    let mut strides = vec![1; ndim];
    for axis in (1..ndim).rev() {
        strides[axis - 1] = strides[axis] * sizes[axis];
    }
    sizes.append(&mut strides);
    let lent = Box::new(Lent {
        managed: DlManaged {
            tensor: DlTensor {
                data: std::ptr::null_mut(),
                device: array.device,
                ndim: c_int::try_from(ndim).map_err(too_large)?,
                dtype: array.dtype,
                shape: std::ptr::null_mut(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            },
            context: std::ptr::null_mut(),
            deleter: delete,
        },
        sizes,
        memory: array.memory,
    });
    let lent = Box::into_raw(lent);
    // SAFETY: `lent` was allocated above and nothing else has it. The pointers are to its own vector, which does not change
    // any more; both halves have `ndim` elements.
    unsafe {
        let sizes = (*lent).sizes.as_mut_ptr();
        let tensor = &mut (*lent).managed.tensor;
        tensor.data =
            std::ptr::with_exposed_provenance_mut(usize::try_from(array.address).unwrap_or(0));
        tensor.shape = sizes;
        tensor.strides = sizes.add(ndim);
    }
    // SAFETY: the GIL is held; the name lives for ever; the destructor knows what the pointer is.
    let made = unsafe { ffi::PyCapsule_New(lent.cast(), NAME.as_ptr(), Some(drop_capsule)) };
    if made.is_null() {
        // SAFETY: no capsule was made that could own it.
        drop(unsafe { Box::from_raw(lent) });
        return Err(PyErr::fetch(py));
    }
    // SAFETY: a new reference, owned by nothing else.
    Ok(unsafe { Bound::from_owned_ptr(py, made) })
}

/// Called once by the tensor's owner, in any thread.
unsafe extern "C" fn delete(managed: *mut DlManaged) {
    // SAFETY: `managed` is the first field of a `Lent` that `capsule` made, and the consumer of the capsule calls this once.
    drop(unsafe { Box::from_raw(managed.cast::<Lent>()) });
}

/// Called when a capsule is dropped. One that was taken was renamed by its new owner.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule and the GIL.
    if unsafe { ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) } == 1 {
        // SAFETY: as above; the name says that the pointer is still ours.
        let lent = unsafe { ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()) };
        // SAFETY: it was made by `Box::into_raw` in `capsule`, and it was not taken.
        drop(unsafe { Box::from_raw(lent.cast::<Lent>()) });
    }
}
