//! `kinograph pack --part I/N`: packs the portions of one part, which `kinograph commit` makes visible with the others.

use anyhow::Result;
use kino_dataset::PartOf;
use kino_import::{ImportError, PackOptions, Source};
use serde_json::json;

use super::{Args, defects};
use crate::Outcome;
use crate::output::{note, print, print_json};
use crate::parts_args::made;
use crate::progress::watched;
use crate::writing::tell_defects;

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
        let counts = [packed.portions, packed.made, packed.found, packed.missing];
        print(&made(&args.target, counts))?;
    }
    Ok(tell_defects(&packed.defects))
}
