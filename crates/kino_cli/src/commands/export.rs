//! `kinograph export`: a dataset into another tool's format.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use kino_dataset::{Episodes, PartOf, Selection, check_local};
use kino_import::{Cameras, Defect, EXPORTERS, ExportOptions, Videos};
use serde_json::json;

use crate::Outcome;
use crate::open_args::RootArg;
use crate::output::{count, print, print_json};
use crate::parts_args::print_portions;
use crate::progress::Progress;
use crate::writing::{check_ray, tell_defects};

/// Write a dataset in another tool's format.
///
/// If the format cannot hold something, it is listed and nothing is written; --on-defect keep writes the rest. TARGET
/// appears in one step when everything is written and synced, and is never overwritten. See docs/guide/export.md for
/// the mapping.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done but something was lost (listed on stderr).
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The dataset's folder
    dataset: PathBuf,
    /// The file or folder to write, which must not exist
    target: PathBuf,
    /// The format
    #[arg(long, value_name = "FORMAT", value_parser = clap::builder::PossibleValuesParser::new(EXPORTERS.iter().map(|exporter| exporter.name)))]
    to: String,
    /// Only these episodes, by id: `demo_0,demo_7`
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    episodes: Vec<String>,
    /// Only the episodes of this split
    #[arg(long, value_name = "NAME")]
    split: Option<String>,
    /// What to do if the format cannot hold something: refuse, or write the rest
    #[arg(long, value_name = "POLICY", default_value = "error", value_parser = clap::builder::PossibleValuesParser::new(["error", "keep"]))]
    on_defect: String,
    /// How cameras are written: as they are `stored` (video as video with the same packets where the format has
    /// video, others as images), all as `images`, or as `video`, which encodes images with loss (LeRobot only)
    #[arg(long, value_name = "HOW", default_value = "stored", value_parser = clap::builder::PossibleValuesParser::new(Cameras::NAMES))]
    cameras: String,
    /// Write the files of part I of N only, `3/64`, on any machine that sees both paths; `kinograph commit TARGET` then makes all
    /// parts the target, the same as without --part. Formats with a file per episode: act, lerobot-v2.1, mcap
    #[arg(long, value_name = "I/N", value_parser = |text: &str| text.parse::<PartOf>(), conflicts_with = "portions")]
    part: Option<PartOf>,
    /// Export with Ray: `auto` for the cluster that this machine belongs to, `local`, or an address (needs `pip install
    /// 'kinograph[ray]'`)
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["part", "portions"])]
    ray: Option<String>,
    /// Print how many parts can have something to do, and write nothing
    #[arg(long)]
    portions: bool,
    #[command(flatten)]
    root: RootArg,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, videos: Option<Arc<dyn Videos>>) -> Result<Outcome> {
    check_ray(args.ray.as_deref())?;
    check_local(&args.target)?;
    let dataset = args.root.open(&args.dataset, None)?;
    let options = ExportOptions {
        to: args.to.clone(),
        selection: Selection {
            splits: args.split.iter().cloned().collect(),
            episodes: (!args.episodes.is_empty()).then(|| Episodes::Ids(args.episodes.clone())),
            filter: None,
        },
        on_defect: args.on_defect.parse()?,
        cameras: Cameras::from_name(&args.cameras, videos)?,
    };
    if args.portions {
        let portions = kino_import::count_export_parts(&dataset, &options)?;
        return print_portions(portions, &args.target, args.json);
    }
    let begin = Instant::now();
    let mut progress = Progress::new("export");
    let mut report = |at: kino_import::Progress| {
        let message = format!("{} of {}", at.episodes_done, count(at.episodes, "episode"));
        progress.update(at.bytes_done, at.bytes, &message);
        ControlFlow::Continue(())
    };
    let exported = match args.part {
        None => kino_import::export(&dataset, &args.target, &options, &mut report),
        Some(part) => kino_import::export_part(&dataset, &args.target, &options, part, &mut report),
    };
    progress.finish();
    let exported = exported?;
    let seconds = begin.elapsed().as_secs_f64();
    if args.json {
        let defects: Vec<_> = exported.defects.iter().map(Defect::to_json).collect();
        print_json(&json!({
            "target": args.target.display().to_string(), "format": args.to, "episodes": exported.episodes, "frames": exported.frames,
            "seconds": seconds, "defects": defects,
        }))?;
    } else {
        print(&format!(
            "{}{}: {}, {} in all streams, as {}, {seconds:.2} s\n",
            args.target.display(),
            args.part
                .map_or_else(String::new, |part| format!(", part {part}")),
            count(exported.episodes, "episode"),
            count(exported.frames, "frame"),
            args.to,
        ))?;
    }
    Ok(tell_defects(&exported.defects))
}
