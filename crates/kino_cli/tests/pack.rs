//! `kinograph pack` as a new user meets it: wrong targets, parts, sizes, replacing, and what goes with it in `cat` and `verify`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/other_demo.hdf5")
}

fn three_demos() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/lift_3demos.hdf5")
}

fn jpeg_recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../kino_import/tests/fixtures/act_jpeg.hdf5")
}

/// Runs the command in a folder.
fn kinograph(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kinograph"));
    command.args(args).current_dir(folder).stdin(Stdio::null());
    command.env("XDG_CACHE_HOME", folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn pack(folder: &Path, source: &Path, options: &[&str]) -> Output {
    let args = ["pack", source.to_str().unwrap(), "a.kino"];
    kinograph(folder, &[&args, options].concat())
}

/// What a pack with `--json` says.
fn packed(folder: &Path, source: &Path, options: &[&str]) -> Value {
    let output = pack(folder, source, &[&["--json"], options].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn names(report: &Value) -> Vec<String> {
    let streams = report["streams"].as_array().unwrap().iter();
    let name = |stream: &Value| stream["name"].as_str().unwrap().to_owned();
    streams.map(name).collect()
}

#[test]
fn a_url_is_refused_everywhere_and_no_folder_of_its_name_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    packed(here, &recording(), &[]);
    let source = recording();
    let source = source.to_str().unwrap();
    for args in [
        vec!["pack", source, "ftp://host/q.kino"],
        vec!["pack", source, "https://host/q.kino"],
        vec!["pack", source, "hf://datasets/lab/q.kino", "--resume"],
        vec!["pack", "https://host/demos.hdf5", "q.kino"],
        vec!["info", "s3://user:secret@bucket/q.kino"],
        vec![
            "export",
            "a.kino",
            "s3://bucket/out.hdf5",
            "--to",
            "robomimic",
        ],
    ] {
        let output = kinograph(here, &args);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
        let says = [
            "only datasets can be remote",
            "can only be read",
            "is not a storage",
            "contains a user or a password",
        ];
        assert!(says.iter().any(|says| error.contains(says)), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
    let left: Vec<_> = fs::read_dir(here)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["a.kino"]);
}

#[test]
fn a_part_has_the_streams_and_episodes_that_were_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let options = [
        "--streams",
        "obs/*",
        "actions",
        "--exclude",
        "obs/*_image",
        "--episodes",
        "0,2",
    ];
    let report = packed(folder.path(), &three_demos(), &options);
    let found = names(&report);
    assert!(found.contains(&"actions".to_owned()) && found.len() > 3);
    assert!(
        found.iter().all(|name| !name.ends_with("_image")),
        "{found:?}"
    );
    let ids = text(&kinograph(folder.path(), &["cat", "a.kino"]).stdout);
    assert_eq!(ids, "demo_0\ndemo_2\n");
    let wrong = pack(
        folder.path(),
        &three_demos(),
        &["--exclude", "obs/agentview"],
    );
    assert!(text(&wrong.stderr).contains("did you mean `obs/agentview_image`?"));
}

#[test]
fn every_size_is_the_same_wherever_it_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let report = packed(here, &three_demos(), &[]);
    assert_eq!(
        report["source_bytes"],
        fs::metadata(three_demos()).unwrap().len()
    );
    let info = kinograph(here, &["info", "a.kino", "--json"]).stdout;
    let info: Value = serde_json::from_slice(&info).unwrap();
    assert_eq!(report["dataset_bytes"], info["bytes"]);
    let on_disk = |folder: &str| -> u64 {
        let files = fs::read_dir(here.join("a.kino").join(folder)).unwrap();
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum()
    };
    assert_eq!(
        info["bytes"],
        on_disk("shards") + on_disk("episodes") + on_disk("stats")
    );
    let again = pack(here, &three_demos(), &["--overwrite"]);
    let shown = text(&again.stdout);
    assert!(
        shown.contains(" in the source, ") && shown.contains(" smaller than raw)\n"),
        "{shown}"
    );
    assert!(shown.contains("  raw  "), "{shown}");
    assert_eq!(report["source_bytes"], info["source_bytes"]);
    assert_eq!(report["raw_bytes"], info["raw_bytes"]);
    let info = text(&kinograph(here, &["info", "a.kino"]).stdout);
    let line = info.lines().find(|line| line.starts_with("  source "));
    assert!(
        line.unwrap().ends_with(" smaller than the source"),
        "{info}"
    );
    packed(
        here,
        &three_demos(),
        &["--overwrite", "--streams", "actions"],
    );
    let info = text(&kinograph(here, &["info", "a.kino"]).stdout);
    assert!(info.contains(" on disk: partly packed\n"), "{info}");
}

#[test]
fn a_dataset_that_is_larger_than_its_source_is_said_to_be_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("raw.toml"),
        "[[stream]]\ncodec = \"raw\"\n",
    )
    .unwrap();
    // Rows of text: a column of zeros as values takes more bytes.
    let rows: String = (0..4000).map(|_| "0.0\n").collect();
    fs::write(folder.path().join("take.csv"), format!("x\n{rows}")).unwrap();
    let output = pack(
        folder.path(),
        &folder.path().join("take.csv"),
        &["--rate", "10", "--plan", "raw.toml"],
    );
    let shown = text(&output.stdout);
    assert!(
        shown.contains(
            "LARGER than its source: its frames are compressed there (2.0× smaller than raw)"
        ) && shown.contains("To make it smaller: a plan can set bounds"),
        "{shown}"
    );
    let sizes = shown.lines().find(|line| line.contains(" → ")).unwrap();
    assert!(
        sizes.starts_with("16.0 kB in the source, 32.0 kB as raw frames → ")
            && sizes.ends_with("(2.3× the source, 1.1× raw)"),
        "{sizes}"
    );
    let info = text(&kinograph(folder.path(), &["info", "a.kino"]).stdout);
    assert!(info.contains("× the source\n"), "{info}");
}

#[test]
fn a_dry_run_estimates_the_size_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = pack(folder.path(), &three_demos(), &["--dry-run", "--json"]);
    let estimate: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!folder.path().join("a.kino").exists());
    let report = packed(folder.path(), &three_demos(), &[]);
    // The report has them as they are stored, cameras last.
    let mut stored = names(&report);
    stored.sort();
    assert_eq!(names(&estimate), stored);
    assert_eq!(estimate["raw_bytes"], report["raw_bytes"]);
    let ratio =
        estimate["estimated_bytes"].as_f64().unwrap() / report["added_bytes"].as_f64().unwrap();
    assert!((0.5..2.0).contains(&ratio), "{ratio}");
    let shown = text(&pack(folder.path(), &three_demos(), &["--dry-run"]).stdout);
    assert!(
        shown.contains("3 episodes") && shown.contains("estimated from the first"),
        "{shown}"
    );
}

#[test]
fn a_dataset_is_replaced_only_when_the_new_one_is_whole_and_nothing_else_ever_is() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    packed(here, &recording(), &[]);
    let wrong = pack(here, &three_demos(), &["--overwrite", "--episodes", "99"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert_eq!(
        text(&kinograph(here, &["cat", "a.kino"]).stdout),
        "demo_7\n"
    );
    let report = packed(here, &three_demos(), &["--overwrite"]);
    assert_eq!(report["version"], 1);
    assert_eq!(
        text(&kinograph(here, &["cat", "a.kino"]).stdout),
        "demo_0\ndemo_1\ndemo_2\n"
    );
    assert!(
        kinograph(here, &["verify", "a.kino", "--decode"])
            .status
            .success()
    );
    fs::write(here.join("a.kino/notes.txt"), "mine").unwrap();
    let refused = pack(here, &three_demos(), &["--overwrite"]);
    assert!(
        text(&refused.stderr).contains("is not overwritten"),
        "{}",
        text(&refused.stderr)
    );
    fs::create_dir(here.join("other")).unwrap();
    fs::write(here.join("other/thesis.tex"), "years").unwrap();
    let source = recording();
    let args = ["pack", source.to_str().unwrap(), "other", "--overwrite"];
    assert_eq!(kinograph(here, &args).status.code(), Some(1));
    assert_eq!(
        fs::read_to_string(here.join("other/thesis.tex")).unwrap(),
        "years"
    );
    let left = fs::read_dir(here)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = left.collect();
    left.sort();
    assert_eq!(left, ["a.kino", "other"]);
}

#[test]
fn wrong_requests_say_what_to_do_instead() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    packed(here, &recording(), &[]);
    fs::write(here.join("file.kino"), "text").unwrap();
    fs::write(here.join("notes.txt"), "text").unwrap();
    fs::write(here.join("plan.toml"), "[[stream]]\ncodec = \"h264\"\n").unwrap();
    let source = recording();
    let source = source.to_str().unwrap();
    for (args, expected) in [
        (
            vec!["pack", "a.kino", "b.kino", "--quality", "80"],
            "`kinograph repack` copies it, or stores it with another plan",
        ),
        (
            vec!["link", "a.kino", "b.kino"],
            "is already a Kinograph dataset",
        ),
        (
            vec!["pack", source, "file.kino"],
            "file.kino is a file, and a dataset is a folder",
        ),
        (
            vec!["pack", "notes.txt", "b.kino"],
            "notes.txt: is not in a known format (lerobot, rlds,",
        ),
        (
            vec!["pack", source, "b.kino", "--plan", "plan.toml"],
            "unknown codec `h264`; there are vector, pco, predict,",
        ),
    ] {
        let output = kinograph(here, &args);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
        assert!(error.contains(expected), "{args:?}: {error}");
        assert!(!error.contains("upgrade"), "{error}");
        assert!(!here.join("b.kino").exists(), "{args:?}");
    }
}

#[test]
fn jpeg_files_are_encoded_again_if_a_plan_or_a_quality_asks_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(
        here.join("raw.toml"),
        "[[stream]]\nkind = \"image\"\ncodec = \"raw\"\n",
    )
    .unwrap();
    let source = jpeg_recording();
    let source = source.to_str().unwrap();
    let said = |target: &str, options: &[&str]| -> Value {
        let args = [&["pack", source, target, "--json"], options].concat();
        let output = kinograph(here, &args);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let images = |said: &Value| {
        let streams = said["streams"].as_array().unwrap();
        let images = streams.iter().filter(|one| one["kind"] == "image");
        let images = images.map(|one| (one["codec"].clone(), one["bytes"].as_u64().unwrap()));
        images.collect::<Vec<_>>()
    };
    let carried = images(&said("carried.kino", &[]));
    let small = images(&said("small.kino", &["--quality", "20"]));
    assert!(carried.len() == small.len() && !small.is_empty());
    for ((codec, bytes), (codec_before, bytes_before)) in small.iter().zip(&carried) {
        assert_eq!(
            (codec, codec_before),
            (&"jpeg:q=20,sub=444".into(), &"jpeg:carry".into())
        );
        assert!(bytes < bytes_before);
    }
    let info = kinograph(here, &["info", "small.kino"]);
    let info = text(&info.stdout);
    assert!(
        info.contains("2 lossy generations: jpeg:carry (not measured), then jpeg:q=20"),
        "{info}"
    );
    let raw = said("raw.kino", &["--plan", "raw.toml"]);
    assert!(images(&raw).iter().all(|(codec, _)| codec == "raw"));
    let notes = raw["defects"].to_string();
    assert!(notes.contains("which makes it larger"), "{notes}");
}

#[test]
fn a_plan_and_a_quality_go_together() {
    let folder = tempfile::tempdir().unwrap();
    let plan = "[[stream]]\nmatch = \"actions\"\ncodec = \"raw\"\n";
    fs::write(folder.path().join("plan.toml"), plan).unwrap();
    let report = packed(
        folder.path(),
        &recording(),
        &["--plan", "plan.toml", "--quality", "70"],
    );
    let codec = |name: &str| {
        let streams = report["streams"].as_array().unwrap();
        let stream = streams
            .iter()
            .find(|stream| stream["name"] == name)
            .unwrap();
        stream["codec"].as_str().unwrap().to_owned()
    };
    assert_eq!(codec("actions"), "raw");
    assert_eq!(codec("obs/agentview_image"), "jpeg:q=70,sub=444");
}

#[test]
fn cat_writes_images_as_png_and_never_prints_them() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    packed(here, &recording(), &[]);
    let cat = |args: &[&str]| {
        let fixed = ["cat", "a.kino", "demo_7", "obs/agentview_image"];
        kinograph(here, &[&fixed, args].concat())
    };
    let refused = cat(&[]);
    assert_eq!(
        (refused.status.code(), text(&refused.stdout)),
        (Some(1), String::new())
    );
    assert!(
        text(&refused.stderr).contains("--png DIR"),
        "{}",
        text(&refused.stderr)
    );
    assert!(cat(&["--npy", "all.npy"]).status.success());
    let npy = fs::read(here.join("all.npy")).unwrap();
    let frame = 84 * 84 * 3;
    let values = &npy[npy.len() - 20 * frame..];
    assert!(cat(&["--frames", "-3:99", "--png", "out"]).status.success());
    assert_eq!(fs::read_dir(here.join("out")).unwrap().count(), 3);
    for number in 17..20 {
        let file = fs::File::open(here.join(format!("out/{number:06}.png"))).unwrap();
        let mut reader = png::Decoder::new(std::io::BufReader::new(file))
            .read_info()
            .unwrap();
        let mut pixels = vec![0; frame];
        reader.next_frame(&mut pixels).unwrap();
        assert_eq!(
            pixels,
            values[number * frame..(number + 1) * frame],
            "{number}"
        );
    }
    assert!(cat(&["--frames", "7", "--png", "one.png"]).status.success());
    assert!(here.join("one.png").is_file());
    for (args, expected) in [
        (vec!["--png", "many.png"], "give a folder"),
        (vec!["--npy", "im.png"], "does not end in `.npy`"),
    ] {
        let output = cat(&args);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            text(&output.stderr).contains(expected),
            "{}",
            text(&output.stderr)
        );
    }
    assert!(!here.join("many.png").exists() && !here.join("im.png").exists());
}

#[test]
fn frames_of_a_slice_are_clamped_as_python_does() {
    let folder = tempfile::tempdir().unwrap();
    packed(folder.path(), &recording(), &[]);
    let lines = |frames: &str| {
        let args = ["cat", "a.kino", "demo_7", "actions", "--frames", frames];
        text(&kinograph(folder.path(), &args).stdout)
            .lines()
            .count()
    };
    let found = ["18:90", "90:95", "-2:", ":-18", "7", "-1", "5:3", ":"].map(lines);
    assert_eq!(found, [2, 0, 2, 2, 1, 1, 0, 20]);
}

#[test]
fn verify_tells_a_file_that_cannot_be_read_from_a_damaged_one() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    packed(here, &recording(), &[]);
    let shards = here.join("a.kino/shards");
    let shard = fs::read_dir(&shards)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let bytes = fs::read(&shard).unwrap();
    fs::remove_file(&shard).unwrap();
    // A link to itself: the system refuses to follow it, even for root.
    std::os::unix::fs::symlink(&shard, &shard).unwrap();
    let output = kinograph(here, &["verify", "a.kino"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        shown.contains("cannot be read: Too many levels of symbolic links"),
        "{shown}"
    );
    assert!(
        shown.contains("a.kino: 1 file cannot be read (1 episode, "),
        "{shown}"
    );
    assert!(!shown.contains("damaged"), "{shown}");
    fs::remove_file(&shard).unwrap();
    fs::write(&shard, bytes).unwrap();
    assert!(
        text(&kinograph(here, &["verify", "a.kino"]).stdout).contains("a.kino: valid (1 episode, ")
    );
    let manifest = here.join("a.kino/versions/00000001.json");
    fs::write(&manifest, "{").unwrap();
    let output = kinograph(here, &["verify", "a.kino"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("00000001.json is damaged: "), "{error}");
    assert!(!error.contains("kinograph verify"), "{error}");
}
