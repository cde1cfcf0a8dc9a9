//! Video files through Python: `kinograph/_video.py` decodes and encodes them with PyAV.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kino_import::{NewVideo, Pixels, Video, VideoError, VideoInfo, VideoShape, Videos};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

/// The backend that decodes video for an import and encodes it for an export.
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
            let video = module(py)?
                .call_method1("Video", (path,))
                .and_then(|object| PyVideo::new(&object));
            match video {
                Ok(video) => Ok(Box::new(video) as Box<dyn Video>),
                Err(error) => Err(damaged(py, &error)),
            }
        })
    }

    fn create(&self, path: &Path, shape: VideoShape) -> Result<Box<dyn NewVideo>, VideoError> {
        let VideoShape {
            height,
            width,
            rate_hz,
        } = shape;
        Python::attach(|py| {
            let video = module(py)?.call_method1("NewVideo", (path, height, width, rate_hz));
            match video {
                Ok(object) => Ok(Box::new(PyNewVideo(object.unbind())) as Box<dyn NewVideo>),
                Err(error) => Err(damaged(py, &error)),
            }
        })
    }
}

/// The Python module that wraps PyAV, if PyAV is installed.
fn module(py: Python<'_>) -> Result<Bound<'_, PyModule>, VideoError> {
    let module = py
        .import("kinograph._video")
        .map_err(|error| damaged(py, &error))?;
    let is_available: bool = module
        .call_method0("is_available")
        .and_then(|found| found.extract())
        .map_err(|error| damaged(py, &error))?;
    if is_available {
        Ok(module)
    } else {
        Err(VideoError::NoDecoder {
            what: "PyAV is not installed".to_owned(),
        })
    }
}

struct PyNewVideo(Py<PyAny>);

impl NewVideo for PyNewVideo {
    fn push(&mut self, pixels: &[u8]) -> Result<(), VideoError> {
        Python::attach(|py| {
            let pixels = PyArray1::from_slice(py, pixels);
            let pushed = self.0.call_method1(py, "push", (pixels,));
            pushed.map(drop).map_err(|error| damaged(py, &error))
        })
    }

    fn finish(self: Box<Self>) -> Result<(), VideoError> {
        Python::attach(|py| {
            let finished = self.0.call_method0(py, "finish");
            finished.map(drop).map_err(|error| damaged(py, &error))
        })
    }
}

impl PyVideo {
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            info: VideoInfo {
                height: object.getattr("height")?.extract()?,
                width: object.getattr("width")?.extract()?,
                pixels: if object.getattr("is_deep")?.extract()? {
                    Pixels::Grey16
                } else {
                    Pixels::Rgb8
                },
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

/// A Python exception, as damage of the file.
fn damaged(py: Python<'_>, error: &PyErr) -> VideoError {
    VideoError::Damaged {
        what: error.value(py).to_string(),
    }
}
