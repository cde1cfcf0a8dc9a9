//! The interface of every codec: encode frames to pages, decode a sub-range of a page.

use std::fmt::Debug;
use std::num::NonZeroUsize;
use std::ops::Range;

use crate::bound::Bound;
use crate::error::{CodecError, Result, buffer, corrupt};
use crate::frame::{FrameType, MAX_FRAME_BYTES};
use crate::frames::{Frames, FramesMut};
use crate::scratch::{Scratch, at_least};
use crate::spec::CodecSpec;
use crate::view::ImagesMut;

/// How much of a run a codec must see at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Pages are independent: a run may be encoded page by page, in any order, on many threads.
    Page,
    /// Pages share parameters learned from the whole run (all frames of one stream of one episode).
    Run,
}

/// Encoded frames: what the pages share, and the pages.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// Needed to decode any of the pages; empty for codecs of [`Scope::Page`].
    pub shared: Vec<u8>,
    /// The pages, in time order.
    pub pages: Vec<EncodedPage>,
}

/// One encoded page.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct EncodedPage {
    /// Number of frames, at least one.
    pub frames: usize,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A page to decode: its bytes and the frame count from the index.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// The bytes, whose checksum the caller has verified.
    pub bytes: &'a [u8],
    /// Number of frames they hold.
    pub frames: usize,
}

/// Encodes frames to bytes and back. Created by [`codec`](crate::codec) from a codec string.
pub trait Codec: Debug + Send + Sync {
    /// Name and parameters, complete and in canonical order, as stored in the schema.
    fn spec(&self) -> &CodecSpec;

    /// How much of a run [`encode`](Self::encode) must see at once.
    fn scope(&self) -> Scope;

    /// What the codec guarantees about decoded values.
    fn bound(&self) -> Bound;

    /// The page length, in frames, that suits this codec and frame type best.
    fn page_frames(&self, frame: &FrameType) -> NonZeroUsize;

    /// Rejects frame types that the codec cannot store, with the reason.
    fn check(&self, frame: &FrameType) -> Result<()>;

    /// Appends pages of `page_frames` frames (the last may be shorter) to `out`.
    ///
    /// With [`Scope::Run`], `frames` is the whole run and `out` starts empty; with [`Scope::Page`]
    /// it may be any range of the run that starts at a page boundary.
    fn encode(
        &self,
        frames: &Frames<'_>,
        page_frames: NonZeroUsize,
        out: &mut Encoded,
        scratch: &mut Scratch,
    ) -> Result<()>;

    /// Learns what the pages of a run will share from a sample, so that they can be encoded without the full run.
    ///
    /// The sample consists of pieces of `piece_frames` consecutive frames of the run: pages, or the
    /// starts of long ones. The run has `run_frames` frames. Only for [`Scope::Run`].
    fn learn(
        &self,
        _sample: &Frames<'_>,
        _piece_frames: NonZeroUsize,
        _run_frames: usize,
    ) -> Result<Box<dyn RunEncoder>> {
        Err(buffer(format!("pages of `{}` share nothing", self.spec())))
    }

    /// Prepares to decode pages of one run from their shared part (untrusted bytes).
    fn decoder(&self, frame: &FrameType, shared: &[u8]) -> Result<Box<dyn Decoder>>;
}

/// Encodes the pages of a run that is too long to be held at once, in any order, on many threads.
///
/// The shared part is fixed, so frames unlike the sample take more bytes; they still round-trip.
pub trait RunEncoder: Debug + Send + Sync {
    /// What the pages share.
    fn shared(&self) -> &[u8];

    /// Appends the pages of frames that start at a page boundary to `out`; does not touch its shared part.
    fn encode(
        &self,
        frames: &Frames<'_>,
        page_frames: NonZeroUsize,
        out: &mut Encoded,
    ) -> Result<()>;
}

/// Decodes the pages of one run. Keep it while the run is read: it may be expensive to create but is cheap to use.
pub trait Decoder: Debug + Send + Sync {
    /// Decodes frames `range` of `page` (untrusted bytes) into the first `range.len()` slots of `dest`.
    ///
    /// After an error, the values in `dest` are unspecified; nothing is ever written out of bounds.
    fn decode(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut FramesMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()>;

    /// Decodes images `range` of `page` (untrusted bytes) into the first slots of `dest`, scaled, cropped and laid
    /// out as its view specifies.
    ///
    /// By default, whole frames are decoded and the requested region is copied; each scaled pixel is the mean of the
    /// pixels it covers. JPEG scales while it decodes, with its own filter.
    fn decode_images(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut ImagesMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        check_range(page, &range, dest.len())?;
        let view = dest.view();
        let mut image = std::mem::take(&mut scratch.image);
        let mut decode = |place: usize, idx: usize| {
            let stored = at_least(&mut image, view.ty().frame_bytes());
            let mut frame = FramesMut::packed(view.ty(), 1, stored)?;
            self.decode(page, idx..idx + 1, &mut frame, scratch)?;
            view.put(place, stored, dest);
            Ok(())
        };
        let result = range
            .enumerate()
            .try_for_each(|(place, idx)| decode(place, idx));
        scratch.image = image;
        result
    }

    /// Appends the text frames `range` of `page` to `out`; an error for numeric streams.
    fn decode_text(
        &self,
        _page: Page<'_>,
        _range: Range<usize>,
        _out: &mut Vec<String>,
        _scratch: &mut Scratch,
    ) -> Result<()> {
        Err(CodecError::Buffer {
            what: "this stream holds numeric values, not text".to_owned(),
        })
    }

    /// The bitstream of frame `idx` as a standalone file (a JPEG file), if the codec stores one.
    fn bitstream<'p>(&self, _page: Page<'p>, _idx: usize) -> Option<&'p [u8]> {
        None
    }
}

/// The check that every decoder starts with: `range` is inside the page and fits the destination.
pub(crate) fn check_range(page: Page<'_>, range: &Range<usize>, places: usize) -> Result<()> {
    if range.start > range.end || range.end > page.frames || range.len() > places {
        return Err(CodecError::Buffer {
            what: format!(
                "frames {range:?} of a page of {} frames do not fit a destination of {places} frames",
                page.frames
            ),
        });
    }
    Ok(())
}

/// Rejects a destination for frames of another size.
pub(crate) fn check_dest(dest: &FramesMut<'_>, frame_bytes: usize) -> Result<()> {
    let places = dest.rows() * dest.row_bytes();
    if places == frame_bytes {
        return Ok(());
    }
    Err(buffer(format!(
        "frames of {frame_bytes} bytes do not fit a destination with {places} bytes per frame"
    )))
}

/// Bytes from row to row of an image of `height` rows of `row_bytes` in `dest`.
///
/// A packed destination may have another shape of the same size: its rows do not matter.
pub(crate) fn image_row_stride(
    dest: &FramesMut<'_>,
    height: usize,
    row_bytes: usize,
) -> Result<usize> {
    check_dest(dest, height * row_bytes)?;
    if dest.has_packed_frames() {
        Ok(row_bytes)
    } else if dest.rows() == height {
        Ok(dest.row_stride())
    } else {
        Err(buffer(format!(
            "an image of {height} rows does not fit a destination with {} rows per frame",
            dest.rows()
        )))
    }
}

/// No decoded page is larger than the largest frame: a larger frame count means damage.
pub(crate) const MAX_PAGE_BYTES: usize = MAX_FRAME_BYTES;

/// The decoded size of a page that has `frames` frames according to the index: callers allocate no more than this.
pub(crate) fn page_bytes(codec: &'static str, frames: usize, frame_bytes: usize) -> Result<usize> {
    frames
        .checked_mul(frame_bytes)
        .filter(|bytes| *bytes <= MAX_PAGE_BYTES)
        .ok_or_else(|| {
            corrupt(
                codec,
                format!("{frames} frames of {frame_bytes} bytes are too many for one page"),
            )
        })
}

/// The frames of a new page: as requested, if readers accept that many.
pub(crate) fn check_page_frames(page_frames: usize, frame_bytes: usize) -> Result<()> {
    if page_bytes("", page_frames, frame_bytes).is_ok() {
        return Ok(());
    }
    Err(buffer(format!(
        "a page of {page_frames} frames of {frame_bytes} bytes exceeds {MAX_PAGE_BYTES} bytes; use smaller pages"
    )))
}

/// Rejects several frames per page on behalf of a codec whose pages hold one.
pub(crate) fn one_frame_per_page(codec: &'static str, page_frames: NonZeroUsize) -> Result<()> {
    match page_frames.get() {
        1 => Ok(()),
        more => Err(buffer(format!(
            "`{codec}` stores one frame per page, but {more} were requested"
        ))),
    }
}
