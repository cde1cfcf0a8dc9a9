//! An episode's index: which pages hold which frames, readable in place.
//!
//! ```text
//! | "KIDX" | u32 clocks | u32 streams | u32 pages | u32 attributes_page | 12 × 0, or linked pages |   32 B
//! | clock records … | stream records … | page records … | piece records of linked pages … |
//! ```
//!
//! The bytes are kept unchanged and records are read in place, so that an index of a
//! million pages costs no more than its bytes. Everything that later code relies on is checked once, in
//! [`EpisodeIndex::parse`], by the rules in `check.rs`.

use std::ops::Range;

use crate::clock::RegularClock;
use crate::error::{Result, invalid};
use crate::layout::{
    CLOCK_LEN, Cursor, INDEX_HEADER_LEN, INDEX_MAGIC, PAGE_LEN, PIECE_LEN, STREAM_LEN,
};
use crate::pieces::{Linked, records_len};
use crate::records::{ClockRecord, NONE, PageRecord, StreamRecord};
use crate::schema::Schema;

/// The name of this part in errors.
pub(crate) const PART: &str = "episode index";

/// The index of one episode, validated.
#[derive(Debug, Clone)]
pub struct EpisodeIndex {
    bytes: Vec<u8>,
    clocks: usize,
    streams: usize,
    pages: usize,
    attributes_page: u32,
    pub(crate) linked: Linked,
    /// The first piece of every linked page, and the number of pieces; empty if no page is linked.
    pub(crate) first_pieces: Vec<u32>,
}

/// Frames of one stream that are in its own pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Position of the stream in the index.
    pub stream: usize,
    /// Which of its frames.
    pub frames: Range<u32>,
}

/// Some frames of one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSlice {
    /// The page's number in the episode.
    pub page: u32,
    /// Where it is.
    pub record: PageRecord,
    /// How many frames it holds.
    pub frames: usize,
    /// The requested frames, relative to the page's first.
    pub range: Range<usize>,
}

impl EpisodeIndex {
    /// Validates (untrusted) bytes whose checksum matched, for an episode with `pages_len` bytes of pages.
    pub fn parse(bytes: Vec<u8>, pages_len: u64, schema: &Schema) -> Result<Self> {
        if bytes.len() < INDEX_HEADER_LEN {
            return Err(invalid(
                PART,
                format!("it has {} bytes, fewer than its header", bytes.len()),
            ));
        }
        let mut cursor = Cursor::new(&bytes);
        let magic: [u8; 4] = cursor.array();
        let counts = [cursor.u32(), cursor.u32(), cursor.u32()].map(|count| count as usize);
        let attributes_page = cursor.u32();
        if magic != INDEX_MAGIC {
            return Err(invalid(PART, "its magic or reserved bytes are wrong"));
        }
        let linked = Linked::parse(&mut cursor)?;
        let [clocks, streams, pages] = counts;
        let expected = [
            (clocks, CLOCK_LEN),
            (streams, STREAM_LEN),
            (pages, PAGE_LEN),
        ]
        .into_iter()
        .try_fold(INDEX_HEADER_LEN, |sum, (count, len)| {
            sum.checked_add(count.checked_mul(len)?)
        })
        .and_then(|sum| sum.checked_add(records_len(linked.pieces)?));
        if expected != Some(bytes.len()) {
            return Err(invalid(
                PART,
                format!("its {} bytes do not match {counts:?} records", bytes.len()),
            ));
        }
        if linked.pages as usize > pages {
            return Err(invalid(PART, "it has more linked pages than pages"));
        }
        let mut index = Self {
            bytes,
            clocks,
            streams,
            pages,
            attributes_page,
            linked,
            first_pieces: Vec::new(),
        };
        index.check(pages_len, schema)?;
        Ok(index)
    }

    /// The number of clocks of the episode.
    pub fn clock_count(&self) -> usize {
        self.clocks
    }

    /// The number of streams of the episode.
    pub fn stream_count(&self) -> usize {
        self.streams
    }

    /// The number of pages of the episode.
    pub fn page_count(&self) -> usize {
        self.pages
    }

    /// Memory used by the index, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.first_pieces.len() * size_of::<u32>()
    }

    /// The clock at position `idx`.
    ///
    /// # Panics
    /// If there is no such clock.
    pub fn clock(&self, idx: usize) -> ClockRecord {
        ClockRecord::parse(self.clock_bytes(idx)).0
    }

    /// The stream at position `idx`.
    ///
    /// # Panics
    /// If there is no such stream.
    pub fn stream(&self, idx: usize) -> StreamRecord {
        StreamRecord::parse(self.stream_bytes(idx)).0
    }

    /// The page with number `idx`.
    ///
    /// # Panics
    /// If there is no such page.
    pub fn page(&self, idx: u32) -> PageRecord {
        let start = INDEX_HEADER_LEN + self.clocks * CLOCK_LEN + self.streams * STREAM_LEN;
        PageRecord::parse(self.record(idx as usize, self.pages, start, PAGE_LEN))
    }

    /// The number of the page with the episode's id and attributes.
    pub fn attributes_page(&self) -> Option<u32> {
        (self.attributes_page != NONE).then_some(self.attributes_page)
    }

    /// The page with the episode's id and attributes.
    pub fn attributes(&self) -> Option<PageRecord> {
        self.attributes_page().map(|page| self.page(page))
    }

    /// The bytes of the index, as stored in the shard.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn clock_bytes(&self, idx: usize) -> &[u8] {
        self.record(idx, self.clocks, INDEX_HEADER_LEN, CLOCK_LEN)
    }

    pub(crate) fn stream_bytes(&self, idx: usize) -> &[u8] {
        let start = INDEX_HEADER_LEN + self.clocks * CLOCK_LEN;
        self.record(idx, self.streams, start, STREAM_LEN)
    }

    pub(crate) fn piece_bytes(&self, idx: usize) -> &[u8] {
        let start = INDEX_HEADER_LEN
            + self.clocks * CLOCK_LEN
            + self.streams * STREAM_LEN
            + self.pages * PAGE_LEN;
        self.record(idx, self.linked.pieces as usize, start, PIECE_LEN)
    }

    /// Where frames of a stream are stored: its own pages, or those of the stream it shares frames with.
    ///
    /// Frames past the end of the stream are skipped, so the result holds
    /// exactly the frames of `frames` that exist, in order.
    ///
    /// # Panics
    /// If there is no such stream.
    pub fn segments(&self, stream: usize, frames: Range<u32>) -> impl Iterator<Item = Segment> {
        let record = self.stream(stream);
        let frames = frames.start..frames.end.min(record.frames);
        let shared = frames.start.min(record.own_start)..frames.end.min(record.own_start);
        let own = frames.start.max(record.own_start)..frames.end;
        // The additions cannot overflow: `check_base` verified that `own_start + base_first` exists in the base.
        let base = (record.base != NONE).then(|| Segment {
            stream: record.base as usize,
            frames: shared.start + record.base_first..shared.end + record.base_first,
        });
        let own = Segment {
            stream,
            frames: own,
        };
        base.into_iter()
            .chain([own])
            .filter(|segment| !segment.frames.is_empty())
    }

    /// The pages of `segment`, in time order; none if its frames have no bytes.
    ///
    /// Frames that the stream does not store itself are skipped.
    ///
    /// # Panics
    /// If there is no such stream.
    pub fn pages_of<'i>(&'i self, segment: &Segment) -> impl Iterator<Item = PageSlice> + use<'i> {
        let run = Run::of_stream(&self.stream(segment.stream));
        self.slices(run, segment.frames.clone())
    }

    /// All pages of a clock's times, in order; none for a regular clock.
    ///
    /// # Panics
    /// If there is no such clock.
    pub fn pages_of_clock(&self, clock: usize) -> impl Iterator<Item = PageSlice> {
        let record = self.clock(clock);
        self.slices(Run::of_clock(&record), 0..record.frames)
    }

    pub(crate) fn slices(&self, run: Run, frames: Range<u32>) -> impl Iterator<Item = PageSlice> {
        let pages = run.first_page..run.first_page + run.page_count;
        // The last page that starts at or before the first requested frame.
        let skip = partition_point(pages.clone(), |page| {
            self.page(page).first_frame <= frames.start
        });
        let first = skip.saturating_sub(1).max(pages.start);
        (first..pages.end).map_while(move |page| {
            let record = self.page(page);
            let end = if page + 1 < pages.end {
                self.page(page + 1).first_frame
            } else {
                run.end
            };
            let start = frames.start.max(record.first_frame);
            let stop = frames.end.min(end);
            (start < stop).then(|| PageSlice {
                page,
                record,
                frames: (end - record.first_frame) as usize,
                range: (start - record.first_frame) as usize..(stop - record.first_frame) as usize,
            })
        })
    }

    fn record(&self, idx: usize, count: usize, start: usize, len: usize) -> &[u8] {
        assert!(idx < count, "record {idx} of {count}");
        &self.bytes[start + idx * len..start + (idx + 1) * len]
    }
}

impl ClockRecord {
    /// The clock as a formula, or `None` if its times are stored in pages.
    pub fn regular(&self) -> Option<RegularClock> {
        (self.period_num != 0).then_some(RegularClock {
            start_ns: self.start_ns,
            period_num: self.period_num,
            period_den: self.period_den,
            frames: self.frames,
        })
    }
}

/// The pages of one stream or clock: consecutive, and covering frames `start..end`.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) first_page: u32,
    pub(crate) page_count: u32,
    pub(crate) shared_page: u32,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Run {
    pub(crate) fn of_stream(record: &StreamRecord) -> Self {
        Self {
            first_page: record.first_page,
            page_count: record.page_count,
            shared_page: record.shared_page,
            start: record.own_start,
            end: record.frames,
        }
    }

    pub(crate) fn of_clock(record: &ClockRecord) -> Self {
        Self {
            first_page: record.first_page,
            page_count: record.page_count,
            shared_page: record.shared_page,
            start: 0,
            end: record.frames,
        }
    }
}

/// The first of `range` for which `pred` is false; `pred` holds for a prefix.
pub(crate) fn partition_point(range: Range<u32>, pred: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if pred(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// A stored count.
pub(crate) fn to_u32(count: usize) -> Result<u32> {
    u32::try_from(count)
        .ok()
        .filter(|&count| count != NONE)
        .ok_or_else(|| invalid(PART, format!("{count} records")))
}
