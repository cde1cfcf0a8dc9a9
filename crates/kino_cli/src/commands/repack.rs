//! `kinograph repack`: copies a dataset, or stores it with another plan.

mod report;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use kino_dataset::{
    Dataset, GenerationLoss, PartOf, Repack, RepackOptions, RepackProgress, Repacked,
    WriterOptions, check_writable,
};

use crate::Outcome;
use crate::open_args::RootArg;
use crate::output::{note, print, print_json};
use crate::parts_args::{PartsArgs, made, print_portions};
use crate::progress::watched;
use crate::source_args::PartArgs;
use crate::writing::{
    PlanArgs, ResourceArgs, StartArgs, check_ray, interrupted, warn_of_unused_rules,
};
use report::Summary;
use serde_json::json;

/// Copy a dataset, or store it with another plan.
///
/// Streams that the plan does not change are copied page by page, bit for bit; without a plan all of them are. The others are
/// decoded and encoded again. Ids, times, events, splits, labels, attributes and sources stay. Pages that
/// are linked to other files are copied into TARGET. Nothing is visible until everything is written; --resume continues
/// an interrupted repack.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The dataset's folder
    dataset: PathBuf,
    /// The folder of the new dataset, whose name usually ends in `.kino`
    #[arg(required_unless_present_any = ["in_place", "dry_run"])]
    target: Option<PathBuf>,
    /// Make a new version of DATASET itself; the version before stays readable
    #[arg(long, conflicts_with_all = ["target", "append", "overwrite", "version", "episodes", "part", "ray", "portions"])]
    in_place: bool,
    #[command(flatten)]
    plan: PlanArgs,
    /// Let frames lose more that were compressed with loss before, such as JPEG files, video and streams with a bound; the
    /// new loss is measured against the stored frames, and both are recorded
    #[arg(long)]
    allow_generation_loss: bool,
    #[command(flatten)]
    part: PartArgs,
    /// Which version [default: the newest]
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    #[command(flatten)]
    start: StartArgs,
    #[command(flatten)]
    root: RootArg,
    /// Show what would be copied, encoded again and dropped, with estimated sizes, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    parts: PartsArgs,
    #[command(flatten)]
    resources: ResourceArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Where the new version is.
    fn target(&self) -> &Path {
        self.target.as_deref().unwrap_or(&self.dataset)
    }
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    check_writable(args.target())?;
    check_ray(args.parts.ray.as_deref())?;
    let dataset = args.root.open(&args.dataset, args.version)?;
    let plan = args.plan.read()?;
    let streams = dataset.manifest().streams.iter();
    warn_of_unused_rules(
        &plan,
        streams.map(|stream| (stream.name.as_str(), stream.kind)),
    );
    let repack = Repack::new(
        &dataset,
        RepackOptions {
            writer: WriterOptions {
                created: args.parts.created,
                ..args.resources.options(plan)
            },
            part: args.part.read(),
            generation_loss: if args.allow_generation_loss {
                GenerationLoss::Allow
            } else {
                GenerationLoss::Refuse
            },
        },
    )?;
    if args.dry_run {
        return report::dry_run(args, &repack);
    }
    if args.parts.portions {
        return print_portions(repack.count_portions()?, args.target(), args.json);
    }
    if let Some(part) = args.parts.part {
        return write_part(args, repack, part);
    }
    let begin = Instant::now();
    let repacked = write(args, repack)?;
    let Some(repacked) = repacked else {
        return Ok(interrupted(args.target()));
    };
    if repacked.committed.episodes == 0 {
        note(&format!(
            "{} already has every stream as requested, as version {}; nothing to do",
            args.target().display(),
            repacked.committed.version
        ));
    }
    let summary = Summary {
        args,
        before: &dataset,
        repacked: &repacked,
        after: Dataset::open(args.target())?,
        seconds: begin.elapsed().as_secs_f64(),
    };
    if args.json {
        print_json(&summary.to_json())?;
    } else if repacked.committed.episodes > 0 {
        print(&summary.to_text())?;
    }
    summary.warn();
    Ok(Outcome::Done)
}

/// Writes the portions of one part.
fn write_part(args: &Args, repack: Repack, part: PartOf) -> Result<Outcome> {
    let done = watched("repack", |report| {
        repack.run_part(args.target(), part, &mut |at: RepackProgress| {
            report(at.into())
        })
    })?;
    let Some(done) = done else {
        note("interrupted: finished portions stay; run the same command again for the others");
        return Ok(Outcome::Interrupted);
    };
    if args.json {
        print_json(&json!({
            "target": args.target().display().to_string(), "portions": done.portions, "made": done.made,
            "found": done.found, "missing": done.missing,
        }))?;
    } else {
        let counts = [done.portions, done.made, done.found, done.missing];
        print(&made(args.target(), counts))?;
    }
    Ok(Outcome::Done)
}

/// Repacks, with progress; `None` after Ctrl-C.
fn write(args: &Args, repack: Repack) -> Result<Option<Repacked>> {
    let repacked = watched("repack", |report| {
        let mut report = |at: RepackProgress| report(at.into());
        if args.in_place {
            repack.run_in_place(&mut report)
        } else {
            repack.run(args.target(), args.start.start(), &mut report)
        }
    });
    Ok(repacked?)
}
