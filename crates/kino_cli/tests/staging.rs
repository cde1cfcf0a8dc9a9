//! The leftovers of an interrupted pack: resumed only with the same options, listed and removed by `gc`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kino_dataset::{Dataset, WriterOptions};
use kino_import::{ImportOptions, PackOptions};

fn recording() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/lift_3demos.hdf5")
}

/// Interrupts a pack of the recording in its last episode, after a shard was written for each of the others.
fn interrupted(target: &Path) {
    let source = kino_import::open(&recording(), &ImportOptions::default()).unwrap();
    let options = PackOptions {
        writer: WriterOptions {
            shard_bytes: 1,
            memory_bytes: 1,
            ..WriterOptions::default()
        },
        ..PackOptions::default()
    };
    let mut calls_in_the_last = 0;
    kino_import::pack(&source, target, options, &mut |at| {
        calls_in_the_last += u32::from(at.episodes_done == 2);
        match calls_in_the_last {
            10.. => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })
    .unwrap_err();
}

fn run(command: &str, target: &Path, options: &[&str]) -> Output {
    let mut process = Command::new(env!("CARGO_BIN_EXE_kinograph"));
    process.arg(command);
    if command == "pack" {
        process.arg(recording());
    }
    process.arg(target).args(options).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_pack_is_resumed_only_with_the_options_it_was_started_with() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("a.kino");
    interrupted(&target);
    for (options, expected) in [
        (&["--rate", "55"][..], r#"rate_hz was none, now it is "55""#),
        (&["--prefix", "zz/"], r#"prefix was "", now it is "zz/""#),
        (&["--seed", "3"], r#"seed was "0", now it is "3""#),
        (
            &["--on-defect", "keep"],
            r#"on_defect was "error", now it is "keep""#,
        ),
        (&["--quality", "90"], "plan"),
    ] {
        let output = run("pack", &target, &[&["--resume"], options].concat());
        let error = text(&output.stderr);
        assert!(
            output.status.code() == Some(1) && error.contains(expected),
            "{options:?}: {error}"
        );
    }
    let output = run("pack", &target, &["--resume"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("2 of them were finished"));
    assert_eq!(Dataset::open(&target).unwrap().len(), 3);
}

#[test]
fn gc_lists_and_removes_the_leftovers_of_an_interrupted_pack() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("a.kino");
    interrupted(&target);
    let listed = text(&run("gc", &target, &[]).stdout);
    assert!(listed.contains("can be resumed"), "{listed}");
    assert!(listed.contains("nothing to remove"), "{listed}");
    let json: serde_json::Value =
        serde_json::from_slice(&run("gc", &target, &["--json", "--interrupted"]).stdout).unwrap();
    assert_eq!(json["writers"][0]["episodes"], 2);
    assert_eq!(json["files"].as_array().unwrap().len(), 2);
    assert_eq!(json["deleted"], false);
    assert!(run("gc", &target, &["--delete"]).status.success());
    assert_eq!(std::fs::read_dir(target.join("shards")).unwrap().count(), 2);
    let removed = run("gc", &target, &["--delete", "--interrupted"]);
    assert!(text(&removed.stdout).contains("2 files and 1 staging folder,"));
    assert_eq!(std::fs::read_dir(target.join("shards")).unwrap().count(), 0);
    assert!(run("pack", &target, &[]).status.success());
}
