//! `camera`: 8-bit pictures, lossless, in short groups: each picture alone or from the one before.
//!
//! ```text
//! page = length │ length │ … │ part │ part │ …         one of each per frame; lengths are varints
//! part = kind │ zstd frame, content size stated
//!        u8     1..=4  content = remainders: the picture alone, by the guess of that number (see `predict`)
//!               5      content = map │ remainders: each block from where it was in the picture before
//!               6      no zstd frame: the picture before, once more
//!               + 16   red and blue remainders share a byte
//! ```
//!
//! The first picture of a page stands alone; each of the others is stored as what suits it, so that a
//! noisy camera costs no more than pictures alone. A reader that wants frame i starts at the last
//! picture up to it that stands alone: at most i + 1 decodes, and often one.

mod blocks;
mod encode;
mod pairs;
mod part;

use std::num::NonZeroUsize;
use std::ops::Range;

use crate::bound::Bound;
use crate::codec::{
    Codec, Decoder, Encoded, EncodedPage, MAX_PAGE_BYTES, Page, Scope, check_page_frames,
    check_range, picture_row_stride,
};
use crate::error::{Result, buffer, corrupt};
use crate::frame::FrameType;
use crate::frames::{Frames, FramesMut};
use crate::predict::{DEFAULT_LEVEL, MIN_MATCH, Size, join_row};
use crate::scratch::Scratch;
use crate::spec::CodecSpec;
use crate::zstd_frame::{Effort, LEVELS};

use part::{Parts, Planes};

const NAME: &str = "camera";

/// Frames per page unless told otherwise: a random frame then costs 4.5 decodes on average, if all of them moved.
const DEFAULT_GROUP: i32 = 8;

/// No page has more frames than this: its last could cost as many decodes.
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

/// Refuses pages of more frames than readers take.
fn check_group(frames: usize, size: Size) -> Result<()> {
    if frames > MAX_FRAMES {
        return Err(buffer(format!(
            "`{NAME}` stores up to {MAX_FRAMES} frames per page, {frames} were asked for"
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
        // Of very large pictures as many as a reader takes.
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
        let row_stride = picture_row_stride(dest, size.height, row_bytes)?;
        let parts = Parts::new(page, size, &mut scratch.offsets)?;
        if range.is_empty() {
            return Ok(());
        }
        let first = parts.start_for(range.start)?;
        let buffers = [
            &mut scratch.bytes,
            &mut scratch.more_bytes,
            &mut scratch.content,
        ];
        let mut planes = Planes::new(size, buffers);
        for idx in first..range.end {
            planes.open(parts.get(idx)?, &mut scratch.zstd)?;
            if idx < range.start {
                (0..size.height).for_each(|y| planes.restore_row(y));
                continue;
            }
            // Row by row, so that what is restored is still in the nearest cache when it is joined.
            let rows = dest.frame_mut(idx - range.start).chunks_mut(row_stride);
            for (y, row) in rows.take(size.height).enumerate() {
                planes.restore_row(y);
                join_row(size, planes.values(), y * size.width, &mut row[..row_bytes]);
            }
        }
        Ok(())
    }
}
