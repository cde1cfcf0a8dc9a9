//! An episode's index: which pages hold which frames, readable in place.
//!
//! ```text
//! | "KIDX" | u32 clocks | u32 streams | u32 pages | u32 attributes_page | 12 × 0 |   32 B
//! | clock records … | stream records … | page records … |
//! ```
//!
//! The bytes are kept as they came and records are read where they lie, so that an index of a
//! million pages costs no more than its bytes. Everything that later code relies on is checked once, in
//! [`EpisodeIndex::parse`]: pages tile the episode, each is named exactly once, frame starts rise,
//! references point to something.

use std::ops::Range;

use crate::clock::RegularClock;
use crate::error::{Result, invalid};
use crate::layout::{
    CLOCK_LEN, Cursor, INDEX_HEADER_LEN, INDEX_MAGIC, MAX_FRAMES, MAX_PAGE_BYTES, MAX_PAGE_FRAMES,
    PAGE_LEN, STREAM_LEN, align_up,
};
use crate::records::{ClockRecord, NONE, PageRecord, StreamRecord};
use crate::schema::Schema;

const PART: &str = "episode index";

/// The index of one episode, checked.
#[derive(Debug, Clone)]
pub struct EpisodeIndex {
    bytes: Vec<u8>,
    clocks: usize,
    streams: usize,
    pages: usize,
    attributes_page: u32,
}

/// Frames of one stream that lie in its own pages.
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
    /// Where it lies.
    pub record: PageRecord,
    /// How many frames it holds.
    pub frames: usize,
    /// Which of them are meant, counted from the page's first.
    pub range: Range<usize>,
}

impl EpisodeIndex {
    /// Checks (untrusted) bytes whose checksum matched, for an episode with `pages_len` bytes of pages.
    pub fn parse(bytes: Vec<u8>, pages_len: u64, schema: &Schema) -> Result<Self> {
        if bytes.len() < INDEX_HEADER_LEN {
            return Err(invalid(
                PART,
                format!("{} bytes are less than its header", bytes.len()),
            ));
        }
        let mut cursor = Cursor::new(&bytes);
        let magic: [u8; 4] = cursor.array();
        let counts = [cursor.u32(), cursor.u32(), cursor.u32()].map(|count| count as usize);
        let attributes_page = cursor.u32();
        if magic != INDEX_MAGIC || cursor.array() != [0; 12] {
            return Err(invalid(PART, "wrong magic or reserved bytes"));
        }
        let [clocks, streams, pages] = counts;
        let expected = [
            (clocks, CLOCK_LEN),
            (streams, STREAM_LEN),
            (pages, PAGE_LEN),
        ]
        .into_iter()
        .try_fold(INDEX_HEADER_LEN, |sum, (count, len)| {
            sum.checked_add(count.checked_mul(len)?)
        });
        if expected != Some(bytes.len()) {
            return Err(invalid(
                PART,
                format!("{} bytes do not hold {counts:?} records", bytes.len()),
            ));
        }
        let index = Self {
            bytes,
            clocks,
            streams,
            pages,
            attributes_page,
        };
        index.check_tiling(pages_len)?;
        index.check_records(schema)?;
        Ok(index)
    }

    /// How many clocks the episode has.
    pub fn clock_count(&self) -> usize {
        self.clocks
    }

    /// How many streams the episode has.
    pub fn stream_count(&self) -> usize {
        self.streams
    }

    /// How many pages the episode has.
    pub fn page_count(&self) -> usize {
        self.pages
    }

    /// Bytes of memory the index takes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The clock at position `idx`.
    ///
    /// # Panics
    /// If there is no such clock.
    pub fn clock(&self, idx: usize) -> ClockRecord {
        ClockRecord::parse(self.record(idx, self.clocks, INDEX_HEADER_LEN, CLOCK_LEN)).0
    }

    /// The stream at position `idx`.
    ///
    /// # Panics
    /// If there is no such stream.
    pub fn stream(&self, idx: usize) -> StreamRecord {
        let start = INDEX_HEADER_LEN + self.clocks * CLOCK_LEN;
        StreamRecord::parse(self.record(idx, self.streams, start, STREAM_LEN)).0
    }

    /// The page with number `idx`.
    ///
    /// # Panics
    /// If there is no such page.
    pub fn page(&self, idx: u32) -> PageRecord {
        let start = INDEX_HEADER_LEN + self.clocks * CLOCK_LEN + self.streams * STREAM_LEN;
        PageRecord::parse(self.record(idx as usize, self.pages, start, PAGE_LEN))
    }

    /// The page of the episode's id and attributes.
    pub fn attributes(&self) -> Option<PageRecord> {
        (self.attributes_page != NONE).then(|| self.page(self.attributes_page))
    }

    /// Where frames of a stream are stored: its own pages, or those of the stream it shares frames with.
    pub fn segments(&self, stream: usize, frames: Range<u32>) -> impl Iterator<Item = Segment> {
        let record = self.stream(stream);
        let shared = frames.start.min(record.own_start)..frames.end.min(record.own_start);
        let own = frames.start.max(record.own_start)..frames.end;
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

    /// The pages of `segment`, in time order.
    pub fn pages_of(&self, segment: &Segment) -> impl Iterator<Item = PageSlice> {
        let record = self.stream(segment.stream);
        let run = Run::of_stream(&record);
        self.slices(run, segment.frames.clone())
    }

    /// All pages of a clock's times, in order; none for a regular clock.
    pub fn pages_of_clock(&self, clock: usize) -> impl Iterator<Item = PageSlice> {
        let record = self.clock(clock);
        self.slices(Run::of_clock(&record), 0..record.frames)
    }

    fn slices(&self, run: Run, frames: Range<u32>) -> impl Iterator<Item = PageSlice> {
        let pages = run.first_page..run.first_page + run.page_count;
        // The last page that starts at or before the first wanted frame.
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

    /// Pages follow each other, each rounded up to 8 bytes, and fill the episode exactly.
    fn check_tiling(&self, pages_len: u64) -> Result<()> {
        let mut position = 0;
        for idx in 0..self.pages {
            let page = self.page(to_u32(idx)?);
            if page.offset() != position || page.len as usize > MAX_PAGE_BYTES {
                return Err(invalid(
                    PART,
                    format!("page {idx} lies at {} instead of {position}", page.offset()),
                ));
            }
            position = align_up(position + u64::from(page.len)).unwrap_or(u64::MAX);
        }
        if position != pages_len {
            return Err(invalid(
                PART,
                format!("its pages end at {position}, the episode's at {pages_len}"),
            ));
        }
        Ok(())
    }

    fn check_records(&self, schema: &Schema) -> Result<()> {
        let mut named = vec![false; self.pages];
        let mut name = |page: u32| match named.get_mut(page as usize) {
            Some(seen) if !*seen => {
                *seen = true;
                Ok(())
            }
            _ => Err(invalid(
                PART,
                format!("page {page} is absent or named twice"),
            )),
        };
        if self.attributes_page != NONE {
            name(self.attributes_page)?;
        }
        for idx in 0..self.clocks {
            let clock = self.check_clock(idx)?;
            Run::of_clock(&clock).check(self, &mut name)?;
        }
        let mut seen = vec![false; schema.streams.len()];
        for idx in 0..self.streams {
            let stream = self.check_stream(idx, schema)?;
            match seen.get_mut(stream.stream as usize) {
                Some(seen) if !*seen => *seen = true,
                _ => {
                    return Err(invalid(
                        PART,
                        format!("stream {idx} is not in the schema, or there twice"),
                    ));
                }
            }
            Run::of_stream(&stream).check(self, &mut name)?;
            self.check_page_sizes(&stream, schema)?;
        }
        if named.contains(&false) {
            return Err(invalid(PART, "a page belongs to nothing"));
        }
        Ok(())
    }

    fn check_clock(&self, idx: usize) -> Result<ClockRecord> {
        let bytes = self.record(idx, self.clocks, INDEX_HEADER_LEN, CLOCK_LEN);
        let (clock, zero) = ClockRecord::parse(bytes);
        let regular = clock.period_num != 0 && clock.period_den != 0;
        let explicit = clock.period_num == 0 && clock.period_den == 0;
        let right_pages = if explicit {
            (clock.page_count > 0) == (clock.frames > 0)
        } else {
            clock.page_count == 0
        };
        if zero != 0 || clock.frames > MAX_FRAMES || clock.end_ns < clock.start_ns || !right_pages {
            return Err(invalid(PART, format!("clock {idx} contradicts itself")));
        }
        if !regular && !explicit {
            return Err(invalid(PART, format!("clock {idx} has half a period")));
        }
        if regular
            && clock.end_ns
                != clock
                    .regular()
                    .map_or(0, |regular| regular.time_ns(clock.frames.saturating_sub(1)))
        {
            return Err(invalid(
                PART,
                format!("clock {idx} does not end when its period says"),
            ));
        }
        Ok(clock)
    }

    fn check_stream(&self, idx: usize, schema: &Schema) -> Result<StreamRecord> {
        let bytes = self.record(
            idx,
            self.streams,
            INDEX_HEADER_LEN + self.clocks * CLOCK_LEN,
            STREAM_LEN,
        );
        let (stream, zero) = StreamRecord::parse(bytes);
        let error = |what: &str| invalid(PART, format!("stream {idx} {what}"));
        if zero != 0 || stream.frames > MAX_FRAMES || stream.own_start > stream.frames {
            return Err(error("contradicts itself"));
        }
        if stream.clock as usize >= self.clocks
            || self.clock(stream.clock as usize).frames != stream.frames
        {
            return Err(error("has another number of frames than its clock"));
        }
        let errors = [stream.max_abs_error, stream.sum_squared_error];
        if errors
            .iter()
            .any(|error| !(error.is_finite() && *error >= 0.0))
        {
            return Err(error("has an error that is not a positive number"));
        }
        if stream.base == NONE {
            return if stream.own_start == 0 && stream.base_first == 0 {
                Ok(stream)
            } else {
                Err(error("shares frames with nothing"))
            };
        }
        if stream.base as usize >= self.streams || stream.base as usize == idx {
            return Err(error("shares frames with a stream that is not there"));
        }
        let base = self.stream(stream.base as usize);
        let frame_of = |record: &StreamRecord| {
            schema
                .streams
                .get(record.stream as usize)
                .map(|stream| (&stream.dtype, &stream.shape))
        };
        let end = stream.base_first.checked_add(stream.own_start);
        if base.base != NONE
            || end.is_none_or(|end| end > base.frames)
            || frame_of(&base) != frame_of(&stream)
        {
            return Err(error("shares frames that its base does not have"));
        }
        Ok(stream)
    }

    /// Frames of no bytes have no pages; others do, and no page decodes to more than the largest page.
    fn check_page_sizes(&self, stream: &StreamRecord, schema: &Schema) -> Result<()> {
        let frame = schema
            .streams
            .get(stream.stream as usize)
            .map(|stream| stream.frame_type())
            .transpose()?;
        let frame_bytes = frame
            .as_ref()
            .and_then(|frame| frame.as_values())
            .map(|ty| ty.frame_bytes());
        let has_frames = stream.frames > stream.own_start && frame_bytes != Some(0);
        if has_frames != (stream.page_count > 0) {
            return Err(invalid(
                PART,
                format!(
                    "stream {} has frames without pages, or pages without frames",
                    stream.stream
                ),
            ));
        }
        let max_frames = self
            .slices(Run::of_stream(stream), stream.own_start..stream.frames)
            .map(|slice| slice.frames)
            .max();
        if max_frames
            .unwrap_or(0)
            .saturating_mul(frame_bytes.unwrap_or(1))
            > MAX_PAGE_BYTES
        {
            return Err(invalid(
                PART,
                format!(
                    "a page of stream {} decodes to over {MAX_PAGE_BYTES} bytes",
                    stream.stream
                ),
            ));
        }
        Ok(())
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
struct Run {
    first_page: u32,
    page_count: u32,
    shared_page: u32,
    start: u32,
    end: u32,
}

impl Run {
    fn of_stream(record: &StreamRecord) -> Self {
        Self {
            first_page: record.first_page,
            page_count: record.page_count,
            shared_page: record.shared_page,
            start: record.own_start,
            end: record.frames,
        }
    }

    fn of_clock(record: &ClockRecord) -> Self {
        Self {
            first_page: record.first_page,
            page_count: record.page_count,
            shared_page: record.shared_page,
            start: 0,
            end: record.frames,
        }
    }

    fn check(&self, index: &EpisodeIndex, name: &mut impl FnMut(u32) -> Result<()>) -> Result<()> {
        if self.shared_page != NONE {
            name(self.shared_page)?;
        }
        let Some(end_page) = self
            .first_page
            .checked_add(self.page_count)
            .filter(|&end| end as usize <= index.pages)
        else {
            return Err(invalid(PART, "a run of pages ends after the last"));
        };
        for page in self.first_page..end_page {
            name(page)?;
            let start = index.page(page).first_frame;
            let next = if page + 1 < end_page {
                index.page(page + 1).first_frame
            } else {
                self.end
            };
            let right_start = page > self.first_page || start == self.start;
            if !right_start || start >= next || (next - start) as usize > MAX_PAGE_FRAMES {
                return Err(invalid(
                    PART,
                    format!("page {page} holds frames {start}..{next}"),
                ));
            }
        }
        Ok(())
    }
}

/// The first of `range` for which `pred` is false; `pred` holds for a prefix.
fn partition_point(range: Range<u32>, pred: impl Fn(u32) -> bool) -> u32 {
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

/// A count as it is stored.
pub(crate) fn to_u32(count: usize) -> Result<u32> {
    u32::try_from(count)
        .ok()
        .filter(|&count| count != NONE)
        .ok_or_else(|| invalid(PART, format!("{count} records")))
}
