//! Pages that exist already: written as they are, or linked to the files they are in.
//!
//! ```text
//! EpisodeWriter::paged_stream ─▶ push_pages … ─▶ worker threads: decode, check, count ─▶ assembler.rs
//!                                                                  │ stored: its bytes     │ linked: its pieces
//! ```
//!
//! Nothing is encoded. A page is decoded once, as every page is before it is committed, unless it comes from a dataset
//! ([`PageCheck`]) or was linked without reading it: then it has no bytes here, and neither checksum nor statistics.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kino_codec::{Codec, CodecError, Decoder, Encoded, EncodedPage, FrameType, Page, Scratch};
use kino_format::page_checksum;

use crate::compare::{Distortion, broken};
use crate::encode::{Block, BlockData, Packed, count_video};
use crate::encode_queue::{Job, Run};
use crate::episode_writer::EpisodeWriter;
use crate::error::{Result, invalid};
use crate::links::LinkedFile;
use crate::plan::Choice;
use crate::stats::StatsPart;
use crate::stored_stream::check_bools;
use crate::stream_info::StreamInfo;

/// Pages of one stream, in time order.
#[derive(Debug, Default)]
pub struct Pages {
    /// What all pages of the stream need to be decoded; the same for every push.
    pub shared: Vec<u8>,
    /// The largest difference to the original values and the sum of the squared differences, as far as they are known.
    pub error: (f64, f64),
    /// Bytes of the texts in these pages; numeric frames have a fixed size.
    pub text_bytes: u64,
    /// The pages.
    pub pages: Vec<NewPage>,
    /// How they are checked.
    pub check: PageCheck,
}

/// How pages that exist already are checked before they are committed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PageCheck {
    /// Each is decoded, and counted in the statistics.
    #[default]
    Decode,
    /// They are bit for bit those of a dataset, and their checksums were verified when they were read. Whoever pushes
    /// them knows the statistics.
    Checksum,
}

/// A page that exists already.
#[derive(Debug, Default)]
pub struct NewPage {
    /// How many frames it holds.
    pub frames: u32,
    /// Its bytes; `None` to link it without reading them.
    pub bytes: Option<Vec<u8>>,
    /// Where these bytes are: the page is linked. Empty to store them.
    pub pieces: Vec<LinkedPiece>,
}

/// A piece of a linked page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkedPiece {
    /// Bytes that are stored in the dataset, such as a header.
    Stored(Vec<u8>),
    /// A range of a file.
    File {
        /// The file.
        file: Arc<LinkedFile>,
        /// Its first byte.
        offset: u64,
        /// Its length.
        len: u32,
    },
}

impl LinkedPiece {
    /// Its length.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Stored(bytes) => bytes.len() as u64,
            Self::File { len, .. } => u64::from(*len),
        }
    }
}

/// A linked page on its way to the index.
#[derive(Debug)]
pub(crate) struct LinkedPage {
    pub(crate) frames: u32,
    pub(crate) pieces: Vec<LinkedPiece>,
    pub(crate) crc: Option<u32>,
}

impl LinkedPage {
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(LinkedPiece::bytes).sum()
    }
}

/// The pages of a block.
#[derive(Debug)]
pub(crate) struct PageBlock {
    pages: Pages,
    /// Whether these are the first pages of the stream, with which the shared data is stored.
    is_first: bool,
}

impl PageBlock {
    /// The number of frames.
    pub(crate) fn frames(&self) -> usize {
        let frames = self.pages.pages.iter();
        frames.map(|page| page.frames as usize).sum()
    }

    /// The most frames of a page that is decoded: one is at a time.
    pub(crate) fn most_frames(&self) -> usize {
        let is_decoded = self.pages.check == PageCheck::Decode;
        let decoded = self.pages.pages.iter();
        let decoded = decoded.filter(|page| is_decoded && page.bytes.is_some());
        let frames = decoded.map(|page| page.frames as usize);
        frames.max().unwrap_or(0)
    }

    /// Bytes held.
    pub(crate) fn len(&self) -> usize {
        let pages = self.pages.pages.iter();
        let bytes = pages.map(|page| page.bytes.as_ref().map_or(0, Vec::len));
        bytes.fold(self.pages.shared.len(), usize::saturating_add)
    }
}

impl EpisodeWriter<'_> {
    /// Starts the next stream, whose pages exist already in this codec; see [`push_pages`](Self::push_pages).
    pub fn paged_stream(&mut self, info: &StreamInfo, codec: &str) -> Result<()> {
        self.paged_variant(info, codec, None)
    }

    /// As [`paged_stream`](Self::paged_stream), for a stream that may be a variant of another.
    pub(crate) fn paged_variant(
        &mut self,
        info: &StreamInfo,
        codec: &str,
        variant_of: Option<&str>,
    ) -> Result<()> {
        let choice = Choice::of(codec, &info.frame)
            .map_err(|error| invalid(format!("stream `{}`: {error}", info.name)))?;
        self.begin(info, choice, variant_of)
    }

    /// Appends pages to a stream that was started with [`paged_stream`](Self::paged_stream).
    pub fn push_pages(&mut self, pages: Pages) -> Result<()> {
        let frames: u64 = pages.pages.iter().map(|page| u64::from(page.frames)).sum();
        let (place, position, open) = self.open_pages()?;
        check_pages(&place, &pages)?;
        let first_frame = open.next;
        let next = u64::from(open.next).saturating_add(frames);
        let next = u32::try_from(next).ok().filter(|&next| next <= open.frames);
        open.next = next.ok_or_else(|| {
            let announced = open.frames;
            invalid(format!(
                "{place} got more than the {announced} frames that were announced"
            ))
        })?;
        open.raw_bytes += frames * open.frame_bytes() as u64 + pages.text_bytes;
        let is_first = !std::mem::replace(&mut open.has_pages, true);
        let block = Block {
            data: BlockData::Pages(PageBlock { pages, is_first }),
            ..open.take_block()?
        };
        self.submit_pages(Job {
            run: Run::Stream(position),
            first_frame,
            place,
            block,
        })
    }
}

/// Refuses pages that no index can describe.
fn check_pages(place: &str, pages: &Pages) -> Result<()> {
    for page in &pages.pages {
        let linked: u64 = page.pieces.iter().map(LinkedPiece::bytes).sum();
        let is_wrong = match &page.bytes {
            Some(bytes) => !page.pieces.is_empty() && bytes.len() as u64 != linked,
            None => linked == 0,
        };
        if is_wrong || page.frames == 0 {
            return Err(invalid(format!(
                "{place}: a page has no frames, or other bytes than its pieces"
            )));
        }
    }
    Ok(())
}

thread_local! {
    static WORK: RefCell<Work> = RefCell::new(Work::default());
}

/// Working memory that is kept from page to page: fresh memory costs as much as decoding a small image.
#[derive(Default)]
struct Work {
    scratch: Scratch,
    decoded: Vec<u8>,
}

/// Checks the pages of a block, as they ask for.
pub(crate) fn check(block: &Block, pages: &PageBlock) -> Result<Packed, CodecError> {
    let mut packed = Packed::empty();
    let (max_abs, sum_squared) = pages.pages.error;
    if pages.is_first {
        packed.encoded.shared = pages.pages.shared.clone();
        packed.error = Distortion {
            max_abs,
            sum_squared,
        };
    }
    if pages.pages.check == PageCheck::Checksum {
        let pages = pages.pages.pages.iter();
        pages.for_each(|page| add(page, &mut packed));
        return Ok(packed);
    }
    let decoder = block.codec.decoder(&block.frame, &pages.pages.shared)?;
    let ty = block.frame.as_values();
    if let (Some(ty), Some(channels)) = (ty, block.channels) {
        packed.stats = Some(StatsPart::new(ty, channels));
    }
    WORK.with_borrow_mut(|work| {
        for page in &pages.pages.pages {
            match &page.bytes {
                Some(bytes) => check_page(block, &*decoder, (page, bytes), &mut packed, work)?,
                // A part of the values would be worse than none.
                None => packed.stats = None,
            }
            add(page, &mut packed);
        }
        Ok(packed)
    })
}

/// Decodes a page.
fn check_page(
    block: &Block,
    decoder: &dyn Decoder,
    (page, bytes): (&NewPage, &[u8]),
    packed: &mut Packed,
    work: &mut Work,
) -> Result<(), CodecError> {
    let Work { scratch, decoded } = work;
    let frames = page.frames as usize;
    let page = Page { bytes, frames };
    let start = Instant::now();
    match &*block.frame {
        FrameType::Text => {
            let mut texts = Vec::new();
            decoder.decode_text(page, 0..frames, &mut texts, scratch)?;
        }
        FrameType::Values(ty) if block.codec.has_own_pages() => {
            count_video(decoder, page, ty, packed.stats.as_mut(), scratch)?;
            packed.decode_time += start.elapsed();
        }
        FrameType::Values(ty) => {
            let len = frames.checked_mul(ty.frame_bytes());
            let len = len.filter(|&len| len <= kino_codec::MAX_FRAME_BYTES);
            let len = len.ok_or_else(|| too_large(&*block.codec))?;
            decoded.resize(len, 0);
            decoder.decode(page, 0..frames, decoded, scratch)?;
            // As a reader does: what it would refuse is never committed.
            check_bools(ty, decoded)?;
            packed.decode_time += start.elapsed();
            packed.stats.iter_mut().for_each(|stats| stats.add(decoded));
        }
    }
    Ok(())
}

fn too_large(codec: &dyn Codec) -> CodecError {
    broken(codec, "a page is too large to decode".to_owned())
}

/// Adds a checked page to the result: with its bytes, or with its pieces.
fn add(page: &NewPage, packed: &mut Packed) {
    let frames = page.frames;
    if page.pieces.is_empty() {
        packed.encoded.pages.push(EncodedPage {
            frames: frames as usize,
            bytes: page.bytes.clone().unwrap_or_default(),
        });
    } else {
        packed.linked.push(LinkedPage {
            frames,
            pieces: page.pieces.clone(),
            crc: page.bytes.as_deref().map(page_checksum),
        });
    }
}

impl Packed {
    fn empty() -> Self {
        Self {
            encoded: Encoded::default(),
            linked: Vec::new(),
            stats: None,
            error: Distortion::default(),
            encoder: None,
            encode_time: Duration::ZERO,
            decode_time: Duration::ZERO,
        }
    }
}
