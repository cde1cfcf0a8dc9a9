//! The records of an episode's index, from its draft and its pages.

use kino_format::{Clock, ClockRecord, EpisodeIndex, NONE, StreamRecord};

use crate::draft::StreamDraft;
use crate::shard_file::RunPages;

/// The record of a clock.
pub(crate) fn clock_record(clock: &Clock, pages: &RunPages) -> ClockRecord {
    let (period_num, period_den) = match clock {
        Clock::Regular(regular) => (regular.period_num, regular.period_den),
        Clock::Explicit(_) => (0, 0),
    };
    let start_ns = match clock {
        Clock::Regular(regular) => regular.start_ns,
        Clock::Explicit(times) => times.first().copied().unwrap_or(0),
    };
    ClockRecord {
        start_ns,
        end_ns: clock
            .len()
            .checked_sub(1)
            .and_then(|last| clock.time_ns(last))
            .unwrap_or(start_ns),
        period_num,
        period_den,
        frames: u32::try_from(clock.len()).unwrap_or(u32::MAX),
        first_page: pages.first_page,
        page_count: pages.page_count,
        shared_page: pages.shared_page,
    }
}

/// The record of a stream at this position of the schema.
pub(crate) fn stream_record(stream: &StreamDraft, position: u32, pages: &RunPages) -> StreamRecord {
    StreamRecord {
        stream: position,
        clock: u32::try_from(stream.clock).unwrap_or(NONE),
        frames: stream.frames,
        own_start: stream.shared.count,
        base: stream
            .shared
            .base
            .and_then(|base| u32::try_from(base).ok())
            .unwrap_or(NONE),
        base_first: stream.shared.first,
        first_page: pages.first_page,
        page_count: pages.page_count,
        shared_page: pages.shared_page,
        max_abs_error: pages.error.max_abs,
        sum_squared_error: pages.error.sum_squared,
        raw_bytes: stream.raw_bytes,
    }
}

/// Bytes of the pages of a stream, including the data they share.
pub(crate) fn page_bytes(index: &EpisodeIndex, record: &StreamRecord) -> u64 {
    let pages = record.first_page..record.first_page.saturating_add(record.page_count);
    let shared = (record.shared_page != NONE).then_some(record.shared_page);
    let pages = pages.chain(shared);
    pages.map(|page| u64::from(index.page(page).len)).sum()
}

#[expect(clippy::cast_precision_loss, reason = "a duration for display")]
pub(crate) fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}
