//! `kinograph pack`: packs a recording into a dataset.

mod auto;
mod dry_run;
mod mapping;
mod report;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use kino_dataset::{Dataset, WriterOptions, check_local};
use kino_import::{
    Defect, FORMATS, ImportError, ImportOptions, OnDefect, PackOptions, Part, Source, Videos,
    group_defects,
};
use serde_json::{Value, json};

use crate::Outcome;
use crate::interrupt::Watch;
use crate::output::{count, note, print, print_json};
use crate::progress::{Progress, packing};
use crate::writing::{PlanArgs, ResourceArgs, StartArgs, interrupted, warn_of_unused_rules};
use report::Summary;

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
    /// The source's format [default: detected]
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(FORMATS.iter().map(|format| format.name)))]
    format: Option<String>,
    /// A TOML file that says which object of the source becomes which stream (docs/guide/import.md)
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
    /// Write a draft of a mapping for SOURCE to TARGET, or to stdout, and pack nothing
    #[arg(long, conflicts_with_all = ["mapping", "append", "resume", "dry_run", "json"])]
    suggest_mapping: bool,
    /// Frames per second [default: the source's own rate]
    #[arg(long, value_name = "HZ")]
    rate: Option<f64>,
    /// Only streams that match: `actions`, `obs/*`, `**` crosses `/`, `?` is one character (repeat, or list several)
    #[arg(long, value_name = "PATTERN", num_args = 1..)]
    streams: Vec<String>,
    /// Exclude streams that match; their files are neither needed nor opened
    #[arg(long, value_name = "PATTERN", num_args = 1..)]
    exclude: Vec<String>,
    /// Only these episodes, by number, range or id: `0-9,17`, `demo_40`
    #[arg(long, value_name = "LIST", num_args = 1..)]
    episodes: Vec<String>,
    /// Import float images of whole numbers from 0 to 255 as they are [default: as uint8 images, without loss]
    #[arg(long)]
    keep_dtype: bool,
    #[command(flatten)]
    auto: auto::AutoArgs,
    #[command(flatten)]
    plan: PlanArgs,
    /// Keep every bit (the default)
    #[arg(long, conflicts_with_all = ["plan", "quality"])]
    lossless: bool,
    #[command(flatten)]
    start: StartArgs,
    /// What to do with defects of the source: refuse it, drop the affected episodes, or keep everything readable
    #[arg(long, value_name = "POLICY", default_value = "error", value_parser = clap::builder::PossibleValuesParser::new(OnDefect::NAMES))]
    on_defect: String,
    /// Follow links that lead out of the source, such as those of the Hugging Face cache; only for sources you trust
    #[arg(long)]
    follow_links: bool,
    /// Show what would be packed, with codecs and estimated sizes, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    resources: ResourceArgs,
    /// Prefix of the ids of the new episodes, such as `lab2/`
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    prefix: String,
    /// Random seed for the on-disk episode order
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, videos: Option<Arc<dyn Videos>>) -> Result<Outcome> {
    check_local(&args.target)?;
    let import = import_options(args, videos);
    if args.suggest_mapping {
        return mapping::suggest(&args.source, &args.target, &import);
    }
    let plan = if args.auto.auto {
        args.auto.choose(&args.source, &args.target, &import)?
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
    let options = PackOptions {
        writer: WriterOptions {
            settings: import.settings()?,
            ..args.resources.options(plan)
        },
        start: args.start.start(),
        seed: args.seed,
        prefix: args.prefix.clone(),
        on_defect: args.on_defect.parse()?,
        link: None,
    };
    if let Some(version) = finished_version(args, &source) {
        note(&format!(
            "{} already has every episode to pack, as version {version}; nothing to do",
            args.target.display()
        ));
        return Ok(Outcome::Done);
    }
    pack(args, &source, options)
}

fn import_options(args: &Args, videos: Option<Arc<dyn Videos>>) -> ImportOptions {
    ImportOptions {
        format: args.format.clone(),
        rate_hz: args.rate,
        mapping: args.mapping.clone(),
        memory_bytes: Some(args.resources.memory.bytes()),
        videos,
        follow_links: args.follow_links,
        part: Part {
            streams: args.streams.clone(),
            exclude: args.exclude.clone(),
            episodes: args.episodes.clone(),
        },
        keep_dtype: args.keep_dtype,
    }
}

fn pack(args: &Args, source: &Source, options: PackOptions) -> Result<Outcome> {
    let before = if args.start.append {
        Dataset::open(&args.target)?.manifest().total_bytes()
    } else {
        0
    };
    let begin = Instant::now();
    let watch = Watch::start();
    let mut progress = Progress::new("pack");
    let packed = kino_import::pack(source, &args.target, options, &mut |at| {
        progress.update(at.bytes_done, at.bytes, &packing(&at));
        if watch.as_ref().is_some_and(Watch::is_requested) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    progress.finish();
    drop(watch);
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
            .find(&format!("{}{id}", args.prefix))
            .is_some()
    };
    let all = source
        .episodes()
        .iter()
        .all(|episode| is_there(&episode.id));
    all.then(|| dataset.manifest().version)
}

/// Prints the defects of the source on stderr, grouped.
fn tell_defects(defects: &[Defect]) -> Outcome {
    for group in group_defects(defects) {
        note(&format!("{}: {}", group.action.name(), group.text()));
    }
    if defects.iter().any(Defect::is_lost) {
        Outcome::Lost
    } else {
        Outcome::Done
    }
}

fn defects(defects: &[Defect]) -> Vec<Value> {
    defects.iter().map(Defect::to_json).collect()
}
