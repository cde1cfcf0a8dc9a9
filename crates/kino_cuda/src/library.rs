//! Finding the driver and opening it, once per process and path.
//!
//! ```text
//! KINOGRAPH_CUDA_LIBRARY  →  libcuda.so.1  →  libcuda.so
//! ```
//!
//! A driver that was opened stays loaded: it has threads of its own.

use std::env;
use std::path::PathBuf;

use kino_sync::Mutex;

use crate::error::{CudaError, Result};
use crate::ffi::Driver;

/// The variable that names the library, for systems where it is elsewhere, and for tests.
const VARIABLE: &str = "KINOGRAPH_CUDA_LIBRARY";

/// Where the driver's installer puts it.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

static OPENED: Mutex<Vec<(PathBuf, &'static Driver)>> = Mutex::new(Vec::new());

/// The driver that the environment names, else the system's.
pub(crate) fn driver() -> Result<&'static Driver> {
    match env::var_os(VARIABLE) {
        Some(path) => open(&[PathBuf::from(path)]),
        None => open(&NAMES.map(PathBuf::from)),
    }
}

/// The first of these drivers that can be used; it is opened and initialised on the first call.
pub(crate) fn open(paths: &[PathBuf]) -> Result<&'static Driver> {
    let mut opened = OPENED.lock();
    if let Some((_, driver)) = opened.iter().find(|(path, _)| paths.contains(path)) {
        return Ok(driver);
    }
    let mut tried = Vec::new();
    for path in paths {
        match Driver::open(path) {
            Ok(driver) => {
                let driver: &'static Driver = Box::leak(Box::new(driver));
                driver.init()?;
                opened.push((path.clone(), driver));
                return Ok(driver);
            }
            Err(what) => tried.push(what),
        }
    }
    Err(CudaError::NoDriver {
        what: tried.join("; "),
    })
}
