//! Accidents: a flipped bit, a truncated file, swapped or extra bytes. All are detected, none panics.

use std::ops::Range;

use kino_codec::Dtype;
use kino_format::{
    EpisodeRecords, FormatError, Kind, Result, Schema, Shard, ShardWriter, StreamRecord,
    page_checksum,
};
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assume, proptest};
use proptest::sample::Index;

use crate::fixture::{STREAM, cut, index, open, regular, shard_bytes, values};

/// Checks every bit of a shard.
fn full_check(bytes: &[u8]) -> Result<()> {
    let shard = open(bytes)?;
    shard.verify_header(bytes)?;
    for (slot, entry) in shard.episodes().iter().enumerate() {
        let errors = shard.verify_episode(slot, cut(bytes, entry.range()));
        errors.into_iter().next().map_or(Ok(()), Err)?;
    }
    Ok(())
}

/// The parts of a shard and the name that an error must use for each.
fn parts(bytes: &[u8]) -> Vec<(Range<u64>, String)> {
    let shard = open(bytes).unwrap();
    let mut parts = vec![(0..Shard::HEADER_LEN, "header".to_owned())];
    for (slot, entry) in shard.episodes().iter().enumerate() {
        let index = index(&shard, bytes, slot).unwrap();
        for page in 0..index.page_count() as u32 {
            let start = entry.start + index.page(page).offset();
            let end = start + u64::from(index.page(page).len).next_multiple_of(8);
            parts.push((start..end, format!("page {page} at slot {slot} (")));
        }
        parts.push((entry.index_range(), "episode index".to_owned()));
    }
    let tail = shard.tail_range();
    let directory = tail.end - 64 - 56 * shard.episodes().len() as u64;
    parts.push((tail.start..directory, "schema".to_owned()));
    parts.push((directory..tail.end - 64, "directory".to_owned()));
    parts.push((tail.end - 64..tail.end, "footer".to_owned()));
    parts
}

#[test]
fn an_undamaged_shard_passes_the_full_check() {
    assert_eq!(full_check(&shard_bytes()), Ok(()));
}

#[test]
fn flipping_any_bit_is_an_error_that_names_the_part() {
    let mut bytes = shard_bytes();
    let (parts, mut flips) = (parts(&bytes), 0);
    for (range, name) in parts {
        for bit in range.start * 8..range.end * 8 {
            let (at, mask) = ((bit / 8) as usize, 1 << (bit % 8));
            bytes[at] ^= mask;
            let error = full_check(&bytes).unwrap_err();
            assert!(error.to_string().contains(&name), "bit {bit}: {error}");
            bytes[at] ^= mask;
            flips += 1;
        }
    }
    assert_eq!(flips, bytes.len() * 8, "the parts cover the whole shard");
}

/// A shard of about a megabyte, as pages of 16 KiB.
fn megabyte() -> Vec<u8> {
    let stream = values("camera", Kind::Image, Dtype::U8, &[128, 128]);
    let schema = Schema {
        clock_codec: "raw".to_owned(),
        streams: vec![stream],
        ..Schema::default()
    };
    let mut out = Vec::new();
    let mut writer = ShardWriter::new(&mut out);
    for episode in 0..4_u64 {
        for frame in 0..16 {
            let noise = (0..1 << 14_u64).map(|i| (i * i + episode).wrapping_mul(0x9e37_79b9) >> 13);
            let page: Vec<u8> = noise.map(|value| value.to_le_bytes()[0]).collect();
            writer.page(&page, frame, &mut out).unwrap();
        }
        let stream = StreamRecord {
            frames: 16,
            page_count: 16,
            raw_bytes: 16 << 14,
            ..STREAM
        };
        writer
            .end_episode(
                &EpisodeRecords::new(&[regular(0, 16)], &[stream]),
                &schema,
                &mut out,
            )
            .unwrap();
    }
    writer.finish(&schema, &mut out).unwrap();
    out
}

#[test]
#[ignore = "8.4 million flips take minutes; run with --release -- --ignored"]
fn flipping_any_bit_of_a_megabyte_is_an_error() {
    let mut bytes = megabyte();
    assert!(bytes.len() > 1 << 20);
    let shard = open(&bytes).unwrap();
    for (slot, entry) in shard.episodes().iter().enumerate() {
        let index = index(&shard, &bytes, slot).unwrap();
        for page in 0..index.page_count() as u32 {
            let start = entry.start + index.page(page).offset();
            let page_bytes = &mut bytes[start as usize..][..index.page(page).len as usize];
            for bit in 0..page_bytes.len() * 8 {
                page_bytes[bit / 8] ^= 1 << (bit % 8);
                let computed = page_checksum(page_bytes);
                assert_ne!(computed, index.page(page).crc, "bit {bit} of page {page}");
                page_bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        for bit in entry.index_range().start * 8..entry.index_range().end * 8 {
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            let range = entry.index_range();
            let result = shard.episode_index(slot, cut(&bytes, range).to_vec());
            assert!(matches!(result, Err(FormatError::Checksum { .. })));
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
    }
    let tail = shard.tail_range();
    for bit in (0..Shard::HEADER_LEN * 8).chain(tail.start * 8..tail.end * 8) {
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        let result = open(&bytes).and_then(|shard| shard.verify_header(&bytes));
        assert!(result.is_err(), "bit {bit}");
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

#[test]
#[ignore = "a million truncations take half a minute; run with --release -- --ignored"]
fn truncating_a_megabyte_at_any_length_is_reported_as_truncated() {
    let bytes = megabyte();
    for len in 0..bytes.len() {
        let error = open(&bytes[..len]).unwrap_err();
        assert!(error.to_string().contains("truncated"), "{len}: {error}");
    }
}

#[test]
fn truncating_at_any_length_is_reported_as_truncated() {
    let bytes = shard_bytes();
    for len in 0..bytes.len() {
        let error = open(&bytes[..len]).unwrap_err();
        assert!(error.to_string().contains("truncated"), "{len}: {error}");
    }
}

#[test]
fn a_shard_with_bytes_before_or_after_it_does_not_open() {
    let (bytes, more) = (shard_bytes(), shard_bytes());
    for extra in [&more[..], &more[..8], &[0; 8], &[7]] {
        let before = open(&[extra, &bytes].concat()).unwrap_err();
        assert!(before.to_string().contains("footer is invalid"), "{before}");
        let after = [&bytes, extra].concat();
        assert!(open(&after).is_err());
    }
}

#[test]
fn an_index_is_not_accepted_for_another_episode() {
    let bytes = shard_bytes();
    let shard = open(&bytes).unwrap();
    let other = cut(&bytes, shard.episodes()[1].index_range()).to_vec();
    assert!(shard.episode_index(0, other).is_err());
}

#[test]
fn every_damaged_page_is_listed() {
    let mut bytes = shard_bytes();
    let shard = open(&bytes).unwrap();
    let (entry, index) = (shard.episodes()[0], index(&shard, &bytes, 0).unwrap());
    let camera = index.stream(3);
    for page in [camera.first_page, camera.first_page + 2, camera.shared_page] {
        bytes[(entry.start + index.page(page).offset()) as usize] ^= 1;
    }
    let errors = shard.verify_episode(0, cut(&bytes, entry.range()));
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(texts[0].contains("(stream `camera`, shared by its pages) at bytes"));
    assert!(texts[1].contains("(stream `camera`, frames 0..1) at bytes"));
    assert!(texts[2].contains("(stream `camera`, frames 2..3) at bytes"));
}

#[test]
fn a_swapped_episode_is_detected_by_its_hash() {
    // The attack that checksums alone would miss: everything is valid, but it is another episode.
    let bytes = shard_bytes();
    let shard = open(&bytes).unwrap();
    let mut other = bytes.clone();
    let hash = other.len() - 64 - 56 * 4 + 24;
    other[hash] ^= 1;
    crate::seal::seal(&mut other);
    let lying = open(&other).unwrap();
    let range = shard.episodes()[0].range();
    let errors = lying.verify_episode(0, cut(&other, range));
    assert_eq!(errors.len(), 1);
    assert!(errors[0].to_string().contains("BLAKE3 at slot 0"));
}

#[test]
fn header_and_footer_must_agree() {
    let mut bytes = shard_bytes();
    bytes[8] = 3;
    crate::seal::seal(&mut bytes);
    let error = open(&bytes).unwrap().verify_header(&bytes).unwrap_err();
    assert!(error.to_string().contains("footer"), "{error}");
}

#[test]
fn episode_bytes_of_another_length_are_an_error() {
    let bytes = shard_bytes();
    let shard = open(&bytes).unwrap();
    assert_eq!(shard.verify_episode(0, &bytes).len(), 1);
    assert_eq!(shard.verify_episode(0, &[]).len(), 1);
    assert_eq!(shard.verify_episode(4, &[]).len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn swapped_bytes_are_detected(a: Index, b: Index, len in 1_usize..64) {
        let mut bytes = shard_bytes();
        let (a, b) = (a.index(bytes.len() - len), b.index(bytes.len() - len));
        prop_assume!(a.abs_diff(b) >= len && bytes[a..a + len] != bytes[b..b + len]);
        for i in 0..len {
            bytes.swap(a + i, b + i);
        }
        prop_assert!(full_check(&bytes).is_err());
    }

    #[test]
    fn a_burst_of_noise_is_detected(at: Index, noise in proptest::collection::vec(any::<u8>(), 1..200)) {
        let clean = shard_bytes();
        let mut bytes = clean.clone();
        let at = at.index(bytes.len());
        let len = noise.len().min(bytes.len() - at);
        bytes[at..at + len].copy_from_slice(&noise[..len]);
        prop_assume!(bytes != clean);
        prop_assert!(full_check(&bytes).is_err());
    }

    #[test]
    fn removed_or_repeated_bytes_are_detected(at: Index, len in 1_usize..200) {
        let bytes = shard_bytes();
        let at = at.index(bytes.len() - len);
        prop_assert!(full_check(&[&bytes[..at], &bytes[at + len..]].concat()).is_err());
        prop_assert!(full_check(&[&bytes[..at + len], &bytes[at..]].concat()).is_err());
    }
}
