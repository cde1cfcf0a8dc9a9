//! The command from the shell's side: what it prints, where, and its exit code.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/other_demo.hdf5")
}

fn kinograph(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kinograph"));
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A packed recording, in a temporary folder that is deleted when the first value is dropped.
fn packed() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("a.kino").to_str().unwrap().to_owned();
    let output = kinograph(&["pack", recording().to_str().unwrap(), &target]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    (folder, target)
}

#[test]
fn pack_prints_a_row_per_stream_and_a_total() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("a.kino");
    let output = kinograph(&[
        "pack",
        recording().to_str().unwrap(),
        target.to_str().unwrap(),
        "--quality",
        "90",
    ]);
    let text = stdout(&output);
    let camera = text
        .lines()
        .find(|line| line.starts_with("obs/agentview_image"))
        .unwrap();
    for part in ["uint8 84×84×3", "jpeg:q=90,sub=444", "423 kB", "dB"] {
        assert!(camera.contains(part), "{part}: {camera}");
    }
    let actions = text
        .lines()
        .find(|line| line.starts_with("actions"))
        .unwrap();
    assert!(
        actions.contains("vector:level=8") && actions.ends_with("lossless"),
        "{actions}"
    );
    assert!(text.contains("version 1 with 1 new episode,"), "{text}");
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_dry_run_writes_nothing_and_prints_what_it_would_do() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("a.kino");
    let plan = folder.path().join("plan.toml");
    std::fs::write(
        &plan,
        "[[stream]]\nmatch = \"obs/*_image\"\ncodec = \"jpeg:q=70,sub=420\"",
    )
    .unwrap();
    let source = recording();
    let args = [
        "pack",
        source.to_str().unwrap(),
        target.to_str().unwrap(),
        "--dry-run",
        "--json",
        "--plan",
    ];
    let output = kinograph(&[&args[..], &[plan.to_str().unwrap()]].concat());
    let json: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let streams = json["streams"].as_array().unwrap();
    let camera = streams
        .iter()
        .find(|stream| stream["name"] == "obs/agentview_image")
        .unwrap();
    assert_eq!(
        (camera["codec"].as_str(), json["episodes"].as_u64()),
        (Some("jpeg:q=70,sub=420"), Some(1))
    );
    assert!(!target.exists());
}

#[test]
fn info_verify_and_cat_agree_about_a_dataset() {
    let (_folder, target) = packed();
    let info: serde_json::Value = serde_json::from_str(&stdout(&kinograph(&[
        "info",
        &target,
        "--json",
        "--episodes",
    ])))
    .unwrap();
    assert_eq!(
        (
            info["episodes"].as_u64(),
            info["table"][0]["frames"].as_u64()
        ),
        (Some(1), Some(20))
    );
    assert!(stdout(&kinograph(&["info", &target])).contains("memory"));
    let verify = kinograph(&["verify", &target, "--decode"]);
    assert!(
        verify.status.success() && stdout(&verify).contains("valid (1 episode,"),
        "{}",
        stdout(&verify)
    );
    let cat = stdout(&kinograph(&[
        "cat", &target, "demo_7", "actions", "--frames", "3:5",
    ]));
    let lines: Vec<_> = cat
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .collect();
    assert_eq!(
        (
            lines.len(),
            lines[0][0],
            lines[0][1],
            lines[0][2].split(' ').count()
        ),
        (2, "3", "0.150000", 7)
    );
    let by_time = stdout(&kinograph(&[
        "cat",
        &target,
        "0",
        "actions",
        "--seconds",
        "0.15:0.25",
    ]));
    assert_eq!(by_time, cat);
    assert!(stdout(&kinograph(&["cat", &target, "demo_7"])).contains("obs/agentview_image\n"));
    assert_eq!(stdout(&kinograph(&["cat", &target])), "demo_7\n");
}

#[test]
fn an_npy_file_has_the_header_and_size_that_numpy_expects() {
    let (folder, target) = packed();
    let file = folder.path().join("x.npy");
    let output = kinograph(&[
        "cat",
        &target,
        "demo_7",
        "obs/agentview_image",
        "--frames",
        "2:4",
        "--npy",
        file.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let bytes = std::fs::read(&file).unwrap();
    let header_len = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..header_len]).unwrap();
    assert_eq!(
        header.trim_end(),
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 84, 84, 3,), }"
    );
    assert!(header_len.is_multiple_of(64) && header.ends_with('\n'));
    assert_eq!(bytes.len() - header_len, 2 * 84 * 84 * 3);
}

#[test]
fn damage_gives_exit_code_1_and_its_location_on_stdout() {
    let (_folder, target) = packed();
    let shards = Path::new(&target).join("shards");
    let shard = shards.read_dir().unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&shard).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    let output = kinograph(&["verify", &target]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(
        text.starts_with("damaged: ")
            && text.contains("_image`, frames ")
            && text.contains("1 damaged place ("),
        "{text}"
    );
}

#[test]
fn failures_say_what_where_and_what_next_on_stderr() {
    let (folder, target) = packed();
    let source = recording();
    let source = source.to_str().unwrap();
    let absent = folder.path().join("absent").to_str().unwrap().to_owned();
    let text_file = folder.path().join("notes.txt");
    std::fs::write(&text_file, "not a recording").unwrap();
    for (args, code, expected) in [
        (vec!["pack", source, &target], 1, "--append"),
        (vec!["pack", source, &target, "--append"], 1, "--prefix"),
        (vec!["pack", &absent, "x.kino"], 1, "no such file"),
        (
            vec!["pack", text_file.to_str().unwrap(), "x.kino"],
            1,
            "notes.txt",
        ),
        (
            vec!["pack", source, "x.kino", "--quality", "0"],
            2,
            "1..=100",
        ),
        (
            vec!["pack", source, "x.kino", "--quality", "9", "--lossless"],
            2,
            "cannot be used with",
        ),
        (vec!["info", &absent], 1, "does not exist"),
        (
            vec!["info", folder.path().to_str().unwrap()],
            1,
            "kinograph pack",
        ),
        (vec!["cat", &target, "demo_9"], 1, "demo_7"),
        (
            vec!["cat", &target, "demo_7", "agentview_image"],
            1,
            "did you mean `obs/agentview_image`?",
        ),
        (
            vec!["cat", &target, "demo_7", "actions", "--frames", "99"],
            1,
            "no frame 99; it has 20",
        ),
        (vec!["frobnicate"], 2, "unrecognized subcommand"),
    ] {
        let output = kinograph(&args);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{args:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(expected),
            "{args:?}: {}",
            stderr(&output)
        );
        assert_eq!(stdout(&output), "", "{args:?}");
    }
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let (_folder, target) = packed();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kinograph"));
    command
        .args(["cat", &target, "demo_7", "obs/agentview_image", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), stderr(&output)),
        (Some(0), String::new())
    );
}

#[test]
fn a_prefix_allows_the_same_ids_again_and_resuming_a_finished_pack_does_nothing() {
    let (_folder, target) = packed();
    let source = recording();
    let source = source.to_str().unwrap();
    let again = kinograph(&["pack", source, &target, "--resume"]);
    assert!(
        again.status.success() && stderr(&again).contains("nothing to do"),
        "{}",
        stderr(&again)
    );
    let output = kinograph(&["pack", source, &target, "--append", "--prefix", "lab2/"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        stdout(&kinograph(&["cat", &target])),
        "demo_7\nlab2/demo_7\n"
    );
    assert!(stdout(&kinograph(&["info", &target])).contains("20 Hz"));
}

#[test]
fn a_plan_rule_that_matches_no_stream_gives_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    std::fs::write(
        &plan,
        "[[stream]]\nmatch = \"obs/wirst_image\"\ncodec = \"raw\"",
    )
    .unwrap();
    let target = folder.path().join("a.kino");
    let source = recording();
    let args = [
        "pack",
        source.to_str().unwrap(),
        target.to_str().unwrap(),
        "--dry-run",
        "--plan",
    ];
    let output = kinograph(&[&args[..], &[plan.to_str().unwrap()]].concat());
    assert!(
        stderr(&output).contains("`obs/wirst_image` (raw) matches no stream"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn bench_measures_texts_and_image_files_from_a_file_of_strings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("strings.bin");
    let bench = |strings: &[&[u8]], args: &[&str]| {
        let bytes = strings.iter().flat_map(|string| {
            let len = u32::try_from(string.len()).unwrap().to_le_bytes();
            [&len, *string].concat()
        });
        std::fs::write(&path, bytes.collect::<Vec<_>>()).unwrap();
        let file = path.to_str().unwrap();
        let fixed = ["bench", "codecs", "--no-cache", "--json", "--seconds"];
        let output =
            kinograph(&[&fixed[..], &["0.001", "--frames", file, "--type"], args].concat());
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        (output, text)
    };
    let first = |text: &str| -> serde_json::Value {
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        value["streams"][0]["codecs"][0].clone()
    };
    let (_, text) = bench(&[b"lift the cube", b"", b"lift the cube"], &["text"]);
    let row = first(&text);
    assert_eq!((&row["frames"], &row["raw_bytes"]), (&3.into(), &26.into()));

    let (output, text) = bench(&[b"no JPEG"], &["uint8[8,8,3]", "--strings"]);
    let row = first(&text);
    assert_eq!(row["codec"], "jpeg:carry");
    assert!(row["error"].is_string(), "{row} {}", stderr(&output));

    std::fs::write(&path, [9, 0, 0, 0, b'x']).unwrap();
    let truncated = kinograph(&[
        "bench",
        "codecs",
        "--frames",
        path.to_str().unwrap(),
        "--type",
        "text",
    ]);
    assert!(
        stderr(&truncated).contains("string 0 is truncated"),
        "{}",
        stderr(&truncated)
    );
}

#[test]
fn bench_measures_codecs_on_a_dataset_and_caches_their_costs() {
    let (folder, target) = packed();
    let bench = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_kinograph"))
            .env("XDG_CACHE_HOME", folder.path())
            .args(args)
            .output()
            .unwrap()
    };
    let path = target.as_str();
    let args = [
        "bench",
        "codecs",
        path,
        "--stream",
        "actions",
        "--seconds",
        "0.001",
        "--json",
    ];
    let output = bench(&args);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let stream = &value["streams"][0];
    assert_eq!(
        (&stream["stream"], &stream["kind"]),
        (&"actions".into(), &"vector".into())
    );
    let codecs = stream["codecs"].as_array().unwrap();
    let ratio = |name: &str| {
        let found = codecs
            .iter()
            .find(|codec| codec["codec"].as_str().unwrap().starts_with(name));
        found.unwrap()["ratio"].as_f64().unwrap()
    };
    assert_eq!(ratio("raw"), 1.0);
    assert!(ratio("vector:level=8,abs=1e-3") > ratio("vector:level=8"));

    // `info` shows the measured costs.
    let text = String::from_utf8(bench(&["info", path]).stdout).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("actions"))
        .unwrap();
    assert!(!line.ends_with('–'), "{line}");

    let wrong = bench(&[
        "bench",
        "codecs",
        path,
        "--codec",
        "no-such",
        "--seconds",
        "0.001",
    ]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8(wrong.stdout).unwrap().contains("no-such"));
    let nothing = bench(&["bench", "codecs", path, "--stream", "no/such"]);
    assert!(
        String::from_utf8(nothing.stderr)
            .unwrap()
            .contains("no/such")
    );
}

#[test]
fn export_does_not_overwrite_and_reports_what_the_format_cannot_hold() {
    let (folder, dataset) = packed();
    let target = folder.path().join("out.hdf5");
    let target = target.to_str().unwrap();
    let output = kinograph(&["export", &dataset, target, "--to", "robomimic", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (&report["episodes"], &report["format"]),
        (&1.into(), &"robomimic".into())
    );
    let output = kinograph(&["export", &dataset, target, "--to", "robomimic"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("already exists"),
        "{}",
        stderr(&output)
    );

    let folder = folder.path().join("act");
    let folder = folder.to_str().unwrap();
    let output = kinograph(&["export", &dataset, folder, "--to", "act"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("--on-defect keep"),
        "{}",
        stderr(&output)
    );
    let output = kinograph(&[
        "export",
        &dataset,
        folder,
        "--to",
        "act",
        "--on-defect",
        "keep",
    ]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        stderr(&output).contains("lost: attribute `env_args`"),
        "{}",
        stderr(&output)
    );
    let output = kinograph(&["export", &dataset, folder, "--to", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
}
