//! `kinograph pack` looks at the data: which lossless codec, whether a loss saves anything, whether floats are images.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// Frames of a store, in two episodes.
const FRAMES: usize = 24;

/// Runs the command in a folder.
fn kinograph(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kinograph"));
    command.args(args).current_dir(folder).stdin(Stdio::null());
    command.env("XDG_CACHE_HOME", folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Packs `demo.zarr` into a new dataset of this name.
fn pack(folder: &Path, target: &str, options: &[&str]) -> Output {
    let args = ["pack", "demo.zarr", target, "--rate", "10"];
    let output = kinograph(folder, &[&args, options].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

fn pack_json(folder: &Path, target: &str, options: &[&str]) -> Value {
    let output = pack(folder, target, &[options, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stream<'a>(report: &'a Value, name: &str) -> &'a Value {
    let mut streams = report["streams"].as_array().unwrap().iter();
    streams.find(|stream| stream["name"] == name).unwrap()
}

/// An uncompressed array of a zarr v2 store.
fn put_array(folder: &Path, dtype: &str, shape: &[usize], bytes: &[u8]) {
    fs::create_dir_all(folder).unwrap();
    let head = json!({
        "zarr_format": 2, "shape": shape, "chunks": shape, "dtype": dtype,
        "compressor": null, "filters": null, "fill_value": null, "order": "C",
    });
    fs::write(folder.join(".zarray"), head.to_string()).unwrap();
    let chunk = vec!["0"; shape.len()].join(".");
    fs::write(folder.join(chunk), bytes).unwrap();
}

/// A replay buffer with images of this dtype: a square of one colour that moves over a plain background.
fn put_store(folder: &Path, dtype: &str, to_bytes: impl Fn(u8) -> Vec<u8>) {
    let store = folder.join("demo.zarr");
    let (side, mut pixels) = (32, Vec::new());
    for frame in 0..FRAMES {
        for (row, column) in (0..side * side).map(|idx| (idx / side, idx % side)) {
            let is_square = (frame..frame + 8).contains(&row) && (10..18).contains(&column);
            for value in if is_square {
                [200, 30, 40]
            } else {
                [250, 250, 245]
            } {
                pixels.extend(to_bytes(value));
            }
        }
    }
    put_array(
        &store.join("data/img"),
        dtype,
        &[FRAMES, side, side, 3],
        &pixels,
    );
    put_array(
        &store.join("data/action"),
        "<f4",
        &[FRAMES, 2],
        &[0; FRAMES * 8],
    );
    let ends: Vec<u8> = [10_i64, 24]
        .iter()
        .flat_map(|end| end.to_le_bytes())
        .collect();
    put_array(&store.join("meta/episode_ends"), "<i8", &[2], &ends);
    for group in ["", "data", "meta"] {
        fs::write(store.join(group).join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    }
}

#[test]
fn the_summary_says_how_lossless_codecs_compare_and_the_dry_run_agrees() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    put_store(here, "|u1", |byte| vec![byte]);
    for seed in ["0", "1", "2"] {
        let target = format!("{seed}.kino");
        let dry = pack_json(here, &target, &["--seed", seed, "--dry-run"]);
        let report = pack_json(here, &target, &["--seed", seed]);
        let (img, expected) = (stream(&report, "img"), stream(&dry, "img"));
        assert_eq!(img["codec"], expected["codec"]);
        assert_eq!(img["trial"], expected["trial"]);
        assert_eq!(img["codec"], img["trial"]["chosen"]["codec"]);
        assert_eq!(stream(&report, "action")["trial"], Value::Null);
    }
    let shown = text(&pack(here, "shown.kino", &[]).stdout);
    let line = shown
        .lines()
        .find(|line| line.starts_with("img: "))
        .unwrap();
    assert!(line.starts_with("img: camera, 0."), "{line}");
    assert!(
        line.contains(" of the size of predict on the first "),
        "{line}"
    );
}

#[test]
fn a_loss_that_saves_nothing_is_not_taken_unless_the_plan_names_the_codec() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    put_store(here, "|u1", |byte| vec![byte]);
    let output = pack(here, "quality.kino", &["--quality", "95"]);
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    assert!(
        shown.contains("of the size of jpeg:q=95,sub=444"),
        "{shown}"
    );
    for part in [
        "note: stream `img`: is stored without loss, because that is no larger: `jpeg:q=95,sub=444` takes ",
        " and the lossless `camera:level=3,group=4` takes ",
        " for the first ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let report = pack_json(here, "json.kino", &["--quality", "95"]);
    assert_eq!(stream(&report, "img")["codec"], "camera:level=3,group=4");
    assert_eq!(stream(&report, "img")["max_abs_error"], 0.0);

    fs::write(
        here.join("plan.toml"),
        "[[stream]]\nmatch = \"img\"\ncodec = \"jpeg:q=95\"",
    )
    .unwrap();
    let output = pack(here, "named.kino", &["--plan", "plan.toml"]);
    let said = text(&output.stderr);
    assert!(
        said.contains("is lossy as the plan says, which saves nothing"),
        "{said}"
    );
    let info = kinograph(here, &["info", "named.kino", "--json"]);
    let info: Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!(stream(&info, "img")["codecs"], json!(["jpeg:q=95,sub=444"]));
}

/// Packs the store, and the type of `img` in the dataset.
fn img_type(folder: &Path, target: &str, options: &[&str]) -> (String, String) {
    let report = pack_json(folder, target, options);
    let img = stream(&report, "img");
    let text = |key: &str| img[key].as_str().unwrap().to_owned();
    (text("kind"), text("dtype"))
}

fn pair(kind: &str, dtype: &str) -> (String, String) {
    (kind.to_owned(), dtype.to_owned())
}

/// The values of an array that an export wrote as one chunk, or that a test wrote.
fn array(store: &Path, name: &str) -> (String, Vec<u8>) {
    let folder = store.join("data").join(name);
    let head: Value = serde_json::from_slice(&fs::read(folder.join(".zarray")).unwrap()).unwrap();
    let rank = head["shape"].as_array().unwrap().len();
    let values = fs::read(folder.join(vec!["0"; rank].join("."))).unwrap();
    (head["dtype"].as_str().unwrap().to_owned(), values)
}

#[test]
fn float_images_of_whole_numbers_are_uint8_images_and_floats_again_in_an_export() {
    for (dtype, name, to_bytes) in [
        (
            "<f4",
            "float32",
            (|byte| f32::from(byte).to_le_bytes().to_vec()) as fn(u8) -> Vec<u8>,
        ),
        ("<f8", "float64", |byte| {
            f64::from(byte).to_le_bytes().to_vec()
        }),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        put_store(here, dtype, to_bytes);
        let output = pack(here, "a.kino", &[]);
        let said = text(&output.stderr);
        let note = format!(
            "note: stream `img`: is {name}[32, 32, 3] in the source and holds only whole numbers"
        );
        assert!(
            said.contains(&note) && said.contains("--keep-dtype"),
            "{said}"
        );
        assert!(!said.contains("looks like float images"), "{said}");
        assert_eq!(
            img_type(here, "a.kino", &["--overwrite"]),
            pair("image", "uint8")
        );
        assert_eq!(
            img_type(here, "kept.kino", &["--keep-dtype"]),
            pair("vector", name)
        );
        let output = kinograph(here, &["export", "a.kino", "b.zarr", "--to", "zarr"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        for array_name in ["img", "action"] {
            let (found, expected) = ("b.zarr", "demo.zarr");
            assert!(
                array(&here.join(found), array_name) == array(&here.join(expected), array_name),
                "{array_name} {dtype}"
            );
        }
    }
}

#[test]
fn one_value_that_is_not_whole_in_the_last_frame_keeps_the_floats() {
    for odd in [0.5, -0.0, f32::NAN, 256.0, -1.0] {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        put_store(here, "<f4", |byte| f32::from(byte).to_le_bytes().to_vec());
        let chunk = here.join("demo.zarr/data/img/0.0.0.0");
        let mut values = fs::read(&chunk).unwrap();
        let last = values.len() - 4;
        values[last..].copy_from_slice(&odd.to_le_bytes());
        fs::write(&chunk, &values).unwrap();
        let options: &[&str] = if odd.is_nan() {
            &["--on-defect", "keep"]
        } else {
            &[]
        };
        assert_eq!(
            img_type(here, "a.kino", options),
            pair("vector", "float32"),
            "{odd}"
        );
        let output = kinograph(here, &["export", "a.kino", "b.zarr", "--to", "zarr"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(array(&here.join("b.zarr"), "img").1 == values, "{odd}");
    }
}

#[test]
fn small_arrays_and_those_of_another_shape_are_not_images() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    put_store(here, "|u1", |byte| vec![byte]);
    for (name, shape) in [
        ("small", [15, 32, 3]),
        ("channels", [32, 32, 2]),
        ("first", [3, 32, 32]),
    ] {
        let len = FRAMES * shape.iter().product::<usize>() * 4;
        let shape = [&[FRAMES][..], &shape].concat();
        put_array(
            &here.join("demo.zarr/data").join(name),
            "<f4",
            &shape,
            &vec![0; len],
        );
    }
    let report = pack_json(here, "a.kino", &[]);
    for name in ["small", "channels", "first", "action"] {
        assert_eq!(stream(&report, name)["dtype"], "float32", "{name}");
    }
}

#[test]
fn episodes_added_to_a_dataset_have_its_type() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    put_store(here, "<f4", |byte| f32::from(byte).to_le_bytes().to_vec());
    pack(here, "a.kino", &[]);
    pack(here, "kept.kino", &["--keep-dtype"]);
    let more = ["--append", "--prefix", "more/"];
    assert_eq!(img_type(here, "a.kino", &more), pair("image", "uint8"));
    assert_eq!(
        img_type(here, "kept.kino", &more),
        pair("vector", "float32")
    );
    // Floats that are not whole do not fit images.
    put_store(here, "<f4", |byte| {
        (f32::from(byte) / 2.0).to_le_bytes().to_vec()
    });
    let args = [
        "pack",
        "demo.zarr",
        "a.kino",
        "--rate",
        "10",
        "--append",
        "--prefix",
        "b/",
    ];
    let output = kinograph(here, &args);
    let said = text(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("but uint8 images in the dataset"), "{said}");
    let output = kinograph(here, &[&args[..], &["--on-defect", "keep"]].concat());
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
}
