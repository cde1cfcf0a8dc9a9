//! `kinograph bench`: benchmarks on this machine.

mod au;
mod codecs;
mod compare;
mod loader;
mod storage;

use std::path::Path;

use anyhow::{Context, Result};
use kino_advisor::{BenchResult, Host};
use kino_loader::Batch;

use crate::Outcome;
use crate::output::{note, print, print_json};

/// Measure codecs, loaders and storage on this machine.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Codecs(codecs::Args),
    Loader(loader::Args),
    Au(au::Args),
    Storage(storage::Args),
    Compare(compare::Args),
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    match &args.what {
        What::Codecs(args) => codecs::run(args),
        What::Loader(args) => loader::run(args),
        What::Au(args) => au::run(args),
        What::Storage(args) => storage::run(args),
        What::Compare(args) => compare::run(args),
    }
}

/// Reports progress on stderr; its step does nothing.
struct Shown;

impl Host for Shown {
    fn step(&mut self, batch: Batch) -> kino_advisor::Result<()> {
        drop(batch);
        Ok(())
    }

    fn begins(&mut self, what: &str) {
        note(&format!("measuring {what}"));
    }
}

/// Prints a result.
fn show(result: &BenchResult, json: bool) -> Result<Outcome> {
    if json {
        print_json(&serde_json::to_value(result)?)?
    } else {
        print(&result.to_string())?
    }
    Ok(Outcome::Done)
}

/// Reads a result that was written with `--json`.
fn read(path: &Path) -> Result<BenchResult> {
    let shown = path.display();
    let text = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{shown} is not a result of `kinograph bench … --json`"))
}
