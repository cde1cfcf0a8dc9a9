//! The structs of `nvcuvid.h` and `cuviddec.h`, and what is read from them.

use std::ffi::{c_int, c_longlong, c_short, c_uint, c_ulong, c_void};

use crate::ffi::StreamHandle;

/// `cudaVideoChromaFormat_420`.
pub(super) const CHROMA_420: c_int = 1;
/// How video is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum VideoCodec {
    /// H.264 (AVC).
    H264,
    /// H.265 (HEVC).
    Hevc,
}

impl VideoCodec {
    /// `cudaVideoCodec`.
    pub(super) fn number(self) -> c_int {
        match self {
            Self::H264 => 4,
            Self::Hevc => 8,
        }
    }
}

/// `CUVIDDECODECAPS`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct RawCaps {
    pub(super) codec: c_int,
    pub(super) chroma: c_int,
    pub(super) bit_depth_minus_8: c_uint,
    pub(super) reserved: [c_uint; 3],
    pub(super) is_supported: u8,
    pub(super) engines: u8,
    pub(super) formats: u16,
    pub(super) max_width: c_uint,
    pub(super) max_height: c_uint,
    pub(super) max_blocks: c_uint,
    pub(super) min_width: u16,
    pub(super) min_height: u16,
    pub(super) others: [c_uint; 11],
}

/// What the device decodes of a codec, 4:2:0 of 8 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caps {
    /// 0: nothing.
    pub(crate) engines: usize,
    pub(super) min: (u32, u32),
    pub(super) max: (u32, u32),
    pub(super) max_blocks: u32,
}

impl Caps {
    /// Whether it decodes images of this coded height and width.
    pub(crate) fn has(&self, (height, width): (u32, u32)) -> bool {
        let blocks = u64::from(height.div_ceil(16)) * u64::from(width.div_ceil(16));
        self.engines > 0
            && (self.min.0..=self.max.0).contains(&height)
            && (self.min.1..=self.max.1).contains(&width)
            && blocks <= u64::from(self.max_blocks)
    }
}

/// `CUVIDEOFORMAT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Format {
    pub(super) codec: c_int,
    frame_rate: [c_uint; 2],
    pub(super) is_progressive: u8,
    pub(super) luma_depth_minus_8: u8,
    chroma_depth_minus_8: u8,
    pub(crate) min_surfaces: u8,
    pub(crate) coded_width: c_uint,
    pub(crate) coded_height: c_uint,
    pub(super) left: c_int,
    pub(super) top: c_int,
    pub(super) right: c_int,
    pub(super) bottom: c_int,
    pub(super) chroma: c_int,
    bitrate: c_uint,
    aspect: [c_int; 2],
    signal: [u8; 4],
    header_len: c_uint,
}

impl Format {
    /// Height and width of what is shown.
    pub(crate) fn shown(&self) -> Option<(usize, usize)> {
        let side = |from: c_int, to: c_int| usize::try_from(to.checked_sub(from)?).ok();
        Some((side(self.top, self.bottom)?, side(self.left, self.right)?))
    }

    /// What it has that is not decoded here.
    pub(crate) fn refusal(&self, codec: VideoCodec) -> Option<&'static str> {
        if self.codec != codec.number() {
            return Some("it is coded in another way");
        }
        if self.luma_depth_minus_8 != 0 || self.chroma_depth_minus_8 != 0 {
            return Some("it has more than 8 bits");
        }
        if self.chroma != CHROMA_420 {
            return Some("it is not 4:2:0");
        }
        (self.is_progressive == 0).then_some("it is interlaced")
    }

    /// Whether a decoder of another format decodes this one too.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let key = |format: &Self| {
            (
                (format.coded_height, format.coded_width),
                (format.left, format.top, format.right, format.bottom),
            )
        };
        key(self) == key(other)
    }
}

/// `CUVIDDECODECREATEINFO`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct RawCreate {
    pub(super) width: c_ulong,
    pub(super) height: c_ulong,
    pub(super) surfaces: c_ulong,
    pub(super) codec: c_int,
    pub(super) chroma: c_int,
    pub(super) flags: c_ulong,
    pub(super) bit_depth_minus_8: c_ulong,
    pub(super) is_intra_only: c_ulong,
    pub(super) max_width: c_ulong,
    pub(super) max_height: c_ulong,
    pub(super) reserved: c_ulong,
    /// Left, top, right, bottom.
    pub(super) shown: [c_short; 4],
    /// NV12.
    pub(super) output: c_int,
    /// As they are.
    pub(super) deinterlace: c_int,
    pub(super) target_width: c_ulong,
    pub(super) target_height: c_ulong,
    pub(super) mapped: c_ulong,
    pub(super) lock: usize,
    pub(super) target: [c_short; 4],
    pub(super) others: [c_ulong; 5],
}

/// `CUVIDPARSERDISPINFO`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct RawShown {
    pub(super) surface: c_int,
    pub(super) is_progressive: c_int,
    pub(super) is_top_first: c_int,
    pub(super) repeated: c_int,
    pub(super) timestamp: c_longlong,
}

/// `CUVIDPARSERPARAMS`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct RawParserParams {
    pub(super) codec: c_int,
    pub(super) surfaces: c_uint,
    pub(super) clock_rate: c_uint,
    pub(super) error_threshold: c_uint,
    pub(super) display_delay: c_uint,
    pub(super) flags: c_uint,
    pub(super) reserved: [c_uint; 4],
    pub(super) user: *mut c_void,
    pub(super) sequence: extern "C" fn(*mut c_void, *const Format) -> c_int,
    pub(super) decode: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
    pub(super) display: extern "C" fn(*mut c_void, *const RawShown) -> c_int,
    pub(super) others: [usize; 8],
}

/// `CUVIDSOURCEDATAPACKET`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct RawPacket {
    pub(super) flags: c_ulong,
    pub(super) bytes: c_ulong,
    pub(super) start: *const u8,
    pub(super) timestamp: c_longlong,
}

/// `CUVIDPROCPARAMS`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct RawMapping {
    pub(super) is_progressive: c_int,
    pub(super) is_second_field: c_int,
    pub(super) is_top_first: c_int,
    pub(super) is_unpaired: c_int,
    pub(super) reserved: [c_uint; 2],
    pub(super) raw: [u64; 4],
    pub(super) stream: StreamHandle,
    pub(super) others: [u64; 25],
}

/// `CUVIDGETDECODESTATUS`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct RawStatus {
    pub(super) status: c_int,
    pub(super) reserved: [c_uint; 31],
    pub(super) others: [usize; 8],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_change_the_sizes_of_the_headers_structs() {
        let sizes = [
            (size_of::<RawCaps>(), 88),
            (size_of::<Format>(), 64),
            (size_of::<RawCreate>(), 176),
            (size_of::<RawShown>(), 24),
            (size_of::<RawParserParams>(), 136),
            (size_of::<RawPacket>(), 32),
            (size_of::<RawMapping>(), 264),
            (size_of::<RawStatus>(), 192),
        ];
        for (nr, (found, expected)) in sizes.into_iter().enumerate() {
            assert_eq!(found, expected, "struct {nr}");
        }
        assert_eq!(std::mem::offset_of!(RawMapping, stream), 56);
        assert_eq!(std::mem::offset_of!(RawCreate, shown), 80);
        assert_eq!(std::mem::offset_of!(RawParserParams, user), 40);
    }
}
