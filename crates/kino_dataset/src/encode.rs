//! One block of frames on a worker thread: resize if the plan says so, encode, decode again, compare, count.
//!
//! Every page is decoded right after it is encoded, and its bound is checked on the result ([`Comparison`]): a bug in
//! a codec stops the pack instead of corrupting a dataset, and the summary shows the measured times.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kino_codec::{
    CLOCK_CODEC, Codec, CodecError, Decoder, Dtype, Encoded, FrameType, Frames, Page, RunEncoder,
    Scope, Scratch, ValueType,
};

use crate::compare::{Comparison, Distortion, broken};
use crate::error::DatasetError;
use crate::pages::{self, LinkedPage, PageBlock};
use crate::resize::{Resize, ResizeScratch};
use crate::spill::Spill;
use crate::stats::StatsPart;
use crate::stored_stream::check_bools;

/// Frames to encode, with everything needed to do so.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) codec: Arc<dyn Codec>,
    pub(crate) frame: Arc<FrameType>,
    pub(crate) page_frames: NonZeroUsize,
    pub(crate) data: BlockData,
    /// Channels of the statistics; `None` to compute none.
    pub(crate) channels: Option<usize>,
    /// Frames that must be bit-exact whatever the bound.
    pub(crate) protected: Vec<Range<usize>>,
    /// How its frames are resized before they are encoded; `frame` is their type before.
    pub(crate) resize: Option<Arc<Resize>>,
    /// What was learnt from the long run that this block belongs to.
    pub(crate) learnt: Option<Learnt>,
}

/// What the pages of a long run share.
#[derive(Debug)]
pub(crate) struct Learnt {
    pub(crate) encoder: Arc<dyn RunEncoder>,
    /// Whether this is the run's first block, with which the shared data is stored.
    pub(crate) is_first: bool,
}

/// Working memory for encoding a whole run, per value: the values, 64-bit integers, those of a class, and the
/// library's copies (measured: 30 to 50).
pub(crate) const WHOLE_RUN_BYTES_PER_NUMBER: usize = 48;

/// Of a page of video, about this much is decoded at a time.
const CHECKED_BYTES: usize = 32 << 20;

/// Working memory for encoding a page of a long run, per value.
const PAGE_BYTES_PER_NUMBER: usize = 80;

impl Block {
    /// Explicit timestamps as int64 scalars.
    pub(crate) fn of_times(times: &[i64]) -> Result<Self, CodecError> {
        let frame = FrameType::values(Dtype::I64, &[])?;
        let codec = kino_codec::codec(CLOCK_CODEC)?;
        Ok(Self {
            page_frames: codec.page_frames(&frame),
            codec,
            frame: Arc::new(frame),
            data: BlockData::Values(times.iter().flat_map(|time| time.to_le_bytes()).collect()),
            channels: None,
            protected: Vec::new(),
            resize: None,
            learnt: None,
        })
    }

    /// The same block with its frames resized, on the thread that encodes it.
    pub(crate) fn resized(mut self) -> Result<Self, CodecError> {
        let Some(resize) = self.resize.take() else {
            return Ok(self);
        };
        let (BlockData::Values(values), Some(ty)) = (&mut self.data, self.frame.as_values()) else {
            return Err(broken(&*self.codec, NOT_READ.to_owned()));
        };
        let frame = FrameType::Values(resize.value_type(ty)?);
        let resized = RESIZE.with_borrow_mut(|scratch| resize.to_resized(values, scratch));
        let resized = resized.map_err(|what| broken(&*self.codec, what))?;
        self.frame = Arc::new(frame);
        self.data = BlockData::Values(resized);
        Ok(self)
    }

    /// Bytes of a frame of values, at least one.
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

    /// The number of frames.
    pub(crate) fn frames(&self) -> usize {
        match &self.data {
            BlockData::Values(bytes) => bytes.len() / self.frame_bytes(),
            BlockData::File(file) => file.len() / self.frame_bytes(),
            BlockData::Bytes(frames) => frames.len(),
            BlockData::Pages(pages) => pages.frames(),
        }
    }

    /// The approximate memory that the block needs until its pages are written: the frames, the decoded copy, and the
    /// codec's working memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        if let BlockData::Pages(pages) = &self.data {
            let decoded = pages.most_frames().saturating_mul(self.frame_bytes());
            return pages.len().saturating_mul(2).saturating_add(decoded);
        }
        let (len, number) = (self.data.len(), self.number_bytes());
        let page = self.page_frames.get().saturating_mul(self.frame_bytes());
        // The values of a vector block are kept for its quantiles.
        let stats = match self.channels {
            Some(_) if number > 1 => len / number * 8,
            _ => 0,
        };
        let work = match (&self.learnt, self.codec.scope()) {
            (Some(_), _) => page.min(len) / number * PAGE_BYTES_PER_NUMBER,
            (None, Scope::Run) => len / number * WHOLE_RUN_BYTES_PER_NUMBER,
            (None, Scope::Page) => 0,
        };
        // Of video, a part of a page is decoded at a time to check it.
        let decoded = match &self.data {
            BlockData::Bytes(_) if self.codec.has_own_pages() => CHECKED_BYTES,
            _ => 0,
        };
        2 * len + decoded + stats.min(len.max(8 << 20)) + work
    }
}

/// The frames of a block.
#[derive(Debug)]
pub(crate) enum BlockData {
    /// Packed little-endian values.
    Values(Vec<u8>),
    /// Text, or bitstreams stored as they are.
    Bytes(Vec<Vec<u8>>),
    /// Packed little-endian values in a file.
    File(Spill),
    /// Pages that exist already.
    Pages(PageBlock),
}

impl BlockData {
    /// Bytes held.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Values(bytes) => bytes.len(),
            Self::Bytes(frames) => frames.iter().map(Vec::len).sum(),
            Self::File(file) => file.len(),
            Self::Pages(pages) => pages.len(),
        }
    }

    /// Packed values, by byte range.
    pub(crate) fn read(&self, bytes: Range<usize>) -> Result<Vec<u8>, DatasetError> {
        match self {
            Self::Values(all) => Ok(all.get(bytes).unwrap_or_default().to_vec()),
            Self::Bytes(_) | Self::Pages(_) => Ok(Vec::new()),
            Self::File(file) => file.read(bytes),
        }
    }

    /// The same data, loaded into memory.
    pub(crate) fn into_memory(self) -> Result<Self, DatasetError> {
        match self {
            Self::File(file) => file.read(0..file.len()).map(Self::Values),
            other => Ok(other),
        }
    }
}

/// The result of encoding a block.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) encoded: Encoded,
    /// Pages that are linked instead of stored.
    pub(crate) linked: Vec<LinkedPage>,
    pub(crate) stats: Option<StatsPart>,
    pub(crate) error: Distortion,
    /// The library that made the pages, if it is not part of Kinograph.
    pub(crate) encoder: Option<String>,
    pub(crate) encode_time: Duration,
    pub(crate) decode_time: Duration,
}

/// The caller loads a block into memory before handing it over.
const NOT_READ: &str = "frames in a spill file were not loaded";

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
    static RESIZE: RefCell<ResizeScratch> = RefCell::default();
}

/// Encodes a block and checks the result.
pub(crate) fn pack(block: &Block) -> Result<Packed, CodecError> {
    if let BlockData::Pages(pages) = &block.data {
        return pages::check(block, pages);
    }
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
        BlockData::File(_) | BlockData::Pages(_) => {
            return Err(broken(&*block.codec, NOT_READ.to_owned()));
        }
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
            format!("only {total} of {} frames were encoded", frames.len()),
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
        linked: Vec::new(),
        stats: None,
        error: Distortion::default(),
        encoder: block.codec.encoder(),
        encode_time,
        decode_time: Duration::ZERO,
    };
    match (&*block.frame, &block.data) {
        (FrameType::Text, BlockData::Bytes(original)) => {
            check_text(block, &*decoder, original, &mut packed, scratch)?
        }
        (FrameType::Values(ty), _) => check_values(block, &*decoder, ty, &mut packed, scratch)?,
        (FrameType::Text, _) => {
            return Err(broken(
                &*block.codec,
                "text was passed as packed values".to_owned(),
            ));
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
        decoder.decode_text(page.page(), 0..page.frames, &mut texts, scratch)?;
    }
    packed.decode_time = start.elapsed();
    if texts
        .iter()
        .map(String::as_bytes)
        .ne(original.iter().map(Vec::as_slice))
    {
        return Err(broken(
            &*block.codec,
            "text does not decode to the original".to_owned(),
        ));
    }
    Ok(())
}

fn check_values(
    block: &Block,
    decoder: &dyn Decoder,
    ty: &ValueType,
    packed: &mut Packed,
    scratch: &mut Scratch,
) -> Result<(), CodecError> {
    let mut stats = block.channels.map(|channels| StatsPart::new(ty, channels));
    let mut decoded = Vec::new();
    let comparison = Comparison::new(&*block.codec, ty, &block.protected);
    let (mut position, mut first_frame) = (0, 0);
    for page in &packed.encoded.pages {
        if block.codec.has_own_pages() {
            let start = Instant::now();
            count_video(decoder, page.page(), ty, stats.as_mut(), scratch)?;
            packed.decode_time += start.elapsed();
            continue;
        }
        let len = page.frames * ty.frame_bytes();
        decoded.resize(len, 0);
        let start = Instant::now();
        decoder.decode(page.page(), 0..page.frames, &mut decoded, scratch)?;
        packed.decode_time += start.elapsed();
        // As a reader does: what it would refuse is never committed.
        check_bools(ty, &decoded)?;
        match &block.data {
            BlockData::Values(bytes) => {
                let original = bytes.get(position..position + len).unwrap_or_default();
                let error = comparison.page(first_frame, original, &decoded)?;
                packed.error.merge(error);
                stats.iter_mut().for_each(|stats| stats.add(original));
            }
            // A bitstream stored as it is is its own original: the statistics are those of its pixels.
            BlockData::Bytes(_) => stats.iter_mut().for_each(|stats| stats.add(&decoded)),
            BlockData::File(_) | BlockData::Pages(_) => {
                return Err(broken(&*block.codec, NOT_READ.to_owned()));
            }
        }
        position += len;
        first_frame += page.frames;
    }
    packed.stats = stats;
    Ok(())
}

/// Decodes a page of video, a part at a time, for statistics of its pixels: it is its own original.
pub(crate) fn count_video(
    decoder: &dyn Decoder,
    page: Page<'_>,
    ty: &ValueType,
    mut stats: Option<&mut StatsPart>,
    scratch: &mut Scratch,
) -> Result<(), CodecError> {
    let size = ty.frame_bytes();
    let step = (CHECKED_BYTES / size.max(1)).max(1);
    let mut decoded = Vec::new();
    for start in (0..page.frames).step_by(step) {
        let end = page.frames.min(start + step);
        decoded.resize((end - start) * size, 0);
        decoder.decode(page, start..end, &mut decoded, scratch)?;
        if let Some(stats) = &mut stats {
            stats.add(&decoded);
        }
    }
    Ok(())
}
