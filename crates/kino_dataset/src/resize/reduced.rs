//! JPEG decoded at about the size that is needed: faster than all of it, with slightly other pixels.
//!
//! ```text
//! exact   480 × 640 ──decode──▶ 480 × 640 ──resize──▶ 224 × 224
//! fast    480 × 640 ──decode at a half──▶ 240 × 320 ──resize──▶ 224 × 224
//! ```
//!
//! The fraction is the smallest of 1/2, 1/4 and 1/8 that is not smaller than the size wanted, as in Pillow's `draft`. Where none
//! is, and with any other codec, both modes do the same.

use kino_codec::{CodecError, Decoder, Page, Reduction, Scratch};
use serde::{Deserialize, Serialize};

use super::{Filter, Pixels, Resize, ResizeScratch, Size};

/// What resizing may change for speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResizeMode {
    /// Nothing: every stored pixel counts, whatever the codec.
    #[default]
    Exact,
    /// JPEG is decoded at a fraction of its size where that is enough, and resized from there.
    Fast,
}

impl ResizeMode {
    /// Whether it is the default: files leave it out then, so that earlier versions read them.
    pub fn is_exact(&self) -> bool {
        *self == Self::Exact
    }
}

/// Where frames that are made to fit go.
#[derive(Debug)]
pub struct Fitted<'o> {
    /// How they are made to fit.
    pub resize: &'o Resize,
    /// A packed buffer of exactly their size then.
    pub out: &'o mut [u8],
}

/// What a thread keeps for the next page that it decodes and resizes.
#[derive(Debug, Default)]
pub struct FitScratch {
    /// For decoding.
    pub codec: Scratch,
    /// Decoded frames that are still to be resized.
    pub(crate) whole: Vec<u8>,
    /// For resizing.
    pub resize: ResizeScratch,
}

impl Resize {
    /// The fraction at which a decoder that can do so decodes images, and what is still to be done to them; `None` if
    /// they are decoded whole.
    pub fn reduced(&self) -> Option<(Reduction, Self)> {
        if self.mode == ResizeMode::Exact || self.filter != Filter::Bilinear {
            return None;
        }
        let (from, to) = (self.source.size, self.resized);
        let reduction = Reduction::strongest([(from.height, to.height), (from.width, to.width)])?;
        let size = Size {
            height: reduction.side(from.height),
            width: reduction.side(from.width),
        };
        let source = Pixels {
            size,
            ..self.source
        };
        let rest = Self {
            source,
            mode: ResizeMode::Exact,
            ..*self
        };
        Some((reduction, rest))
    }

    /// Decodes the only image of a page at a fraction of its size and makes it fit; `false`, with `out` unchanged, if it
    /// has to be decoded whole.
    pub fn decode_reduced(
        &self,
        decoder: &dyn Decoder,
        page: Page<'_>,
        out: &mut [u8],
        scratch: &mut FitScratch,
    ) -> Result<bool, CodecError> {
        let reduced = self.reduced().filter(|_| decoder.can_reduce(page));
        let Some((reduction, rest)) = reduced else {
            return Ok(false);
        };
        if rest.kept == rest.source.size {
            decoder.decode_reduced(page, reduction, out, &mut scratch.codec)?;
            return Ok(true);
        }
        let whole = first(&mut scratch.whole, rest.source_bytes());
        decoder.decode_reduced(page, reduction, whole, &mut scratch.codec)?;
        rest.put_all(whole, out, &mut scratch.resize)
            .map_err(|what| CodecError::Buffer { what })?;
        Ok(true)
    }
}

/// The first `len` bytes of a buffer, grown if needed; their values are unspecified.
pub(crate) fn first(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    &mut buffer[..len]
}
