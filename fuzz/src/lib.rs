//! How a fuzzer's bytes become a call to a decoder, a recording, or a small dataset that text is applied to.
//!
//! ```text
//! lib.rs         codec_*                a page and how to decode it
//! recording.rs   import_*, mapping_*    files of a recording, which is opened and read
//! dataset.rs     request, selection     a dataset of three episodes
//! seal.rs        import_hdf5, …         checksums that an attacker would correct too
//! ```
//!
//! The input of a codec's target:
//!
//! ```text
//! input = type │ first frame │ frames requested │ frames in page │ shared length │ unused │ shared │ page
//!         u8     u8            u8              u16 LE           u16 LE          u8        the rest
//! ```
//!
//! An input of the same layout with a real page at its end is a good seed: see `examples/seeds.rs`. The unused byte
//! stays, because without it no page of a corpus would be where it was.

mod dataset;
mod panics;
mod recording;
mod seal;

pub use dataset::dataset;
pub use panics::expect_panics_of_h264;
pub use recording::{Recording, SEPARATOR, split};
pub use seal::{seal_hdf5, seal_tar, tfrecord};

use std::cell::RefCell;
use std::num::NonZeroUsize;

use kino_codec::{
    Codec, Dtype, Encoded, FrameType, Frames, Page, Reduction, Scratch, ValueType, codec,
};

/// Bytes before the shared part.
pub const HEADER_LEN: usize = 8;

/// What to decode.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Chooses the frame type.
    pub kind: u8,
    /// The claimed number of frames in the page.
    pub frames: usize,
    first: usize,
    wanted: usize,
    shared: &'a [u8],
    page: &'a [u8],
}

impl<'a> Input<'a> {
    /// Splits a fuzzer's bytes.
    pub fn new(data: &'a [u8]) -> Option<Self> {
        let (&[kind, first, wanted, f0, f1, s0, s1, _], rest) =
            data.split_first_chunk::<HEADER_LEN>()?;
        let shared_len = usize::from(u16::from_le_bytes([s0, s1]));
        let (shared, page) = rest.split_at_checked(shared_len)?;
        Some(Self {
            kind,
            frames: u16::from_le_bytes([f0, f1]).into(),
            first: first.into(),
            wanted: wanted.into(),
            shared,
            page,
        })
    }

    /// The page with everything after its first `keep` bytes in a valid zstd frame; `None` if there is nothing.
    ///
    /// A fuzzer hardly ever finds a valid frame, so the code behind one would stay untested. With
    /// `content_len` the content is truncated or repeated to that length.
    pub fn wrapped(
        &self,
        keep: usize,
        content_len: Option<usize>,
        scratch: &mut Scratch,
    ) -> Option<Vec<u8>> {
        let (kept, content) = self.page.split_at_checked(keep)?;
        let content = repeated(content, content_len.unwrap_or(content.len()));
        let frame = zstd_frame(&content, scratch);
        (!frame.is_empty()).then(|| [kept, &frame].concat())
    }

    /// The page's bytes.
    pub fn page(&self) -> &'a [u8] {
        self.page
    }

    /// The same call with another page.
    pub fn with_page<'b>(&self, page: &'b [u8]) -> Input<'b>
    where
        'a: 'b,
    {
        Input { page, ..*self }
    }

    /// Decodes numeric values; checks that bytes outside the destination are untouched.
    pub fn decode(&self, codec: &dyn Codec, ty: &ValueType, scratch: &mut Scratch) {
        let frame = FrameType::Values(ty.clone());
        let Ok(decoder) = codec.decoder(&frame, self.shared) else {
            return;
        };
        let mut bytes = vec![0xa5; ty.frame_bytes() * self.wanted + 64];
        let end = bytes.len() - 64;
        let (places, guard) = bytes.split_at_mut(end);
        let range = self.first..self.first + self.wanted;
        let page = Page {
            bytes: self.page,
            frames: self.frames,
        };
        let _ = decoder.decode(page, range.clone(), places, scratch);
        let _ = decoder.bitstream(page, self.first);
        let _ = decoder.decode_text(page, range, &mut Vec::new(), scratch);
        assert!(guard.iter().all(|byte| *byte == 0xa5));
        let (&[height, width, channels], true) = (ty.shape(), decoder.can_reduce(page)) else {
            return;
        };
        for reduction in [Reduction::Half, Reduction::Quarter, Reduction::Eighth] {
            let len = reduction.side(height) * reduction.side(width) * channels;
            let mut bytes = vec![0xa5; len + 64];
            let (place, guard) = bytes.split_at_mut(len);
            let _ = decoder.decode_reduced(page, reduction, place, scratch);
            assert!(guard.iter().all(|byte| *byte == 0xa5));
        }
    }

    /// Decodes text.
    pub fn decode_text(&self, codec: &dyn Codec, scratch: &mut Scratch) {
        let Ok(decoder) = codec.decoder(&FrameType::Text, self.shared) else {
            return;
        };
        let page = Page {
            bytes: self.page,
            frames: self.frames,
        };
        let range = self.first..self.first + self.wanted;
        let mut out = Vec::new();
        if decoder.decode_text(page, range, &mut out, scratch).is_ok() {
            assert_eq!(out.len(), self.wanted);
        }
    }
}

/// Runs `work` with buffers that are kept between inputs, as a decoding thread keeps them between pages.
pub fn with_scratch(work: impl FnOnce(&mut Scratch)) {
    thread_local! {
        static SCRATCH: RefCell<Scratch> = RefCell::default();
    }
    SCRATCH.with_borrow_mut(work);
}

/// The bytes, truncated or repeated to a length.
pub fn repeated(bytes: &[u8], len: usize) -> Vec<u8> {
    bytes.iter().copied().cycle().take(len).collect()
}

/// One zstd frame that holds `content`; empty if the content is.
pub fn zstd_frame(content: &[u8], scratch: &mut Scratch) -> Vec<u8> {
    let Some(len) = NonZeroUsize::new(content.len()) else {
        return Vec::new();
    };
    // A page of the `zstd` codec is exactly one frame.
    let byte = FrameType::values(Dtype::U8, &[]).expect("a scalar");
    let frames = Frames::values(&byte, content).expect("whole bytes");
    let mut out = Encoded::default();
    codec("zstd:level=1")
        .and_then(|zstd| zstd.encode(&frames, len, &mut out, scratch))
        .expect("bytes can be compressed");
    out.pages.swap_remove(0).bytes
}

/// Appends a length as codecs write it: seven bits per byte, lowest first.
pub fn put_length(mut len: usize, page: &mut Vec<u8>) {
    while len > 0x7f {
        page.push(u8::try_from(len & 0x7f).expect("seven bits") | 0x80);
        len >>= 7;
    }
    page.push(u8::try_from(len).expect("seven bits"));
}

/// A type of depth images for every `kind`.
pub fn distances(kind: u8) -> ValueType {
    let shapes: [&[usize]; 5] = [&[8, 8], &[1, 1], &[9, 7, 1], &[16, 24], &[33, 1]];
    let dtypes = [Dtype::U16, Dtype::F32, Dtype::F16, Dtype::F64];
    let kind = usize::from(kind);
    ValueType::new(dtypes[kind % 4], shapes[kind / 4 % shapes.len()]).expect("small shapes")
}

/// A vector type for every `kind`.
pub fn vector(kind: u8) -> ValueType {
    let shapes: [&[usize]; 5] = [&[], &[1], &[7], &[2, 3], &[26]];
    let kind = usize::from(kind);
    let dtype = Dtype::ALL[kind % Dtype::ALL.len()];
    ValueType::new(dtype, shapes[kind / Dtype::ALL.len() % shapes.len()]).expect("small shapes")
}

/// A value of parameter `shuffle` for every `kind`: mostly one that suits [`vector`] of the same kind.
pub fn shuffle(kind: u8) -> String {
    let size = vector(kind).dtype().size();
    match kind / 60 {
        0 => "1".to_owned(),
        1 | 2 => size.to_string(),
        3 => "2".to_owned(),
        _ => "4".to_owned(),
    }
}

/// An image type for every `kind`.
pub fn image(kind: u8) -> ValueType {
    let shapes: [&[usize]; 8] = [
        &[16, 16, 3],
        &[1, 1, 3],
        &[8, 8],
        &[9, 7, 3],
        &[16, 24, 1],
        &[5, 3, 4],
        &[1, 40, 3],
        &[33, 1],
    ];
    ValueType::new(Dtype::U8, shapes[usize::from(kind) % shapes.len()]).expect("small shapes")
}
