//! Compressors that `kinograph bench codecs` compares with the codecs of the format. They are never stored.
//!
//! ```text
//! lz4:shuffle=4                                      LZ4 block
//! deflate:level=6,strategy=rle,shuffle=bits4         zlib, with its levels and strategies
//! zstd:level=3,shuffle=bits4                         zstd of grouped bits
//! ```
//!
//! `shuffle=W` groups the bytes of values of W bytes as `zstd` does, `shuffle=bitsW` their bits (bits.rs). Pages are
//! about as long as those of `zstd`. Nothing here reads untrusted bytes: what is decompressed was compressed before.

mod bits;
mod deflate;

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use kino_codec::{
    ByteShuffle, Codec, CodecError, CodecSpec, Decoder, Dtype, Encoded, EncodedPage, FrameType,
    Frames, Page, Scratch,
};
use kino_sync::Mutex;

use bits::BitShuffle;
use deflate::{Deflate, Inflater, STRATEGIES};

type Result<T> = std::result::Result<T, CodecError>;

/// The codec `text`: one that can be stored, or one for comparison.
pub fn comparable(text: &str) -> Result<Arc<dyn Codec>> {
    match kino_codec::codec(text) {
        Err(CodecError::Retired { .. }) => Ok(Arc::new(Compared::new(&text.parse()?)?)),
        result => result,
    }
}

/// zlib with its levels and strategies, and bit shuffle, for frames of a type.
pub fn classic(frame: &FrameType) -> Vec<String> {
    let Some(ty) = frame.as_values() else {
        return Vec::new();
    };
    let width = ty.dtype().size();
    let mut texts = vec![
        format!("zstd:level=3,shuffle=bits{width}"),
        format!("deflate:level=6,strategy=default,shuffle={width}"),
    ];
    for (strategy, _) in STRATEGIES {
        // Neither of these two searches further at a higher level.
        let is_flat = matches!(strategy, "huffman" | "rle");
        let levels: &[u8] = if is_flat { &[6] } else { &[1, 6, 9] };
        let deflate = levels
            .iter()
            .map(|level| format!("deflate:level={level},strategy={strategy},shuffle=1"));
        texts.extend(deflate);
    }
    texts
}

/// LZ4 for frames of a type: the fastest to decode.
pub(super) fn lz4(frame: &FrameType) -> String {
    let width = frame.as_values().map_or(1, |ty| ty.dtype().size());
    format!("lz4:shuffle={width}")
}

/// A compressor of bytes.
#[derive(Debug, Clone)]
enum Method {
    Lz4,
    Deflate(Deflate),
    /// A codec of the format, on single bytes.
    Stored(Arc<dyn Codec>),
}

/// How values are grouped before they are compressed.
#[derive(Debug, Clone, Copy)]
enum Grouping {
    Bytes(ByteShuffle),
    Bits(BitShuffle),
}

/// A codec that is only compared.
#[derive(Debug)]
struct Compared {
    spec: CodecSpec,
    method: Method,
    grouping: Grouping,
    /// The codec whose pages it is compared with.
    pages_of: Arc<dyn Codec>,
}

impl Compared {
    fn new(spec: &CodecSpec) -> Result<Self> {
        let shuffle = spec.get("shuffle").unwrap_or("1");
        let (method, parameters) = match spec.name() {
            "deflate" => {
                let deflate = Deflate::new(spec)?;
                (Method::Deflate(deflate), format!("{deflate},"))
            }
            "lz4" => (Method::Lz4, String::new()),
            name => {
                let level = spec.get("level").unwrap_or("3");
                let inner = kino_codec::codec(&format!("{name}:level={level}"))?;
                (Method::Stored(inner), format!("level={level},"))
            }
        };
        Ok(Self {
            spec: format!("{}:{parameters}shuffle={shuffle}", spec.name()).parse()?,
            method,
            grouping: Grouping::parse(shuffle).ok_or_else(|| CodecError::Parameter {
                spec: spec.to_string(),
                what: "`shuffle` must be 1, 2, 4 or 8, or bits1, bits2, bits4 or bits8".to_owned(),
            })?,
            pages_of: kino_codec::codec("zstd")?,
        })
    }
}

impl Grouping {
    fn parse(text: &str) -> Option<Self> {
        let bytes = |width: &str| ByteShuffle::new(width.parse().ok()?);
        match text.strip_prefix("bits") {
            Some(width) => Some(Self::Bits(BitShuffle(bytes(width)?))),
            None => Some(Self::Bytes(bytes(text)?)),
        }
    }

    fn width(self) -> usize {
        match self {
            Self::Bytes(bytes) | Self::Bits(BitShuffle(bytes)) => bytes.width(),
        }
    }

    fn group(self, values: &[u8]) -> Vec<u8> {
        let mut grouped = vec![0; values.len()];
        match self {
            Self::Bytes(bytes) => bytes.group(values, &mut grouped),
            Self::Bits(bits) => bits.group(values, &mut grouped),
        }
        grouped
    }
}

impl Codec for Compared {
    fn spec(&self) -> &CodecSpec {
        &self.spec
    }

    fn page_frames(&self, frame: &FrameType) -> NonZeroUsize {
        self.pages_of.page_frames(frame)
    }

    fn check(&self, frame: &FrameType) -> Result<()> {
        self.pages_of.check(frame)?;
        let bytes = frame.as_values().map_or(0, |ty| ty.frame_bytes());
        if bytes.is_multiple_of(self.grouping.width()) {
            return Ok(());
        }
        Err(CodecError::Unsuited {
            codec: "shuffle",
            frame: frame.to_string(),
            what: "a frame does not divide into elements of this size".to_owned(),
        })
    }

    fn encode(
        &self,
        frames: &Frames<'_>,
        page_frames: NonZeroUsize,
        out: &mut Encoded,
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.check(frames.frame())?;
        let (ty, values) = frames.as_values("shuffle")?;
        let size = ty.frame_bytes();
        for page in values.chunks(page_frames.get().saturating_mul(size)) {
            let grouped = self.grouping.group(page);
            out.pages.push(EncodedPage {
                frames: page.len() / size,
                bytes: self.method.compress(&grouped, scratch)?,
            });
        }
        Ok(())
    }

    fn decoder(&self, frame: &FrameType, _shared: &[u8]) -> Result<Box<dyn Decoder>> {
        self.check(frame)?;
        Ok(Box::new(ComparedDecoder {
            frame_bytes: frame.as_values().map_or(0, |ty| ty.frame_bytes()),
            method: self.method.clone(),
            grouping: self.grouping,
            room: Mutex::default(),
        }))
    }
}

impl Method {
    fn compress(&self, content: &[u8], scratch: &mut Scratch) -> Result<Vec<u8>> {
        match self {
            Self::Lz4 => Ok(lz4_flex::block::compress(content)),
            Self::Deflate(deflate) => deflate.compress(content),
            Self::Stored(codec) => {
                let (byte, mut out) = (byte()?, Encoded::default());
                let frames = Frames::values(&byte, content)?;
                let all = NonZeroUsize::new(content.len()).unwrap_or(NonZeroUsize::MIN);
                codec.encode(&frames, all, &mut out, scratch)?;
                Ok(out.pages.pop().map(|page| page.bytes).unwrap_or_default())
            }
        }
    }

    /// Fills `content` from a page.
    fn decompress(
        &self,
        page: &[u8],
        content: &mut [u8],
        inflater: &mut Inflater,
        scratch: &mut Scratch,
    ) -> Result<()> {
        match self {
            Self::Lz4 => lz4_flex::block::decompress_into(page, content)
                .map(drop)
                .map_err(failed),
            Self::Deflate(_) => inflater.decompress(page, content),
            Self::Stored(codec) => {
                let decoder = codec.decoder(&byte()?, &[])?;
                let frames = content.len();
                let page = Page {
                    bytes: page,
                    frames,
                };
                decoder.decode(page, 0..frames, content, scratch)
            }
        }
    }
}

/// The type of a single byte.
fn byte() -> Result<FrameType> {
    FrameType::values(Dtype::U8, &[])
}

fn failed(error: impl ToString) -> CodecError {
    CodecError::Buffer {
        what: error.to_string(),
    }
}

/// Decodes pages of [`Compared`].
#[derive(Debug)]
struct ComparedDecoder {
    frame_bytes: usize,
    method: Method,
    grouping: Grouping,
    room: Mutex<Room>,
}

/// Buffers that are kept from page to page, so that allocation is not measured.
#[derive(Debug, Default)]
struct Room {
    content: Vec<u8>,
    inflater: Inflater,
}

impl Decoder for ComparedDecoder {
    fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    fn decode_checked(
        &self,
        page: Page<'_>,
        range: Range<usize>,
        dest: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let mut room = self.room.lock();
        let Room { content, inflater } = &mut *room;
        content.resize(page.frames * self.frame_bytes, 0);
        self.method
            .decompress(page.bytes, content, inflater, scratch)?;
        let first = range.start * self.frame_bytes / self.grouping.width();
        match self.grouping {
            Grouping::Bytes(bytes) => bytes.ungroup(content, first, dest),
            Grouping::Bits(bits) => bits.ungroup(content, first, dest),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(text: &str, frame: &FrameType, values: &[u8]) {
        let codec = comparable(text).unwrap();
        assert_eq!(codec.spec().to_string(), text);
        let frames = Frames::values(frame, values).unwrap();
        let (mut encoded, mut scratch) = (Encoded::default(), Scratch::new());
        let page_frames = NonZeroUsize::new(5).unwrap();
        codec
            .encode(&frames, page_frames, &mut encoded, &mut scratch)
            .unwrap();
        let decoder = codec.decoder(frame, &[]).unwrap();
        let mut got = Vec::new();
        for page in &encoded.pages {
            for idx in 0..page.frames {
                let mut one = vec![0; decoder.frame_bytes()];
                let range = idx..idx + 1;
                decoder
                    .decode(page.page(), range, &mut one, &mut scratch)
                    .unwrap();
                got.extend(one);
            }
        }
        assert!(got == values, "{text}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn every_compressor_returns_what_it_was_given(
            dtype in prop::sample::select(vec![Dtype::U8, Dtype::U16, Dtype::F32, Dtype::F64]),
            frames in 1_usize..20,
            bytes in prop::collection::vec(any::<u8>(), 20 * 13 * 8),
        ) {
            let frame = FrameType::values(dtype, &[13]).unwrap();
            let bytes = &bytes[..frames * 13 * dtype.size()];
            for text in classic(&frame).into_iter().chain([lz4(&frame)]) {
                round_trip(&text, &frame, bytes);
            }
        }
    }

    #[test]
    fn what_can_be_stored_is_the_codec_of_the_format() {
        assert_eq!(
            comparable("raw").unwrap().spec().to_string(),
            kino_codec::codec("raw").unwrap().spec().to_string()
        );
        for text in [
            "lz4:shuffle=3",
            "deflate:level=10",
            "deflate:strategy=best",
            "webp",
        ] {
            assert!(comparable(text).is_err(), "{text}");
        }
        for text in classic(&FrameType::values(Dtype::F32, &[7]).unwrap()) {
            let error = kino_codec::codec(&text).unwrap_err();
            assert!(
                error.to_string().contains("pack the recording again"),
                "{error}"
            );
        }
    }
}
