//! Damage of every kind: a flipped bit, a truncated file, a missing file. It is always detected and located, and
//! never read as data.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

mod common;

use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

use common::{chain, image_info, random_bytes, text_info, vector_info};
use kino_dataset::{
    Dataset, DatasetWriter, EpisodeInfo, ErrorKind, Level, Plan, SharedFrames, Start, StreamInfo,
    Times, WriterOptions, verify,
};

/// A dataset of a few kilobytes with every kind of page: shared data, clocks, shared frames, text, an image.
fn write_tiny(path: &Path) {
    let mut writer = DatasetWriter::open(path, Start::New, WriterOptions::default()).unwrap();
    for number in 0..2 {
        let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
        let times = Times::Explicit((0..12).map(|idx| idx * idx * 1_000_003 + number).collect());
        common::push(
            &mut episode,
            &StreamInfo {
                times,
                ..vector_info("obs/x", 12, 2)
            },
            &random_bytes(12 * 16, 3),
        );
        let shared = Some(SharedFrames {
            base: "obs/x".to_owned(),
            first: 1,
            count: 11,
        });
        episode
            .stream(&StreamInfo {
                shared,
                ..vector_info("next_obs/x", 12, 2)
            })
            .unwrap();
        episode.push(&random_bytes(16, 4)).unwrap();
        common::push(&mut episode, &text_info("words", 3), b"lift\nlift\nput");
        common::push(
            &mut episode,
            &image_info("camera", 3, 4),
            &random_bytes(3 * 48, 5),
        );
        episode.finish().unwrap();
    }
    writer.commit("tiny").unwrap();
}

/// Everything that can be read, in one list.
fn read_all(path: &Path) -> kino_dataset::Result<Vec<Vec<u8>>> {
    let dataset = Dataset::open(path)?;
    let mut all = Vec::new();
    for row in 0..dataset.len() {
        let episode = dataset.episode(row)?;
        all.push(serde_json::to_vec(&episode.read_attributes()?).unwrap());
        let names: Vec<_> = episode
            .streams()
            .map(|stream| stream.name.clone())
            .collect();
        for name in names {
            let stream = episode.stream(&name)?;
            all.push(
                stream
                    .times_ns(0..stream.len())?
                    .iter()
                    .flat_map(|time| time.to_le_bytes())
                    .collect(),
            );
            all.push(match stream.frame_type().as_values() {
                Some(_) => stream.read(0..stream.len())?,
                None => stream.read_text(0..stream.len())?.join("\n").into_bytes(),
            });
        }
    }
    dataset.stats()?;
    Ok(all)
}

fn files(path: &Path) -> Vec<PathBuf> {
    let folders = ["versions", "episodes", "stats", "shards"].map(|folder| path.join(folder));
    folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect()
}

/// The report of verify: empty, or a text that names the place.
fn found(path: &Path) -> String {
    match verify(path, Level::Bytes, &mut |_, _| {}) {
        Err(error) => chain(&error),
        Ok(found) => found
            .damage
            .iter()
            .map(|damage| format!("{}: {}\n", damage.place, damage.what))
            .collect(),
    }
}

/// Asserts that `bytes` in place of the file are reported under its name, and never read as other data.
fn assert_seen(path: &Path, file: &Path, bytes: &[u8], original: &[Vec<u8>], what: &str) {
    fs::write(file, bytes).unwrap();
    let seen = std::panic::catch_unwind(AssertUnwindSafe(|| (found(path), read_all(path).ok())));
    let (found, read) = seen.unwrap_or_else(|_| panic!("{what} of {} panics", file.display()));
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(
        found.contains(name),
        "{what} of {name} is reported as {found:?}"
    );
    assert!(
        read.is_none_or(|read| read == original),
        "{what} of {name} is read as other data"
    );
}

#[test]
fn flipping_any_bit_of_any_file_is_reported_with_its_place_and_never_read_as_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.kino");
    write_tiny(&path);
    let original = read_all(&path).unwrap();
    assert_eq!(found(&path), "");
    for file in files(&path) {
        let bytes = fs::read(&file).unwrap();
        let is_shard = file.extension().is_some_and(|ending| ending == "kshard");
        for position in 0..bytes.len() * 8 {
            // A single hash covers each of the other files: one bit of each byte is enough.
            if !is_shard && position % 8 != position / 8 % 8 {
                continue;
            }
            let mut flipped = bytes.clone();
            flipped[position / 8] ^= 1 << (position % 8);
            assert_seen(
                &path,
                &file,
                &flipped,
                &original,
                &format!("bit {position}"),
            );
        }
        fs::write(&file, &bytes).unwrap();
    }
    assert_eq!(found(&path), "");
}

#[test]
fn a_file_truncated_at_any_byte_or_extended_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.kino");
    write_tiny(&path);
    let original = read_all(&path).unwrap();
    for file in files(&path) {
        let bytes = fs::read(&file).unwrap();
        let is_shard = file.extension().is_some_and(|ending| ending == "kshard");
        for len in 0..bytes.len() {
            assert_seen(
                &path,
                &file,
                &bytes[..len],
                &original,
                &format!("{len} bytes"),
            );
            if is_shard {
                assert!(
                    found(&path).contains("truncated"),
                    "{len} bytes: {}",
                    found(&path)
                );
            }
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert_seen(&path, &file, &longer, &original, "one byte more");
        fs::write(&file, &bytes).unwrap();
    }
}

#[test]
fn a_missing_file_is_reported_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.kino");
    write_tiny(&path);
    for file in files(&path)
        .iter()
        .filter(|file| file.extension().is_some_and(|ending| ending != "parquet"))
    {
        let bytes = fs::read(file).unwrap();
        fs::remove_file(file).unwrap();
        let found = found(&path);
        let named = found.contains(file.file_name().unwrap().to_str().unwrap());
        assert!(named || found.contains("no versions"), "{found}");
        fs::write(file, bytes).unwrap();
    }
}

#[test]
fn damage_in_a_page_names_episode_stream_and_frame_and_spares_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kino");
    // One image per page.
    let plan = Plan::from_toml("[[stream]]\nkind = \"image\"\ncodec = \"predict\"").unwrap();
    let options = WriterOptions {
        plan,
        ..WriterOptions::default()
    };
    common::write_sample_with(&path, Start::New, 0..2, options);
    let dataset = Dataset::open(&path).unwrap();
    let episode = dataset.find("demo_1").unwrap();
    let position = episode
        .streams()
        .position(|stream| stream.name == "camera")
        .unwrap();
    let record = episode.index().stream(position);
    let page = episode.index().page(record.first_page + 7);
    let file = files(&path)
        .into_iter()
        .find(|file| file.extension().unwrap() == "kshard")
        .unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let stored = page.crc;
    let start = (0..bytes.len() - page.len as usize)
        .step_by(8)
        .find(|&start| {
            kino_format::page_checksum(&bytes[start..start + page.len as usize]) == stored
        })
        .unwrap();
    bytes[start + 5] ^= 16;
    fs::write(&file, bytes).unwrap();

    let dataset = Dataset::open(&path).unwrap();
    let camera = dataset.find("demo_1").unwrap().stream("camera").unwrap();
    let error = camera.read(5..10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let text = error.to_string();
    for part in [
        ".kshard",
        "episode `demo_1`",
        "stream `camera`",
        "frames from 7",
        "checksum",
        "kinograph verify",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(camera.read(0..7).is_ok() && camera.read(8..30).is_ok());
    assert!(
        dataset
            .find("demo_0")
            .unwrap()
            .stream("camera")
            .unwrap()
            .read(0..30)
            .is_ok()
    );
    let found = found(&path);
    assert!(
        found.contains("stream `camera`, frames 7..8") && found.lines().count() == 1,
        "{found}"
    );
}

#[test]
fn a_shard_in_the_place_of_another_is_detected_before_a_frame_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a.kino", "b.kino"].map(|name| folder.path().join(name));
    for (path, seed) in [(&a, 1), (&b, 2)] {
        // `raw`, so that the two shards have the same length.
        let plan = Plan::from_toml("[[stream]]\ncodec = \"raw\"").unwrap();
        let options = WriterOptions {
            plan,
            ..WriterOptions::default()
        };
        let mut writer = DatasetWriter::open(path, Start::New, options).unwrap();
        let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
        common::push(
            &mut episode,
            &vector_info("x", 9, 2),
            &random_bytes(9 * 16, seed),
        );
        episode.finish().unwrap();
        writer.commit("").unwrap();
    }
    let shard = |path: &Path| {
        files(path)
            .into_iter()
            .find(|file| file.extension().unwrap() == "kshard")
            .unwrap()
    };
    fs::copy(shard(&b), shard(&a)).unwrap();
    let error = Dataset::open(&a).unwrap().episode(0).unwrap_err();
    assert!(
        error.kind() == ErrorKind::Corrupt && error.to_string().contains("episode table"),
        "{error}"
    );
    assert!(
        found(&a).contains("its hash does not match the manifest"),
        "{}",
        found(&a)
    );
}
