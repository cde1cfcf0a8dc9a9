//! Linked datasets: the same frames as stored ones, and errors that name the file that is missing or has changed.
//!
//! ```text
//! recording/a.bin   frames of `camera` as `raw` values, with gaps       recording/sub/b.bin   JPEG files one after another
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    reason = "in a test an unexpected error is a failure, and the numbers are small; nothing else moves these folders"
)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kino_codec::{Dtype, FrameType, Frames, Scratch};
use kino_dataset::{
    Arrival, Collect, Dataset, DatasetError, DatasetWriter, EpisodeInfo, ErrorKind, Interrupted,
    Level, LinkedFile, LinkedPiece, NewPage, OpenOptions, Pages, Start, StreamInfo, WriterOptions,
    collect_garbage, verify,
};

use common::{image_info, random_bytes, vector_info};

const SIDE: usize = 16;
const FRAME: usize = SIDE * SIDE * 3;
const FRAMES: u64 = 24;
/// Bytes between two frames of a file.
const GAP: usize = 100;

/// How the pages get into the dataset.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Stored,
    Linked,
    Trusted,
}

/// A folder with two files, and where each frame of both cameras is.
struct Recording {
    folder: tempfile::TempDir,
    raw: Vec<Vec<u8>>,
    jpegs: Vec<Vec<u8>>,
}

fn jpeg(pixels: &[u8]) -> Vec<u8> {
    let frame = FrameType::values(Dtype::U8, &[SIDE, SIDE, 3]).unwrap();
    let codec = kino_codec::codec("jpeg:q=90").unwrap();
    let frames = Frames::values(&frame, pixels).unwrap();
    let mut encoded = kino_codec::Encoded::default();
    codec
        .encode(
            &frames,
            std::num::NonZeroUsize::MIN,
            &mut encoded,
            &mut Scratch::new(),
        )
        .unwrap();
    encoded.pages.remove(0).bytes
}

impl Recording {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let raw: Vec<_> = (0..FRAMES).map(|idx| random_bytes(FRAME, idx)).collect();
        let jpegs: Vec<_> = raw.iter().map(|pixels| jpeg(pixels)).collect();
        let recording = Self { folder, raw, jpegs };
        recording.write(recording.root().as_path());
        recording
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("recording")
    }

    fn write(&self, root: &Path) {
        fs::create_dir_all(root.join("sub")).unwrap();
        let spaced = |frames: &[Vec<u8>]| {
            let parts = frames
                .iter()
                .map(|frame| [frame.as_slice(), &[7; GAP]].concat());
            parts.collect::<Vec<_>>().concat()
        };
        fs::write(root.join("a.bin"), spaced(&self.raw)).unwrap();
        fs::write(root.join("sub/b.bin"), self.jpegs.concat()).unwrap();
    }

    fn file(&self, path: &str, how: How) -> Arc<LinkedFile> {
        let bytes = fs::read(self.root().join(path)).unwrap();
        let meta = fs::metadata(self.root().join(path)).unwrap();
        let hash = (how == How::Linked).then(|| kino_dataset::Hash::of(&bytes));
        Arc::new(LinkedFile::new(path.to_owned(), &meta, hash))
    }

    /// The dataset of this recording.
    fn dataset(&self, how: How) -> PathBuf {
        let names = ["stored.kino", "linked.kino", "trusted.kino"];
        let path = self.folder.path().join(names[how as usize]);
        let options = WriterOptions {
            link_root: (how != How::Stored).then(|| self.root().display().to_string()),
            ..WriterOptions::default()
        };
        let mut writer = DatasetWriter::open(&path, Start::New, options).unwrap();
        for number in 0..2 {
            self.episode(&mut writer, number, how);
        }
        writer.commit("test").unwrap();
        path
    }

    fn episode(&self, writer: &mut DatasetWriter, number: usize, how: How) {
        let id = format!("demo_{number}");
        let info = EpisodeInfo {
            id,
            ..EpisodeInfo::default()
        };
        let mut episode = writer.episode(info).unwrap();
        episode.stream(&vector_info("joints", 50, 3)).unwrap();
        let values = (0..150).map(|idx| f64::from(idx) * 0.25);
        let values: Vec<u8> = values.flat_map(f64::to_le_bytes).collect();
        episode.push(&values).unwrap();
        let half = FRAMES / 2;
        let frames = number as u64 * half..(number as u64 + 1) * half;
        let camera = image_info("camera", half, SIDE);
        episode.paged_stream(&camera, "raw").unwrap();
        let file = self.file("a.bin", how);
        // Pages of two frames, which are not neighbours in the file: a page of several pieces.
        for first in frames.clone().step_by(2) {
            let at = |frame: u64| frame * (FRAME + GAP) as u64;
            let piece = |frame| LinkedPiece::File {
                file: Arc::clone(&file),
                offset: at(frame),
                len: FRAME as u32,
            };
            let pair = &self.raw[first as usize..first as usize + 2];
            let page = new_page(how, 2, pair.concat(), vec![piece(first), piece(first + 1)]);
            episode.push_pages(page).unwrap();
        }
        let wrist = StreamInfo {
            arrival: Arrival::Jpeg,
            ..image_info("wrist", half, SIDE)
        };
        episode.paged_stream(&wrist, "jpeg:carry").unwrap();
        let file = self.file("sub/b.bin", how);
        for frame in frames {
            let before: usize = self.jpegs[..frame as usize].iter().map(Vec::len).sum();
            let bytes = self.jpegs[frame as usize].clone();
            // The first bytes are stored, as the header of a video would be.
            let pieces = vec![
                LinkedPiece::Stored(bytes[..5].to_vec()),
                LinkedPiece::File {
                    file: Arc::clone(&file),
                    offset: before as u64 + 5,
                    len: bytes.len() as u32 - 5,
                },
            ];
            episode.push_pages(new_page(how, 1, bytes, pieces)).unwrap();
        }
        episode.finish().unwrap();
    }
}

fn new_page(how: How, frames: u32, bytes: Vec<u8>, pieces: Vec<LinkedPiece>) -> Pages {
    let page = match how {
        How::Stored => (Some(bytes), Vec::new()),
        How::Linked => (Some(bytes), pieces),
        How::Trusted => (None, pieces),
    };
    let (bytes, pieces) = page;
    Pages {
        pages: vec![NewPage {
            frames,
            bytes,
            pieces,
        }],
        ..Pages::default()
    }
}

fn read(dataset: &Dataset, row: usize, stream: &str) -> Result<Vec<u8>, DatasetError> {
    let stream = dataset.episode(row)?.stream(stream)?;
    let ty = stream.frame_type().as_values().unwrap();
    let mut out = vec![0; stream.len() * ty.frame_bytes()];
    stream.read_into(0..stream.len(), &mut out, &mut Scratch::new())?;
    Ok(out)
}

fn all(dataset: &Dataset) -> Result<Vec<Vec<u8>>, DatasetError> {
    let streams = ["joints", "camera", "wrist"];
    let places = (0..2).flat_map(|row| streams.map(|stream| (row, stream)));
    places
        .map(|(row, stream)| read(dataset, row, stream))
        .collect()
}

fn with_root(path: &Path, root: &Path) -> Dataset {
    let options = OpenOptions {
        root: Some(root.to_owned()),
        ..OpenOptions::default()
    };
    Dataset::open_with(path, options).unwrap()
}

#[test]
fn linked_frames_are_those_of_a_stored_dataset() {
    let recording = Recording::new();
    let stored = Dataset::open(&recording.dataset(How::Stored)).unwrap();
    let expected = all(&stored).unwrap();
    assert_eq!(expected[1], recording.raw[..12].concat());
    for how in [How::Linked, How::Trusted] {
        let path = recording.dataset(how);
        let linked = Dataset::open(&path).unwrap();
        assert_eq!(all(&linked).unwrap(), expected);
        // The same pages at the same offsets, although only those of vectors are there.
        for row in 0..2 {
            let [here, there] = [&linked, &stored].map(|ds| ds.episode(row).unwrap());
            assert_eq!(here.index().page_count(), there.index().page_count());
            assert_eq!(here.index().linked_pages().len(), 6 + 12);
            let partly = here.stream("camera").unwrap();
            let mut out = vec![0; 3 * FRAME];
            partly
                .read_into(3..6, &mut out, &mut Scratch::new())
                .unwrap();
            let first = row * 12 + 3;
            assert_eq!(out, recording.raw[first..first + 3].concat());
        }
        let bytes = linked.manifest().total_bytes();
        assert!(bytes < stored.manifest().total_bytes() / 2, "{bytes}");
        let links = linked.manifest().links.as_ref().unwrap();
        assert_eq!(links.files.len(), 2);
        assert_eq!(links.files[0].blake3.is_some(), how == How::Linked);
        assert_eq!(
            (linked.manifest().format, linked.manifest().min_reader),
            (2, 2)
        );
        drop(linked);
        for level in [Level::Bytes, Level::Decode] {
            let found = verify(&path, level, &mut |_, _| {}).unwrap();
            assert_eq!((found.damage, found.unreadable), (vec![], vec![]));
        }
        let garbage = collect_garbage(&path, Collect::List, Interrupted::Keep).unwrap();
        assert_eq!(garbage.files, []);
    }
    assert_eq!(stored.manifest().min_reader, 1, "nothing is linked");
    let stats = |how| Dataset::open(&recording.folder.path().join(how)).unwrap();
    let stats = |how| stats(how).stats().unwrap().clone();
    assert_eq!(stats("linked.kino"), stats("stored.kino"));
    assert_eq!(stats("trusted.kino").keys().collect::<Vec<_>>(), ["joints"]);
}

#[test]
fn a_missing_file_is_named_and_another_root_finds_it() {
    let recording = Recording::new();
    let path = recording.dataset(How::Linked);
    let expected = all(&Dataset::open(&path).unwrap()).unwrap();
    let moved = recording.folder.path().join("moved");
    fs::rename(recording.root(), &moved).unwrap();
    let dataset = Dataset::open(&path).unwrap();
    let error = read(&dataset, 0, "camera").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let text = error.to_string();
    assert!(
        text.contains("recording/a.bin is missing") && text.contains("--root"),
        "{text}"
    );
    read(&dataset, 0, "joints").unwrap();
    let found = verify(&path, Level::Bytes, &mut |_, _| {}).unwrap();
    let places: Vec<_> = found.damage.iter().map(|damage| &damage.what).collect();
    assert_eq!(places.len(), 2, "one line per file: {places:?}");
    assert_eq!(all(&with_root(&path, &moved)).unwrap(), expected);
    let stored = recording.folder.path().join("packed.kino");
    fs::rename(&moved, recording.root()).unwrap();
    fs::rename(recording.dataset(How::Stored), &stored).unwrap();
    let options = OpenOptions {
        root: Some(moved),
        ..OpenOptions::default()
    };
    let error = Dataset::open_with(&stored, options).unwrap_err();
    assert!(error.to_string().contains("links to no files"), "{error}");
}

#[test]
fn a_changed_byte_is_an_error_that_names_the_file() {
    let recording = Recording::new();
    let path = recording.dataset(How::Linked);
    let file = recording.root().join("a.bin");
    let mut bytes = fs::read(&file).unwrap();
    let at = 3 * (FRAME + GAP) + 5;
    bytes[at] ^= 1;
    // Between frames nothing is linked.
    bytes[FRAME + 1] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let dataset = Dataset::open(&path).unwrap();
    let error = read(&dataset, 0, "camera").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let text = error.to_string();
    assert!(
        text.contains("a.bin at byte") && text.contains("after it was linked"),
        "{text}"
    );
    read(&dataset, 1, "camera").unwrap();
    let found = verify(&path, Level::Bytes, &mut |_, _| {}).unwrap();
    assert_eq!(found.damage.len(), 1, "{:?}", found.damage);
    let found = verify(&path, Level::Decode, &mut |_, _| {}).unwrap();
    let is_file = |damage: &&kino_dataset::Damage| damage.what.contains("other bytes than");
    assert_eq!(found.damage.iter().filter(is_file).count(), 1);
}

#[test]
fn a_truncated_or_longer_file_is_an_error_that_names_it() {
    let recording = Recording::new();
    let path = recording.dataset(How::Linked);
    let file = recording.root().join("sub/b.bin");
    let bytes = fs::read(&file).unwrap();
    let dataset = Dataset::open(&path).unwrap();
    for len in [0, 1, bytes.len() - 1, bytes.len() + 1] {
        let mut other = bytes.clone();
        other.resize(len, 0);
        fs::write(&file, other).unwrap();
        let text = read(&dataset, 0, "wrist").unwrap_err().to_string();
        assert!(text.contains("b.bin has"), "{text}");
        assert!(
            text.contains(&format!("had {} when", bytes.len())),
            "{text}"
        );
    }
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let text = read(&dataset, 0, "wrist").unwrap_err().to_string();
    assert!(text.contains("not a regular file"), "{text}");
}

#[test]
fn a_touched_file_with_the_same_bytes_is_read() {
    let recording = Recording::new();
    let path = recording.dataset(How::Linked);
    let file = recording.root().join("a.bin");
    let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    let open = fs::File::options().write(true).open(&file).unwrap();
    open.set_times(times).unwrap();
    read(&Dataset::open(&path).unwrap(), 0, "camera").unwrap();
}

#[test]
fn trusted_pages_get_their_checksum_when_they_are_first_read() {
    let recording = Recording::new();
    let path = recording.dataset(How::Trusted);
    let file = recording.root().join("a.bin");
    let bytes = fs::read(&file).unwrap();
    let modified = fs::metadata(&file).unwrap().modified().unwrap();
    let write = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        let open = fs::File::options().write(true).open(&file).unwrap();
        open.set_times(fs::FileTimes::new().set_modified(modified))
            .unwrap();
    };
    // The frames of the first episode are read, those of the second are not.
    read(&Dataset::open(&path).unwrap(), 0, "camera").unwrap();
    assert_eq!(fs::read_dir(path.join("links")).unwrap().count(), 1);
    let mut changed = bytes.clone();
    changed[5] ^= 1;
    write(&changed);
    let dataset = Dataset::open(&path).unwrap();
    let text = read(&dataset, 0, "camera").unwrap_err().to_string();
    assert!(text.contains("after it was first read"), "{text}");
    read(&dataset, 1, "camera").unwrap();
    // Without the file of checksums the change is not seen, and nothing else breaks.
    drop(dataset);
    fs::remove_dir_all(path.join("links")).unwrap();
    read(&Dataset::open(&path).unwrap(), 0, "camera").unwrap();
    // A file that was modified and never read is refused.
    fs::remove_dir_all(path.join("links")).unwrap();
    fs::write(&file, &bytes).unwrap();
    let touched = fs::File::options().write(true).open(&file).unwrap();
    touched
        .set_times(fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH))
        .unwrap();
    let text = read(&Dataset::open(&path).unwrap(), 0, "camera").unwrap_err();
    assert!(text.to_string().contains("was modified after"), "{text}");
}

#[test]
fn later_versions_keep_the_links_and_a_changed_file_cannot_be_added() {
    let recording = Recording::new();
    let path = recording.dataset(How::Linked);
    let expected = all(&Dataset::open(&path).unwrap()).unwrap();
    let mut writer = DatasetWriter::open(&path, Start::Append, WriterOptions::default()).unwrap();
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    episode.stream(&vector_info("joints", 1, 3)).unwrap();
    episode.push(&[0; 24]).unwrap();
    episode.finish().unwrap();
    writer.commit("packed").unwrap();
    let dataset = Dataset::open(&path).unwrap();
    assert_eq!((dataset.len(), dataset.manifest().min_reader), (3, 2));
    assert_eq!(all(&dataset).unwrap(), expected);
    let found = verify(&path, Level::Decode, &mut |_, _| {}).unwrap();
    assert_eq!(found.damage, vec![]);
    let mut bytes = fs::read(recording.root().join("a.bin")).unwrap();
    bytes[0] ^= 1;
    fs::write(recording.root().join("a.bin"), bytes).unwrap();
    let options = WriterOptions {
        link_root: Some(recording.root().display().to_string()),
        ..WriterOptions::default()
    };
    let mut writer = DatasetWriter::open(&path, Start::Append, options).unwrap();
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    episode
        .paged_stream(&image_info("camera", 1, SIDE), "raw")
        .unwrap();
    let pieces = vec![LinkedPiece::File {
        file: recording.file("a.bin", How::Linked),
        offset: 0,
        len: FRAME as u32,
    }];
    let mut pixels = recording.raw[0].clone();
    pixels[0] ^= 1;
    episode
        .push_pages(new_page(How::Linked, 1, pixels, pieces))
        .unwrap();
    episode.finish().unwrap();
    let error = writer.commit("linked").unwrap_err().to_string();
    assert!(error.contains("a.bin was modified"), "{error}");
}

#[test]
fn pages_that_do_not_decode_are_refused() {
    let recording = Recording::new();
    let path = recording.folder.path().join("bad.kino");
    let options = WriterOptions {
        link_root: Some(recording.root().display().to_string()),
        ..WriterOptions::default()
    };
    let mut writer = DatasetWriter::open(&path, Start::New, options).unwrap();
    let mut episode = writer.episode(EpisodeInfo::default()).unwrap();
    episode
        .paged_stream(&image_info("wrist", 1, SIDE), "jpeg:carry")
        .unwrap();
    let page = |bytes: Vec<u8>, len| {
        let file = recording.file("sub/b.bin", How::Linked);
        let pieces = vec![LinkedPiece::File {
            file,
            offset: 0,
            len,
        }];
        new_page(How::Linked, 1, bytes, pieces)
    };
    assert!(episode.push_pages(page(vec![1; 10], 9)).is_err());
    episode.push_pages(page(vec![1; 10], 10)).unwrap();
    assert!(episode.settle().is_err());
}

/// Rewrites the manifest of a dataset, with a correct id.
fn forge(path: &Path, from: &str, to: &str) {
    let manifest = path.join("versions/00000001.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let (body, _) = text.rsplit_once(",\n  \"id\"").unwrap();
    assert!(body.contains(from), "{from}");
    let body = body.replacen(from, to, 1);
    let id = blake3::hash(body.as_bytes()).to_hex();
    fs::write(manifest, format!("{body},\n  \"id\": \"{id}\"\n}}\n")).unwrap();
}

#[test]
fn lies_in_the_manifest_reach_no_other_file() {
    let recording = Recording::new();
    let secret = recording.folder.path().join("secret.bin");
    fs::write(&secret, fs::read(recording.root().join("a.bin")).unwrap()).unwrap();
    let absolute = format!("\"path\": {:?}", secret.display().to_string());
    let length = fs::metadata(&secret).unwrap().len();
    let cases = [
        (
            "\"path\": \"a.bin\"",
            "\"path\": \"../secret.bin\"",
            "relative path",
        ),
        ("\"path\": \"a.bin\"", absolute.as_str(), "relative path"),
        (
            "\"path\": \"a.bin\"",
            "\"path\": \"b.bin\"",
            "does not list",
        ),
        (
            "\"path\": \"a.bin\"",
            "\"path\": \"sub/b.bin\"",
            "listed twice",
        ),
        (
            &format!("\"bytes\": {length}"),
            "\"bytes\": 7",
            "another length",
        ),
        ("\"root\": \"/", "\"root\": \"", "not an absolute path"),
        ("\"min_reader\": 2", "\"min_reader\": 1", "links to files"),
        ("\"links\"", "\"other\"", "lists no linked files"),
    ];
    let path = recording.dataset(How::Linked);
    let manifest = fs::read(path.join("versions/00000001.json")).unwrap();
    for (from, to, expected) in cases {
        fs::write(path.join("versions/00000001.json"), &manifest).unwrap();
        forge(&path, from, to);
        let found = Dataset::open(&path).and_then(|dataset| read(&dataset, 0, "camera"));
        let error = found.unwrap_err().to_string();
        assert!(error.contains(expected), "{from} → {to}: {error}");
    }
}

#[test]
fn no_flipped_bit_of_a_shard_changes_what_is_read() {
    let recording = Recording::new();
    let path = recording.dataset(How::Linked);
    let expected = all(&Dataset::open(&path).unwrap()).unwrap();
    let mut shards = fs::read_dir(path.join("shards")).unwrap();
    let shard = shards.next().unwrap().unwrap().path();
    let bytes = fs::read(&shard).unwrap();
    let mut unnoticed = 0;
    for bit in (0..bytes.len() * 8).step_by(61) {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(&shard, &flipped).unwrap();
        match Dataset::open(&path).and_then(|dataset| all(&dataset)) {
            Ok(found) => {
                assert_eq!(found, expected, "bit {bit}");
                unnoticed += 1;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "bit {bit}: {error}"),
        }
    }
    // Reading needs neither the header, nor padding, nor attributes; `verify` compares every bit.
    assert!(unnoticed < bytes.len() * 8 / 61 / 4, "{unnoticed}");
}
