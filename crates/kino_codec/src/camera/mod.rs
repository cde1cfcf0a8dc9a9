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

use std::num::NonZeroUsize;
use std::ops::Range;

use crate::bound::Bound;
use crate::codec::{
    Codec, Decoder, Encoded, EncodedPage, MAX_PAGE_BYTES, Page, Scope, check_page_frames,
    check_range, image_row_stride,
};
use crate::error::{Result, buffer, corrupt};
use crate::frame::FrameType;
use crate::frames::{Frames, FramesMut};
use crate::predict::{DEFAULT_LEVEL, MIN_MATCH, Size, check_view, join_row, put_row};
use crate::scratch::{Scratch, at_least};
use crate::spec::CodecSpec;
use crate::view::{ImagesMut, Scale};
use crate::zstd_frame::{Effort, LEVELS};

use part::{Parts, Planes};

const NAME: &str = "camera";

/// Default frames per page: a random frame then costs 2.5 decodes on average if every image is predicted.
const DEFAULT_GROUP: i32 = 4;

/// The most frames in a page: its last frame may need this many decodes.
const MAX_FRAMES: usize = 64;

/// The `camera` codec.
#[derive(Debug)]
pub(crate) struct Camera {
    spec: CodecSpec,
    effort: Effort,
    group: NonZeroUsize,
}

impl Camera {
    pub(crate) fn new(spec: &CodecSpec) -> Result<Self> {
        spec.allow(&["level", "group"])?;
        let level = spec.integer("level", LEVELS, DEFAULT_LEVEL)?;
        let group = spec.integer("group", 1..=64, DEFAULT_GROUP)?;
        let text = [("level", level.to_string()), ("group", group.to_string())];
        Ok(Self {
            spec: CodecSpec::new(NAME, &text),
            effort: Effort::level(level).min_match(MIN_MATCH),
            group: usize::try_from(group)
                .ok()
                .and_then(NonZeroUsize::new)
                .unwrap_or(NonZeroUsize::MIN),
        })
    }
}

/// Rejects pages with more frames than readers accept.
fn check_group(frames: usize, size: Size) -> Result<()> {
    if frames > MAX_FRAMES {
        return Err(buffer(format!(
            "`{NAME}` stores up to {MAX_FRAMES} frames per page, but {frames} were requested"
        )));
    }
    check_page_frames(frames, size.bytes())
}

impl Codec for Camera {
    fn spec(&self) -> &CodecSpec {
        &self.spec
    }

    fn scope(&self) -> Scope {
        Scope::Page
    }

    fn bound(&self) -> Bound {
        Bound::Lossless
    }

    fn page_frames(&self, frame: &FrameType) -> NonZeroUsize {
        // For very large images, as many as a reader accepts.
        let most = Size::new(NAME, frame).map_or(1, |size| MAX_PAGE_BYTES / size.bytes());
        NonZeroUsize::new(most).map_or(NonZeroUsize::MIN, |most| self.group.min(most))
    }

    fn check(&self, frame: &FrameType) -> Result<()> {
        Size::new(NAME, frame).map(|_| ())
    }

    fn encode(
        &self,
        frames: &Frames<'_>,
        page_frames: NonZeroUsize,
        out: &mut Encoded,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let size = Size::new(NAME, frames.frame())?;
        check_group(page_frames.get(), size)?;
        let (_, bytes) = frames.as_values(NAME)?;
        for group in bytes.chunks(page_frames.get() * size.bytes()) {
            let bytes = encode::encode_group(self.effort, size, group, scratch)?;
            let frames = group.len() / size.bytes();
            out.pages.push(EncodedPage { frames, bytes });
        }
        Ok(())
    }

    fn decoder(&self, frame: &FrameType, shared: &[u8]) -> Result<Box<dyn Decoder>> {
        if !shared.is_empty() {
            return Err(corrupt(NAME, "it shares nothing between pages"));
        }
        Ok(Box::new(CameraDecoder {
            size: Size::new(NAME, frame)?,
        }))
    }
}

#[derive(Debug)]
struct CameraDecoder {
    size: Size,
}

impl CameraDecoder {
    /// Decodes the images that `range` needs and calls `put` for each of its rows: index, row, planes so far.
    ///
    /// Only the first `last_rows` of the last image are restored: nothing else needs the others.
    fn decode_rows(
        &self,
        page: Page<'_>,
        (range, last_rows): (Range<usize>, usize),
        scratch: &mut Scratch,
        mut put: impl FnMut(usize, usize, &[u8]),
    ) -> Result<()> {
        let parts = Parts::new(page, self.size, &mut scratch.offsets)?;
        if range.is_empty() {
            return Ok(());
        }
        let buffers = [
            &mut scratch.bytes,
            &mut scratch.more_bytes,
            &mut scratch.content,
        ];
        let mut planes = Planes::new(self.size, buffers);
        for idx in parts.start_for(range.start)?..range.end {
            planes.open(parts.get(idx)?, &mut scratch.zstd)?;
            let is_last = idx + 1 == range.end;
            let rows = if is_last { last_rows } else { self.size.height };
            // Row by row, so that restored values are still in L1 cache when they are written out.
            for y in 0..rows {
                planes.restore_row(y);
                if let Some(place) = idx.checked_sub(range.start) {
                    put(place, y, planes.values());
                }
            }
        }
        Ok(())
    }
}

impl Decoder for CameraDecoder {
    fn decode(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut FramesMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let size = self.size;
        check_range(page, &range, dest.len())?;
        let row_bytes = size.width * size.channels;
        let row_stride = image_row_stride(dest, size.height, row_bytes)?;
        self.decode_rows(page, (range, size.height), scratch, |place, y, planes| {
            let row = &mut dest.frame_mut(place)[y * row_stride..][..row_bytes];
            join_row(size, planes, y * size.width, row);
        })
    }

    fn decode_images(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut ImagesMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let size = self.size;
        check_range(page, &range, dest.len())?;
        check_view(size, dest)?;
        let mut image = std::mem::take(&mut scratch.image);
        let view = dest.view();
        let result = if view.scale() == Scale::Full {
            let rows = view.crop().top + view.crop().height;
            self.decode_rows(page, (range, rows), scratch, |place, y, planes| {
                put_row(size, planes, y, (dest, place), &mut image);
            })
        } else {
            let row_bytes = size.width * size.channels;
            self.decode_rows(page, (range, size.height), scratch, |place, y, planes| {
                let whole = at_least(&mut image, size.bytes());
                let row = &mut whole[y * row_bytes..][..row_bytes];
                join_row(size, planes, y * size.width, row);
                if y + 1 == size.height {
                    view.put(place, whole, dest);
                }
            })
        };
        scratch.image = image;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::pairs::Layout;
    use super::part::Kind;
    use super::*;
    use crate::codec;
    use crate::frame::Dtype;
    use crate::predict::Predictor;
    use crate::testing::{
        arbitrary_bytes, assert_same_as_raw, assert_same_views, assert_survives_damage, encode,
        image,
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
    fn every_view_is_the_same_as_of_raw_images() {
        for (channels, seed) in [(1, 1), (3, 2), (3, 3), (4, 4)] {
            let frame = FrameType::values(Dtype::U8, &[13, 37, channels]).unwrap();
            let bytes = film((13, 37, channels), 5, seed);
            assert_same_views("camera", &frame, &bytes, 4);
        }
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
        let mut bytes = [0; 16];
        let ty = frame.as_values().unwrap();
        let mut dest = FramesMut::packed(ty, 1, &mut bytes).unwrap();
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
