//! The fake nvJPEG of a test's own, on top of its fake driver.
//!
//! ```text
//! file: height, width, seed ──▶ pixels: byte k is (seed + k) mod 251
//! ```

use std::ffi::c_long;
use std::path::PathBuf;

use kino_cuda::Nvjpeg;
use libloading::Library;

use super::{Fake, compile};

/// The fake nvJPEG.
pub(crate) struct FakeJpeg {
    path: PathBuf,
    library: Library,
}

impl FakeJpeg {
    pub(crate) fn new(fake: &Fake) -> Self {
        let path = compile(fake.folder.path(), "fake_nvjpeg", Some(&fake.path));
        // SAFETY: the library that was just built; it has no initialisers.
        let library = unsafe { Library::new(&path) }.unwrap();
        Self { path, library }
    }

    pub(crate) fn open(&self) -> &'static Nvjpeg {
        Nvjpeg::open(std::slice::from_ref(&self.path)).unwrap()
    }

    /// One of its counters.
    pub(crate) fn count(&self, name: &[u8]) -> i64 {
        // SAFETY: each of these functions is `long name(void)`.
        unsafe {
            self.library
                .get::<unsafe extern "C" fn() -> c_long>(name)
                .unwrap()()
        }
    }

    pub(crate) fn take_hardware_away(&self) {
        let name = b"fake_jpeg_without_hardware\0";
        // SAFETY: `void fake_jpeg_without_hardware(void)`.
        unsafe { self.library.get::<unsafe extern "C" fn()>(name).unwrap()() }
    }
}

/// A file of the fake format; what is `P` for pixels, `E` for a file that cannot be decoded.
pub(crate) fn file(what: u8, seed: u8, (height, width): (i32, i32)) -> Vec<u8> {
    let head = [b'K', b'J', what, seed];
    [head, height.to_le_bytes(), width.to_le_bytes()].concat()
}

/// The pixels of a file.
pub(crate) fn pixels_of(seed: u8, (height, width): (usize, usize)) -> Vec<u8> {
    (0..height * width * 3)
        .map(|idx| u8::try_from((usize::from(seed) + idx) % 251).unwrap())
        .collect()
}
