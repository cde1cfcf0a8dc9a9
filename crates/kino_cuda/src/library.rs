//! Finding the driver and opening it, once per process and path; and how the other libraries of NVIDIA are opened.
//!
//! ```text
//! KINOGRAPH_CUDA_LIBRARY  →  libcuda.so.1  →  libcuda.so
//! ```
//!
//! What was opened stays loaded: it has threads of its own.

use std::env;
use std::path::{Path, PathBuf};

use kino_sync::Mutex;

use crate::error::{CudaError, Result};
use crate::ffi::Driver;

/// The variable that names the library, for systems where it is elsewhere, and for tests.
const VARIABLE: &str = "KINOGRAPH_CUDA_LIBRARY";

/// Where the driver's installer puts it.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

static OPENED: Opened<Driver> = Opened::new();

/// Libraries of NVIDIA that were opened, by path.
pub(crate) struct Opened<T: 'static>(Mutex<Vec<(PathBuf, &'static T)>>);

impl<T> Opened<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The first of these files that can be loaded, once per process and path; else why none can.
    pub(crate) fn first(
        &self,
        paths: &[PathBuf],
        load: impl Fn(&Path) -> Result<T, String>,
    ) -> Result<&'static T, String> {
        let mut opened = self.0.lock();
        if let Some((_, library)) = opened.iter().find(|(path, _)| paths.contains(path)) {
            return Ok(library);
        }
        let mut tried = Vec::new();
        for path in paths {
            match load(path) {
                Ok(library) => {
                    let library: &'static T = Box::leak(Box::new(library));
                    opened.push((path.clone(), library));
                    return Ok(library);
                }
                Err(what) => tried.push(what),
            }
        }
        Err(tried.join("; "))
    }
}

/// The driver that the environment names, else the system's.
pub(crate) fn driver() -> Result<&'static Driver> {
    match env::var_os(VARIABLE) {
        Some(path) => open(&[PathBuf::from(path)]),
        None => open(&NAMES.map(PathBuf::from)),
    }
}

/// The first of these drivers that can be used. To initialise it again changes nothing.
pub(crate) fn open(paths: &[PathBuf]) -> Result<&'static Driver> {
    let opened = OPENED.first(paths, Driver::open);
    let driver = opened.map_err(|what| CudaError::NoDriver { what })?;
    driver.init()?;
    Ok(driver)
}
