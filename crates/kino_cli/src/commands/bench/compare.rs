//! `kinograph bench compare`: two results side by side.

use std::path::PathBuf;

use anyhow::Result;
use kino_advisor::compare;

use super::read;
use crate::Outcome;
use crate::output::{print, print_json};

/// Compare two benchmark results: the ratio of each figure, and what else differs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Result of `kinograph bench … --json`
    first: PathBuf,
    /// Another result of the same benchmark
    second: PathBuf,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let compared = compare(&read(&args.first)?, &read(&args.second)?)?;
    if args.json {
        print_json(&serde_json::to_value(&compared)?)?
    } else {
        print(&compared.to_string())?
    }
    Ok(Outcome::Done)
}
