//! Replay buffers: the same values as zarr, by the hashes that `fixtures/zarr/make_zarr.py` took from its arrays.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use kino_dataset::{Dataset, Kind, Start};
use kino_import::{
    Action, ClockSpec, FrameBuf, ImportError, ImportOptions, Result, Source, survey,
};
use serde_json::{Value, json};

use crate::damage::read_everything_with;
use crate::expected::{compare_streams, expected};
use crate::pack::{assert_same, pack_all};
use crate::{copy_tree, defects, fixture, position, read_all, with_rate};

pub(crate) fn open_at(path: &Path, rate_hz: f64) -> Result<Source> {
    kino_import::open(path, &with_rate(rate_hz))
}

/// Every stream under its own name, except these.
pub(crate) fn except<'a>(names: &'a [&'a str]) -> impl Fn(&str) -> Option<String> + 'a {
    move |name| (!names.contains(&name)).then(|| name.to_owned())
}

fn compare(source: &Source, store: &str, left_out: &[&str]) -> usize {
    let expected = expected("zarr/expected.json", store);
    compare_streams(source, &expected, &except(left_out))
}

#[test]
fn a_replay_buffer_matches_zarr() {
    let source = open_at(&fixture("zarr/pusht.zarr"), 10.0).unwrap();
    let source = &source;
    assert_eq!(compare(source, "pusht.zarr", &[]), 3 * 5);
    assert_eq!(source.describe().attributes["note"], "ünïcode");
    assert_eq!(source.describe().defects, []);
    let episode = &source.episodes()[1];
    assert_eq!(
        (episode.id.as_str(), episode.object.as_str()),
        ("episode_1", "/data[11:16]")
    );
    let camera = &episode.streams[position(source, 1, "img")];
    assert_eq!(camera.kind, Kind::Image);
    assert_eq!(camera.clock, ClockSpec::Regular { rate_hz: 10.0 });
}

#[test]
fn every_compressor_type_order_and_separator_matches_zarr() {
    let source = open_at(&fixture("zarr/compressors.zarr"), 10.0).unwrap();
    let compared = compare(&source, "compressors.zarr", &["bz2", "lzma"]);
    assert_eq!(compared, 3 * 45);
    let lost = defects(&source, Action::Skipped);
    assert_eq!(lost.len(), 2);
    assert!(
        lost[0].starts_with("compressors.zarr:/data/bz2: is compressed with \"bz2\""),
        "{}",
        lost[0]
    );
    let kept = defects(&source, Action::Kept);
    assert_eq!(
        kept[0],
        "compressors.zarr:/data/absent_2_5: has missing chunks: 11 of 11 frames are not stored, starting at frame 0; they \
         read as the fill value"
    );
    // The missing chunk ends inside the third episode.
    assert_eq!(kept.len(), 3 * 3);
    assert!(kept[2].contains("4 of 14 frames"), "{}", kept[2]);
}

#[test]
fn images_in_jpeg_xl_are_exact_if_lossless_and_near_if_not() {
    let source = &crate::open(&fixture("zarr/umi.zarr.zip"));
    let compared = compare(source, "umi.zarr.zip", &["camera0_rgb"]);
    assert_eq!(compared, 3 * 6);
    let notes = defects(source, Action::Noted);
    assert!(notes[0].contains("UMI's 60 Hz"), "{}", notes[0]);
    let libjxl = fs::read(fixture("zarr/umi_lossy.npy")).unwrap();
    let libjxl = &libjxl[libjxl.len() - 4 * 32 * 32 * 3..];
    let FrameBuf::Values(pixels) = read_all(source, 0, position(source, 0, "camera0_rgb"), 4)
    else {
        panic!("pixels");
    };
    let apart = libjxl.iter().zip(&pixels).map(|(a, b)| a.abs_diff(*b));
    assert!(apart.max().unwrap() <= 1);
}

#[test]
fn stores_are_packed_losslessly() {
    for name in ["pusht.zarr", "compressors.zarr", "umi.zarr.zip"] {
        let folder = tempfile::tempdir().unwrap();
        let source = open_at(&fixture(&format!("zarr/{name}")), 10.0).unwrap();
        pack_all(&source, folder.path(), Start::New);
        assert_same(&source, &Dataset::open(folder.path()).unwrap());
    }
}

#[test]
fn without_a_rate_the_error_says_how_to_set_one() {
    let error = kino_import::open(&fixture("zarr/pusht.zarr"), &ImportOptions::default()).err();
    let error = error.unwrap().to_string();
    assert!(error.contains("pass --rate HZ"), "{error}");
}

/// A copy of a store, for damage.
fn copy(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    copy_tree(&fixture(&format!("zarr/{name}")), &path);
    (folder, path)
}

fn write_ends(store: &Path, ends: [i64; 3]) {
    let bytes: Vec<u8> = ends.iter().flat_map(|end| end.to_le_bytes()).collect();
    // The array grew one by one, and so did its chunks.
    let piece = fs::read_to_string(store.join("meta/episode_ends/.zarray")).unwrap();
    let mut json: Value = serde_json::from_str(&piece).unwrap();
    json["chunks"] = json!([3]);
    fs::write(store.join("meta/episode_ends/.zarray"), json.to_string()).unwrap();
    fs::write(store.join("meta/episode_ends/0"), bytes).unwrap();
}

#[test]
fn ends_that_decrease_or_go_too_far_are_reported() {
    let (_folder, path) = copy("pusht.zarr");
    for (ends, episodes, words) in [
        (
            [11, 5, 30],
            2,
            "pusht.zarr:/meta/episode_ends[1]: is 5, which is less than 11 before it",
        ),
        (
            [11, -1, 30],
            2,
            "episode_ends[1]: is -1, which is less than 11 before it",
        ),
        (
            [11, 16, 31],
            2,
            "episode_ends[2]: is 31, but the arrays of `data` have 30 rows",
        ),
        (
            [11, 11, 30],
            2,
            "episode_ends[1]: is 11, like the one before it: the episode has no frames",
        ),
    ] {
        write_ends(&path, ends);
        let source = open_at(&path, 10.0).unwrap();
        assert_eq!(source.episodes().len(), episodes, "{ends:?}");
        let found = defects(&source, Action::Dropped);
        assert!(found[0].contains(words), "{}", found[0]);
    }
    write_ends(&path, [11, 16, 29]);
    let source = open_at(&path, 10.0).unwrap();
    let lost = defects(&source, Action::Skipped);
    assert!(
        lost[0].ends_with("ends at 29: rows 29..30 do not belong to an episode"),
        "{}",
        lost[0]
    );
}

#[test]
fn a_missing_chunk_is_a_defect_of_each_affected_episode() {
    let (_folder, path) = copy("pusht.zarr");
    fs::remove_file(path.join("data/img/1.0.0.0")).unwrap();
    let source = open_at(&path, 10.0).unwrap();
    let found: Vec<_> = source.describe().defects.iter().collect();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].episode.as_deref(), Some("episode_0"));
    assert!(found[0].what.contains("4 of 11 frames"), "{}", found[0]);
    assert!(found[1].what.contains("3 of 5 frames"), "{}", found[1]);
}

#[test]
fn unreasonable_metadata_is_refused_or_skipped() {
    let (_folder, path) = copy("pusht.zarr");
    let file = path.join("data/action/.zarray");
    let whole: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    for (key, value) in [
        ("shape", json!([30, 2_000_000_000_000u64])),
        ("shape", json!([30, -2])),
        ("shape", json!("thirty")),
        ("shape", json!([u64::MAX, 2])),
        ("chunks", json!([16, 0])),
        ("chunks", json!([1u64 << 40, 2])),
        ("chunks", json!([16])),
        ("dtype", json!("|O")),
        ("dtype", json!([["x", "<f4"]])),
        ("dtype", json!("<f3")),
        ("zarr_format", json!(3)),
        ("fill_value", json!("many")),
        ("compressor", json!({"id": "lzma"})),
        ("filters", json!([{"id": "packbits"}])),
    ] {
        let mut json = whole.clone();
        json[key] = value.clone();
        fs::write(&file, json.to_string()).unwrap();
        let source = open_at(&path, 10.0).unwrap();
        let lost = defects(&source, Action::Skipped);
        assert_eq!(lost.len(), 1, "{key} {value}: {lost:?}");
        assert!(
            lost[0].starts_with("pusht.zarr:/data/action: "),
            "{}",
            lost[0]
        );
    }
    // A chunk that is smaller or larger than `.zarray` says is detected when it is read.
    let mut json = whole.clone();
    json["chunks"] = json!([30, 2]);
    json["compressor"] = Value::Null;
    fs::write(&file, json.to_string()).unwrap();
    fs::write(path.join("data/action/0.0"), [0; 17]).unwrap();
    let source = open_at(&path, 10.0).unwrap();
    let found = survey(&source, 1).unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(found[0].action, Action::Dropped);
    assert!(
        found[0].what.contains("240 bytes of a chunk"),
        "{}",
        found[0]
    );
}

#[test]
fn a_bomb_is_inflated_no_further_than_its_array_says() {
    let (_folder, path) = copy("pusht.zarr");
    let file = path.join("data/action/.zarray");
    let mut json: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    json["chunks"] = json!([30, 2]);
    let zeros = vec![0; 64 << 20];
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
    zlib.write_all(&zeros).unwrap();
    let bombs = [
        ("zlib", zlib.finish().unwrap()),
        ("zstd", zstd::bulk::compress(&zeros, 1).unwrap()),
    ];
    for (id, bomb) in bombs {
        json["compressor"] = json!({"id": id});
        fs::write(&file, json.to_string()).unwrap();
        fs::write(path.join("data/action/0.0"), bomb).unwrap();
        let source = open_at(&path, 10.0).unwrap();
        let found = survey(&source, 1).unwrap();
        assert!(
            found[0].what.contains("240 bytes of a chunk") || found[0].what.contains("at most"),
            "{}",
            found[0]
        );
    }
}

/// Opens a store and reads every frame of every stream.
pub(crate) fn read_everything(path: &Path) -> Result<u64> {
    read_everything_with(path, &with_rate(10.0))
}

#[test]
fn every_prefix_of_a_zip_is_refused_and_flipped_bits_never_panic() {
    let whole = fs::read(fixture("zarr/umi.zarr.zip")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.zarr.zip");
    for len in (0..whole.len()).step_by(1201) {
        fs::write(&path, &whole[..len]).unwrap();
        assert!(read_everything(&path).is_err(), "{len}");
    }
    let mut refused = 0;
    for place in (0..whole.len()).step_by(311) {
        let mut bytes = whole.clone();
        bytes[place] ^= 1 << (place % 8);
        fs::write(&path, &bytes).unwrap();
        refused += usize::from(read_everything(&path).is_err());
    }
    assert!(refused > 25, "{refused}");
}

#[test]
fn flipped_bits_in_chunks_and_metadata_never_panic() {
    let (_folder, path) = copy("compressors.zarr");
    for array in fs::read_dir(path.join("data")).unwrap().flatten() {
        // `.zgroup` is a file beside the arrays.
        let files = fs::read_dir(array.path()).into_iter().flatten();
        for file in files.flatten() {
            let Ok(whole) = fs::read(file.path()) else {
                continue;
            };
            let step = if file.file_name() == ".zarray" {
                29
            } else {
                41
            };
            for place in (0..whole.len().min(600)).step_by(step) {
                let mut bytes = whole.clone();
                bytes[place] ^= 1 << (place % 8);
                fs::write(file.path(), &bytes).unwrap();
                let name = array.file_name().to_string_lossy().into_owned();
                if let Ok(source) = open_at(&path, 10.0) {
                    let streams = &source.episodes()[0].streams;
                    if let Some(at) = streams.iter().position(|spec| spec.name == name) {
                        let _ = source.read(0, at, 0..11);
                    }
                }
            }
            fs::write(file.path(), &whole).unwrap();
        }
    }
}

#[test]
fn names_that_lead_out_of_a_zip_are_listed_and_not_followed() {
    let whole = fs::read(fixture("zarr/umi.zarr.zip")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sly.zarr.zip");
    // The same length, so that nothing else must change.
    let (from, to) = (b"data/robot0_eef_pos/0.0", b"../../../../etc/passwd0");
    let mut bytes = whole.clone();
    for at in 0..bytes.len() - from.len() {
        if bytes[at..].starts_with(from) {
            bytes[at..at + to.len()].copy_from_slice(to);
        }
    }
    fs::write(&path, &bytes).unwrap();
    let source = open_at(&path, 60.0).unwrap();
    let lost = defects(&source, Action::Skipped);
    assert!(
        lost[0].contains("passwd0: has a name that leads out of the store"),
        "{lost:?}"
    );
    assert!(
        lost[1].contains("robot0_eef_pos: has none of its chunks"),
        "{lost:?}"
    );
}

#[test]
fn version_3_and_stores_without_ends_are_refused_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.zarr");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("zarr.json"), "{}").unwrap();
    let error = open_at(&path, 10.0).err().unwrap();
    assert!(matches!(error, ImportError::Unsupported { .. }), "{error}");
    let (_folder, path) = copy("pusht.zarr");
    fs::remove_dir_all(path.join("meta")).unwrap();
    let error = open_at(&path, 10.0).err().unwrap().to_string();
    assert!(
        error.contains("so the ends of episodes are unknown"),
        "{error}"
    );
}
