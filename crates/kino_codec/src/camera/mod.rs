//! `camera`: 8-bit images, lossless, in short groups: each image alone or predicted from the previous one.
//!
//! ```text
//! page = length │ length │ … │ part │ part │ …         one of each per frame; lengths are varints
//! part = kind │ zstd frame, content size stated
//!        u8     1..=4  content = residuals: an intra image, by the predictor of that number (see `predict`)
//!               5      content = map │ residuals: each block from where it was in the previous image
//!               6      no zstd frame: the previous image, repeated
//!               + 16   red and blue residuals share a byte
//! ```
//!
//! The first image of a page is intra-coded (it stands alone); each of the others is stored in the kind that suits
//! it, so a noisy camera takes no more space than intra images. To read frame i, a reader starts at the last
//! intra image up to i: at most i + 1 decodes, and often one.

mod blocks;
mod encode;
mod pairs;
mod part;
mod search;

use std::num::NonZeroUsize;
use std::ops::Range;

use crate::codec::{Decoder, MAX_PAGE_BYTES, Page};
use crate::describe::{Description, Guarantee, Parameter, Speed};
use crate::error::Result;
use crate::frame::FrameType;
use crate::frames::Frames;
use crate::kind::Kind;
use crate::pages::{PageCodec, Pages};
use crate::predict::{DEFAULT_LEVEL, LEVEL, Size, effort, join_row};
use crate::scratch::Scratch;
use crate::spec::CodecSpec;
use crate::zstd_frame::LEVELS;

use part::{Parts, Planes};

const NAME: &str = "camera";

/// Default frames per page: a random frame then costs 2.5 decodes on average if every image is predicted.
const DEFAULT_GROUP: i32 = 4;

/// The most frames in a page: its last frame may need this many decodes.
const MAX_FRAMES: usize = 64;

pub(crate) const DESCRIPTION: Description = Description {
    name: NAME,
    summary: "8-bit images in short groups",
    kinds: &[Kind::Image],
    is_default: false,
    is_alternative: true,
    guarantees: &[Guarantee::Lossless],
    is_grouped: true,
    encode: Speed::Slow,
    decode: Speed::Fast,
    parameters: &[
        LEVEL,
        Parameter {
            key: "group",
            help: "frames per page, 1 to 64; a random frame costs up to as many decodes",
        },
    ],
    settings: |_| vec![NAME.to_owned()],
    quality: None,
    files: None,
    make: Pages::<Camera>::make,
};

/// The `camera` codec.
#[derive(Debug)]
pub(crate) struct Camera {
    level: i32,
    group: NonZeroUsize,
}

impl PageCodec for Camera {
    const NAME: &'static str = NAME;
    type Decoder = CameraDecoder;

    fn parse(spec: &CodecSpec) -> Result<Self> {
        Ok(Self {
            level: spec.integer("level", LEVELS, DEFAULT_LEVEL)?,
            group: spec.count("group", 1..=64, DEFAULT_GROUP)?,
        })
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        vec![
            ("level", self.level.to_string()),
            ("group", self.group.to_string()),
        ]
    }

    fn page_frames(&self, frame: &FrameType) -> NonZeroUsize {
        // For very large images, as many as a reader accepts.
        let most = Size::new(NAME, frame).map_or(1, |size| MAX_PAGE_BYTES / size.bytes());
        NonZeroUsize::new(most).map_or(NonZeroUsize::MIN, |most| self.group.min(most))
    }

    fn max_page_frames(&self, _frame: &FrameType) -> usize {
        MAX_FRAMES
    }

    fn decoder(&self, frame: &FrameType) -> Result<CameraDecoder> {
        let size = Size::new(NAME, frame)?;
        Ok(CameraDecoder { size })
    }

    fn encode_page(&self, frames: &Frames<'_>, scratch: &mut Scratch) -> Result<Vec<u8>> {
        let size = Size::new(NAME, frames.frame())?;
        let (_, group) = frames.as_values(NAME)?;
        encode::encode_group(effort(self.level), size, group, scratch)
    }
}

#[derive(Debug)]
pub(crate) struct CameraDecoder {
    size: Size,
}

impl Decoder for CameraDecoder {
    fn frame_bytes(&self) -> usize {
        self.size.bytes()
    }

    fn decode_checked(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let size = self.size;
        let parts = Parts::new(page, size, &mut scratch.offsets)?;
        let buffers = [
            &mut scratch.bytes,
            &mut scratch.more_bytes,
            &mut scratch.content,
        ];
        let mut planes = Planes::new(size, buffers);
        let mut images = dest.chunks_exact_mut(size.bytes());
        for idx in parts.start_for(range.start)?..range.end {
            planes.open(parts.get(idx)?, &mut scratch.zstd)?;
            let image = if idx < range.start {
                None
            } else {
                images.next()
            };
            let mut rows = image
                .into_iter()
                .flat_map(|image| image.chunks_exact_mut(size.row_bytes()));
            // Row by row, so that restored values are still in L1 cache when they are written out.
            for y in 0..size.height {
                planes.restore_row(y);
                if let Some(row) = rows.next() {
                    join_row(size, planes.values(), y, row);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::pairs::Layout;
    use super::part::Kind;
    use super::*;
    use crate::codec;
    use crate::codec::Encoded;
    use crate::frame::Dtype;
    use crate::predict::Predictor;
    use crate::testing::{
        arbitrary_bytes, assert_same_as_raw, assert_survives_damage, encode, image,
    };
    use proptest::prelude::*;

    /// Images of a static scene, one in which something moves, or unrelated images.
    fn film(shape: (usize, usize, usize), frames: usize, seed: u64) -> Vec<u8> {
        let (height, width, channels) = shape;
        let mut now = image(height, width, channels, seed);
        let mut film = Vec::new();
        for idx in 0..frames {
            film.extend_from_slice(&now);
            match arbitrary_bytes(seed ^ idx as u64, 1)[0] % 4 {
                0 => {}
                1 => now = arbitrary_bytes(seed ^ idx as u64, now.len()),
                2 => {
                    let by = channels * (1 + idx % 3) % now.len();
                    now.rotate_right(by);
                }
                _ => {
                    let middle = now.len() / 2;
                    now[middle] = now[middle].wrapping_add(100);
                }
            }
        }
        film
    }

    #[test]
    fn never_change_these_constants() {
        let text = codec("camera").unwrap().spec().to_string();
        assert_eq!(text, "camera:level=3,group=4");
        let ids = Predictor::ALL.map(|predictor| Kind::Alone(predictor).id(Layout::Planes));
        assert_eq!(ids, [1, 2, 3, 4]);
        assert_eq!(Kind::Moved.id(Layout::Planes), 5);
        assert_eq!(Kind::Same.id(Layout::Planes), 6);
        assert_eq!(Kind::Moved.id(Layout::Paired), 21);
        assert_eq!((blocks::BLOCK, blocks::STILL, blocks::LEFT), (8, 40, 81));
        assert_eq!((pairs::ESCAPE, MAX_FRAMES), (0x88, 64));
    }

    #[test]
    fn unsupported_parameters_and_frames_are_refused() {
        for text in [
            "camera:level=0",
            "camera:group=0",
            "camera:group=65",
            "camera:q=3",
        ] {
            assert!(codec(text).is_err(), "{text}");
        }
        let check = |dtype, shape: &[usize]| {
            codec("camera")
                .unwrap()
                .check(&FrameType::values(dtype, shape).unwrap())
        };
        assert!(check(Dtype::U8, &[4, 5]).is_ok());
        assert!(check(Dtype::U8, &[4, 5, 2]).is_err());
        assert!(check(Dtype::U16, &[4, 5]).is_err());
        let frame = FrameType::values(Dtype::U8, &[2, 2]).unwrap();
        let frames = Frames::values(&frame, &[0; 8]).unwrap();
        let many = NonZeroUsize::new(65).unwrap();
        let codec = codec("camera").unwrap();
        let mut out = Encoded::default();
        assert!(
            codec
                .encode(&frames, many, &mut out, &mut Scratch::new())
                .is_err()
        );
    }

    #[test]
    fn a_static_camera_costs_next_to_nothing() {
        let frame = FrameType::values(Dtype::U8, &[84, 84, 3]).unwrap();
        let still = image(84, 84, 3, 1);
        let alone = encode("camera", &frame, &still, 8).pages[0].bytes.len();
        let mut group = still.repeat(8);
        assert!(encode("camera", &frame, &group, 8).pages[0].bytes.len() < alone + 30);
        // One changed pixel in each.
        for (idx, image) in group.chunks_exact_mut(84 * 84 * 3).enumerate() {
            image[1000 * idx] ^= 1;
        }
        assert!(encode("camera", &frame, &group, 8).pages[0].bytes.len() < alone + 8 * 80);
    }

    #[test]
    fn noise_costs_no_more_than_intra_images() {
        let frame = FrameType::values(Dtype::U8, &[40, 40, 3]).unwrap();
        let noise = arbitrary_bytes(5, 8 * 40 * 40 * 3);
        let size = |text: &str, group| {
            let pages = encode(text, &frame, &noise, group).pages;
            pages.iter().map(|page| page.bytes.len()).sum::<usize>()
        };
        let alone = size("predict", 1);
        assert!(size("camera", 8) <= alone + alone / 100);
    }

    #[test]
    fn a_page_that_does_not_start_with_an_intra_image_is_refused() {
        let frame = FrameType::values(Dtype::U8, &[4, 4]).unwrap();
        let decoder = codec("camera").unwrap().decoder(&frame, &[]).unwrap();
        let mut dest = [0; 16];
        for page in [&[1, 6][..], &[0], &[1, 22], &[2, 6, 0], &[]] {
            let page = Page {
                bytes: page,
                frames: 1,
            };
            assert!(
                decoder
                    .decode(page, 0..1, &mut dest, &mut Scratch::new())
                    .is_err()
            );
        }
    }

    #[test]
    fn flipping_any_bit_is_an_error_never_a_panic() {
        let frame = FrameType::values(Dtype::U8, &[9, 7, 3]).unwrap();
        let still = image(9, 7, 3, 1);
        let mut moved = still.clone();
        moved[30..60].fill(9);
        let encoded = encode("camera", &frame, &[still, moved].concat(), 2);
        assert_survives_damage("camera", &frame, &encoded);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        #[test]
        fn decode_agrees_with_raw(
            height in 1_usize..30, width in 1_usize..30, channels in 0_usize..4,
            frames in 1_usize..12, group in 1_usize..9, seed: u64,
        ) {
            let shape = [height, width, [1, 1, 3, 4][channels]];
            let shape = if channels == 0 { &shape[..2] } else { &shape[..] };
            let frame = FrameType::values(Dtype::U8, shape).unwrap();
            let depth = shape.get(2).copied().unwrap_or(1);
            let bytes = film((height, width, depth), frames, seed);
            assert_same_as_raw("camera:level=1", &frame, &bytes, group);
        }
    }
}
