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
    Codec, CodecError, Decoder, Encoded, FrameType, Frames, FramesMut, Page, RunEncoder, Scope,
    Scratch, ValueType,
};

use crate::compare::{Comparison, Distortion, broken};
use crate::error::DatasetError;
use crate::spill::Spill;
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
    /// What was learnt of a long run of which this is a part.
    pub(crate) learnt: Option<Learnt>,
}

/// What the pages of a long run share.
#[derive(Debug)]
pub(crate) struct Learnt {
    pub(crate) encoder: Arc<dyn RunEncoder>,
    /// Whether the block is the run's first, which is stored with what all share.
    pub(crate) is_first: bool,
}

/// What encoding a run as a whole works with, per number: the values, whole numbers of 64 bits, those of a class
/// beside them, and the library's copies (measured: 30 to 50).
pub(crate) const WHOLE_RUN_BYTES_PER_NUMBER: usize = 48;

/// The same for a page of a long run.
const PAGE_BYTES_PER_NUMBER: usize = 80;

impl Block {
    /// Bytes of a frame of numbers, at least one.
    pub(crate) fn frame_bytes(&self) -> usize {
        let ty = self.frame.as_values();
        ty.map_or(1, |ty| ty.frame_bytes().max(1))
    }

    /// Bytes of the frames when decoded; text has none.
    pub(crate) fn raw_bytes(&self) -> u64 {
        let frame_bytes = self.frame.as_values().map_or(0, |ty| ty.frame_bytes());
        (self.frames() * frame_bytes) as u64
    }

    /// Bytes of a number, at least one.
    pub(crate) fn number_bytes(&self) -> usize {
        self.frame.as_values().map_or(1, |ty| ty.dtype().size())
    }

    /// How many frames there are.
    pub(crate) fn frames(&self) -> usize {
        match &self.data {
            BlockData::Values(bytes) => bytes.len() / self.frame_bytes(),
            BlockData::File(file) => file.len() / self.frame_bytes(),
            BlockData::Bytes(frames) => frames.len(),
        }
    }

    /// The memory that it takes until its pages are laid down, about: as it came, decoded again, and what the
    /// codec works with.
    pub(crate) fn memory_bytes(&self) -> usize {
        let (len, number) = (self.data.len(), self.number_bytes());
        let page = self.page_frames.get().saturating_mul(self.frame_bytes());
        // The values of a block of a vector are kept as they are for its quantiles.
        let stats = match self.channels {
            Some(_) if number > 1 => len / number * 8,
            _ => 0,
        };
        let work = match (&self.learnt, self.codec.scope()) {
            (Some(_), _) => page.min(len) / number * PAGE_BYTES_PER_NUMBER,
            (None, Scope::Run) => len / number * WHOLE_RUN_BYTES_PER_NUMBER,
            (None, Scope::Page) => 0,
        };
        2 * len + stats.min(len.max(8 << 20)) + work
    }
}

/// The frames of a block.
#[derive(Debug)]
pub(crate) enum BlockData {
    /// Packed little-endian numbers.
    Values(Vec<u8>),
    /// Text, or bitstreams that are carried.
    Bytes(Vec<Vec<u8>>),
    /// Packed little-endian numbers that are not in memory.
    File(Spill),
}

impl BlockData {
    /// Bytes held.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Values(bytes) => bytes.len(),
            Self::Bytes(frames) => frames.iter().map(Vec::len).sum(),
            Self::File(file) => file.len(),
        }
    }

    /// Packed numbers, by bytes.
    pub(crate) fn read(&self, bytes: Range<usize>) -> Result<Vec<u8>, DatasetError> {
        match self {
            Self::Values(all) => Ok(all.get(bytes).unwrap_or_default().to_vec()),
            Self::Bytes(_) => Ok(Vec::new()),
            Self::File(file) => file.read(bytes),
        }
    }

    /// The same in memory.
    pub(crate) fn into_memory(self) -> Result<Self, DatasetError> {
        match self {
            Self::File(file) => file.read(0..file.len()).map(Self::Values),
            other => Ok(other),
        }
    }
}

/// What a block became.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) encoded: Encoded,
    pub(crate) stats: Option<StatsPart>,
    pub(crate) error: Distortion,
    pub(crate) encode_time: Duration,
    pub(crate) decode_time: Duration,
}

/// Whoever hands a block over brings it into memory.
const NOT_READ: &str = "frames that wait in a file were not read";

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
        BlockData::File(_) => return Err(broken(&*block.codec, NOT_READ.to_owned())),
    };
    let frames = frames.protect(&block.protected)?;
    let start = Instant::now();
    let mut encoded = Encoded::default();
    match &block.learnt {
        None => block
            .codec
            .encode(&frames, block.page_frames, &mut encoded, scratch)?,
        Some(learnt) => learnt
            .encoder
            .encode(&frames, block.page_frames, &mut encoded)?,
    }
    let encode_time = start.elapsed();
    let total: usize = encoded.pages.iter().map(|page| page.frames).sum();
    if total != frames.len() {
        return Err(broken(
            &*block.codec,
            format!("{total} of {} frames were stored", frames.len()),
        ));
    }
    let shared = match &block.learnt {
        None => &encoded.shared,
        Some(learnt) => learnt.encoder.shared(),
    };
    let decoder = block.codec.decoder(&block.frame, shared)?;
    if let Some(learnt) = block.learnt.as_ref().filter(|learnt| learnt.is_first) {
        encoded.shared = learnt.encoder.shared().to_vec();
    }
    let mut packed = Packed {
        encoded,
        stats: None,
        error: Distortion::default(),
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
        (FrameType::Text, _) => {
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
            BlockData::File(_) => return Err(broken(&*block.codec, NOT_READ.to_owned())),
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
