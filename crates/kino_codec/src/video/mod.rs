//! `video`: the packets of a video file, stored unchanged.
//!
//! ```text
//! page = head │ packet │ packet │ …        one group of pictures, or several short ones ([`page`])
//! ```
//!
//! Nothing is encoded again, so nothing is lost and a dataset is as small as the files it came from. Decoding a frame
//! means decoding its group up to it, so sequential reads are cheapest; a loader that keeps decoded frames decodes each
//! group once.
//!
//! Frames are pushed as byte strings: the first of a page is the page ([`VideoPage::to_bytes`]), the others are empty.
//! 8-bit images become RGB ([`rgb`]); gray images of more bits, which are depth, come back as they are.
//!
//! | file | |
//! |---|---|
//! | `page.rs` | the bytes of a page |
//! | `engine.rs` | packets → planes |
//! | `cursor.rs` | the frames of a page one after the other |
//! | `elementary.rs` | packets for a decoder in hardware |
//! | `rgb.rs`, `color.rs` | planes → RGB |
//! | `coding.rs`, `size.rs`, `probe.rs` | what can be carried |

mod coding;
mod color;
mod cursor;
mod elementary;
mod engine;
mod page;
mod probe;
mod rgb;
mod size;
#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use crate::bound::Bound;
use crate::codec::{Codec, Decoder, Encoded, EncodedPage, Page, no_shared};
use crate::describe::{Description, Files, Guarantee, Parameter, Speed};
use crate::error::{Result, buffer, corrupt};
use crate::frame::FrameType;
use crate::frames::{FrameData, Frames};
use crate::kind::Kind;
use crate::scratch::Scratch;
use crate::spec::CodecSpec;

pub use coding::VideoCoding;
pub use color::{VideoColor, VideoMatrix};
pub use cursor::VideoCursor;
pub use elementary::{StreamPacket, VideoStream};
pub use page::{VideoEntry, VideoPacket, VideoPage, video_page_head};
pub use probe::{ContainerColor, probe_video};

use engine::{Engine, Layout, Picture};
use rgb::{Conversion, Row, gray_to_pixels};
use size::Size;

const NAME: &str = "video";

/// The largest decoded page. More than other codecs have, because no reader needs all of it at once: a page can be decoded
/// in pieces, one after the other, without beginning again.
pub(crate) const MAX_VIDEO_PAGE_BYTES: usize = 1 << 31;

pub(crate) const DESCRIPTION: Description = Description {
    name: NAME,
    summary: "video files: their packets, stored unchanged",
    kinds: &[Kind::Image, Kind::Depth],
    is_default: false,
    is_alternative: false,
    guarantees: &[Guarantee::Measured],
    is_grouped: true,
    encode: Speed::Fast,
    decode: Speed::Medium,
    parameters: &[Parameter {
        key: "coding",
        help: "of the packets: av1, h264, hevc, vp9 or mpeg4",
    }],
    settings: |_| Vec::new(),
    quality: None,
    files: Some(Files {
        format: "video",
        carry: NAME,
    }),
    make: |spec| Ok(Arc::new(Video::new(spec)?)),
};

/// The `video` codec.
#[derive(Debug)]
struct Video {
    spec: CodecSpec,
    coding: VideoCoding,
}

impl Video {
    fn new(spec: &CodecSpec) -> Result<Self> {
        let text = spec.get("coding").unwrap_or(VideoCoding::Av1.name());
        let coding = VideoCoding::parse(text)
            .ok_or_else(|| spec.error("`coding` must be av1, h264, hevc, vp9 or mpeg4"))?;
        Ok(Self {
            spec: CodecSpec::new(NAME, &[("coding", coding.name().to_owned())]),
            coding,
        })
    }
}

impl Codec for Video {
    fn spec(&self) -> &CodecSpec {
        &self.spec
    }

    fn bound(&self) -> Bound {
        Bound::Unbounded
    }

    fn carries(&self) -> Option<&'static str> {
        DESCRIPTION.files.map(|files| files.format)
    }

    fn has_own_pages(&self) -> bool {
        true
    }

    fn page_frames(&self, frame: &FrameType) -> NonZeroUsize {
        let bytes = Size::new(frame).map_or(1, Size::bytes);
        NonZeroUsize::new(MAX_VIDEO_PAGE_BYTES / bytes).unwrap_or(NonZeroUsize::MIN)
    }

    fn check(&self, frame: &FrameType) -> Result<()> {
        Size::new(frame).map(drop)
    }

    fn check_decoder(&self, frame: &FrameType) -> Result<()> {
        let size = Size::new(frame)?;
        let is_built_in = matches!(self.coding, VideoCoding::Av1 | VideoCoding::H264);
        if is_built_in && !size.is_deep() {
            return Ok(());
        }
        Engine::new(self.coding, &[], size).map(drop)
    }

    fn encode(
        &self,
        frames: &Frames<'_>,
        _page_frames: NonZeroUsize,
        out: &mut Encoded,
        _scratch: &mut Scratch,
    ) -> Result<()> {
        let size = Size::new(frames.frame())?;
        let FrameData::Bytes(pieces) = frames.data() else {
            return Err(buffer(
                "`video` takes the packets of video files; use `av1` for pixels",
            ));
        };
        let mut start = 0;
        while start < pieces.len() {
            let page = pieces[start];
            let more = pieces[start + 1..].iter();
            let count = 1 + more.take_while(|piece| piece.is_empty()).count();
            if count.saturating_mul(size.bytes()) > MAX_VIDEO_PAGE_BYTES {
                let what = format!("a group of {count} frames of this size is too long for a page");
                return Err(buffer(what));
            }
            VideoPage::parse(page, count)
                .map_err(|error| buffer(format!("frame {start} does not begin a page: {error}")))?;
            out.pages.push(EncodedPage {
                frames: count,
                bytes: page.to_vec(),
            });
            start += count;
        }
        Ok(())
    }

    fn decoder(&self, frame: &FrameType, shared: &[u8]) -> Result<Box<dyn Decoder>> {
        no_shared(NAME, shared)?;
        Ok(Box::new(VideoDecoder {
            coding: self.coding,
            size: Size::new(frame)?,
        }))
    }
}

/// Decodes pages of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct VideoDecoder {
    coding: VideoCoding,
    size: Size,
}

/// What is kept between calls.
#[derive(Default)]
struct State {
    /// The decoder of the last page, for the next one of the same kind.
    engine: Option<Kept>,
    /// A page of which only the first frames were requested: most likely the others are next.
    begun: Option<VideoCursor>,
}

struct Kept {
    coding: VideoCoding,
    size: Size,
    config: Vec<u8>,
    engine: Engine,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.coding, self.size)
    }
}

impl VideoDecoder {
    /// The kept decoder if it suits, or a new one.
    fn engine(&self, config: &[u8], state: &mut State) -> Result<Kept> {
        let suits = |kept: &Kept| {
            kept.coding == self.coding && kept.size == self.size && kept.config == config
        };
        // Taken out, and put back only on success: a decoder that saw an error is not used again.
        match state.engine.take().filter(suits) {
            Some(kept) => Ok(kept),
            None => Ok(Kept {
                coding: self.coding,
                size: self.size,
                config: config.to_vec(),
                engine: Engine::new(self.coding, config, self.size)?,
            }),
        }
    }

    /// Writes an image to its place.
    fn put(&self, picture: &Picture<'_>, conversion: &Conversion, dest: &mut [u8]) -> Result<()> {
        let Size { height, width, .. } = self.size;
        if (picture.height, picture.width) != (height, width) {
            let what = format!(
                "an image is {} × {}, not {height} × {width}",
                picture.height, picture.width
            );
            return Err(corrupt(NAME, what));
        }
        if self.size.is_deep() != (picture.value_bytes == 2)
            || (self.size.is_deep() && picture.layout != Layout::Gray)
        {
            return Err(corrupt(NAME, "an image has another bit depth"));
        }
        for (y, out) in dest.chunks_exact_mut(self.size.row_bytes()).enumerate() {
            self.put_row(picture, y, conversion, out)?;
        }
        Ok(())
    }

    fn put_row(
        &self,
        picture: &Picture<'_>,
        y: usize,
        conversion: &Conversion,
        out: &mut [u8],
    ) -> Result<()> {
        let width = self.size.width;
        let luma = picture.row(0, y, width);
        let (chroma_y, chroma_width) = match picture.layout {
            Layout::Gray => (0, 0),
            Layout::Yuv420 => (y / 2, width.div_ceil(2)),
            Layout::Yuv422 => (y, width.div_ceil(2)),
            Layout::Yuv444 => (y, width),
        };
        let row = Row {
            y: luma,
            u: picture.row(1, chroma_y, chroma_width),
            v: picture.row(2, chroma_y, chroma_width),
        };
        let is_whole = luma.len() == width * picture.value_bytes
            && (picture.layout == Layout::Gray
                || (row.u.len() == chroma_width && row.v.len() == chroma_width));
        if !is_whole {
            return Err(corrupt(NAME, "an image has too few values"));
        }
        match picture.layout {
            Layout::Gray if self.size.is_deep() => out.copy_from_slice(luma),
            Layout::Gray => gray_to_pixels(luma, out),
            Layout::Yuv420 | Layout::Yuv422 => row.half_to_pixels(conversion, out),
            Layout::Yuv444 => row.full_to_pixels(conversion, out),
        }
        Ok(())
    }
}

impl Decoder for VideoDecoder {
    fn frame_bytes(&self) -> usize {
        self.size.bytes()
    }

    fn costs(&self, page: Page<'_>) -> Result<Vec<usize>> {
        let frames = 0..page.frames;
        let page = VideoPage::parse(page.bytes, page.frames)?;
        let cost = |frame| page.needed(&(frame..frame + 1)).len();
        Ok(frames.map(cost).collect())
    }

    fn decode_checked(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let mut state: Box<State> = scratch.take();
        let begun = state.begun.take();
        match begun.filter(|begun| begun.leads_to(self, page, &range)) {
            Some(cursor) => Self::decode_on(cursor, range.start, dest, &mut state)?,
            None if range.start == 0 && range.end < page.frames => {
                let cursor = self.begin(page, &mut state)?;
                Self::decode_on(cursor, range.start, dest, &mut state)?;
            }
            None => self.decode_alone(page, range, dest, &mut state)?,
        }
        scratch.keep(state);
        Ok(())
    }
}

impl VideoDecoder {
    /// Begins a page that will be decoded in pieces.
    fn begin(&self, page: Page<'_>, state: &mut State) -> Result<VideoCursor> {
        let config = VideoPage::parse(page.bytes, page.frames)?.config;
        let kept = self.engine(config, state)?;
        VideoCursor::begin(*self, kept, page.bytes.to_vec(), page.frames)
    }

    /// Decodes frames, and keeps the decoder where it is for those after them.
    fn decode_on(
        mut cursor: VideoCursor,
        first: usize,
        dest: &mut [u8],
        state: &mut State,
    ) -> Result<()> {
        cursor.read(first, dest)?;
        if cursor.has_more() {
            state.begun = Some(cursor);
        } else {
            state.engine = Some(cursor.into_kept());
        }
        Ok(())
    }

    /// Decodes frames from the nearest group before them, and nothing after them.
    fn decode_alone(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut [u8],
        state: &mut State,
    ) -> Result<()> {
        let page = VideoPage::parse(page.bytes, page.frames)?;
        let needed = page.needed(&range);
        let packets = &page.packets[needed];
        let conversion = Conversion::new(page.color);
        let mut kept = self.engine(page.config, state)?;
        let mut order = ShownOrder::default();
        let mut put = |position: usize, picture: &Picture<'_>| {
            let packet = packets.get(position);
            let packet = packet.ok_or_else(|| corrupt(NAME, "an image belongs to no packet"))?;
            let Some(frame) = order.next(packet)?.filter(|frame| range.contains(frame)) else {
                return Ok(());
            };
            let bytes = self.size.bytes();
            let place = &mut dest[(frame - range.start) * bytes..][..bytes];
            self.put(picture, &conversion, place)
        };
        kept.engine.decode(page.config, packets, &mut put)?;
        order.finish(packets)?;
        state.engine = Some(kept);
        Ok(())
    }
}

/// Checks that every packet shows one image, in the order that the page states.
#[derive(Debug, Default)]
struct ShownOrder {
    /// The last frame that was shown.
    last: Option<usize>,
    shown: usize,
}

impl ShownOrder {
    /// The last frame that was shown.
    fn last(&self) -> Option<usize> {
        self.last
    }

    /// The frame that an image is, if it is one of the page.
    fn next(&mut self, packet: &VideoPacket<'_>) -> Result<Option<usize>> {
        let Some(frame) = packet.frame else {
            return Ok(None);
        };
        if self.last.is_some_and(|last| last >= frame) {
            let what = format!("frame {frame} is decoded after a later one, or twice");
            return Err(corrupt(NAME, what));
        }
        self.last = Some(frame);
        self.shown += 1;
        Ok(Some(frame))
    }

    fn finish(&self, packets: &[VideoPacket<'_>]) -> Result<()> {
        let expected = packets.iter().filter(|packet| packet.frame.is_some());
        let expected = expected.count();
        if self.shown != expected {
            let what = format!("{} images were decoded, not {expected}", self.shown);
            return Err(corrupt(NAME, what));
        }
        Ok(())
    }
}
