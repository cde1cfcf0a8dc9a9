//! `cargo xtask check`: every lint that CI runs, with its time. It continues after a failure: one run reports all.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::{arrows, deny, links, report, versions};

/// Runs the checks of this program, then the tools; `flags` are passed to the cargo commands that compile.
pub(crate) fn run(root: &Path, flags: &[String]) -> Result<bool> {
    let python = root.join(".venv/bin/python");
    ensure!(python.exists(), ".venv is missing; run `make build` first");

    let mut failed: Vec<&str> = Vec::new();
    for (name, findings) in [
        ("arrows", arrows::check(root)?),
        ("deny", deny::check(root)?),
        ("versions", versions::check(root)?),
        ("links", links::check(root)?),
    ] {
        if !report(name, &findings) {
            failed.push(name);
        }
    }
    if !deny::ask_cargo_deny(root)? {
        failed.push("cargo deny");
    }
    for (name, mut command) in tools(&python, flags) {
        println!("{name}: {command:?}");
        let start = Instant::now();
        let status = command.current_dir(root).status()?;
        println!(
            "{name}: {} in {:.1} s",
            if status.success() { "ok" } else { "FAILED" },
            start.elapsed().as_secs_f64()
        );
        if !status.success() {
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        eprintln!("failed: {}", failed.join(", "));
    }
    Ok(failed.is_empty())
}

fn tools(python: &Path, flags: &[String]) -> Vec<(&'static str, Command)> {
    let cargo = |arguments: &[&str], flags: &[String], last: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.args(arguments).args(flags).args(last);
        command
    };
    let module = |arguments: &[&str]| {
        let mut command = Command::new(python);
        command.arg("-m").args(arguments);
        command
    };
    let mut doc = cargo(&["doc", "--locked", "--workspace", "--no-deps"], flags, &[]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    vec![
        ("rustfmt", cargo(&["fmt", "--all", "--check"], &[], &[])),
        (
            "clippy",
            cargo(
                &["clippy", "--locked", "--workspace", "--all-targets"],
                flags,
                &["--", "-D", "warnings"],
            ),
        ),
        ("rustdoc", doc),
        ("ruff", module(&["ruff", "check", "."])),
        ("ruff format", module(&["ruff", "format", "--check", "."])),
        ("mypy", module(&["mypy"])),
        ("stubtest", module(&["mypy.stubtest", "kinograph._core"])),
    ]
}
