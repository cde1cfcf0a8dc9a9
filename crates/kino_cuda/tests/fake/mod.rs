//! A fake driver of a test's own, and what a test asks of it.
//!
//! ```text
//! fake_cuda.c ──▶ C compiler ──▶ libfake_cuda.so in a temporary folder ──▶ Fake: loaded, with its own counters
//! ```
#![allow(
    unsafe_code,
    reason = "calls the fake driver's functions for tests; their types are those in fake_cuda.c"
)]
#![allow(dead_code, reason = "each test program uses some of it")]

pub(crate) mod images;
pub(crate) mod jpeg;
pub(crate) mod video;

use std::ffi::{CString, c_char, c_int, c_long, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use kino_cuda::{Device, StreamHandle};
use libloading::Library;
use tempfile::TempDir;

/// Builds a library from `tests/<name>.c`; `with` is another one that it calls.
pub(crate) fn compile(folder: &Path, name: &str, with: Option<&Path>) -> PathBuf {
    let path = folder.join(format!("lib{name}.so"));
    let source = format!("{}/tests/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let built = Command::new(compiler)
        .args(["-std=gnu11", "-O1", "-shared", "-fPIC", "-pthread", "-o"])
        .args([path.as_os_str(), source.as_ref()])
        .args(with)
        .status()
        .unwrap();
    assert!(built.success());
    path
}

/// A fake driver of a test's own.
pub(crate) struct Fake {
    pub(crate) path: PathBuf,
    pub(crate) folder: TempDir,
    library: Library,
}

impl Fake {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = compile(folder.path(), "fake_cuda", None);
        // SAFETY: the library that was just built; it has no initialisers.
        let library = unsafe { Library::new(&path) }.unwrap();
        Self {
            path,
            folder,
            library,
        }
    }

    pub(crate) fn device(&self) -> Arc<Device> {
        Device::open_with(&self.path, 0).unwrap()
    }

    pub(crate) fn count(&self, what: &str) -> i64 {
        let what = CString::new(what).unwrap();
        // SAFETY: `long fake_count(const char *)`.
        unsafe {
            let count = self
                .library
                .get::<unsafe extern "C" fn(*const c_char) -> c_long>(b"fake_count\0");
            count.unwrap()(what.as_ptr())
        }
    }

    pub(crate) fn set(&self, name: &[u8], value: usize) {
        // SAFETY: `void fake_limit(size_t)`, `void fake_register_limit(size_t)`, `void fake_hold(size_t)`.
        unsafe {
            self.library
                .get::<unsafe extern "C" fn(usize)>(name)
                .unwrap()(value);
        }
    }

    pub(crate) fn stream(&self) -> StreamHandle {
        // SAFETY: `void *fake_stream(void)`; the stream exists for as long as the library.
        unsafe {
            let make = self
                .library
                .get::<unsafe extern "C" fn() -> usize>(b"fake_stream\0");
            StreamHandle::from_handle(make.unwrap()())
        }
    }

    /// A kernel that reads the device's memory once the stream has come to it.
    pub(crate) fn read(&self, stream: StreamHandle, address: u64, bytes: usize, sum: &mut u64) {
        // SAFETY: `void fake_read(void *, uint64_t, size_t, uint64_t *)`; the test keeps `sum` until `synchronize`.
        unsafe {
            let read = self
                .library
                .get::<unsafe extern "C" fn(StreamHandle, u64, usize, *mut u64)>(b"fake_read\0");
            read.unwrap()(stream, address, bytes, sum);
        }
    }

    /// What is in the device's memory, which must be allocated, once everything that was asked of a stream is done.
    pub(crate) fn bytes(&self, stream: StreamHandle, address: u64, len: usize) -> Vec<u8> {
        self.run(stream);
        let start = std::ptr::with_exposed_provenance::<u8>(usize::try_from(address).unwrap());
        // SAFETY: the fake driver's device memory is the host's; the test holds the batch.
        unsafe { std::slice::from_raw_parts(start, len) }.to_vec()
    }

    pub(crate) fn synchronize(&self) {
        // SAFETY: `void fake_synchronize(void)`.
        unsafe {
            self.library
                .get::<unsafe extern "C" fn() -> *mut c_void>(b"fake_synchronize\0")
                .unwrap()();
        }
    }

    /// Does what was asked of one stream, and what that waits for.
    pub(crate) fn run(&self, stream: StreamHandle) {
        // SAFETY: `void fake_run(Stream *)`, with a stream of this driver.
        unsafe {
            self.library
                .get::<unsafe extern "C" fn(StreamHandle)>(b"fake_run\0")
                .unwrap()(stream);
        }
    }

    /// Misuse that the driver noticed.
    pub(crate) fn misuse(&self) -> [i64; 3] {
        [
            "unregistered while copied",
            "without context",
            "outside memory",
        ]
        .map(|what| self.count(what))
    }
}

/// Whether a check holds in a forked process, and does not hang there.
pub(crate) fn holds_in_fork(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: of the system's C library.
    unsafe extern "C" {
        fn fork() -> c_int;
        fn alarm(seconds: c_uint) -> c_uint;
        fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
        fn _exit(code: c_int) -> !;
    }
    let mut status = -1;
    // SAFETY: the child has no other thread, and ends without running anything of this process.
    unsafe {
        let child = fork();
        if child == 0 {
            alarm(60);
            let holds = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
            _exit(c_int::from(!matches!(holds, Ok(true))));
        }
        assert!(child > 0 && waitpid(child, &raw mut status, 0) == child);
    }
    status == 0
}

/// What `fake_read` makes of bytes.
pub(crate) fn sum_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, &byte| {
        u64::wrapping_add(u64::wrapping_mul(sum, 31), u64::from(byte))
    })
}
