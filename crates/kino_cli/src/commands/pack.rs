//! `kinograph pack`: packs a recording into a dataset.

mod auto;
mod dry_run;
mod mapping;
mod parts;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use kino_dataset::{Dataset, WriterOptions, check_start, check_writable};
use kino_import::{Defect, ImportError, PackOptions, Source, Videos};
use serde_json::{Value, json};

use crate::Outcome;
use crate::commands::plan::is_interrupted;
use crate::output::{count, note, print, print_json};
use crate::parts_args::{PartsArgs, print_portions};
use crate::progress::watched;
use crate::source_args::PackedSourceArgs;
use crate::writing::{
    EpisodeArgs, PlanArgs, ResourceArgs, StartArgs, check_ray, interrupted, tell_defects,
    warn_of_unused_rules,
};
use report::Summary;
pub(crate) use report::table as streams_table;

/// Pack a recording into a dataset.
///
/// The format is detected from the content. All values and timestamps are checked before anything is written, and a
/// source with defects is refused with a list of them; --on-defect changes that. Nothing is visible in TARGET until
/// everything is packed and checked; --resume continues an interrupted pack.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done but something was lost (listed on stderr), 130 stopped by
/// Ctrl-C.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The recording: a file or a folder
    source: PathBuf,
    /// The dataset's folder, whose name usually ends in `.kino`; with --suggest-mapping, the file to write the draft to
    #[arg(
        required = false,
        required_unless_present = "suggest_mapping",
        default_value_if("suggest_mapping", "true", "-")
    )]
    target: PathBuf,
    /// Write a draft of a mapping for SOURCE to TARGET, or to stdout, and pack nothing
    #[arg(long, conflicts_with_all = ["mapping", "append", "resume", "dry_run", "json", "part", "ray", "portions"])]
    suggest_mapping: bool,
    #[command(flatten)]
    source_options: PackedSourceArgs,
    #[command(flatten)]
    plan: PlanArgs,
    /// Keep every bit (the default)
    #[arg(long, conflicts_with_all = ["plan", "quality"])]
    lossless: bool,
    #[command(flatten)]
    start: StartArgs,
    #[command(flatten)]
    new_episodes: EpisodeArgs,
    /// Show what would be packed, with codecs and estimated sizes, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    parts: PartsArgs,
    #[command(flatten)]
    resources: ResourceArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    // Last, because it leaves out what the pack has itself.
    #[command(flatten)]
    auto: auto::AutoArgs,
}

pub(crate) fn run(args: &Args, videos: Option<Arc<dyn Videos>>) -> Result<Outcome> {
    check_writable(&args.target)?;
    check_ray(args.parts.ray.as_deref())?;
    let import = args
        .source_options
        .import(Some(args.resources.memory), videos);
    if args.suggest_mapping {
        return mapping::suggest(&args.source, &args.target, &import);
    }
    let plan = if args.auto.auto {
        check_start(&args.target, args.start.start())?;
        let quality = args.plan.quality;
        match args
            .auto
            .choose(&args.source, &args.target, &import, quality)
        {
            Err(error) if is_interrupted(&error) => return Ok(Outcome::Interrupted),
            plan => plan?,
        }
    } else {
        args.plan.read()?
    };
    let source = kino_import::open(&args.source, &import)?;
    let episodes = source.episodes().iter();
    let streams = episodes.flat_map(|episode| &episode.streams);
    let streams = streams.map(|stream| (stream.name.as_str(), stream.kind));
    warn_of_unused_rules(&plan, streams);
    if args.dry_run {
        return dry_run::run(args, &plan, &source);
    }
    let writer = WriterOptions {
        settings: import.settings()?,
        created: args.parts.created,
        ..args.resources.options(plan)
    };
    let options = args
        .new_episodes
        .options(writer, args.start.start(), None)?;
    if args.parts.portions {
        let portions = kino_import::count_portions(&source, &options)?;
        return print_portions(portions, &args.target, args.json);
    }
    if let Some(part) = args.parts.part {
        return parts::run(args, &source, options, part);
    }
    if let Some(version) = finished_version(args, &source) {
        note(&format!(
            "{} already has every episode to pack, as version {version}; nothing to do",
            args.target.display()
        ));
        return Ok(Outcome::Done);
    }
    pack(args, &source, options)
}

fn pack(args: &Args, source: &Source, options: PackOptions) -> Result<Outcome> {
    let before = if args.start.append {
        Dataset::open(&args.target)?.manifest().total_bytes()
    } else {
        0
    };
    let begin = Instant::now();
    let packed = watched("pack", |report| {
        kino_import::pack(source, &args.target, options, report)
    });
    if let (true, Err(error)) = (args.json, &packed)
        && !error.defects().is_empty()
    {
        print_json(&json!({"defects": defects(error.defects())}))?;
    }
    let packed = match packed {
        Err(ImportError::Stopped) => return Ok(interrupted(&args.target)),
        packed => packed?,
    };
    let summary = Summary {
        packed: &packed,
        seconds: begin.elapsed().as_secs_f64(),
        dataset_bytes: Dataset::open(&args.target)?.manifest().total_bytes(),
        bytes_before: before,
    };
    if args.json {
        print_json(&summary.to_json(args))?;
    } else {
        print(&summary.to_text(args))?;
    }
    if packed.interrupted > 0 {
        note(&format!(
            "note: {} of an interrupted writer are still in {}; `kinograph gc {}` shows them",
            count(packed.interrupted, "finished episode"),
            args.target.join("staging").display(),
            args.target.display()
        ));
    }
    Ok(tell_defects(&packed.defects))
}

/// The version that a resumed pack would only repeat.
fn finished_version(args: &Args, source: &Source) -> Option<u64> {
    let dataset = Dataset::open(&args.target)
        .ok()
        .filter(|_| args.start.resume)?;
    let is_there = |id: &str| {
        dataset
            .table()
            .find(&format!("{}{id}", args.new_episodes.prefix))
            .is_some()
    };
    let all = source
        .episodes()
        .iter()
        .all(|episode| is_there(&episode.id));
    all.then(|| dataset.manifest().version)
}

fn defects(defects: &[Defect]) -> Vec<Value> {
    defects.iter().map(Defect::to_json).collect()
}
