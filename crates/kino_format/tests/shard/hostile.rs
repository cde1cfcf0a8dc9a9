//! Lies with correct checksums: no value in a shard may cause a panic, a wild read or a huge allocation.

use kino_format::{FormatError, MAX_PAGE_BYTES, NONE, Result, Segment};
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::sample::Index;

use crate::fixture::{index, open, shard_bytes};
use crate::seal;

/// The first error from opening a shard and reading all its indexes.
fn read_all(bytes: &[u8]) -> Result<()> {
    let shard = open(bytes)?;
    (0..shard.episodes().len()).try_for_each(|slot| index(&shard, bytes, slot).map(|_| ()))
}

/// The error after applying `lie` to a valid shard, with correct checksums.
fn error_after(lie: impl FnOnce(&mut [u8])) -> String {
    let mut bytes = shard_bytes();
    lie(&mut bytes);
    seal::seal(&mut bytes);
    read_all(&bytes).unwrap_err().to_string()
}

/// Plants one lie, at `at` bytes from a record's start, and returns the error.
fn lie(record: fn(&[u8]) -> usize, at: usize, value: &[u8]) -> String {
    error_after(|bytes| {
        let place = record(bytes) + at;
        seal::put(bytes, place, value);
    })
}

fn regular_clock(bytes: &[u8]) -> usize {
    seal::clock(bytes, 0, 0)
}

fn explicit_clock(bytes: &[u8]) -> usize {
    seal::clock(bytes, 0, 1)
}

fn empty_clock(bytes: &[u8]) -> usize {
    seal::clock(bytes, 0, 3)
}

fn actions(bytes: &[u8]) -> usize {
    seal::stream(bytes, 0, 0)
}

fn next_joints(bytes: &[u8]) -> usize {
    seal::stream(bytes, 0, 2)
}

fn camera(bytes: &[u8]) -> usize {
    seal::stream(bytes, 0, 3)
}

fn touch(bytes: &[u8]) -> usize {
    seal::stream(bytes, 0, 6)
}

fn nothing(bytes: &[u8]) -> usize {
    seal::stream(bytes, 0, 7)
}

fn first_index(bytes: &[u8]) -> usize {
    seal::index(bytes, 0)
}

#[test]
fn sealing_a_valid_shard_changes_nothing() {
    let bytes = shard_bytes();
    let mut sealed = bytes.clone();
    seal::seal(&mut sealed);
    assert!(sealed == bytes);
    assert_eq!(read_all(&bytes), Ok(()));
}

#[test]
fn the_index_header_is_checked() {
    for (at, value) in [
        (0, *b"KIDY"),
        (4, u32::MAX.to_le_bytes()),
        (8, u32::MAX.to_le_bytes()),
        (12, u32::MAX.to_le_bytes()),
        (20, [1, 0, 0, 0]),
        (28, [0, 0, 0, 1]),
    ] {
        let error = lie(first_index, at, &value);
        assert!(error.contains("episode index is invalid"), "{at}: {error}");
    }
    assert!(lie(first_index, 16, &99_u32.to_le_bytes()).contains("page 99"));
    assert!(lie(first_index, 16, &NONE.to_le_bytes()).contains("is not referenced by anything"));
}

#[test]
fn a_clock_cannot_contradict_itself() {
    let i64_max = i64::MAX.to_le_bytes();
    for (record, at, value) in [
        (regular_clock as fn(&[u8]) -> usize, 0, i64_max.as_slice()),
        (regular_clock, 8, &i64_max),
        (regular_clock, 16, &u64::MAX.to_le_bytes()),
        (regular_clock, 16, &[0; 8]),
        (regular_clock, 24, &[0; 4]),
        (regular_clock, 28, &u32::MAX.to_le_bytes()),
        (regular_clock, 28, &8_u32.to_le_bytes()),
        (regular_clock, 36, &1_u32.to_le_bytes()),
        (regular_clock, 44, &1_u32.to_le_bytes()),
        (explicit_clock, 0, &71_i64.to_le_bytes()),
        (explicit_clock, 16, &1_u64.to_le_bytes()),
        (explicit_clock, 24, &1_u32.to_le_bytes()),
        (explicit_clock, 28, &0_u32.to_le_bytes()),
        (explicit_clock, 28, &u32::MAX.to_le_bytes()),
        (explicit_clock, 32, &u32::MAX.to_le_bytes()),
        (explicit_clock, 36, &u32::MAX.to_le_bytes()),
        (explicit_clock, 36, &0_u32.to_le_bytes()),
        (explicit_clock, 40, &NONE.to_le_bytes()),
        (explicit_clock, 44, &1_u32.to_le_bytes()),
        (empty_clock, 28, &1_u32.to_le_bytes()),
        (empty_clock, 32, &u32::MAX.to_le_bytes()),
    ] {
        let error = lie(record, at, value);
        assert!(error.contains("episode index is invalid"), "{at}: {error}");
    }
}

#[test]
fn a_regular_clock_must_end_within_the_range_of_an_i64() {
    // The formula saturates at the limits of i64, so an end there must not be accepted as correct.
    let error = error_after(|bytes| {
        let clock = regular_clock(bytes);
        seal::put(bytes, clock, &(i64::MAX - 5).to_le_bytes());
        seal::put(bytes, clock + 8, &i64::MAX.to_le_bytes());
    });
    assert!(error.contains("clock 0"), "{error}");
}

#[test]
fn a_clock_must_not_be_longer_than_an_i64_of_nanoseconds() {
    let error = error_after(|bytes| {
        let clock = explicit_clock(bytes);
        seal::put(bytes, clock, &i64::MIN.to_le_bytes());
        seal::put(bytes, clock + 8, &i64::MAX.to_le_bytes());
    });
    assert!(error.contains("clock 1"), "{error}");
}

#[test]
fn a_clock_of_fewer_than_two_frames_must_end_where_it_starts() {
    assert!(lie(empty_clock, 8, &1_i64.to_le_bytes()).contains("clock 3"));
}

#[test]
fn a_shared_page_needs_pages_that_share_it() {
    // The camera's shared page is moved to something that has no pages to share it.
    for other in [regular_clock as fn(&[u8]) -> usize, empty_clock] {
        let error = error_after(|bytes| {
            let shared = camera(bytes) + 32;
            let moved = bytes[shared..shared + 4].to_vec();
            let place = other(bytes) + 40;
            seal::put(bytes, place, &moved);
            seal::put(bytes, shared, &NONE.to_le_bytes());
        });
        assert!(error.contains("clock"), "{error}");
    }
    for other in [touch as fn(&[u8]) -> usize, nothing] {
        let error = error_after(|bytes| {
            let shared = camera(bytes) + 32;
            let moved = bytes[shared..shared + 4].to_vec();
            let place = other(bytes) + 32;
            seal::put(bytes, place, &moved);
            seal::put(bytes, shared, &NONE.to_le_bytes());
        });
        assert!(error.contains("stream"), "{error}");
    }
}

#[test]
fn a_page_without_frames_has_no_first_frame() {
    for page in [0, 1] {
        let error = error_after(|bytes| {
            let place = seal::page(bytes, 0, page) + 8;
            seal::put(bytes, place, &1_u32.to_le_bytes());
        });
        assert!(error.contains(&format!("page {page}")), "{error}");
    }
}

#[test]
fn a_stream_cannot_contradict_itself() {
    let one = 1_u32.to_le_bytes();
    let max = u32::MAX.to_le_bytes();
    for (record, at, value) in [
        (actions as fn(&[u8]) -> usize, 0, one.as_slice()),
        (actions, 0, &max),
        (actions, 4, &max),
        (actions, 4, &one),
        (actions, 8, &one),
        (actions, 8, &max),
        (actions, 12, &one),
        (actions, 12, &max),
        (actions, 16, &one),
        (actions, 20, &one),
        (actions, 24, &max),
        (actions, 24, &0_u32.to_le_bytes()),
        (actions, 28, &max),
        (actions, 28, &one),
        (actions, 32, &0_u32.to_le_bytes()),
        (actions, 36, &one),
        (actions, 40, &f64::NAN.to_le_bytes()),
        (actions, 40, &(-1.0_f64).to_le_bytes()),
        (actions, 48, &f64::INFINITY.to_le_bytes()),
        (actions, 56, &1_u64.to_le_bytes()),
        (actions, 56, &u64::MAX.to_le_bytes()),
        (next_joints, 16, &2_u32.to_le_bytes()),
        (next_joints, 16, &0_u32.to_le_bytes()),
        (next_joints, 16, &max),
        (next_joints, 20, &2_u32.to_le_bytes()),
        (next_joints, 20, &max),
        (camera, 32, &max),
        (touch, 12, &one),
        (touch, 28, &one),
        (nothing, 56, &1_u64.to_le_bytes()),
    ] {
        let error = lie(record, at, value);
        assert!(error.contains("episode index is invalid"), "{at}: {error}");
    }
}

#[test]
fn pages_must_tile_the_episode() {
    for (page, at, value) in [
        (0, 0, 1_u32),
        (3, 0, 0),
        (0, 4, 0),
        (0, 4, 9_999),
        (0, 4, u32::MAX),
        (2, 4, MAX_PAGE_BYTES as u32 + 1),
    ] {
        let error = error_after(|bytes| {
            let place = seal::page(bytes, 0, page) + at;
            seal::put(bytes, place, &value.to_le_bytes());
        });
        assert!(error.contains("page"), "{error}");
    }
}

#[test]
fn the_directory_must_tile_the_shard() {
    for (at, value) in [
        (0, 40_u64),
        (0, u64::MAX),
        (8, 0),
        (8, 4),
        (8, u64::MAX - 31),
    ] {
        let error = error_after(|bytes| {
            let place = seal::directory(bytes) + at;
            seal::put(bytes, place, &value.to_le_bytes());
        });
        assert!(error.contains("directory is invalid"), "{at}: {error}");
    }
    let error = error_after(|bytes| {
        let place = seal::directory(bytes) + 16;
        seal::put(bytes, place, &u32::MAX.to_le_bytes());
    });
    assert!(error.contains("directory is invalid"), "{error}");
}

#[test]
fn the_footer_is_checked_against_the_file() {
    for (at, value, expected) in [
        (8, 0_u64, "footer is invalid"),
        (8, u64::MAX, "footer is invalid"),
        (16, u64::MAX, "footer is invalid"),
        (36, 1, "footer is invalid"),
        (0, u64::MAX, "truncated"),
        (0, 500, "footer is invalid"),
    ] {
        let error = error_after(|bytes| {
            let place = seal::footer(bytes) + at;
            seal::put(bytes, place, &value.to_le_bytes());
        });
        assert!(error.contains(expected), "{at}: {error}");
    }
}

#[test]
fn the_error_for_a_newer_shard_names_the_required_reader() {
    let mut bytes = shard_bytes();
    let footer = seal::footer(&bytes);
    seal::put(&mut bytes, footer + 32, &[4, 0, 3, 0]);
    seal::seal(&mut bytes);
    let (found, supported) = (3, 2);
    assert_eq!(
        open(&bytes).unwrap_err(),
        FormatError::TooNew { found, supported }
    );
    // A newer writer that still writes for this reader is accepted.
    seal::put(&mut bytes, footer + 32, &[3, 0, 1, 0]);
    seal::seal(&mut bytes);
    assert!(open(&bytes).is_ok());
}

#[test]
fn a_version_below_its_own_reader_is_refused() {
    for versions in [[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]] {
        let error = error_after(|bytes| {
            let place = seal::footer(bytes) + 32;
            seal::put(bytes, place, &versions);
        });
        assert!(error.contains("footer is invalid"), "{error}");
        let mut bytes = shard_bytes();
        seal::put(&mut bytes, 8, &versions);
        seal::seal(&mut bytes);
        let error = open(&bytes).unwrap().verify_header(&bytes).unwrap_err();
        assert!(error.to_string().contains("cannot require"), "{error}");
    }
}

/// Everything an index returns is inside its episode and consistent.
fn exercise(bytes: &[u8]) {
    let Ok(shard) = open(bytes) else { return };
    for (slot, entry) in shard.episodes().iter().enumerate() {
        let Ok(index) = index(&shard, bytes, slot) else {
            continue;
        };
        let inside = |record: &kino_format::PageRecord| {
            assert!(record.offset() + u64::from(record.len) <= entry.pages_len);
        };
        index.attributes().iter().for_each(inside);
        for clock in 0..index.clock_count() {
            let record = index.clock(clock);
            assert!(record.end_ns.checked_sub(record.start_ns).unwrap() >= 0);
            index
                .pages_of_clock(clock)
                .for_each(|slice| inside(&slice.record));
        }
        for stream in 0..index.stream_count() {
            let frames = index.stream(stream).frames;
            for (start, end) in [(0, frames), (frames / 2, u32::MAX), (1, 2), (u32::MAX, 0)] {
                for segment in index.segments(stream, start..end) {
                    assert!(segment.frames.end <= index.stream(segment.stream).frames);
                    for slice in index.pages_of(&segment) {
                        inside(&slice.record);
                        assert!(slice.range.end <= slice.frames);
                        assert_eq!(index.page(slice.page), slice.record);
                    }
                }
            }
            let wild = Segment {
                stream,
                frames: frames..u32::MAX,
            };
            assert_eq!(index.pages_of(&wild).count(), 0);
        }
    }
}

/// Values that break parsers, and small ones that are nearly right.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![
        0_u32..40,
        Just(u32::MAX),
        Just(u32::MAX - 1),
        Just(1 << 31),
        any::<u32>()
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn lies_about_records_never_panic(lies in proptest::collection::vec((any::<Index>(), number()), 1..5)) {
        let mut bytes = shard_bytes();
        let end = seal::directory(&bytes);
        let indexes: Vec<usize> = (0..4).flat_map(|slot| {
            let len = seal::u32_at(&bytes, end + slot * 56 + 16) as usize;
            (seal::index(&bytes, slot)..).step_by(4).take(len / 4)
        }).collect();
        for (at, value) in lies {
            seal::put(&mut bytes, *at.get(&indexes), &value.to_le_bytes());
        }
        seal::seal(&mut bytes);
        exercise(&bytes);
    }

    #[test]
    fn lies_about_directory_and_footer_never_panic(lies in proptest::collection::vec((any::<Index>(), number()), 1..5)) {
        let mut bytes = shard_bytes();
        let start = seal::directory(&bytes);
        let words = (bytes.len() - start) / 4;
        for (at, value) in lies {
            seal::put(&mut bytes, start + 4 * at.index(words), &value.to_le_bytes());
        }
        seal::seal(&mut bytes);
        exercise(&bytes);
    }

    #[test]
    fn lies_anywhere_never_panic(lies in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..9)) {
        let mut bytes = shard_bytes();
        for (at, value) in lies {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        seal::seal(&mut bytes);
        exercise(&bytes);
    }
}
