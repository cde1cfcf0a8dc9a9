//! The functions of the driver that load kernels and start them, and the kernels' parameters.
//!
//! ```text
//! PTX ──▶ module ──▶ kernel by name ──▶ launch: a thread per pixel, images are the rows of the grid, one struct is the parameter
//! ```
//!
//! The structs are those of `src/kernels/images.cu`, field by field. `images/place.rs`, `images/gather.rs` and `images/video.rs` fill them, and
//! say why each access is inside the memory that they name.

use std::ffi::{CStr, c_uint, c_void};
use std::ptr;

use super::{Driver, StreamHandle};
use crate::error::Result;

/// Images of a launch.
pub(crate) const IMAGES: usize = 128;

/// Threads of a block.
const THREADS: u32 = 256;

/// A `CUmodule`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawModule(usize);

/// A `CUfunction`, whose parameter is a `J`.
#[derive(Debug)]
pub(crate) struct RawKernel<J> {
    function: usize,
    job: std::marker::PhantomData<fn(J)>,
}

/// One pass of a resize of images that are one behind the other.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct ResizeJob {
    /// The first image.
    pub(crate) from: u64,
    /// Bytes from one image to the next.
    pub(crate) from_image: u64,
    /// Bytes from one pixel to the next in the direction that is resized.
    pub(crate) along_step: u64,
    /// Bytes in the other direction.
    pub(crate) across_step: u64,
    /// `u32` for each pixel that comes out along the direction.
    pub(crate) starts: u64,
    /// `i16`, `[pixel][taps]`.
    pub(crate) coefficients: u64,
    pub(crate) taps: u32,
    pub(crate) precision: u32,
    /// The last pixel that there is along the direction.
    pub(crate) last: u32,
    pub(crate) is_horizontal: u32,
    pub(crate) height: u32,
    pub(crate) width: u32,
    /// Where each image goes.
    pub(crate) to: [u64; IMAGES],
}

/// Crops of images, one behind the other in a batch.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct GatherJob {
    pub(crate) to: u64,
    /// Numbers, `[256][3]`; 0: uint8 as it is.
    pub(crate) table: u64,
    pub(crate) height: u32,
    pub(crate) width: u32,
    pub(crate) is_chw: u32,
    /// Bytes of a number: 1, 2 or 4.
    pub(crate) bytes: u32,
    pub(crate) images: [Crop; IMAGES],
}

/// Frames of video to RGB.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Nv12Job {
    /// Bytes from one row to the next.
    pub(crate) pitch: u64,
    /// Bytes from luma to U and V.
    pub(crate) chroma: u64,
    pub(crate) height: u32,
    pub(crate) width: u32,
    /// Luma, black, red of V, green of U, green of V, blue of U.
    pub(crate) factors: [i32; 6],
    pub(crate) images: [Frame; IMAGES],
}

/// A frame of video, and where its pixels go.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Frame {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// The crop of an image.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Crop {
    /// Its first pixel; 0: zeros.
    pub(crate) from: u64,
    /// Bytes of a row of the image.
    pub(crate) row: u64,
}

/// The parameter of a kernel.
pub(crate) trait Job: Copy {
    /// The kernel's name.
    const NAME: &'static CStr;

    /// Pixels of each image that comes out.
    fn pixels(&self) -> u32;
}

impl Job for ResizeJob {
    const NAME: &'static CStr = c"resize";

    fn pixels(&self) -> u32 {
        self.height.saturating_mul(self.width)
    }
}

impl Job for GatherJob {
    const NAME: &'static CStr = c"gather";

    fn pixels(&self) -> u32 {
        self.height.saturating_mul(self.width)
    }
}

impl Job for Nv12Job {
    const NAME: &'static CStr = c"nv12";

    fn pixels(&self) -> u32 {
        self.height.saturating_mul(self.width)
    }
}

impl Driver {
    /// Compiles PTX for the device.
    pub(crate) fn load_module(&self, ptx: &CStr) -> Result<RawModule> {
        let mut module = 0;
        // SAFETY: it reads a text that ends with 0, and writes a handle to a local variable.
        let code = unsafe { (self.functions.module_load)(&raw mut module, ptx.as_ptr().cast()) };
        self.check("cuModuleLoadData", code)?;
        Ok(RawModule(module))
    }

    pub(crate) fn unload_module(&self, module: RawModule) {
        // SAFETY: the owner unloads it once, and waited for its kernels.
        let _code = unsafe { (self.functions.module_unload)(module.0) };
    }

    /// The kernel of a job, which exists for as long as the module, `images.cu` compiled.
    pub(crate) fn kernel<J: Job>(&self, module: RawModule) -> Result<RawKernel<J>> {
        let mut function = 0;
        let name = J::NAME.as_ptr();
        // SAFETY: the module exists; it reads a text that ends with 0, and writes a handle to a local variable.
        let code = unsafe { (self.functions.module_kernel)(&raw mut function, module.0, name) };
        self.check("cuModuleGetFunction", code)?;
        Ok(RawKernel {
            function,
            job: std::marker::PhantomData,
        })
    }

    /// Starts a kernel for so many images. The memory that the job names must exist until the stream has come past it, and
    /// hold as many images and pixels as the job says.
    pub(crate) fn launch<J: Job>(
        &self,
        kernel: &RawKernel<J>,
        job: &J,
        images: usize,
        stream: StreamHandle,
    ) -> Result<()> {
        let blocks = job.pixels().div_ceil(THREADS);
        let images = c_uint::try_from(images.min(IMAGES)).unwrap_or(0);
        if blocks == 0 || images == 0 {
            return Ok(());
        }
        let parameters: [*const c_void; 1] = [ptr::from_ref(job).cast()];
        // SAFETY: the kernel takes one parameter, of the job's type, which the driver copies before it returns. It reads as many
        // elements of the job's array as there are images; the rest the caller checked, as said above.
        let code = unsafe {
            (self.functions.launch)(
                kernel.function,
                blocks,
                images,
                1,
                THREADS,
                1,
                1,
                0,
                stream.0,
                parameters.as_ptr(),
                ptr::null(),
            )
        };
        self.check("cuLaunchKernel", code)
    }
}
