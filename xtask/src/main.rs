//! What CI runs, as a program: `cargo xtask check`, or one of its parts.
//!
//! ```text
//! arrows    which crate may depend on which, what each must not pull in, and the licences of everything
//! versions  one version number for all crates and the wheel, and a changelog entry for it
//! links     no relative link in a Markdown file leads nowhere
//! check     all of these, and the formatters, linters, docs, types and stubs
//! ```
//!
//! A step that finds something prints every finding and the command fails; it never stops at the first.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for developers: its output is its result"
)]

mod arrows;
mod check;
mod licences;
mod links;
mod metadata;
mod versions;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

const USAGE: &str = "usage: cargo xtask arrows | versions | links | check [CARGO-FLAG…]";

/// What a check found wrong, one sentence each; empty is success.
type Findings = Vec<String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, flags)) = arguments.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(command, flags) {
        Ok(Some(true)) => ExitCode::SUCCESS,
        Ok(Some(false)) => ExitCode::FAILURE,
        Ok(None) => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the command passed; `None` if there is no such command.
fn run(command: &str, flags: &[String]) -> Result<Option<bool>> {
    let root = root()?;
    let passed = match command {
        "arrows" => report("arrows", &arrows::check(&root)?),
        "versions" => report("versions", &versions::check(&root)?),
        "links" => report("links", &links::check(&root)?),
        "check" => check::run(&root, flags)?,
        _ => return Ok(None),
    };
    Ok(Some(passed))
}

/// Prints the findings of one check; true if there are none.
fn report(name: &str, findings: &Findings) -> bool {
    for finding in findings {
        eprintln!("{name}: {finding}");
    }
    if findings.is_empty() {
        println!("{name}: ok");
    }
    findings.is_empty()
}

/// The folder of the workspace, wherever the command was started.
fn root() -> Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .context("xtask has no parent folder")
}
