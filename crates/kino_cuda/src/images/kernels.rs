//! The kernels, loaded on a device: PTX that is part of the program, which the driver compiles for its GPU.

use std::ffi::CStr;
use std::sync::Arc;

use crate::device::Device;
use crate::error::{CudaError, Result};
use crate::ffi::{GatherJob, Nv12Job, RawKernel, RawModule, ResizeJob, StreamHandle};

/// What `scripts/ptx.py` made of `src/kernels/images.cu`.
const PTX: &str = concat!(include_str!("../kernels/images.ptx"), "\0");

/// The kernels.
#[derive(Debug)]
pub(super) struct Kernels {
    device: Arc<Device>,
    module: RawModule,
    resize: RawKernel<ResizeJob>,
    gather: RawKernel<GatherJob>,
    nv12: RawKernel<Nv12Job>,
}

impl Kernels {
    pub(super) fn load(device: &Arc<Device>) -> Result<Self> {
        let ptx = CStr::from_bytes_with_nul(PTX.as_bytes()).map_err(|_| CudaError::Image {
            what: "the kernels have a byte 0; please report this".to_owned(),
        })?;
        device.within(|driver| {
            let module = driver.load_module(ptx)?;
            let found = driver.kernel(module).and_then(|resize| {
                let gather = driver.kernel(module)?;
                Ok((resize, gather, driver.kernel(module)?))
            });
            let (resize, gather, nv12) = found.inspect_err(|_| driver.unload_module(module))?;
            Ok(Self {
                device: Arc::clone(device),
                module,
                resize,
                gather,
                nv12,
            })
        })
    }

    /// Starts one pass of a resize; what the job names is inside memory that stays until the stream has come past it.
    pub(super) fn resize(
        &self,
        job: &ResizeJob,
        images: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        let launch = |driver: &crate::ffi::Driver| driver.launch(&self.resize, job, images, stream);
        self.device.within(launch)
    }

    /// Starts to gather images, as [`resize`](Self::resize).
    pub(super) fn gather(
        &self,
        job: &GatherJob,
        images: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        let launch = |driver: &crate::ffi::Driver| driver.launch(&self.gather, job, images, stream);
        self.device.within(launch)
    }
}

impl Kernels {
    /// Starts to make RGB of frames of video, as [`resize`](Self::resize).
    pub(super) fn nv12(&self, job: &Nv12Job, frames: usize, stream: StreamHandle) -> Result<()> {
        let launch = |driver: &crate::ffi::Driver| driver.launch(&self.nv12, job, frames, stream);
        self.device.within(launch)
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        let module = self.module;
        self.device.give_back(|driver| driver.unload_module(module));
    }
}

#[cfg(test)]
mod tests {
    use super::PTX;

    #[test]
    fn the_ptx_was_made_of_the_kernels_as_they_are() {
        let source = include_bytes!("../kernels/images.cu");
        let made_of = format!("images.cu with CRC-32 {:08x}", crc32fast::hash(source));
        let head = PTX.lines().next().unwrap();
        assert!(
            head.contains(&made_of),
            "run `python scripts/ptx.py`: {head}"
        );
    }
}
