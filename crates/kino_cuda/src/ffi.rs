//! The functions of the CUDA driver that are called, by the names that libcuda exports.
//!
//! ```text
//! Context   the device's primary context, pushed and popped around each call: any thread may call
//! Stream    work in order          Event   a place in a stream          Memory   bytes on the device
//! ```
//!
//! Handles are plain words here. Each is made by one function below and belongs to one owner in `device.rs`, which
//! passes it only while it exists and destroys it once; that is what the blocks rely on. No header is compiled: the
//! signatures are those of `cuda.h` since CUDA 11, which the driver keeps.
#![expect(
    unsafe_code,
    reason = "calls of a C library; every block states what it relies on"
)]

mod kernels;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr;

use libloading::Library;

use crate::error::{CudaError, Result};
use crate::functions::functions;

pub(crate) use kernels::{
    Crop, Frame, GatherJob, IMAGES, Nv12Job, RawKernel, RawModule, ResizeJob,
};

/// A `CUcontext`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawContext(usize);

/// A stream: one of ours, or that of who uses a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct StreamHandle(usize);

impl StreamHandle {
    /// A stream that someone else owns, by its handle; 0 is the default stream.
    ///
    /// # Safety
    ///
    /// It exists for as long as the result is used: the driver may not notice that a handle is not one.
    pub unsafe fn from_handle(handle: usize) -> Self {
        Self(handle)
    }
}

/// A `CUevent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawEvent(usize);

/// A `CUdeviceptr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawMemory(pub(crate) u64);

/// A `CUresult`.
pub(crate) type Code = c_int;

/// `CUDA_SUCCESS`.
const SUCCESS: Code = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: Code = 2;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: Code = 600;
/// `CU_STREAM_NON_BLOCKING`: it does not wait for the default stream.
const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_BLOCKING_SYNC`: who waits for it sleeps.
const EVENT_BLOCKING_SYNC: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_MEMHOSTREGISTER_PORTABLE`: page-locked for every context.
const REGISTER_PORTABLE: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: calls of this thread neither fail nor end a capture in another one.
const CAPTURE_RELAXED: c_int = 2;

functions! {
    init = b"cuInit\0": fn(c_uint);
    error_name = b"cuGetErrorName\0": fn(Code, *mut *const c_char);
    error_text = b"cuGetErrorString\0": fn(Code, *mut *const c_char);
    device_get = b"cuDeviceGet\0": fn(*mut c_int, c_int);
    context_retain = b"cuDevicePrimaryCtxRetain\0": fn(*mut usize, c_int);
    context_release = b"cuDevicePrimaryCtxRelease_v2\0": fn(c_int);
    context_push = b"cuCtxPushCurrent_v2\0": fn(usize);
    context_pop = b"cuCtxPopCurrent_v2\0": fn(*mut usize);
    capture_mode = b"cuThreadExchangeStreamCaptureMode\0": fn(*mut c_int);
    register = b"cuMemHostRegister_v2\0": fn(*mut c_void, usize, c_uint);
    unregister = b"cuMemHostUnregister\0": fn(*mut c_void);
    alloc = b"cuMemAlloc_v2\0": fn(*mut u64, usize);
    free = b"cuMemFree_v2\0": fn(u64);
    copy_to_device = b"cuMemcpyHtoDAsync_v2\0": fn(u64, *const c_void, usize, usize);
    copy_on_device = b"cuMemcpyDtoDAsync_v2\0": fn(u64, u64, usize, usize);
    copy_to_host = b"cuMemcpyDtoHAsync_v2\0": fn(*mut c_void, u64, usize, usize);
    module_load = b"cuModuleLoadData\0": fn(*mut usize, *const c_void);
    module_unload = b"cuModuleUnload\0": fn(usize);
    module_kernel = b"cuModuleGetFunction\0": fn(*mut usize, usize, *const c_char);
    launch = b"cuLaunchKernel\0": fn(usize, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, usize, *const *const c_void, *const *const c_void);
    stream_create = b"cuStreamCreate\0": fn(*mut usize, c_uint);
    stream_destroy = b"cuStreamDestroy_v2\0": fn(usize);
    stream_wait = b"cuStreamWaitEvent\0": fn(usize, usize, c_uint);
    event_create = b"cuEventCreate\0": fn(*mut usize, c_uint);
    event_destroy = b"cuEventDestroy_v2\0": fn(usize);
    event_record = b"cuEventRecord\0": fn(usize, usize);
    event_query = b"cuEventQuery\0": fn(usize);
    event_synchronize = b"cuEventSynchronize\0": fn(usize);
    event_elapsed = b"cuEventElapsedTime\0": fn(*mut f32, usize, usize);
}

/// Whether an event is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timing {
    On,
    Off,
}

/// The loaded driver.
pub(crate) struct Driver {
    functions: Functions,
    /// Owns the code of `functions`.
    _library: Library,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Driver")
    }
}

impl Driver {
    /// Loads a driver; the text of an error says what is wrong with it.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        // SAFETY: loading runs the initialisers of NVIDIA's driver, or of what the user named in its place.
        let library = unsafe { Library::new(path) }.map_err(|error| said(path, "", &error))?;
        let functions =
            Functions::find(&library).map_err(|error| said(path, " is too old", &error))?;
        Ok(Self {
            functions,
            _library: library,
        })
    }

    pub(crate) fn init(&self) -> Result<()> {
        // SAFETY: no preconditions; it may be called repeatedly.
        self.check("cuInit", unsafe { (self.functions.init)(0) })
    }

    /// The device with an ordinal, as `CUDA_VISIBLE_DEVICES` numbers them, and its primary context, which is retained.
    pub(crate) fn retain(&self, ordinal: c_int) -> Result<(c_int, RawContext)> {
        let mut device = 0;
        // SAFETY: it writes an `int` to a local variable.
        let code = unsafe { (self.functions.device_get)(&raw mut device, ordinal) };
        self.check("cuDeviceGet", code)?;
        let mut context = 0;
        // SAFETY: it writes a handle to a local variable; the device is one of the driver's.
        let code = unsafe { (self.functions.context_retain)(&raw mut context, device) };
        self.check("cuDevicePrimaryCtxRetain", code)?;
        Ok((device, RawContext(context)))
    }

    pub(crate) fn release(&self, device: c_int) {
        // SAFETY: called once for a context that was retained.
        let _code = unsafe { (self.functions.context_release)(device) };
    }

    /// Runs `work` with a context current, and without disturbing a CUDA graph that this thread or another one captures.
    pub(crate) fn within<T>(
        &self,
        context: RawContext,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        // SAFETY: the context is retained by the caller.
        let code = unsafe { (self.functions.context_push)(context.0) };
        self.check("cuCtxPushCurrent", code)?;
        let mut mode = CAPTURE_RELAXED;
        // SAFETY: it exchanges a local variable with this thread's mode.
        let exchanged = unsafe { (self.functions.capture_mode)(&raw mut mode) };
        let result = work();
        if exchanged == SUCCESS {
            // SAFETY: as above; this puts the mode back.
            let _code = unsafe { (self.functions.capture_mode)(&raw mut mode) };
        }
        let mut popped = 0;
        // SAFETY: it writes the context that was pushed above to a local variable.
        let _code = unsafe { (self.functions.context_pop)(&raw mut popped) };
        result
    }

    /// Page-locks memory. It is unlocked by [`unregister`](Self::unregister), before it is freed.
    pub(crate) fn register(&self, memory: &mut [u8]) -> Result<usize> {
        let start = memory.as_mut_ptr();
        // SAFETY: the range exists. The device accesses it only in copies, which borrow it.
        let code =
            unsafe { (self.functions.register)(start.cast(), memory.len(), REGISTER_PORTABLE) };
        self.check("cuMemHostRegister", code)?;
        Ok(start.addr())
    }

    pub(crate) fn unregister(&self, start: usize) -> Result<()> {
        // SAFETY: a number to the driver, which knows what was registered there; it accesses no memory.
        let code = unsafe { (self.functions.unregister)(ptr::without_provenance_mut(start)) };
        self.check("cuMemHostUnregister", code)
    }

    /// Memory on the device; `None` if there is not enough.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<Option<RawMemory>> {
        let mut memory = 0;
        // SAFETY: it writes an address to a local variable.
        let code = unsafe { (self.functions.alloc)(&raw mut memory, bytes) };
        if code == OUT_OF_MEMORY {
            return Ok(None);
        }
        self.check("cuMemAlloc", code)?;
        Ok(Some(RawMemory(memory)))
    }

    pub(crate) fn free(&self, memory: RawMemory) {
        // SAFETY: the owner frees it once; the driver waits for work that uses it.
        let _code = unsafe { (self.functions.free)(memory.0) };
    }

    /// Starts a copy to the device. `from` must neither change nor be freed until the stream has come past the copy, or
    /// what arrives is undefined; the caller owns it until then.
    pub(crate) fn copy_to_device(
        &self,
        to: RawMemory,
        from: &[u8],
        stream: StreamHandle,
    ) -> Result<()> {
        // SAFETY: the caller checked that `to` is large enough, and keeps `from` as said above.
        let code = unsafe {
            (self.functions.copy_to_device)(to.0, from.as_ptr().cast(), from.len(), stream.0)
        };
        self.check("cuMemcpyHtoDAsync", code)
    }

    /// Starts a copy on the device.
    pub(crate) fn copy_on_device(
        &self,
        to: RawMemory,
        from: RawMemory,
        bytes: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        // SAFETY: the caller checked that both are large enough, and keeps them until the stream has come past the copy.
        let code = unsafe { (self.functions.copy_on_device)(to.0, from.0, bytes, stream.0) };
        self.check("cuMemcpyDtoDAsync", code)
    }

    /// Starts a copy to the host. `to` must stay until the stream has come past the copy.
    pub(crate) fn copy_to_host(
        &self,
        to: &mut [u8],
        from: RawMemory,
        stream: StreamHandle,
    ) -> Result<()> {
        let (start, bytes) = (to.as_mut_ptr(), to.len());
        // SAFETY: the caller checked that `from` is large enough, and keeps both as said above.
        let code = unsafe { (self.functions.copy_to_host)(start.cast(), from.0, bytes, stream.0) };
        self.check("cuMemcpyDtoHAsync", code)
    }

    pub(crate) fn create_stream(&self) -> Result<StreamHandle> {
        let mut stream = 0;
        // SAFETY: it writes a handle to a local variable.
        let code = unsafe { (self.functions.stream_create)(&raw mut stream, STREAM_NON_BLOCKING) };
        self.check("cuStreamCreate", code)?;
        Ok(StreamHandle(stream))
    }

    pub(crate) fn destroy_stream(&self, stream: StreamHandle) {
        // SAFETY: the owner destroys it once; the driver finishes what was asked of it.
        let _code = unsafe { (self.functions.stream_destroy)(stream.0) };
    }

    /// Makes what is asked of a stream from now on wait for an event.
    pub(crate) fn wait(&self, stream: StreamHandle, event: RawEvent) -> Result<()> {
        // SAFETY: both handles exist.
        let code = unsafe { (self.functions.stream_wait)(stream.0, event.0, 0) };
        self.check("cuStreamWaitEvent", code)
    }

    pub(crate) fn create_event(&self, timing: Timing) -> Result<RawEvent> {
        let flags = match timing {
            Timing::On => EVENT_BLOCKING_SYNC,
            Timing::Off => EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING,
        };
        let mut event = 0;
        // SAFETY: it writes a handle to a local variable.
        let code = unsafe { (self.functions.event_create)(&raw mut event, flags) };
        self.check("cuEventCreate", code)?;
        Ok(RawEvent(event))
    }

    pub(crate) fn destroy_event(&self, event: RawEvent) {
        // SAFETY: the owner destroys it once; the driver keeps what it still needs.
        let _code = unsafe { (self.functions.event_destroy)(event.0) };
    }

    pub(crate) fn record(&self, event: RawEvent, stream: StreamHandle) -> Result<()> {
        // SAFETY: both handles exist.
        let code = unsafe { (self.functions.event_record)(event.0, stream.0) };
        self.check("cuEventRecord", code)
    }

    /// Whether the device has come past an event; also if it was never recorded.
    pub(crate) fn is_past(&self, event: RawEvent) -> Result<bool> {
        // SAFETY: the handle exists.
        let code = unsafe { (self.functions.event_query)(event.0) };
        if code == NOT_READY {
            return Ok(false);
        }
        self.check("cuEventQuery", code).map(|()| true)
    }

    pub(crate) fn synchronize(&self, event: RawEvent) -> Result<()> {
        // SAFETY: the handle exists.
        let code = unsafe { (self.functions.event_synchronize)(event.0) };
        self.check("cuEventSynchronize", code)
    }

    /// Milliseconds between two events that are past.
    pub(crate) fn elapsed_ms(&self, start: RawEvent, end: RawEvent) -> Result<f32> {
        let mut elapsed_ms = 0.0;
        // SAFETY: it writes a number to a local variable; both handles exist.
        let code = unsafe { (self.functions.event_elapsed)(&raw mut elapsed_ms, start.0, end.0) };
        self.check("cuEventElapsedTime", code)?;
        Ok(elapsed_ms)
    }

    /// The error of a call, also of other parts of the driver, that returned this code.
    pub(crate) fn check(&self, call: &'static str, code: Code) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        Err(CudaError::Call {
            call,
            name: self
                .text(self.functions.error_name, code)
                .unwrap_or_else(|| format!("error {code}")),
            what: self
                .text(self.functions.error_text, code)
                .unwrap_or_else(|| "no description".to_owned()),
            advice: advice(code),
        })
    }

    fn text(
        &self,
        find: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
        code: Code,
    ) -> Option<String> {
        let mut text = ptr::null();
        // SAFETY: it writes the address of a constant text, or null, to a local variable.
        let found = unsafe { find(code, &raw mut text) };
        if found != SUCCESS || text.is_null() {
            return None;
        }
        // SAFETY: a text of the driver, which ends with 0 and lives as long as the library.
        let text = unsafe { CStr::from_ptr(text) };
        Some(text.to_string_lossy().into_owned())
    }
}

/// What a failed load says: the error's cause has the system's own words.
fn said(path: &Path, what: &str, error: &libloading::Error) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!(
        "{}{what}: {error}{}",
        path.display(),
        cause.unwrap_or_default()
    )
}

/// What to do about an error.
fn advice(code: Code) -> &'static str {
    match code {
        OUT_OF_MEMORY => "use less memory on this device or on this host",
        // Not initialised, deinitialised.
        3 | 4 => "do not use the loader in a forked process or while the program ends",
        // No device, invalid device, unavailable.
        46 | 100 | 101 => "check CUDA_VISIBLE_DEVICES and `nvidia-smi`",
        // Context destroyed, illegal address and the like: they stay.
        700..=719 => {
            "an earlier kernel failed; run with CUDA_LAUNCH_BLOCKING=1 to find it, and start the program anew"
        }
        _ => "check `nvidia-smi` and the kernel log; `device=None` delivers batches in host memory",
    }
}
