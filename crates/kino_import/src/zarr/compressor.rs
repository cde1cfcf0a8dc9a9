//! The compressors of chunks.

use std::io::Read;

use flate2::read::{GzDecoder, ZlibDecoder};
use jxl_oxide::{AllocTracker, JxlImage};
use kino_codec::Dtype;
use serde_json::Value;

use crate::zarr::blosc;

/// A supported compressor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compressor {
    None,
    Zlib,
    Gzip,
    Zstd,
    /// With a length prefix.
    Lz4,
    /// With any of its codecs except snappy.
    Blosc,
    /// One image per frame.
    JpegXl,
    /// One image per frame.
    Jpeg,
}

impl Compressor {
    /// Parses the `compressor` of an array, or says why it is not supported.
    pub(crate) fn parse(config: &Value) -> Result<Self, String> {
        let id = config.get("id").and_then(Value::as_str);
        Ok(match id {
            None if config.is_null() => Self::None,
            Some("zlib") => Self::Zlib,
            Some("gzip") => Self::Gzip,
            Some("zstd") => Self::Zstd,
            Some("lz4") => Self::Lz4,
            Some("blosc") => Self::Blosc,
            Some("imagecodecs_jpegxl") => Self::JpegXl,
            Some("imagecodecs_jpeg" | "imagecodecs_jpeg8") => Self::Jpeg,
            other => {
                return Err(format!(
                    "is compressed with {:?}, which is not supported; copy it with `zarr.copy` and \
                     `compressor=zarr.Blosc()`",
                    other.unwrap_or("nothing known")
                ));
            }
        })
    }

    /// Decompresses into exactly `len` bytes, or says what is wrong.
    pub(crate) fn decompress(
        self,
        stored: Vec<u8>,
        len: usize,
        dtype: Option<Dtype>,
    ) -> Result<Vec<u8>, String> {
        let out = match self {
            Self::None => Some(stored),
            Self::Zlib => read_whole(ZlibDecoder::new(&*stored), len),
            Self::Gzip => read_whole(GzDecoder::new(&*stored), len),
            Self::Zstd => {
                let mut out = vec![0; len];
                let written = zstd::bulk::decompress_to_buffer(&stored, &mut out).ok();
                written.filter(|&written| written == len).map(|_| out)
            }
            Self::Lz4 => stored.split_first_chunk::<4>().and_then(|(_, body)| {
                let mut out = vec![0; len];
                let written = lz4_flex::block::decompress_into(body, &mut out).ok();
                written.filter(|&written| written == len).map(|_| out)
            }),
            Self::Blosc => {
                let mut out = vec![0; len];
                blosc::decompress(&stored, &mut out)?;
                Some(out)
            }
            Self::JpegXl => return jpeg_xl(&stored, len, dtype),
            Self::Jpeg => return Err("is JPEG files, which are stored unchanged".to_owned()),
        };
        out.filter(|out| out.len() == len)
            .ok_or_else(|| format!("does not decompress to the {len} bytes of a chunk"))
    }
}

/// Everything that a decoder has, if that is at most `len` bytes and matches its checksum.
pub(crate) fn read_whole(decoder: impl Read, len: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    // The checksum is compared at the end, which is only seen by asking for more.
    let most = (len as u64).saturating_add(1);
    decoder.take(most).read_to_end(&mut out).ok()?;
    (out.len() <= len).then_some(out)
}

/// The images of a JPEG XL codestream, one after another.
fn jpeg_xl(stored: &[u8], len: usize, dtype: Option<Dtype>) -> Result<Vec<u8>, String> {
    let wrong = |error| format!("is not a valid JPEG XL image ({error})");
    // Decoding uses floats and copies: about ten times the pixels, plus tables.
    let tracker = AllocTracker::with_limit(len.saturating_mul(64).saturating_add(64 << 20));
    let image = JxlImage::builder()
        .alloc_tracker(tracker)
        .read(stored)
        .map_err(wrong)?;
    let size = dtype.map_or(1, Dtype::size);
    let area = u64::from(image.width()) * u64::from(image.height());
    let image_bytes = area.saturating_mul((image.pixel_format().channels() * size) as u64);
    let images = image.num_loaded_keyframes() as u64;
    if image_bytes.saturating_mul(images) != len as u64 {
        return Err(format!(
            "is {images} JPEG XL images of {} by {} pixels, but its array has {len} bytes",
            image.width(),
            image.height()
        ));
    }
    let mut out = Vec::with_capacity(len);
    for number in 0..image.num_loaded_keyframes() {
        let render = image.render_frame(number).map_err(wrong)?;
        let mut stream = render.stream();
        let values = len / image.num_loaded_keyframes() / size;
        let written = match dtype {
            Some(Dtype::U8) => {
                let mut pixels = vec![0u8; values];
                let written = stream.write_to_buffer(&mut pixels);
                out.append(&mut pixels);
                written
            }
            Some(Dtype::U16) => {
                let mut pixels = vec![0u16; values];
                let written = stream.write_to_buffer(&mut pixels);
                out.extend(pixels.into_iter().flat_map(u16::to_le_bytes));
                written
            }
            _ => return Err("is JPEG XL images that are neither uint8 nor uint16".to_owned()),
        };
        if written != values {
            return Err("is a JPEG XL image with fewer pixels than it claims".to_owned());
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::zip::Zip;

    /// Directly into the decoder: in a zip, the checksum would reject these first.
    #[test]
    fn flipped_bits_and_prefixes_of_a_jpeg_xl_image_never_panic() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/zarr/umi.zarr.zip");
        let len = 32 * 32 * 3;
        for camera in ["camera0_rgb", "camera1_rgb"] {
            let key = format!("data/{camera}/0.0.0.0");
            let image = Zip::open(&path).and_then(|zip| zip.read(&key, 1 << 20));
            let image = image.ok().flatten().unwrap_or_default();
            assert!(jpeg_xl(&image, len, Some(Dtype::U8)).is_ok(), "{key}");
            for bit in (0..image.len() * 8).step_by(5) {
                let mut damaged = image.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                if let Ok(pixels) = jpeg_xl(&damaged, len, Some(Dtype::U8)) {
                    assert_eq!(pixels.len(), len);
                }
            }
            for end in (0..image.len()).step_by(3) {
                let _ = jpeg_xl(&image[..end], len, Some(Dtype::U8));
            }
        }
    }
}
