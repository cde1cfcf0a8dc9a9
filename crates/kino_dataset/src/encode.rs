//! One block of frames on a worker thread: encode, decode again, compare, count.
//!
//! Every page is decoded right after it was encoded. Lossless must come back bit for bit, lossy is
//! measured: a mistake in a codec stops the pack instead of spoiling a dataset, and the times are
//! those that the summary shows.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kino_codec::{
    Bound, Codec, CodecError, Decoder, Encoded, FrameType, Frames, FramesMut, Page, Scratch,
    ValueType,
};

use crate::stats::StatsPart;

/// Frames to encode, with all that is needed to do it.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) codec: Arc<dyn Codec>,
    pub(crate) frame: Arc<FrameType>,
    pub(crate) page_frames: NonZeroUsize,
    pub(crate) data: BlockData,
    /// Channels of the statistics; `None` if none are wanted.
    pub(crate) channels: Option<usize>,
}

/// The frames of a block.
#[derive(Debug)]
pub(crate) enum BlockData {
    /// Packed little-endian numbers.
    Values(Vec<u8>),
    /// Text, or bitstreams that are carried.
    Bytes(Vec<Vec<u8>>),
}

impl BlockData {
    /// Bytes held.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Values(bytes) => bytes.len(),
            Self::Bytes(frames) => frames.iter().map(Vec::len).sum(),
        }
    }
}

/// What a block became.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) encoded: Encoded,
    pub(crate) stats: Option<StatsPart>,
    pub(crate) error: Deviation,
    pub(crate) encode_time: Duration,
    pub(crate) decode_time: Duration,
}

/// How far decoded numbers are from the original ones.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Deviation {
    pub(crate) max_abs: f64,
    pub(crate) sum_squared: f64,
}

impl Deviation {
    pub(crate) fn merge(&mut self, other: Self) {
        self.max_abs = self.max_abs.max(other.max_abs);
        self.sum_squared += other.sum_squared;
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
}

/// Encodes a block and checks what came out.
pub(crate) fn pack(block: &Block) -> Result<Packed, CodecError> {
    SCRATCH.with_borrow_mut(|scratch| pack_with(block, scratch))
}

fn pack_with(block: &Block, scratch: &mut Scratch) -> Result<Packed, CodecError> {
    let slices: Vec<&[u8]>;
    let frames = match &block.data {
        BlockData::Values(bytes) => Frames::values(&block.frame, bytes)?,
        BlockData::Bytes(frames) => {
            slices = frames.iter().map(Vec::as_slice).collect();
            Frames::bytes(&block.frame, &slices)
        }
    };
    let start = Instant::now();
    let mut encoded = Encoded::default();
    block
        .codec
        .encode(&frames, block.page_frames, &mut encoded, scratch)?;
    let encode_time = start.elapsed();
    let total: usize = encoded.pages.iter().map(|page| page.frames).sum();
    if total != frames.len() {
        return Err(broken(
            &*block.codec,
            format!("{total} of {} frames were stored", frames.len()),
        ));
    }
    let decoder = block.codec.decoder(&block.frame, &encoded.shared)?;
    let mut packed = Packed {
        encoded,
        stats: None,
        error: Deviation::default(),
        encode_time,
        decode_time: Duration::ZERO,
    };
    match (&*block.frame, &block.data) {
        (FrameType::Text, BlockData::Bytes(original)) => {
            check_text(block, &*decoder, original, &mut packed, scratch)?
        }
        (FrameType::Values(ty), data) => {
            check_values(block, (&*decoder, ty), data, &mut packed, scratch)?
        }
        (FrameType::Text, BlockData::Values(_)) => {
            return Err(broken(&*block.codec, "text came as numbers".to_owned()));
        }
    }
    Ok(packed)
}

fn check_text(
    block: &Block,
    decoder: &dyn Decoder,
    original: &[Vec<u8>],
    packed: &mut Packed,
    scratch: &mut Scratch,
) -> Result<(), CodecError> {
    let mut texts = Vec::new();
    let start = Instant::now();
    for page in &packed.encoded.pages {
        decoder.decode_text(page_of(page), 0..page.frames, &mut texts, scratch)?;
    }
    packed.decode_time = start.elapsed();
    if texts
        .iter()
        .map(String::as_bytes)
        .ne(original.iter().map(Vec::as_slice))
    {
        return Err(broken(
            &*block.codec,
            "text did not come back as it was".to_owned(),
        ));
    }
    Ok(())
}

fn check_values(
    block: &Block,
    (decoder, ty): (&dyn Decoder, &ValueType),
    data: &BlockData,
    packed: &mut Packed,
    scratch: &mut Scratch,
) -> Result<(), CodecError> {
    let mut stats = block.channels.map(|channels| StatsPart::new(ty, channels));
    let mut decoded = Vec::new();
    let mut position = 0;
    for page in &packed.encoded.pages {
        let len = page.frames * ty.frame_bytes();
        decoded.resize(len, 0);
        let start = Instant::now();
        let mut dest = FramesMut::packed(ty, page.frames, &mut decoded)?;
        decoder.decode(page_of(page), 0..page.frames, &mut dest, scratch)?;
        packed.decode_time += start.elapsed();
        match data {
            BlockData::Values(bytes) => {
                let original = bytes.get(position..position + len).unwrap_or_default();
                packed
                    .error
                    .merge(compare(&*block.codec, ty, original, &decoded)?);
                stats.iter_mut().for_each(|stats| stats.add(original));
            }
            // A carried bitstream is its own original: its statistics are those of its pixels.
            BlockData::Bytes(_) => stats.iter_mut().for_each(|stats| stats.add(&decoded)),
        }
        position += len;
    }
    packed.stats = stats;
    Ok(())
}

fn page_of(page: &kino_codec::EncodedPage) -> Page<'_> {
    Page {
        bytes: &page.bytes,
        frames: page.frames,
    }
}

/// The deviation of a page, or the error that a lossless page did not come back.
fn compare(
    codec: &dyn Codec,
    ty: &ValueType,
    original: &[u8],
    decoded: &[u8],
) -> Result<Deviation, CodecError> {
    if original == decoded {
        return Ok(Deviation::default());
    }
    if codec.bound() == Bound::Lossless {
        return Err(broken(
            codec,
            "a lossless page did not come back as it was".to_owned(),
        ));
    }
    Ok(deviation(ty, original, decoded))
}

/// Our own mistake, found before it could reach the dataset.
fn broken(codec: &dyn Codec, what: String) -> CodecError {
    let what = format!("{what}; nothing was written, please report it");
    CodecError::Parameter {
        spec: codec.spec().to_string(),
        what,
    }
}

fn deviation(ty: &ValueType, original: &[u8], decoded: &[u8]) -> Deviation {
    use kino_codec::Dtype;
    fn each<const N: usize>(a: &[u8], b: &[u8], value: fn([u8; N]) -> f64) -> Deviation {
        let mut found = Deviation::default();
        for (a, b) in a.as_chunks().0.iter().zip(b.as_chunks().0) {
            let difference = (value(*a) - value(*b)).abs();
            // NaN against NaN is no difference; NaN against a number is an infinite one.
            let difference = if difference.is_nan() {
                nan_difference(value(*a), value(*b))
            } else {
                difference
            };
            found.merge(Deviation {
                max_abs: difference,
                sum_squared: difference * difference,
            });
        }
        found
    }
    match ty.dtype() {
        Dtype::Bool | Dtype::U8 => bytes_deviation(original, decoded),
        Dtype::I8 => each(original, decoded, |b| f64::from(i8::from_le_bytes(b))),
        Dtype::U16 => each(original, decoded, |b| f64::from(u16::from_le_bytes(b))),
        Dtype::I16 => each(original, decoded, |b| f64::from(i16::from_le_bytes(b))),
        Dtype::U32 => each(original, decoded, |b| f64::from(u32::from_le_bytes(b))),
        Dtype::I32 => each(original, decoded, |b| f64::from(i32::from_le_bytes(b))),
        #[expect(clippy::cast_precision_loss, reason = "an error measure")]
        Dtype::U64 => each(original, decoded, |b| u64::from_le_bytes(b) as f64),
        #[expect(clippy::cast_precision_loss, reason = "an error measure")]
        Dtype::I64 => each(original, decoded, |b| i64::from_le_bytes(b) as f64),
        Dtype::F16 => each(original, decoded, |b| half::f16::from_le_bytes(b).to_f64()),
        Dtype::F32 => each(original, decoded, |b| f64::from(f32::from_le_bytes(b))),
        Dtype::F64 => each(original, decoded, f64::from_le_bytes),
    }
}

fn nan_difference(a: f64, b: f64) -> f64 {
    if a.is_nan() == b.is_nan() {
        0.0
    } else {
        f64::MAX.sqrt()
    }
}

/// The common case, pictures, in integers.
#[expect(
    clippy::cast_precision_loss,
    reason = "sums of squares of a page are far below 2⁵³"
)]
fn bytes_deviation(original: &[u8], decoded: &[u8]) -> Deviation {
    let (mut max, mut sum) = (0_u8, 0_u64);
    for (a, b) in original.iter().zip(decoded) {
        let difference = a.abs_diff(*b);
        max = max.max(difference);
        sum += u64::from(difference) * u64::from(difference);
    }
    Deviation {
        max_abs: f64::from(max),
        sum_squared: sum as f64,
    }
}
