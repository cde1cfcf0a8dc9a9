//! `kinograph doctor` and `kinograph bench` from the shell's side: exit codes, JSON, HTML reports, comparisons.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn kinograph(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kinograph"));
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

fn json(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| unreachable!("{error}"))
}

/// A packed recording, in a temporary folder that is deleted when the first value is dropped.
fn packed() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("a.kino").to_str().unwrap().to_owned();
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/other_demo.hdf5");
    let output = kinograph(&["pack", recording.to_str().unwrap(), &target]);
    assert_eq!(output.status.code(), Some(0));
    (folder, target)
}

#[test]
fn the_exit_code_of_the_doctor_says_whether_the_target_is_met() {
    let (folder, path) = packed();
    let report = folder.path().join("report.html");
    let fixed = ["doctor", &path, "--batch-size", "4", "--seconds", "0.4"];
    let run = |more: &[&str]| kinograph(&[&fixed, more].concat());
    let easy = [
        "--step-ms",
        "100",
        "--target",
        "0.5",
        "--html",
        report.to_str().unwrap(),
    ];
    let output = run(&easy);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("Nothing to fix"), "{text}");
    assert!(
        std::fs::read_to_string(&report)
            .unwrap()
            .starts_with("<!DOCTYPE html>")
    );

    // Images are read for each sample, so that slow storage affects every batch.
    let slow = [
        "--step-ms",
        "10",
        "--memory",
        "100kB",
        "--window",
        "obs/agentview_image=0:1",
        "--window",
        "actions=0:1",
        "--emulate-storage",
        "100ms",
        "--gpu-price",
        "2.5",
        "--gpus",
        "8",
        "--json",
    ];
    let output = run(&slow);
    assert_eq!(output.status.code(), Some(4));
    let value = json(&output);
    assert_eq!(value["verdict"]["cause"], "storage", "{}", value["verdict"]);
    assert!(!value["changes"].as_array().unwrap().is_empty());
    assert_eq!(value["evidence"]["setting"]["emulated_storage"], "100ms");
    let ratio = value["evidence"]["fed"]["compute_ratio"].as_f64().unwrap();
    let cost = &value["idle"]["cost"];
    assert!(
        (cost["cost_per_day"].as_f64().unwrap() - (1.0 - ratio) * 24.0 * 8.0 * 2.5).abs() < 1e-6
    );
    assert_eq!(value["idle"]["is_alarm"], true);
}

#[test]
fn the_doctor_computes_what_an_epoch_costs_without_a_step() {
    let (_folder, path) = packed();
    let output = kinograph(&["doctor", &path, "--cost"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text.trim(), "every dataset is local: no requests");
    let value = json(&kinograph(&["doctor", &path, "--cost", "--json"]));
    assert_eq!(
        (&value["gets"], &value["dollars"]),
        (&0.into(), &0.0.into())
    );
}

#[test]
fn the_doctor_explains_invalid_arguments() {
    let (_folder, path) = packed();
    let cases: [(&[&str], &str, i32); 11] = [
        (&["--step-ms", "5", "--gpu-price", "0"], "above 0", 1),
        (&["--step-ms", "5", "--gpus", "8"], "--gpu-price", 2),
        (&["--step-ms", "5", "--window", "nothing"], "wrist=-9:1", 2),
        (&["--step-ms", "5", "--window", "nothing=0:1"], "nothing", 1),
        (&["--step-ms", "5", "--target", "2"], "0.95", 1),
        (
            &["--step-ms", "5", "--emulate-storage", "quick"],
            "100MB/s",
            1,
        ),
        (&["--step-ms", "-1"], "", 2),
        (&[], "--step-ms", 2),
        (&["--cost", "--step-ms", "5"], "--cost", 2),
        (&["--step-ms", "5", "--gb-price", "1"], "--gb-price", 2),
        (&["--cost", "--get-price", "nan"], "price", 1),
    ];
    for (args, expected, code) in cases {
        let output = kinograph(&[&["doctor", &path], args].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(expected), "{error}");
        assert_eq!(output.status.code(), Some(code), "{error}");
    }
    let help = String::from_utf8(kinograph(&["doctor", "--help"]).stdout).unwrap();
    assert!(help.contains("4 target not met"), "{help}");
}

#[test]
fn bench_results_are_json_that_can_be_compared() {
    let (folder, path) = packed();
    let mut files = Vec::new();
    let quick = ["--seconds", "0.1", "--json"];
    for (bench, more) in [
        ("loader", &["--batch-size", "4"][..]),
        ("storage", &[]),
        ("au", &["--batch-size", "4", "--runs", "1"]),
    ] {
        let output = kinograph(&[&["bench", bench, &path], more, &quick].concat());
        let value = json(&output);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(value["bench"], bench);
        assert!(value["machine"]["cores"].as_u64().unwrap() > 0);
        let file = folder.path().join(format!("{bench}.json"));
        std::fs::write(&file, &output.stdout).unwrap();
        files.push(file.to_str().unwrap().to_owned());
    }
    let compare = |first: &str, second: &str| kinograph(&["bench", "compare", first, second]);
    let same = compare(&files[0], &files[0]);
    let text = String::from_utf8(same.stdout).unwrap();
    assert!(
        text.contains("cold: samples") && text.contains("1.00×"),
        "{text}"
    );
    let other = compare(&files[0], &files[1]);
    assert_eq!(other.status.code(), Some(1));
    assert!(
        String::from_utf8(other.stderr)
            .unwrap()
            .contains("bench storage")
    );
    let none = compare(&files[0], "no-such.json");
    assert!(
        String::from_utf8(none.stderr)
            .unwrap()
            .contains("no-such.json")
    );

    let codecs = [
        "bench",
        "codecs",
        &path,
        "--stream",
        "actions",
        "--no-cache",
        "--json",
    ];
    let output = kinograph(&[&codecs[..], &["--seconds", "0.001"]].concat());
    let file = folder.path().join("codecs.json");
    std::fs::write(&file, &output.stdout).unwrap();
    let shown = file.to_str().unwrap();
    let text = String::from_utf8(compare(shown, shown).stdout).unwrap();
    assert!(text.contains("actions raw: decode"), "{text}");
}
