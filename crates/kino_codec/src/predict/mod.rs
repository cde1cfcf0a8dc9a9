//! `predict`: 8-bit images, lossless: channels minus green, values minus a prediction, then zstd.
//!
//! ```text
//! page = predictor │ zstd frame, content size stated
//!        u8          content = the residual planes, each height × width bytes, row-major
//!                    1 channel: grey      3 channels: G, R−G, B−G      4 channels: G, R−G, B−G, A
//! ```
//!
//! All differences are modulo 256. Neighbouring pixels are alike, so the residuals are
//! small, and zstd's entropy stage does the rest. Each frame uses the predictor that makes it smallest.
//! Planes, not pixels: residuals of red and blue are smaller than those of green, and SIMD can restore the
//! rows of a plane.

mod planes;
mod predictor;

use std::ops::Range;

use crate::codec::{Decoder, Page, one_frame};
use crate::describe::{Description, Guarantee, Parameter, Speed};
use crate::error::{Result, corrupt};
use crate::frame::FrameType;
use crate::frames::Frames;
use crate::kind::Kind;
use crate::pages::{PageCodec, Pages};
use crate::scratch::{Scratch, at_least};
use crate::spec::CodecSpec;
use crate::zstd_frame::{Effort, LEVELS, check_frame};

pub(crate) use planes::{Size, join_row, restore_row, split_planes};
pub(crate) use predictor::Predictor;

const NAME: &str = "predict";

/// Higher levels gain nothing on photographs, whose noise has nothing to match.
pub(crate) const DEFAULT_LEVEL: i32 = 3;

/// Short matches among residuals are coincidence: without them a page is smaller and decodes faster.
const MIN_MATCH: u32 = 7;

/// How many pixels of an image the predictor is chosen on.
pub(crate) const BAND_PIXELS: usize = 16 << 10;

pub(crate) const DESCRIPTION: Description = Description {
    name: NAME,
    summary: "8-bit images, each alone",
    kinds: &[Kind::Image],
    is_default: true,
    is_alternative: false,
    guarantees: &[Guarantee::Lossless],
    is_grouped: false,
    encode: Speed::Medium,
    decode: Speed::Medium,
    parameters: &[LEVEL],
    settings: |_| vec![NAME.to_owned()],
    quality: None,
    files: None,
    make: Pages::<Predict>::make,
};

pub(crate) const LEVEL: Parameter = Parameter {
    key: "level",
    help: "of zstd: 1 (fast) to 19 (small)",
};

/// The `predict` codec.
#[derive(Debug)]
pub(crate) struct Predict {
    level: i32,
}

/// The codec for images that must come back bit for bit inside a lossy stream.
pub(crate) fn exact() -> Result<Pages<Predict>> {
    Pages::new(&NAME.parse()?)
}

/// The zstd settings for residuals.
pub(crate) fn effort(level: i32) -> Effort {
    Effort::level(level).min_match(MIN_MATCH)
}

/// The page of one packed image with the predictor that suits it.
fn encode_image(level: i32, size: Size, pixels: &[u8], scratch: &mut Scratch) -> Result<Vec<u8>> {
    // Choosing with a fast level on a band of rows from the middle is cheaper than encoding once.
    let band = Size {
        height: (BAND_PIXELS / size.width).clamp(1, size.height),
        ..size
    };
    let first = (size.height - band.height) / 2 * size.width * size.channels;
    let band_pixels = &pixels[first..][..band.bytes()];
    let fast = effort(1);
    let mut best: Option<(usize, Predictor)> = None;
    for predictor in Predictor::ALL {
        let page = encode_with(predictor, fast, band, band_pixels, scratch)?;
        let cost = predictor.cost(page.len());
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, predictor));
        }
    }
    let predictor = best.map_or(Predictor::Left, |(_, predictor)| predictor);
    encode_with(predictor, effort(level), size, pixels, scratch)
}

/// The page of one packed image with this predictor.
fn encode_with(
    predictor: Predictor,
    effort: Effort,
    size: Size,
    pixels: &[u8],
    scratch: &mut Scratch,
) -> Result<Vec<u8>> {
    let planes = at_least(&mut scratch.more_bytes, pixels.len());
    split_planes(size.channels, pixels, planes);
    let residuals = at_least(&mut scratch.bytes, pixels.len());
    for (plane, to) in planes
        .chunks_exact(size.pixels())
        .zip(residuals.chunks_exact_mut(size.pixels()))
    {
        predictor.subtract(size.width, plane, to);
    }
    let mut page = vec![predictor.id()];
    scratch.zstd.compress(effort, residuals, &mut page)?;
    Ok(page)
}

impl PageCodec for Predict {
    const NAME: &'static str = NAME;
    type Decoder = PredictDecoder;

    fn parse(spec: &CodecSpec) -> Result<Self> {
        let level = spec.integer("level", LEVELS, DEFAULT_LEVEL)?;
        Ok(Self { level })
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        vec![("level", self.level.to_string())]
    }

    fn decoder(&self, frame: &FrameType) -> Result<PredictDecoder> {
        let size = Size::new(NAME, frame)?;
        Ok(PredictDecoder { size })
    }

    fn encode_page(&self, frames: &Frames<'_>, scratch: &mut Scratch) -> Result<Vec<u8>> {
        let size = Size::new(NAME, frames.frame())?;
        encode_image(self.level, size, frames.as_values(NAME)?.1, scratch)
    }
}

#[derive(Debug)]
pub(crate) struct PredictDecoder {
    size: Size,
}

impl Decoder for PredictDecoder {
    fn frame_bytes(&self) -> usize {
        self.size.bytes()
    }

    fn decode_checked(
        &self,
        page: Page<'_>,
        _range: Range<usize>,
        dest: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let size = self.size;
        one_frame(NAME, page)?;
        let (&id, frame) = page
            .bytes
            .split_first()
            .ok_or_else(|| corrupt(NAME, "it is empty"))?;
        let predictor = Predictor::from_id(id)
            .ok_or_else(|| corrupt(NAME, format!("unknown predictor {id}")))?;
        check_frame(NAME, frame, size.bytes())?;
        let planes = at_least(&mut scratch.bytes, size.bytes());
        scratch.zstd.decompress(NAME, frame, planes)?;
        // Row by row, so that restored values are still in L1 cache when they are joined.
        for (y, row) in dest.chunks_exact_mut(size.row_bytes()).enumerate() {
            restore_row(predictor, size, planes, y);
            join_row(size, planes, y, row);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;
    use crate::frame::Dtype;
    use crate::testing::{assert_same_as_raw, assert_survives_damage, encode, image};
    use proptest::prelude::*;

    #[test]
    fn never_change_these_constants() {
        assert_eq!(
            codec("predict").unwrap().spec().to_string(),
            "predict:level=3"
        );
        assert_eq!(Predictor::ALL.map(Predictor::id), [1, 2, 3, 4]);
        let mut planes = [0; 8];
        split_planes(4, &[10, 20, 30, 40, 1, 0, 255, 7], &mut planes);
        assert_eq!(planes, [20, 0, 246, 1, 10, 255, 40, 7]);
    }

    #[test]
    fn only_images_are_accepted() {
        let check = |dtype, shape: &[usize]| {
            codec("predict")
                .unwrap()
                .check(&FrameType::values(dtype, shape).unwrap())
        };
        assert!(check(Dtype::U8, &[4, 5]).is_ok());
        assert!(check(Dtype::U8, &[4, 5, 4]).is_ok());
        for (dtype, shape) in [
            (Dtype::U8, &[4, 5, 2][..]),
            (Dtype::U16, &[4, 5]),
            (Dtype::U8, &[9]),
        ] {
            assert!(check(dtype, shape).is_err());
        }
    }

    #[test]
    fn a_flat_image_is_a_few_bytes() {
        let frame = FrameType::values(Dtype::U8, &[84, 84, 3]).unwrap();
        let encoded = encode("predict", &frame, &[77; 84 * 84 * 3], 1);
        assert!(encoded.pages[0].bytes.len() < 40);
    }

    #[test]
    fn pages_of_several_frames_are_refused() {
        let frame = FrameType::values(Dtype::U8, &[2, 2]).unwrap();
        let frames = Frames::values(&frame, &[0; 8]).unwrap();
        let two = std::num::NonZeroUsize::new(2).unwrap();
        let mut out = crate::Encoded::default();
        assert!(
            codec("predict")
                .unwrap()
                .encode(&frames, two, &mut out, &mut Scratch::new())
                .is_err()
        );
    }

    #[test]
    fn flipping_any_bit_is_an_error_never_a_panic() {
        let frame = FrameType::values(Dtype::U8, &[9, 7, 3]).unwrap();
        let encoded = encode("predict", &frame, &image(9, 7, 3, 1), 1);
        assert_survives_damage("predict", &frame, &encoded);
    }

    proptest! {
        #[test]
        fn decode_agrees_with_raw(
            height in 1_usize..20, width in 1_usize..20, channels in 0_usize..4,
            frames in 1_usize..3, seed: u64, level in 1..=19,
        ) {
            let shape = [height, width, [1, 1, 3, 4][channels]];
            let shape = if channels == 0 { &shape[..2] } else { &shape[..] };
            let frame = FrameType::values(Dtype::U8, shape).unwrap();
            let depth = shape.get(2).copied().unwrap_or(1);
            let bytes: Vec<u8> = (0..frames as u64)
                .flat_map(|idx| image(height, width, depth, seed ^ idx))
                .collect();
            assert_same_as_raw(&format!("predict:level={level}"), &frame, &bytes, 1);
        }
    }
}
