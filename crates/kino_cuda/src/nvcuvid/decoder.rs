//! The decoder of NVDEC: pictures to surfaces, surfaces to frames that are mapped.
#![expect(
    unsafe_code,
    reason = "calls of a C library; every block states what it relies on"
)]

use std::ffi::{c_int, c_short, c_ulong};

use super::structs::{CHROMA_420, Format, RawCreate, RawMapping, RawStatus, VideoCodec};
use super::{Nvcuvid, RawPicture};
use crate::error::{CudaError, Result};
use crate::ffi::{Code, Driver, StreamHandle};

/// `cudaVideoCreate_PreferCUVID`: the decoder in hardware.
const PREFER_CUVID: c_ulong = 4;
/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: Code = 801;

/// How a picture was decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    InProgress,
    /// Without an error, as far as the decoder knows.
    Fine,
    Damaged,
}

/// What a decoder is made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecoderSize {
    pub(crate) codec: VideoCodec,
    pub(crate) surfaces: usize,
    /// Frames that are mapped at once.
    pub(crate) mapped: usize,
}

/// A decoder of pictures.
#[derive(Debug)]
pub(crate) struct RawDecoder {
    library: &'static Nvcuvid,
    handle: usize,
}

impl RawDecoder {
    /// A decoder; the context of its device is current, here and in every other call.
    pub(crate) fn new(
        library: &'static Nvcuvid,
        driver: &Driver,
        format: &Format,
        size: DecoderSize,
    ) -> Result<Self> {
        let too_large = |_| CudaError::Image {
            what: "video of this size cannot be decoded".to_owned(),
        };
        let side = |side: c_int| c_short::try_from(side).map_err(too_large);
        let (height, width) = format.shown().unwrap_or((0, 0));
        let mut create = RawCreate {
            width: format.coded_width.into(),
            height: format.coded_height.into(),
            surfaces: size.surfaces as c_ulong,
            codec: size.codec.number(),
            chroma: CHROMA_420,
            flags: PREFER_CUVID,
            bit_depth_minus_8: 0,
            is_intra_only: 0,
            max_width: format.coded_width.into(),
            max_height: format.coded_height.into(),
            reserved: 0,
            shown: [
                side(format.left)?,
                side(format.top)?,
                side(format.right)?,
                side(format.bottom)?,
            ],
            output: 0,
            deinterlace: 0,
            target_width: width as c_ulong,
            target_height: height as c_ulong,
            mapped: size.mapped as c_ulong,
            lock: 0,
            target: [0; 4],
            others: [0; 5],
        };
        let mut handle = 0;
        // SAFETY: it reads a local variable of the header's type, and writes a handle to another.
        let code = unsafe { (library.functions.create)(&raw mut handle, &raw mut create) };
        driver.check("cuvidCreateDecoder", code)?;
        Ok(Self { library, handle })
    }

    /// Starts to decode a picture.
    pub(crate) fn decode(&self, driver: &Driver, picture: &RawPicture<'_>) -> Result<()> {
        // SAFETY: the decoder exists; the picture is the parser's, inside of the callback that it was passed to.
        let code = unsafe { (self.library.functions.decode)(self.handle, picture.picture) };
        driver.check("cuvidDecodePicture", code)
    }

    /// Waits for a surface, and makes an NV12 frame of it, for what is asked of `stream` from now on: its address, and the bytes
    /// of a row. It must be [unmapped](Self::unmap) once the stream has come past what reads it.
    pub(crate) fn map(
        &self,
        driver: &Driver,
        surface: c_int,
        stream: StreamHandle,
    ) -> Result<(u64, u64)> {
        let mut mapping = RawMapping {
            is_progressive: 1,
            is_second_field: 0,
            is_top_first: 0,
            is_unpaired: 1,
            reserved: [0; 2],
            raw: [0; 4],
            stream,
            others: [0; 25],
        };
        let (mut address, mut pitch) = (0, 0);
        // SAFETY: the decoder exists; it reads a local variable of the header's type, and writes two others.
        let code = unsafe {
            (self.library.functions.map)(
                self.handle,
                surface,
                &raw mut address,
                &raw mut pitch,
                &raw mut mapping,
            )
        };
        driver.check("cuvidMapVideoFrame", code)?;
        Ok((address, pitch.into()))
    }

    /// Gives a frame back that was mapped.
    pub(crate) fn unmap(&self, address: u64) {
        // SAFETY: the caller mapped it, unmaps it once, and waited for what reads it.
        let _code = unsafe { (self.library.functions.unmap)(self.handle, address) };
    }

    /// How the picture in a surface was decoded.
    pub(crate) fn status(&self, driver: &Driver, surface: c_int) -> Result<Status> {
        let mut status = RawStatus {
            status: 0,
            reserved: [0; 31],
            others: [0; 8],
        };
        // SAFETY: the decoder exists; it writes a local variable of the header's type.
        let code =
            unsafe { (self.library.functions.status)(self.handle, surface, &raw mut status) };
        if code == NOT_SUPPORTED {
            return Ok(Status::Fine);
        }
        driver.check("cuvidGetDecodeStatus", code)?;
        Ok(match status.status {
            1 => Status::InProgress,
            2 => Status::Fine,
            _ => Status::Damaged,
        })
    }

    /// Gives everything back; the context of its device is current.
    pub(crate) fn destroy(&mut self) {
        if self.handle != 0 {
            // SAFETY: made in `new`, destroyed once; what it had mapped was unmapped.
            let _code = unsafe { (self.library.functions.destroy)(self.handle) };
            self.handle = 0;
        }
    }
}
