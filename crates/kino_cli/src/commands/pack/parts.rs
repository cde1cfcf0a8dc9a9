//! `kinograph pack --part I/N`: packs the portions of one part, which `kinograph commit` makes visible with the others.

use std::time::SystemTime;

use anyhow::Result;
use kino_dataset::{PartOf, parse_time};
use kino_import::{ImportError, PackOptions, PackedPart, Source};
use serde_json::json;

use super::{Args, defects};
use crate::Outcome;
use crate::output::{count, note, print, print_json};
use crate::progress::watched;
use crate::writing::tell_defects;

/// A pack by many processes.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct PartsArgs {
    /// Pack part I of N only, `3/64`, in any order and on any machine that sees SOURCE and TARGET; `kinograph commit TARGET`
    /// then makes all parts one version, the same as without --part. A part that failed is run again as it was
    #[arg(long, value_name = "I/N", value_parser = |text: &str| text.parse::<PartOf>(),
          conflicts_with_all = ["append", "resume", "overwrite", "dry_run", "suggest_mapping", "auto", "portions"])]
    pub(super) part: Option<PartOf>,
    /// Pack with Ray: `auto` for the cluster that this machine belongs to, `local` for the cores of this machine, or an address
    /// such as `ray://head:10001` (needs `pip install 'kinograph[ray]'`)
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["part", "append", "resume", "overwrite", "dry_run", "suggest_mapping", "auto"])]
    ray: Option<String>,
    /// Print how many portions there are, and pack nothing: N parts of more have nothing to do
    #[arg(long, conflicts_with_all = ["append", "resume", "overwrite", "dry_run", "suggest_mapping", "auto"])]
    pub(super) portions: bool,
    /// When the version says it was created [default: now]. The same recording, options and time give the same version id
    #[arg(long, value_name = "TIME", value_parser = |text: &str| parse_time(text))]
    pub(super) created: Option<SystemTime>,
}

impl PartsArgs {
    /// Refuses what only the Python package can do.
    pub(super) fn check(&self) -> Result<()> {
        match self.ray {
            Some(_) => anyhow::bail!(
                "--ray needs the `kinograph` command of the Python package, and Ray: pip install 'kinograph[ray]'"
            ),
            None => Ok(()),
        }
    }
}

pub(super) fn count_portions(
    args: &Args,
    source: &Source,
    options: &PackOptions,
) -> Result<Outcome> {
    let portions = kino_import::count_portions(source, options)?;
    if args.json {
        print_json(&json!({"portions": portions}))?;
    } else {
        print(&format!("{portions}\n"))?;
    }
    Ok(Outcome::Done)
}

pub(super) fn run(
    args: &Args,
    source: &Source,
    options: PackOptions,
    part: PartOf,
) -> Result<Outcome> {
    let packed = watched("pack", |report| {
        kino_import::pack_part(source, &args.target, options, part, report)
    });
    if let (true, Err(error)) = (args.json, &packed)
        && !error.defects().is_empty()
    {
        print_json(&json!({"defects": defects(error.defects())}))?;
    }
    let packed = match packed {
        Err(ImportError::Stopped) => {
            note("interrupted: finished portions stay; run the same command again for the others");
            return Ok(Outcome::Interrupted);
        }
        packed => packed?,
    };
    if args.json {
        print_json(&json!({
            "target": args.target.display().to_string(), "portions": packed.portions, "made": packed.made,
            "found": packed.found, "missing": packed.missing, "defects": defects(&packed.defects),
        }))?;
    } else {
        print(&report(args, &packed))?;
    }
    // The commit tells of the defects of all parts; these are known first.
    Ok(tell_defects(&packed.defects))
}

fn report(args: &Args, packed: &PackedPart) -> String {
    let target = args.target.display();
    let found = match packed.found {
        0 => String::new(),
        found => format!(", {found} already there"),
    };
    let next = match packed.missing {
        0 => format!(
            "all {} are there: run `kinograph commit {target}`",
            packed.portions
        ),
        missing => format!("{missing} of {} are missing", packed.portions),
    };
    format!(
        "{target}: {} packed{found}; {next}\n",
        count(packed.made, "portion")
    )
}
