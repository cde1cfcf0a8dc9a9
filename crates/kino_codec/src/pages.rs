//! The adapter for codecs whose pages do not depend on each other: they encode one page, and get a [`Codec`].
//!
//! Here, once for all of them: the canonical text, splitting a run into pages, the limits of a page, and that such pages
//! share nothing. Codecs that learn from a whole run (`pco`, `vector`) implement [`Codec`] themselves, and so does
//! `jpeg`, whose search for a quality continues from page to page.

use std::fmt::Debug;
use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::bound::Bound;
use crate::codec::{
    Codec, Decoder, Encoded, EncodedPage, check_page_bytes, check_page_frames, no_shared,
};
use crate::error::Result;
use crate::frame::FrameType;
use crate::frames::Frames;
use crate::scratch::Scratch;
use crate::spec::CodecSpec;

/// A codec of independent pages.
pub(crate) trait PageCodec: Debug + Send + Sync + Sized + 'static {
    /// The name in a codec string.
    const NAME: &'static str;

    /// Decodes its pages.
    type Decoder: Decoder + 'static;

    /// Reads the parameters of a codec string.
    fn parse(spec: &CodecSpec) -> Result<Self>;

    /// Every parameter, as in the canonical string.
    fn parameters(&self) -> Vec<(&'static str, String)>;

    /// What it guarantees about decoded values.
    fn bound(&self) -> Bound {
        Bound::Lossless
    }

    /// The page length that suits such frames best.
    fn page_frames(&self, _frame: &FrameType) -> NonZeroUsize {
        NonZeroUsize::MIN
    }

    /// The longest page.
    fn max_page_frames(&self, frame: &FrameType) -> usize {
        self.page_frames(frame).get()
    }

    /// The name of the codec outside this library that it uses; see [`Codec::foreign`].
    fn foreign(&self) -> Option<&str> {
        None
    }

    /// Rejects frame types that it cannot store.
    fn check(&self, frame: &FrameType) -> Result<()> {
        self.decoder(frame).map(drop)
    }

    /// Fails if this process cannot encode; see [`Codec::check_encoder`].
    fn check_encoder(&self) -> Result<()> {
        Ok(())
    }

    /// Fails if this process cannot decode; see [`Codec::check_decoder`].
    fn check_decoder(&self) -> Result<()> {
        Ok(())
    }

    /// The library outside this crate that encodes; see [`Codec::encoder`].
    fn encoder(&self) -> Option<String> {
        None
    }

    /// The decoder of such frames; an error if the codec cannot store them.
    fn decoder(&self, frame: &FrameType) -> Result<Self::Decoder>;

    /// Encodes the frames of one page.
    fn encode_page(&self, frames: &Frames<'_>, scratch: &mut Scratch) -> Result<Vec<u8>>;
}

/// The [`Codec`] of a [`PageCodec`].
#[derive(Debug)]
pub(crate) struct Pages<C> {
    spec: CodecSpec,
    codec: C,
}

impl<C: PageCodec> Pages<C> {
    pub(crate) fn new(spec: &CodecSpec) -> Result<Self> {
        let codec = C::parse(spec)?;
        Ok(Self {
            spec: CodecSpec::new(C::NAME, &codec.parameters()),
            codec,
        })
    }

    /// As the registry makes codecs.
    pub(crate) fn make(spec: &CodecSpec) -> Result<Arc<dyn Codec>> {
        Ok(Arc::new(Self::new(spec)?))
    }
}

impl<C: PageCodec> Codec for Pages<C> {
    fn spec(&self) -> &CodecSpec {
        &self.spec
    }

    fn bound(&self) -> Bound {
        self.codec.bound()
    }

    fn page_frames(&self, frame: &FrameType) -> NonZeroUsize {
        self.codec.page_frames(frame)
    }

    fn check(&self, frame: &FrameType) -> Result<()> {
        self.codec.check(frame)
    }

    fn foreign(&self) -> Option<&str> {
        self.codec.foreign()
    }

    fn check_encoder(&self) -> Result<()> {
        self.codec.check_encoder()
    }

    fn check_decoder(&self, _frame: &FrameType) -> Result<()> {
        self.codec.check_decoder()
    }

    fn encoder(&self) -> Option<String> {
        self.codec.encoder()
    }

    fn encode(
        &self,
        frames: &Frames<'_>,
        page_frames: NonZeroUsize,
        out: &mut Encoded,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let frame = frames.frame();
        self.check(frame)?;
        check_page_frames(C::NAME, page_frames, self.codec.max_page_frames(frame))?;
        if let Some(ty) = frame.as_values() {
            check_page_bytes(page_frames.get().min(frames.len()), ty.frame_bytes())?;
        }
        for page in frames.pages(page_frames) {
            let mut bytes = self.codec.encode_page(&page, scratch)?;
            bytes.shrink_to_fit();
            out.pages.push(EncodedPage {
                frames: page.len(),
                bytes,
            });
        }
        Ok(())
    }

    fn decoder(&self, frame: &FrameType, shared: &[u8]) -> Result<Box<dyn Decoder>> {
        no_shared(C::NAME, shared)?;
        Ok(Box::new(self.codec.decoder(frame)?))
    }
}
