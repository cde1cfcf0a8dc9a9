//! Plain folders: the same values as numpy, csv and Pillow, by the hashes taken in `fixtures/folders/make_folders.py`.

use std::fs;
use std::path::Path;

use kino_dataset::{Dataset, Kind, Start};
use kino_import::{Action, ClockSpec, FrameBuf, ImportOptions, Result, Source, survey};
use serde_json::{Value, json};

use crate::expected::{compare_streams, expected};
use crate::pack::{assert_same, pack_all};
use crate::zarr::{except, open_at, read_everything};
use crate::{defects, fixture, open, position, read_all};

/// Opens a folder with this mapping.
fn open_mapped(path: &Path, mapping: &str) -> Result<Source> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("map.toml");
    fs::write(&file, mapping).unwrap();
    let options = ImportOptions {
        mapping: Some(file),
        ..ImportOptions::default()
    };
    kino_import::open(path, &options)
}

fn times(source: &Source, episode: usize, stream: usize) -> Value {
    match &source.episodes()[episode].streams[stream].clock {
        ClockSpec::Explicit(times) => json!(times.to_vec()),
        clock => panic!("{clock:?}"),
    }
}

const TIMES: &str = "timestamps = \"timestamp\"\ntimestamps_unit = \"ns\"\nlicence = \"CC0-1.0\"\ntask = \"wave\"\n";

#[test]
fn arrays_match_numpy_and_keep_their_timestamps() {
    for (name, id) in [("npz", "episode_1"), ("npy", "episode_1")] {
        let source = open_mapped(&fixture(&format!("folders/{name}")), TIMES).unwrap();
        let source = &source;
        let expected = &expected("folders/expected.json", name);
        // Neither has one row per frame.
        let compared = compare_streams(source, expected, &except(&["calibration", "slow"]));
        assert_eq!(compared, 3 * 10, "{name}");
        assert_eq!(
            times(source, 0, 0),
            expected["episodes"][0]["timestamps_ns"]
        );
        let episode = &source.episodes()[1];
        assert_eq!(episode.id, id);
        assert_eq!(episode.task.as_deref(), Some("wave"));
        assert_eq!(episode.licence.as_deref(), Some("CC0-1.0"));
        assert_eq!(episode.attributes["calibration"][1], json!([0.0, 1.0, 0.0]));
        assert_eq!(episode.attributes["slow"].as_array().unwrap().len(), 3);
        assert_eq!(
            episode.streams[position(source, 1, "front")].kind,
            Kind::Image
        );
        assert_eq!(source.describe().defects, []);
    }
}

#[test]
fn a_folder_of_npz_needs_no_mapping_but_a_rate() {
    let path = fixture("folders/npz");
    let error = kino_import::open(&path, &ImportOptions::default())
        .err()
        .unwrap();
    assert!(error.to_string().contains("pass --rate HZ"), "{error}");
    let source = open_at(&path, 20.0).unwrap();
    assert_eq!(source.episodes().len(), 3);
    assert_eq!(
        source.episodes()[0].streams[0].clock,
        ClockSpec::Regular { rate_hz: 20.0 }
    );
    let one = open_at(&path.join("episode_2.npz"), 20.0).unwrap();
    assert_eq!(one.episodes()[0].id, "episode_2");
}

#[test]
fn tables_match_csv_and_name_their_timestamps() {
    let source = &open(&fixture("folders/csv"));
    let expected = &expected("folders/expected.json", "csv");
    assert_eq!(compare_streams(source, expected, &except(&[])), 3 * 8);
    assert_eq!(
        times(source, 1, 0),
        expected["episodes"][1]["timestamps_ns"]
    );
    let found = survey(source, 2).unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(
        found[0].to_string(),
        "kept: episode_0.csv:/, stream `force`: contains NaN in 2 of 12 frames, first in frame 1"
    );
}

#[test]
fn images_match_pillow_and_jpeg_files_are_stored_unchanged() {
    let source = &open(&fixture("folders/images"));
    let expected = &expected("folders/expected.json", "images");
    assert_eq!(compare_streams(source, expected, &except(&[])), 3 * 7);
    let spec = |name| &source.episodes()[0].streams[position(source, 0, name)];
    assert_eq!(
        (spec("front").kind, spec("front").carried),
        (Kind::Image, false)
    );
    assert_eq!(
        (spec("wrist").kind, spec("wrist").carried),
        (Kind::Image, true)
    );
    assert_eq!(spec("depth").kind, Kind::Depth);
}

#[test]
fn a_mapping_names_joins_and_times_streams() {
    let mapping = "episodes = \"episode_*\"\nrate_hz = 20.0\n\
        [[stream]]\nname = \"obs/joints\"\nfrom = \"states.csv/joint.*\"\nunit = \"rad\"\n\
        [[stream]]\nname = \"obs/front\"\nfrom = \"front\"\nkind = \"image\"\nrate_hz = 5.0\n\
        [[stream]]\nname = \"range\"\nfrom = \"depth\"\nkind = \"depth\"\n\
        timestamps = \"states.csv/time_s\"\ntimestamps_unit = \"s\"\n";
    let source = open_mapped(&fixture("folders/images"), mapping).unwrap();
    let source = &source;
    let names: Vec<_> = source.episodes()[0]
        .streams
        .iter()
        .map(|spec| spec.name.as_str())
        .collect();
    assert_eq!(names, ["obs/front", "obs/joints", "range"]);
    let joints = &source.episodes()[0].streams[1];
    assert_eq!(joints.frame.as_values().unwrap().shape(), [3]);
    assert_eq!(joints.unit.as_deref(), Some("rad"));
    assert_eq!(joints.clock, ClockSpec::Regular { rate_hz: 20.0 });
    assert_eq!(
        source.episodes()[0].streams[0].clock,
        ClockSpec::Regular { rate_hz: 5.0 }
    );
    assert_eq!(times(source, 0, 2)[2], 100_000_000);
    let FrameBuf::Values(found) = read_all(source, 0, 1, 4) else {
        panic!("numbers");
    };
    let text = fs::read_to_string(fixture("folders/images/episode_0/states.csv")).unwrap();
    let cells = text
        .lines()
        .skip(1)
        .flat_map(|line| line.split(',').skip(1));
    let naive: Vec<u8> = cells
        .flat_map(|cell| cell.parse::<f64>().unwrap().to_le_bytes())
        .collect();
    assert_eq!(found, naive);
    let notes = defects(source, Action::Noted);
    assert!(
        notes[0].ends_with("does not name: states.csv/time_s, wrist"),
        "{notes:?}"
    );
}

#[test]
fn folders_are_packed_losslessly() {
    for name in ["npz", "npy", "csv", "images"] {
        let folder = tempfile::tempdir().unwrap();
        let source = open_at(&fixture(&format!("folders/{name}")), 20.0).unwrap();
        pack_all(&source, folder.path(), Start::New);
        assert_same(&source, &Dataset::open(folder.path()).unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let source = open_mapped(&fixture("folders/npz"), TIMES).unwrap();
    pack_all(&source, folder.path(), Start::New);
    assert_same(&source, &Dataset::open(folder.path()).unwrap());
}

#[test]
fn a_mapping_that_does_not_match_is_refused_with_its_line() {
    for (mapping, words) in [
        (
            "rate_hz = 20\n[[stream]]\nfrom = \"smell\"\n",
            "line 2: no episode has \"smell\"",
        ),
        (
            "rate_hz = 20\n\n[[stream]]\nfrom = \"state\"\nkind = \"image\"\n",
            "line 3: \"state\" is",
        ),
        (
            "rate_hz = 20\n[[stream]]\nname = \"x\"\nfrom = \"st*\"\n[[stream]]\nname = \"y\"\nfrom = \"c*\"\n",
            "line 5: \"c*\" matches",
        ),
        (
            "episodes = \"../npy/*\"\n",
            "line 1: episodes \"../npy/*\" leads out of the folder",
        ),
        ("episodes = \"/etc/*\"\n", "leads out of the folder"),
        ("episodes = \n", "line 1"),
    ] {
        let error = open_mapped(&fixture("folders/npz"), mapping)
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("map.toml") && error.contains(words),
            "{mapping}: {error}"
        );
    }
    let error = open_mapped(&fixture("folders/npz"), "episodes = \"take_*\"\n")
        .err()
        .unwrap();
    assert!(
        error.to_string().contains("no episode to import"),
        "{error}"
    );
}

/// An npy file with this header and body.
fn npy(header: &str, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(header.len()).unwrap().to_le_bytes();
    [
        b"\x93NUMPY\x01\x00",
        len.as_slice(),
        header.as_bytes(),
        body,
    ]
    .concat()
}

#[test]
fn malformed_arrays_tables_and_images_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let take = folder.path().join("take_0");
    fs::create_dir_all(take.join("camera")).unwrap();
    let valid = npy(
        "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }",
        &[1, 2, 3],
    );
    for name in ["a", "b"] {
        fs::write(take.join(format!("{name}.npy")), &valid).unwrap();
    }
    for (name, header) in [
        (
            "short",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }",
        ),
        (
            "absurd",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (18446744073709551615, 9), }",
        ),
        (
            "pickle",
            "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
        ),
        (
            "pairs",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }",
        ),
    ] {
        fs::write(take.join(format!("{name}.npy")), npy(header, &[0; 12])).unwrap();
    }
    fs::write(take.join("camera/0.png"), b"\x89PNG\r\n\x1a\nnothing").unwrap();
    fs::write(take.join("notes.txt"), "x").unwrap();
    let source = open_at(folder.path(), 10.0).unwrap();
    let lost = defects(&source, Action::Skipped);
    for (place, what) in [
        ("take_0:/short", "is truncated"),
        ("take_0:/absurd", "is truncated"),
        ("take_0:/pickle", "Python objects"),
        ("take_0:/pairs", "structured dtype"),
        ("take_0:/camera", "damaged PNG file"),
        ("take_0:/notes.txt", "is neither npz"),
    ] {
        let found = lost.iter().find(|lost| lost.starts_with(place));
        assert!(
            found.is_some_and(|found| found.contains(what)),
            "{place}: {lost:?}"
        );
    }
    assert_eq!(source.episodes()[0].streams.len(), 2);
    // A table with a row of a different length is invalid, and its episode is skipped.
    fs::write(take.join("t.csv"), "a,b\n1,2\n3\n").unwrap();
    let error = open_at(folder.path(), 10.0).err().unwrap().to_string();
    assert!(error.contains("is not a valid table"), "{error}");
}

#[test]
fn timestamps_that_go_back_skip_their_episode() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.csv"), "time_s,x\n0,1\n0.2,2\n0.1,3\n").unwrap();
    fs::write(
        folder.path().join("b.csv"),
        "time_s,x\n0,1\n0.1,2.5\n0.2,3\n",
    )
    .unwrap();
    fs::write(folder.path().join("c.csv"), "time_s,x\n0,1\n,2\n0.2,3\n").unwrap();
    let source = open(folder.path());
    assert_eq!(source.episodes().len(), 1);
    // Integers in one table and floats in another: floats in both.
    let spec = &source.episodes()[0].streams[position(&source, 0, "x")];
    assert_eq!(spec.frame.to_string(), "float64[]");
    let dropped = defects(&source, Action::Dropped);
    assert_eq!(
        dropped[0],
        "a.csv:/time_s: goes back in time by 100.0 ms after frame 1"
    );
    assert!(
        dropped[1].starts_with("c.csv:/time_s: contains a timestamp that is NaN"),
        "{dropped:?}"
    );
}

#[test]
fn damaged_files_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    for (name, step) in [
        ("npz/episode_0.npz", 131),
        ("npz/episode_1.npz", 29),
        ("csv/episode_1.csv", 7),
    ] {
        let whole = fs::read(fixture(&format!("folders/{name}"))).unwrap();
        let path = folder.path().join(Path::new(name).file_name().unwrap());
        for place in (0..whole.len()).step_by(step) {
            let mut bytes = whole.clone();
            bytes[place] ^= 1 << (place % 8);
            fs::write(&path, &bytes).unwrap();
            let _ = read_everything(&path);
            fs::write(&path, &whole[..place]).unwrap();
            let read = read_everything(&path);
            assert!(
                read.is_err() || name.ends_with("csv"),
                "{name}, the first {place} bytes"
            );
        }
    }
    // One image of a camera.
    let take = folder.path().join("takes/take_0/front");
    fs::create_dir_all(&take).unwrap();
    let whole = fs::read(fixture("folders/images/episode_0/front/000000.png")).unwrap();
    for place in (0..whole.len()).step_by(5) {
        let mut bytes = whole.clone();
        bytes[place] ^= 1 << (place % 8);
        fs::write(take.join("0.png"), &bytes).unwrap();
        let _ = read_everything(&folder.path().join("takes"));
    }
}
