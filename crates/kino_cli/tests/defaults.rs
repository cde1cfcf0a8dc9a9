//! `kinograph pack` looks at the data: which lossless codec, whether a loss saves anything.
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
