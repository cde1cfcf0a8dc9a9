//! Video files through Python: `kinograph/_video.py` decodes them with PyAV.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kino_import::{Pixels, Video, VideoError, VideoInfo, Videos};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

/// What decodes video for an import.
pub(crate) fn videos() -> Option<Arc<dyn Videos>> {
    Some(Arc::new(PyVideos))
}

#[derive(Debug)]
struct PyVideos;

struct PyVideo {
    object: Py<PyAny>,
    info: VideoInfo,
}

impl Videos for PyVideos {
    fn open(&self, path: &Path) -> Result<Box<dyn Video>, VideoError> {
        Python::attach(|py| {
            let module = py
                .import("kinograph._video")
                .map_err(|error| damaged(py, &error))?;
            let is_there: bool = module
                .call_method0("is_available")
                .and_then(|found| found.extract())
                .map_err(|error| damaged(py, &error))?;
            if !is_there {
                return Err(VideoError::NoDecoder {
                    what: "PyAV is not installed".to_owned(),
                });
            }
            let video = module
                .call_method1("Video", (path,))
                .and_then(|object| PyVideo::new(&object));
            match video {
                Ok(video) => Ok(Box::new(video) as Box<dyn Video>),
                Err(error) => Err(damaged(py, &error)),
            }
        })
    }
}

impl PyVideo {
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            info: VideoInfo {
                height: object.getattr("height")?.extract()?,
                width: object.getattr("width")?.extract()?,
                pixels: match object.getattr("is_deep")?.extract()? {
                    true => Pixels::Grey16,
                    false => Pixels::Rgb8,
                },
                rate_hz: object.getattr("rate_hz")?.extract()?,
                times_ns: object.getattr("times_ns")?.extract()?,
            },
            object: object.clone().unbind(),
        })
    }
}

impl Video for PyVideo {
    fn info(&self) -> &VideoInfo {
        &self.info
    }

    fn read(&mut self, frames: Range<u64>, out: &mut Vec<u8>) -> Result<(), VideoError> {
        Python::attach(|py| {
            let mut read = || -> PyResult<()> {
                let video = self.object.bind(py);
                let pixels = video.call_method1("read", (frames.start, frames.end))?;
                let pixels: PyReadonlyArray1<'_, u8> = pixels.extract()?;
                out.extend_from_slice(pixels.as_slice()?);
                Ok(())
            };
            read().map_err(|error| damaged(py, &error))
        })
    }
}

/// What Python raised, as a fault of the file.
fn damaged(py: Python<'_>, error: &PyErr) -> VideoError {
    VideoError::Damaged {
        what: error.value(py).to_string(),
    }
}
