//! `--part`, `--ray`, `--portions` and `--created`: what `pack` and `repack` share about new datasets that many processes
//! write.

use std::time::SystemTime;

use anyhow::Result;
use kino_dataset::{PartOf, parse_time};
use serde_json::json;

use std::path::Path;

use crate::Outcome;
use crate::output::{count, print, print_json};

/// Work by many processes.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PartsArgs {
    /// Write part I of N only, `3/64`, in any order and on any machine that sees both paths; `kinograph commit TARGET` then makes
    /// all parts one version, the same as without --part. A part that failed is run again as it was
    #[arg(long, value_name = "I/N", value_parser = |text: &str| text.parse::<PartOf>(),
          conflicts_with_all = ["append", "resume", "overwrite", "dry_run", "portions"])]
    pub(crate) part: Option<PartOf>,
    /// Work with Ray: `auto` for the cluster that this machine belongs to, `local` for the cores of this machine, or an address
    /// such as `ray://head:10001` (needs `pip install 'kinograph[ray]'`)
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["part", "append", "resume", "overwrite", "dry_run", "portions"])]
    pub(crate) ray: Option<String>,
    /// Print how many parts can have something to do, and write nothing
    #[arg(long, conflicts_with_all = ["append", "resume", "overwrite", "dry_run"])]
    pub(crate) portions: bool,
    /// When the version says it was created [default: now]. The same input, options and time give the same version id
    #[arg(long, value_name = "TIME", value_parser = |text: &str| parse_time(text))]
    pub(crate) created: Option<SystemTime>,
}

/// How many portions there are.
pub(crate) fn print_portions(portions: usize, target: &Path, is_json: bool) -> Result<Outcome> {
    if is_json {
        print_json(&json!({"target": target.display().to_string(), "portions": portions}))?;
    } else {
        print(&format!("{portions}\n"))?;
    }
    Ok(Outcome::Done)
}

/// What a part has done: portions in all, made, found, and still missing.
pub(crate) fn made(target: &Path, [all, made, found, missing]: [usize; 4]) -> String {
    let target = target.display();
    let found = match found {
        0 => String::new(),
        found => format!(", {found} already there"),
    };
    let next = match missing {
        0 => format!("all {all} are there: run `kinograph commit {target}`"),
        missing => format!("still missing: {missing} of {all}"),
    };
    format!(
        "{target}: {} written{found}; {next}\n",
        count(made, "portion")
    )
}
