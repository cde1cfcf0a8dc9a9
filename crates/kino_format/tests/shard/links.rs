//! Linked pages: pages that are byte ranges of other files, and lies about them.
//!
//! ```text
//! stream     pages               pieces
//! joints     stored
//! camera     linked, one frame   a.mp4 100..106, then b.mp4 7..13
//! video      linked, two frames  5 bytes of the shard and a.mp4 0..4, 90..100; 3 bytes of the shard
//! ```

use kino_codec::Dtype;
use kino_format::{
    EpisodeIndex, EpisodeRecords, ForeignFile, FormatError, Kind, LinkedPage, NONE, PieceBytes,
    Result, Schema, Shard, ShardWriter, StreamRecord, StreamSchema, page_checksum,
};
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::sample::Index;

use crate::fixture::{STREAM, cut, index, open, regular, values};
use crate::golden::golden;
use crate::seal;

/// The bytes of the linked files.
fn files() -> [Vec<u8>; 2] {
    [(0..200).collect(), (0..20).rev().collect()]
}

fn schema() -> Schema {
    let file = |path: &str, bytes| ForeignFile {
        path: path.to_owned(),
        bytes,
    };
    let carry = |name: &str| StreamSchema {
        variant_of: None,
        codec: "jpeg:carry".to_owned(),
        ..values(name, Kind::Image, Dtype::U8, &[4, 4, 3])
    };
    Schema {
        clock_codec: "raw".to_owned(),
        streams: vec![
            values("joints", Kind::Vector, Dtype::F32, &[1]),
            values("camera", Kind::Image, Dtype::U8, &[2, 3]),
            carry("video"),
        ],
        files: vec![file("videos/a.mp4", 200), file("b.mp4", 20)],
    }
}

fn piece(file: u32, offset: u64, len: u32) -> PieceBytes<'static> {
    PieceBytes::File { file, offset, len }
}

const HEADER: &[u8] = b"head\n";

/// The pieces of every linked page.
fn pages() -> Vec<Vec<PieceBytes<'static>>> {
    vec![
        vec![piece(0, 100, 6)],
        vec![piece(1, 7, 6)],
        vec![PieceBytes::Stored(HEADER), piece(0, 0, 4), piece(0, 90, 10)],
        vec![PieceBytes::Stored(b"abc")],
    ]
}

/// The bytes of a page, read as its pieces say.
fn bytes_of(pieces: &[PieceBytes<'_>]) -> Vec<u8> {
    let files = files();
    let mut bytes = Vec::new();
    for piece in pieces {
        match *piece {
            PieceBytes::Stored(stored) => bytes.extend(stored),
            PieceBytes::File { file, offset, len } => {
                let start = offset as usize;
                bytes.extend(&files[file as usize][start..start + len as usize]);
            }
        }
    }
    bytes
}

fn add(writer: &mut ShardWriter, is_checked: bool, out: &mut Vec<u8>) -> Result<()> {
    let attributes_page = writer.page(b"attributes", 0, out)?;
    let joints = writer.page(&[1, 2, 3, 4, 5, 6, 7, 8], 0, out)?;
    let mut numbers = Vec::new();
    for (pieces, first_frame) in pages().iter().zip([0, 1, 0, 1]) {
        let crc = is_checked.then(|| page_checksum(&bytes_of(pieces)));
        let page = LinkedPage {
            pieces,
            first_frame,
            crc,
        };
        numbers.push(writer.linked_page(&page, out)?);
    }
    let of = |stream, first_page, page_count, frame_bytes: u64| StreamRecord {
        stream,
        frames: 2,
        first_page,
        page_count,
        raw_bytes: 2 * frame_bytes,
        ..STREAM
    };
    let streams = [
        of(0, joints, 1, 4),
        of(1, numbers[0], 2, 6),
        of(2, numbers[2], 2, 48),
    ];
    let clocks = [regular(0, 2)];
    let records = EpisodeRecords {
        clocks: &clocks,
        streams: &streams,
        attributes_page,
    };
    writer.end_episode(&records, &schema(), out).map(|_| ())
}

/// Two linked episodes, the second without checksums, and a packed one.
fn linked_shard() -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = ShardWriter::linked(&mut out);
    add(&mut writer, true, &mut out).unwrap();
    add(&mut writer, false, &mut out).unwrap();
    let records = EpisodeRecords::new(&[], &[]);
    writer.end_episode(&records, &schema(), &mut out).unwrap();
    writer.finish(&schema(), &mut out).unwrap();
    out
}

/// The bytes of the pages from `first` on, assembled from the pieces as a reader does.
fn assemble(shard: &Shard, bytes: &[u8], slot: usize, index: &EpisodeIndex) -> Vec<Vec<u8>> {
    let start = shard.episodes()[slot].start;
    let files = files();
    let page = |number: u32| {
        let record = index.page(number);
        let range = record.offset()..record.offset() + u64::from(record.len);
        let mut page = vec![0; record.len as usize];
        for placed in index.pieces(range) {
            let at = (placed.at - record.offset()) as usize;
            let (offset, len) = (placed.piece.offset, u64::from(placed.piece.len));
            let found = match placed.piece.file {
                NONE => cut(bytes, start + offset..start + offset + len),
                file => cut(&files[file as usize], offset..offset + len),
            };
            page[at..at + found.len()].copy_from_slice(found);
        }
        page
    };
    index.linked_pages().map(page).collect()
}

#[test]
fn linked_pages_are_the_bytes_of_their_pieces() {
    let bytes = golden("v2_linked.kshard", &linked_shard());
    let shard = open(&bytes).unwrap();
    assert!(shard.is_linked());
    assert_eq!(shard.verify_header(&bytes), Ok(()));
    assert_eq!(shard.schema().files, schema().files);
    for slot in 0..2 {
        let index = index(&shard, &bytes, slot).unwrap();
        assert_eq!(index.linked_pages(), 2..6);
        let expected: Vec<_> = pages().iter().map(|pieces| bytes_of(pieces)).collect();
        let found = assemble(&shard, &bytes, slot, &index);
        assert_eq!(found, expected);
        for (page, found) in index.linked_pages().zip(&found) {
            let record = index.page(page);
            assert_eq!(index.has_checksum(&record), slot == 0);
            let crc = if slot == 0 { page_checksum(found) } else { 0 };
            assert_eq!(record.crc, crc);
            let position = index.linked_position(record.offset());
            assert_eq!(position, Some(page as usize - 2));
        }
        assert!(index.has_checksum(&index.page(1)), "a stored page has one");
        let entry = shard.episodes()[slot];
        assert_eq!(shard.verify_episode(slot, cut(&bytes, entry.range())), []);
    }
    let packed = index(&shard, &bytes, 2).unwrap();
    assert!(!packed.is_linked() && packed.linked_pages().is_empty());
    assert_eq!(packed.pieces(0..u64::MAX).count(), 0);
}

#[test]
fn pages_would_be_where_their_records_say_if_they_were_stored() {
    let bytes = linked_shard();
    let shard = open(&bytes).unwrap();
    let index = index(&shard, &bytes, 0).unwrap();
    let mut next = 0;
    for page in 0..6 {
        let record = index.page(page);
        assert_eq!(record.offset(), next);
        next = (record.offset() + u64::from(record.len)).next_multiple_of(8);
    }
    assert_eq!(index.linked_start(), 24);
    // Two neighbours in one read, with the padding between them.
    let placed: Vec<_> = index
        .pieces(24..38)
        .map(|placed| (placed.at, placed.piece.offset))
        .collect();
    assert_eq!(placed, [(24, 100), (32, 7)]);
}

#[test]
fn a_writer_refuses_linked_pages_where_readers_would() {
    let page = |pieces, crc| LinkedPage {
        pieces,
        first_frame: 0,
        crc,
    };
    let mut out = Vec::new();
    let mut packed = ShardWriter::new(&mut out);
    let pieces = [piece(0, 0, 4)];
    let error = packed.linked_page(&page(&pieces, None), &mut out);
    assert!(matches!(error, Err(FormatError::Limit { .. })));
    let mut linked = ShardWriter::linked(&mut out);
    linked
        .linked_page(&page(&pieces, Some(1)), &mut out)
        .unwrap();
    assert!(linked.linked_page(&page(&pieces, None), &mut out).is_err());
    assert!(linked.page(&[1], 0, &mut out).is_err());
    let huge = [piece(0, 0, u32::MAX)];
    assert!(linked.linked_page(&page(&huge, Some(1)), &mut out).is_err());
}

/// The first error from opening a shard and reading all its indexes.
fn read_all(bytes: &[u8]) -> Result<()> {
    let shard = open(bytes)?;
    (0..shard.episodes().len()).try_for_each(|slot| index(&shard, bytes, slot).map(|_| ()))
}

/// The error after one lie of `value` at `at` bytes from the index of the first episode, with correct checksums.
fn lie(at: usize, value: &[u8]) -> String {
    let mut bytes = linked_shard();
    let place = seal::index(&bytes, 0) + at;
    seal::put(&mut bytes, place, value);
    seal::seal(&mut bytes);
    read_all(&bytes).unwrap_err().to_string()
}

/// Where the piece records start: header, a clock, three streams, six pages.
const PIECES: usize = 32 + 48 + 3 * 64 + 6 * 16;

#[test]
fn lies_about_pieces_are_refused() {
    let max = u64::MAX.to_le_bytes();
    let cases: [(usize, &[u8], &str); 14] = [
        (20, &[3], "outside"),
        (20, &[5], "is longer|shorter|outside"),
        (20, &[200], "reserved|do not match|more linked"),
        (24, &[5], "do not match"),
        (24, &[255; 4], "do not match"),
        (28, &[1], "checksum"),
        (28, &[2], "reserved"),
        // The first piece: outside its file, of no file, of no bytes, too long, too short.
        (PIECES, &195_u64.to_le_bytes(), "outside"),
        (PIECES, &max, "outside"),
        (PIECES + 12, &[2], "outside"),
        (PIECES + 8, &[0; 4], "outside"),
        (PIECES + 8, &[7], "shorter"),
        (PIECES + 8, &[5], "shorter"),
        // The stored piece: not where the stored pages end.
        (PIECES + 2 * 16, &[32], "outside"),
    ];
    for (at, value, expected) in cases {
        let error = lie(at, value);
        let is_expected = expected.split('|').any(|part| error.contains(part));
        assert!(is_expected, "{at} {value:?}: {error}");
    }
}

#[test]
fn linked_pages_in_a_shard_for_older_readers_are_refused() {
    let mut bytes = linked_shard();
    let footer = seal::footer(&bytes);
    seal::put(&mut bytes, footer + 32, &[1, 0, 1, 0]);
    seal::seal(&mut bytes);
    let error = read_all(&bytes).unwrap_err().to_string();
    assert!(error.contains("linked pages"), "{error}");
}

#[test]
fn paths_that_leave_the_root_are_refused() {
    let with = |path: &str| {
        let mut schema = schema();
        schema.files[0].path = path.to_owned();
        schema.check()
    };
    for path in [
        "",
        "/etc/passwd",
        "..",
        "../a",
        "a/../b",
        "a//b",
        "./a",
        "a/.",
        "a\\b",
        "C:/x",
        "a\nb",
        &"x/".repeat(3000),
    ] {
        assert!(with(path).is_err(), "{path:?}");
    }
    assert_eq!(with("videos/chunk-000/größe 1.mp4"), Ok(()));
}

#[test]
fn every_flipped_bit_is_detected() {
    let bytes = linked_shard();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let is_whole = || -> Result<bool> {
            let shard = open(&flipped)?;
            shard.verify_header(&flipped)?;
            let mut slots = 0..shard.episodes().len();
            Ok(slots.all(|slot| {
                let range = shard.episodes()[slot].range();
                shard.verify_episode(slot, cut(&flipped, range)).is_empty()
            }))
        };
        assert!(!is_whole().unwrap_or(false), "bit {bit}");
    }
}

/// Values that break parsers, and small ones that are nearly right.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0_u32..40, Just(u32::MAX), Just(1 << 31), any::<u32>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_survives_a_lie_is_inside_its_file(lies in proptest::collection::vec((any::<Index>(), number()), 1..5)) {
        let mut bytes = linked_shard();
        let start = seal::index(&bytes, 0);
        for (at, value) in lies {
            let place = start + at.index((PIECES + 7 * 16) / 4) * 4;
            seal::put(&mut bytes, place, &value.to_le_bytes());
        }
        seal::seal(&mut bytes);
        if let Ok(shard) = open(&bytes) && let Ok(index) = index(&shard, &bytes, 0) {
            let entry = shard.episodes()[0];
            for placed in index.pieces(0..u64::MAX) {
                let end = placed.piece.end();
                match placed.piece.file {
                    NONE => assert!(end <= entry.pages_len),
                    file => assert!(end <= shard.schema().files[file as usize].bytes),
                }
            }
            for page in index.linked_pages() {
                let record = index.page(page);
                let range = record.offset()..record.offset() + u64::from(record.len);
                let len: u64 = index.pieces(range).map(|placed| u64::from(placed.piece.len)).sum();
                assert_eq!(len, u64::from(record.len));
            }
        }
    }
}
