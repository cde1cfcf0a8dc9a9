//! What CI runs, as a program: `cargo xtask check`, or one of its parts.
//!
//! ```text
//! arrows    which crate may depend on which, and what each must not pull in
//! deny      licences, sources, versions and unmaintained crates, as in deny.toml
//! versions  one version number for all crates and the wheel, and a changelog entry for it
//! links     every relative link in a Markdown file resolves
//! sbom      writes the contents of the wheel to a file, as CycloneDX
//! check     all of these except the last, plus formatters, linters, docs, types and stubs
//! ```
//!
//! A step that finds something prints every finding, and the command fails; it never stops at the first.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command for developers: its output is its result"
)]

mod arrows;
mod check;
mod deny;
mod licences;
mod links;
mod metadata;
mod sbom;
mod versions;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

const USAGE: &str =
    "usage: cargo xtask arrows | deny | versions | links | check [CARGO-FLAG…] | sbom FILE";

/// What a check found, one sentence each; empty means success.
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

/// Whether the command passed; `None` if the command is unknown.
fn run(command: &str, flags: &[String]) -> Result<Option<bool>> {
    let root = root()?;
    let passed = match command {
        "arrows" => report("arrows", &arrows::check(&root)?),
        "deny" => report("deny", &deny::check(&root)?) & deny::ask_cargo_deny(&root)?,
        "sbom" => match flags {
            [target] => sbom::write(&root, Path::new(target)).map(|()| true)?,
            _ => return Ok(None),
        },
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

/// The folder of the workspace, regardless of the current directory.
fn root() -> Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .context("xtask has no parent folder")
}
