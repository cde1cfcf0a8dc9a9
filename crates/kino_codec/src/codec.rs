//! The interface of every codec: encode frames to pages, decode a sub-range of a page.

use std::fmt::Debug;
use std::num::NonZeroUsize;
use std::ops::Range;

use crate::bound::Bound;
use crate::error::{Result, buffer, corrupt};
use crate::frame::{FrameType, MAX_FRAME_BYTES};
use crate::frames::Frames;
use crate::reduction::Reduction;
use crate::scratch::Scratch;
use crate::spec::CodecSpec;

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

impl EncodedPage {
    /// The page, to decode it again.
    pub fn page(&self) -> Page<'_> {
        Page {
            bytes: &self.bytes,
            frames: self.frames,
        }
    }
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
    fn scope(&self) -> Scope {
        Scope::Page
    }

    /// What the codec guarantees about decoded values.
    fn bound(&self) -> Bound {
        Bound::Lossless
    }

    /// The format of the files that it takes instead of values and stores as they are; `None` if it takes values.
    fn carries(&self) -> Option<&'static str> {
        None
    }

    /// The name of the codec outside this library that its pages need; see [`ForeignCodec`](crate::ForeignCodec).
    fn foreign(&self) -> Option<&str> {
        None
    }

    /// Whether frames arrive in pages already: the first frame of a page is all its bytes, and the others are empty.
    fn has_own_pages(&self) -> bool {
        false
    }

    /// The page length, in frames, that suits this codec and frame type best.
    fn page_frames(&self, _frame: &FrameType) -> NonZeroUsize {
        NonZeroUsize::MIN
    }

    /// Rejects frame types that the codec cannot store, with the reason.
    fn check(&self, frame: &FrameType) -> Result<()>;

    /// Fails if this process cannot make new pages, because of a library that is missing; decoding may still work.
    fn check_encoder(&self) -> Result<()> {
        Ok(())
    }

    /// The library outside this crate that makes new pages, with its version: other versions may make other bytes.
    fn encoder(&self) -> Option<String> {
        None
    }

    /// Fails if this process cannot decode pages of such frames, because of a library that is missing.
    fn check_decoder(&self, _frame: &FrameType) -> Result<()> {
        Ok(())
    }

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
    /// Bytes of a decoded frame; 0 for text.
    fn frame_bytes(&self) -> usize;

    /// Decodes frames `range` of `page` (untrusted bytes) into `dest`, which has exactly their size, packed.
    ///
    /// After an error, the values in `dest` are unspecified.
    fn decode(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        check_range(page, &range)?;
        if range.len().checked_mul(self.frame_bytes()) != Some(dest.len()) {
            return Err(buffer(format!(
                "{} frames of {} bytes do not fit a destination of {} bytes",
                range.len(),
                self.frame_bytes(),
                dest.len()
            )));
        }
        if range.is_empty() {
            return Ok(());
        }
        self.decode_checked(page, range, dest, scratch)
    }

    /// What differs between codecs: [`decode`](Self::decode), which calls it, has compared `range` with the page and
    /// the destination. `range` is not empty.
    fn decode_checked(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()>;

    /// Whether [`decode_reduced`](Self::decode_reduced) decodes this page: one that holds a single image, and that costs
    /// less if only a fraction of its size is needed.
    fn can_reduce(&self, _page: Page<'_>) -> bool {
        false
    }

    /// Decodes the only image of a page at a fraction of its height and width into `dest`, which has exactly its size.
    ///
    /// After an error, the values in `dest` are unspecified.
    fn decode_reduced(
        &self,
        _page: Page<'_>,
        _reduction: Reduction,
        _dest: &mut [u8],
        _scratch: &mut Scratch,
    ) -> Result<()> {
        Err(buffer("this page is only decoded at its full size"))
    }

    /// Appends the text frames `range` of `page` to `out`; an error for numeric streams.
    fn decode_text(
        &self,
        _page: Page<'_>,
        _range: Range<usize>,
        _out: &mut Vec<String>,
        _scratch: &mut Scratch,
    ) -> Result<()> {
        Err(buffer("this stream holds numeric values, not text"))
    }

    /// How many frames are decoded to get each frame of a page alone. Unless a codec knows better, all before it.
    fn costs(&self, page: Page<'_>) -> Result<Vec<usize>> {
        Ok((1..=page.frames).collect())
    }

    /// The bitstream of frame `idx` as a standalone file (a JPEG file), if the codec stores one.
    fn bitstream<'p>(&self, _page: Page<'p>, _idx: usize) -> Option<&'p [u8]> {
        None
    }
}

/// Rejects frames outside the page.
pub(crate) fn check_range(page: Page<'_>, range: &Range<usize>) -> Result<()> {
    if range.start > range.end || range.end > page.frames {
        return Err(buffer(format!(
            "frames {range:?} are outside a page of {} frames",
            page.frames
        )));
    }
    Ok(())
}

/// Rejects a page of several frames on behalf of a codec whose pages hold one.
pub(crate) fn one_frame(codec: &'static str, page: Page<'_>) -> Result<()> {
    match page.frames {
        1 => Ok(()),
        more => Err(corrupt(
            codec,
            format!("a page must have one frame, not {more}"),
        )),
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

/// Rejects a new page that readers would refuse for its size.
pub(crate) fn check_page_bytes(page_frames: usize, frame_bytes: usize) -> Result<()> {
    if page_bytes("", page_frames, frame_bytes).is_ok() {
        return Ok(());
    }
    Err(buffer(format!(
        "a page of {page_frames} frames of {frame_bytes} bytes exceeds {MAX_PAGE_BYTES} bytes; use smaller pages"
    )))
}

/// Rejects pages with more frames than `codec` can store in one.
pub(crate) fn check_page_frames(
    codec: &'static str,
    page_frames: NonZeroUsize,
    most: usize,
) -> Result<()> {
    if page_frames.get() <= most {
        return Ok(());
    }
    let stores = if most == 1 {
        "one frame per page".to_owned()
    } else {
        format!("at most {most} frames per page")
    };
    Err(buffer(format!(
        "`{codec}` stores {stores}, but {page_frames} were requested"
    )))
}

/// Rejects a shared part on behalf of a codec whose pages share nothing.
pub(crate) fn no_shared(codec: &'static str, shared: &[u8]) -> Result<()> {
    if shared.is_empty() {
        return Ok(());
    }
    Err(corrupt(codec, "it shares nothing between pages"))
}
