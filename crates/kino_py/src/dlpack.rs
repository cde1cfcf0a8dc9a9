//! Memory for other libraries, by DLPack: capsules that a framework makes tensors of, without a copy.
//!
//! ```text
//! Lent { one DlManaged { data, device, dtype, shape, strides, deleter } per array, memory }     one for all arrays of a batch
//!   └─ capsule ──▶ a tensor; when it dies, in any thread, it calls `deleter`. A capsule that was not taken calls it itself
//! ```

#![allow(
    unsafe_code,
    reason = "structs of another library's C interface; each unsafe block carries its proof"
)]

use std::any::Any;
use std::cell::UnsafeCell;
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

/// Arrays that are lent, and what keeps their memory alive. Each capsule owns a reference.
pub(crate) struct Lent {
    /// Whoever takes a capsule may write to its struct.
    arrays: Box<[UnsafeCell<DlManaged>]>,
    /// Shape and strides of each array, which the structs point to.
    _sizes: Vec<i64>,
    _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the structs are written by `Lent::capsule`, before there is a capsule of them: by the thread that made this, before any
// other has a reference. Then each belongs to the owner of its capsule; other threads only drop references, which are counted
// atomically. The pointers in them are to `_sizes`, which nothing changes, and `_memory` can be dropped in any thread.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

/// An array to lend.
#[derive(Debug)]
pub(crate) struct Array<'a> {
    /// Where it is.
    pub(crate) address: u64,
    pub(crate) dtype: DlType,
    pub(crate) shape: &'a [usize],
}

impl Lent {
    /// Arrays that are in `memory`.
    pub(crate) fn new(
        device: DlDevice,
        arrays: &[Array<'_>],
        memory: Arc<dyn Any + Send + Sync>,
    ) -> PyResult<Arc<Self>> {
        let too_large = |_| PyMemoryError::new_err("an array is too large for DLPack");
        let axes = arrays.iter().map(|array| array.shape.len());
        let mut sizes = Vec::with_capacity(2 * axes.sum::<usize>());
        for Array { shape, .. } in arrays {
            let first = sizes.len();
            for &size in *shape {
                sizes.push(i64::try_from(size).map_err(too_large)?);
            }
            let strides = sizes.len();
            sizes.resize(strides + shape.len(), 1);
            for axis in (1..shape.len()).rev() {
                sizes[strides + axis - 1] = sizes[strides + axis] * sizes[first + axis];
            }
        }
        let mut left = sizes.as_mut_slice();
        let mut managed = Vec::with_capacity(arrays.len());
        for array in arrays {
            let ndim = array.shape.len();
            let (shape, rest) = left.split_at_mut(ndim);
            let (strides, rest) = rest.split_at_mut(ndim);
            left = rest;
            let address = usize::try_from(array.address).unwrap_or(0);
            managed.push(UnsafeCell::new(DlManaged {
                tensor: DlTensor {
                    data: std::ptr::with_exposed_provenance_mut(address),
                    device,
                    ndim: c_int::try_from(ndim).map_err(too_large)?,
                    dtype: array.dtype,
                    shape: shape.as_mut_ptr(),
                    strides: strides.as_mut_ptr(),
                    byte_offset: 0,
                },
                context: std::ptr::null_mut(),
                deleter: delete,
            }));
        }
        Ok(Arc::new(Self {
            arrays: managed.into_boxed_slice(),
            _sizes: sizes,
            _memory: memory,
        }))
    }

    /// A capsule for an array, by its number; there is one capsule for each.
    pub(crate) fn capsule<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        idx: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let managed = self.arrays[idx].get();
        let owner = Arc::into_raw(Arc::clone(self));
        // SAFETY: `managed` is in `self`, which `owner` keeps; nobody else has it before there is a capsule of it.
        unsafe { (*managed).context = owner.cast_mut().cast() };
        // SAFETY: the GIL is held; the name lives for ever; the destructor knows what the pointer is.
        let made = unsafe { ffi::PyCapsule_New(managed.cast(), NAME.as_ptr(), Some(drop_capsule)) };
        if made.is_null() {
            // SAFETY: no capsule was made that could own this reference.
            drop(unsafe { Arc::from_raw(owner) });
            return Err(PyErr::fetch(py));
        }
        // SAFETY: a new reference, owned by nothing else.
        Ok(unsafe { Bound::from_owned_ptr(py, made) })
    }
}

/// Called once by the tensor's owner, in any thread.
unsafe extern "C" fn delete(managed: *mut DlManaged) {
    // SAFETY: `capsule` put a reference to the `Lent` there, for whoever calls this, once.
    drop(unsafe { Arc::from_raw((*managed).context.cast::<Lent>().cast_const()) });
}

/// Called when a capsule is dropped. One that was taken was renamed by its new owner.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule and the GIL.
    if unsafe { ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) } == 1 {
        // SAFETY: as above; the name says that the pointer is still ours.
        let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()) };
        // SAFETY: it is what `Lent::capsule` put there, and it was not taken.
        unsafe { delete(managed.cast()) };
    }
}
