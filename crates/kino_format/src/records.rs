//! The fixed-size records of an episode's index: clocks, streams and pages.
//!
//! ```text
//! clock   48 B  i64 start_ns | i64 end_ns | u64 period_num | u32 period_den | u32 frames
//!               | u32 first_page | u32 page_count | u32 shared_page | u32 zero
//! stream  64 B  u32 stream | u32 clock | u32 frames | u32 own_start | u32 base | u32 base_first
//!               | u32 first_page | u32 page_count | u32 shared_page | u32 zero
//!               | f64 max_abs_error | f64 sum_squared_error | u64 raw_bytes
//! page    16 B  u32 offset ÷ 8 | u32 len | u32 first_frame | u32 crc32c
//! ```

use crate::layout::{CLOCK_LEN, Cursor, PAGE_LEN, STREAM_LEN};

/// The value of a page or stream reference to nothing.
pub const NONE: u32 = u32::MAX;

/// When the frames of one or more streams were recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockRecord {
    /// Time of the first frame.
    pub start_ns: i64,
    /// Time of the last frame.
    pub end_ns: i64,
    /// Nanoseconds per `period_den` frames; 0 if the times are stored in pages.
    pub period_num: u64,
    /// See `period_num`; 0 if the times are stored in pages.
    pub period_den: u32,
    /// Number of frames that the clock times.
    pub frames: u32,
    /// First page of times.
    pub first_page: u32,
    /// Pages of times; 0 for a regular clock.
    pub page_count: u32,
    /// The page with what the pages of times share, or [`NONE`].
    pub shared_page: u32,
}

impl ClockRecord {
    pub(crate) fn parse(bytes: &[u8]) -> (Self, u32) {
        let mut cursor = Cursor::new(bytes);
        let record = Self {
            start_ns: cursor.i64(),
            end_ns: cursor.i64(),
            period_num: cursor.u64(),
            period_den: cursor.u32(),
            frames: cursor.u32(),
            first_page: cursor.u32(),
            page_count: cursor.u32(),
            shared_page: cursor.u32(),
        };
        (record, cursor.u32())
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend(self.start_ns.to_le_bytes());
        out.extend(self.end_ns.to_le_bytes());
        out.extend(self.period_num.to_le_bytes());
        for field in [
            self.period_den,
            self.frames,
            self.first_page,
            self.page_count,
            self.shared_page,
            0,
        ] {
            out.extend(field.to_le_bytes());
        }
        debug_assert_eq!(
            out.len() - start,
            CLOCK_LEN,
            "a clock record has its fixed length"
        );
    }
}

/// One stream of an episode: its clock, its pages, and what the codec achieved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StreamRecord {
    /// Position in the shard's schema.
    pub stream: u32,
    /// Position among the episode's clocks.
    pub clock: u32,
    /// Number of frames of the stream.
    pub frames: u32,
    /// The first frame stored in the stream's own pages; those before it are frames of `base`.
    pub own_start: u32,
    /// Position, among the episode's streams, of the one that provides frames `0..own_start`, or [`NONE`].
    pub base: u32,
    /// The frame of `base` that provides frame 0.
    pub base_first: u32,
    /// First page of frames.
    pub first_page: u32,
    /// Pages of frames.
    pub page_count: u32,
    /// The page with what the pages share, or [`NONE`].
    pub shared_page: u32,
    /// Largest difference between a decoded and an original value; 0 if lossless.
    pub max_abs_error: f64,
    /// Sum of the squared differences over the stream's own values; 0 if lossless.
    pub sum_squared_error: f64,
    /// Bytes of the stream's frames before encoding (all frames, including those that `base` provides).
    /// For text only its codec could check it: sums over streams must saturate.
    pub raw_bytes: u64,
}

impl StreamRecord {
    pub(crate) fn parse(bytes: &[u8]) -> (Self, u32) {
        let mut cursor = Cursor::new(bytes);
        let mut record = Self {
            stream: cursor.u32(),
            clock: cursor.u32(),
            frames: cursor.u32(),
            own_start: cursor.u32(),
            base: cursor.u32(),
            base_first: cursor.u32(),
            first_page: cursor.u32(),
            page_count: cursor.u32(),
            shared_page: cursor.u32(),
            max_abs_error: 0.0,
            sum_squared_error: 0.0,
            raw_bytes: 0,
        };
        let zero = cursor.u32();
        record.max_abs_error = cursor.f64();
        record.sum_squared_error = cursor.f64();
        record.raw_bytes = cursor.u64();
        (record, zero)
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        for field in [
            self.stream,
            self.clock,
            self.frames,
            self.own_start,
            self.base,
            self.base_first,
            self.first_page,
            self.page_count,
            self.shared_page,
            0,
        ] {
            out.extend(field.to_le_bytes());
        }
        out.extend(self.max_abs_error.to_le_bytes());
        out.extend(self.sum_squared_error.to_le_bytes());
        out.extend(self.raw_bytes.to_le_bytes());
        debug_assert_eq!(
            out.len() - start,
            STREAM_LEN,
            "a stream record has its fixed length"
        );
    }
}

/// Where one page is and what its checksum must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRecord {
    /// Offset from the episode's start, in units of 8 bytes.
    pub offset_units: u32,
    /// Length in bytes.
    pub len: u32,
    /// The first frame in the page; 0 for pages that hold no frames.
    pub first_frame: u32,
    /// CRC32C of the bytes.
    pub crc: u32,
}

impl PageRecord {
    /// Offset from the episode's start, in bytes.
    pub fn offset(&self) -> u64 {
        u64::from(self.offset_units) * crate::layout::ALIGN
    }

    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let mut cursor = Cursor::new(bytes);
        Self {
            offset_units: cursor.u32(),
            len: cursor.u32(),
            first_frame: cursor.u32(),
            crc: cursor.u32(),
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        for field in [self.offset_units, self.len, self.first_frame, self.crc] {
            out.extend(field.to_le_bytes());
        }
        debug_assert_eq!(
            out.len() - start,
            PAGE_LEN,
            "a page record has its fixed length"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let clock = ClockRecord {
            start_ns: -5,
            end_ns: 9,
            period_num: 1_000_000_000,
            period_den: 30,
            frames: 7,
            first_page: 1,
            page_count: 2,
            shared_page: NONE,
        };
        let stream = StreamRecord {
            stream: 1,
            clock: 2,
            frames: 3,
            own_start: 2,
            base: 0,
            base_first: 1,
            first_page: 6,
            page_count: 7,
            shared_page: 8,
            max_abs_error: 0.5,
            sum_squared_error: 2.0,
            raw_bytes: 99,
        };
        let page = PageRecord {
            offset_units: 3,
            len: 17,
            first_frame: 256,
            crc: 0xdead_beef,
        };
        let mut bytes = Vec::new();
        clock.write(&mut bytes);
        stream.write(&mut bytes);
        page.write(&mut bytes);
        assert_eq!(ClockRecord::parse(&bytes), (clock, 0));
        assert_eq!(StreamRecord::parse(&bytes[CLOCK_LEN..]), (stream, 0));
        assert_eq!(PageRecord::parse(&bytes[CLOCK_LEN + STREAM_LEN..]), page);
    }
}
