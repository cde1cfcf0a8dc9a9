//! Any bytes as a shard, as an episode's index, or as a schema, with correct checksums.
//!
//! ```text
//! first byte  {          the JSON text of a schema, in a shard without episodes
//!             K          an index: magic and page offsets are corrected, then it is parsed for a known schema
//!             any other  a whole shard: magic, lengths and checksums are corrected
//! ```
//!
//! A wrong checksum would stop the fuzzer immediately, and an attacker computes a correct one anyway. The golden shards
//! are seeds: `cargo +nightly fuzz run shard corpus/shard ../crates/kino_format/tests/golden`.

#![no_main]

use std::sync::LazyLock;

use kino_codec::{Dtype, FrameType};
use kino_format::{
    EpisodeIndex, FormatError, Kind, NONE, OpenShard, Schema, Segment, Shard, ShardWriter, Step,
    StreamSchema, page_checksum,
};
use libfuzzer_sys::fuzz_target;

const HEADER: usize = 32;
const FOOTER: usize = 64;
const ENTRY: usize = 56;

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let values = |name: &str, dtype, shape: &[usize]| {
        let frame = FrameType::values(dtype, shape).expect("a frame type");
        StreamSchema::new(name, Kind::Vector, &frame, &"raw".parse().expect("a codec"))
    };
    let text = StreamSchema::new(
        "task",
        Kind::Text,
        &FrameType::Text,
        &"text".parse().expect("a codec"),
    );
    Schema {
        clock_codec: "raw".to_owned(),
        streams: vec![
            values("a", Dtype::U8, &[]),
            values("b", Dtype::U8, &[]),
            values("image", Dtype::U8, &[1 << 14, 1 << 10, 3]),
            values("nothing", Dtype::F32, &[0]),
            text,
        ],
        ..Schema::default()
    }
});

fuzz_target!(|data: &[u8]| {
    match data.first() {
        Some(b'{') => one_schema(data),
        Some(b'K') => one_index(data.to_vec()),
        _ => whole_shard(data.to_vec()),
    }
});

fn whole_shard(mut bytes: Vec<u8>) {
    if bytes.len() < HEADER + FOOTER {
        assert!(open(&bytes).is_err());
        return;
    }
    seal(&mut bytes);
    let Ok(shard) = open(&bytes) else { return };
    let _ = shard.verify_header(&bytes);
    for (slot, entry) in shard.episodes().iter().enumerate() {
        let range = entry.range();
        assert!(range.start >= HEADER as u64 && range.end <= shard.tail_range().start);
        let episode = &bytes[range.start as usize..range.end as usize];
        let index = episode[entry.pages_len as usize..].to_vec();
        match shard.episode_index(slot, index) {
            Ok(index) => exercise(&index, entry.pages_len),
            Err(error) => assert!(matches!(error, FormatError::Invalid { .. }), "{error}"),
        }
        let _ = shard.verify_episode(slot, episode);
    }
}

fn one_index(mut bytes: Vec<u8>) {
    if bytes.len() < 32 {
        return;
    }
    bytes[..4].copy_from_slice(b"KIDX");
    bytes[20..32].fill(0);
    let tables = 32 + u32_at(&bytes, 4) as usize * 48 + u32_at(&bytes, 8) as usize * 64;
    // Pages at valid offsets, so that the fuzzer reaches the code behind that check.
    let mut position = 0_u64;
    let len = bytes.len();
    for page in (tables..).step_by(16).take_while(|page| page + 16 <= len) {
        put(&mut bytes, page, &((position / 8) as u32).to_le_bytes());
        position += u64::from(u32_at(&bytes, page + 4)).next_multiple_of(8);
    }
    if let Ok(index) = EpisodeIndex::parse(bytes, position, &SCHEMA) {
        exercise(&index, position);
    }
}

fn one_schema(text: &[u8]) {
    let mut bytes = Vec::new();
    let writer = ShardWriter::new(&mut bytes);
    let empty = Schema {
        clock_codec: "raw".to_owned(),
        ..Schema::default()
    };
    writer.finish(&empty, &mut bytes).expect("an empty shard");
    let mut footer = bytes.split_off(bytes.len() - FOOTER);
    bytes.truncate(HEADER);
    bytes.extend(text);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    footer[16..20].copy_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend(footer);
    seal(&mut bytes);
    let Ok(shard) = open(&bytes) else { return };
    // What was read can be written, and reads back the same.
    let mut again = Vec::new();
    let writer = ShardWriter::new(&mut again);
    writer
        .finish(shard.schema(), &mut again)
        .expect("a schema that was read");
    assert_eq!(
        open(&again).expect("a schema that was written").schema(),
        shard.schema()
    );
}

/// Queries everything in an index; every answer must be inside the episode.
fn exercise(index: &EpisodeIndex, pages_len: u64) {
    let mut pages = 0;
    for page in 0..index.linked_pages().start {
        let record = index.page(page);
        assert!(record.offset() + u64::from(record.len) <= pages_len);
    }
    pages += u32::from(index.attributes().is_some());
    for clock in 0..index.clock_count() {
        let record = index.clock(clock);
        assert!(
            record
                .end_ns
                .checked_sub(record.start_ns)
                .is_some_and(|duration| duration >= 0)
        );
        let frames: usize = index
            .pages_of_clock(clock)
            .map(|slice| slice.range.len())
            .sum();
        match record.regular() {
            Some(regular) => assert_eq!(
                regular.time_ns(record.frames.saturating_sub(1)),
                record.end_ns
            ),
            None => assert_eq!(frames, record.frames as usize),
        }
        pages += record.page_count + u32::from(record.shared_page != NONE);
    }
    for stream in 0..index.stream_count() {
        let record = index.stream(stream);
        let (frames, middle) = (record.frames, record.frames / 2);
        let (own, base) = (record.own_start, record.base_first);
        for (start, end) in [
            (0, frames),
            (middle, u32::MAX),
            (own, own + 1),
            (base, frames),
            (frames, 0),
        ] {
            lookup(index, stream, start, end);
        }
        pages += record.page_count + u32::from(record.shared_page != NONE);
    }
    assert_eq!(
        pages as usize,
        index.page_count(),
        "every page has one owner"
    );
}

/// The frames of a range are found in order, each once; frames of zero bytes are in no page.
fn lookup(index: &EpisodeIndex, stream: usize, start: u32, end: u32) {
    let wanted = end.min(index.stream(stream).frames).saturating_sub(start);
    let segments: Vec<Segment> = index.segments(stream, start..end).collect();
    assert_eq!(
        segments
            .iter()
            .map(|segment| segment.frames.len())
            .sum::<usize>(),
        wanted as usize
    );
    for segment in segments {
        assert!(segment.frames.end <= index.stream(segment.stream).frames);
        let mut next = segment.frames.start as usize;
        for slice in index.pages_of(&segment) {
            assert_eq!(slice.record.first_frame as usize + slice.range.start, next);
            assert!(!slice.range.is_empty() && slice.range.end <= slice.frames);
            next += slice.range.len();
        }
        let stored = index.stream(segment.stream).page_count > 0;
        assert_eq!(
            next,
            if stored {
                segment.frames.end
            } else {
                segment.frames.start
            } as usize
        );
    }
}

fn open(bytes: &[u8]) -> Result<Shard, FormatError> {
    let mut opening = OpenShard::new(bytes.len() as u64)?;
    for _ in 0..3 {
        match opening.step()? {
            Step::Need(range) => opening.feed(&bytes[range.start as usize..range.end as usize]),
            Step::Ready(shard) => return Ok(shard),
        }
    }
    panic!("a shard opens in two reads");
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Corrects what an attacker would: magic, length and checksums of header, indexes, schema, directory and footer.
fn seal(bytes: &mut [u8]) {
    let (len, footer) = (bytes.len(), bytes.len() - FOOTER);
    put(bytes, 0, b"\x89KINO\r\n\x1a\x01\0\x01\0");
    let crc = page_checksum(&bytes[..HEADER - 4]);
    put(bytes, HEADER - 4, &crc.to_le_bytes());
    put(bytes, len - 8, b"KINOEND\n");
    put(bytes, footer, &(len as u64).to_le_bytes());
    let directory_len = (u32_at(bytes, footer + 24) as usize).saturating_mul(ENTRY);
    let directory = footer.saturating_sub(directory_len).max(HEADER);
    // The schema ends where the directory starts, so that inserted bytes are not rejected right away.
    let schema_len = u32_at(bytes, footer + 16) as usize;
    let schema = directory
        .saturating_sub(schema_len.next_multiple_of(8))
        .max(HEADER);
    put(bytes, footer + 8, &(schema as u64).to_le_bytes());
    for entry in (directory..footer)
        .step_by(ENTRY)
        .take_while(|at| at + ENTRY <= footer)
    {
        let index = u64_at(bytes, entry).checked_add(u64_at(bytes, entry + 8));
        let index = usize::try_from(index.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let len = u32_at(bytes, entry + 16) as usize;
        if let Some(index) = bytes.get(index..index.saturating_add(len)) {
            let crc = page_checksum(index);
            put(bytes, entry + 20, &crc.to_le_bytes());
        }
    }
    let crc = page_checksum(&bytes[directory..footer]);
    put(bytes, footer + 28, &crc.to_le_bytes());
    if let Some(schema) = bytes.get(schema..schema.saturating_add(schema_len)) {
        let crc = page_checksum(schema);
        put(bytes, footer + 20, &crc.to_le_bytes());
    }
    let crc = page_checksum(&bytes[footer..footer + 52]);
    put(bytes, footer + 52, &crc.to_le_bytes());
}
