//! One block of frames on a worker thread: encode, decode again, compare, count.
//!
//! Every page is decoded right after it was encoded, and its bound is checked on what came out
//! ([`Comparison`]): a mistake in a codec stops the pack instead of spoiling a dataset, and the times
//! are those that the summary shows.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kino_codec::{
    Codec, CodecError, Decoder, Encoded, FrameType, Frames, FramesMut, Page, Scratch, ValueType,
};

use crate::compare::{Comparison, Deviation, broken};
use crate::stats::StatsPart;
use crate::stored_stream::check_bools;

/// Frames to encode, with all that is needed to do it.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) codec: Arc<dyn Codec>,
    pub(crate) frame: Arc<FrameType>,
    pub(crate) page_frames: NonZeroUsize,
    pub(crate) data: BlockData,
    /// Channels of the statistics; `None` if none are wanted.
    pub(crate) channels: Option<usize>,
    /// Frames that come back bit for bit whatever the bound.
    pub(crate) protected: Vec<Range<usize>>,
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
    let frames = frames.protect(&block.protected)?;
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
    let comparison = Comparison::new(&*block.codec, ty, &block.protected);
    let (mut position, mut first_frame) = (0, 0);
    for page in &packed.encoded.pages {
        let len = page.frames * ty.frame_bytes();
        decoded.resize(len, 0);
        let start = Instant::now();
        let mut dest = FramesMut::packed(ty, page.frames, &mut decoded)?;
        decoder.decode(page_of(page), 0..page.frames, &mut dest, scratch)?;
        packed.decode_time += start.elapsed();
        // As a reader does: what it would refuse is never committed.
        check_bools(ty, &decoded)?;
        match data {
            BlockData::Values(bytes) => {
                let original = bytes.get(position..position + len).unwrap_or_default();
                let error = comparison.page(first_frame, original, &decoded)?;
                packed.error.merge(error);
                stats.iter_mut().for_each(|stats| stats.add(original));
            }
            // A carried bitstream is its own original: its statistics are those of its pixels.
            BlockData::Bytes(_) => stats.iter_mut().for_each(|stats| stats.add(&decoded)),
        }
        position += len;
        first_frame += page.frames;
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
