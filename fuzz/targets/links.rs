//! Any bytes as the index of an episode whose pages are linked.
//!
//! ```text
//! the bytes are an index: its magic is corrected, and page offsets are those of pages that follow each other
//! ```
//!
//! What is accepted must lead nowhere outside: a piece is inside its file or the episode, and the pieces of a page are as
//! long as the page. Seeds: the indexes of `crates/kino_format/tests/golden/v2_linked.kshard`, by `make_seeds.py`.

#![no_main]

use std::sync::LazyLock;

use kino_codec::{Dtype, FrameType};
use kino_format::{EpisodeIndex, ForeignFile, Kind, NONE, Schema, StreamSchema};
use libfuzzer_sys::fuzz_target;

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let values = |name: &str, dtype, shape: &[usize]| {
        let frame = FrameType::values(dtype, shape).expect("a frame type");
        StreamSchema::new(name, Kind::Vector, &frame, &"raw".parse().expect("a codec"))
    };
    let file = |path: &str, bytes| ForeignFile {
        path: path.to_owned(),
        bytes,
    };
    Schema {
        clock_codec: "raw".to_owned(),
        streams: vec![
            values("joints", Dtype::F32, &[1]),
            values("camera", Dtype::U8, &[2, 3]),
            values("video", Dtype::U8, &[4, 4, 3]),
        ],
        files: vec![file("videos/a.mp4", 200), file("b.mp4", 20)],
    }
});

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    if bytes.len() < 32 {
        return;
    }
    bytes[..4].copy_from_slice(b"KIDX");
    let pages = u32_at(&bytes, 12) as usize;
    let linked = (u32_at(&bytes, 20) as usize).min(pages);
    let tables = 32 + u32_at(&bytes, 4) as usize * 48 + u32_at(&bytes, 8) as usize * 64;
    let (mut position, mut own_end, len) = (0_u64, 0, bytes.len());
    for page in 0..pages {
        let at = tables.saturating_add(page * 16);
        if at.saturating_add(16) > len {
            break;
        }
        bytes[at..at + 4].copy_from_slice(&((position / 8) as u32).to_le_bytes());
        position += u64::from(u32_at(&bytes, at + 4)).next_multiple_of(8);
        if page + linked < pages {
            own_end = position;
        }
    }
    // The bytes of stored pieces follow: any length that makes the episode complete is tried.
    for stored in [0, 8, 16, 24] {
        if let Ok(index) = EpisodeIndex::parse(bytes.clone(), own_end + stored, &SCHEMA) {
            exercise(&index, own_end + stored);
        }
    }
});

fn exercise(index: &EpisodeIndex, pages_len: u64) {
    for placed in index.pieces(0..u64::MAX) {
        match placed.piece.file {
            NONE => assert!(placed.piece.end() <= pages_len),
            file => assert!(placed.piece.end() <= SCHEMA.files[file as usize].bytes),
        }
    }
    for page in index.linked_pages() {
        let record = index.page(page);
        let end = record.offset() + u64::from(record.len);
        let pieces = index.pieces(record.offset()..end);
        let len: u64 = pieces.map(|placed| u64::from(placed.piece.len)).sum();
        assert_eq!(len, u64::from(record.len));
        let position = index
            .linked_position(record.offset())
            .expect("a linked page");
        assert_eq!(position as u32, page - index.linked_pages().start);
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
