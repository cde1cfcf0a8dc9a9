//! `kinograph plan`: which codec each stream should have, for this data, this storage, this machine and this model.

mod sample;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::ArgGroup;
use kino_advisor::Planned;
use kino_dataset::Dataset;
use kino_import::Videos;

use crate::Outcome;
use crate::load_args::WorkloadArgs;
use crate::open_args::RootArg;
use crate::output::{note, print, print_json};
use crate::planner_args::PlannerArgs;
use crate::source_args::PackedSourceArgs;

pub(super) use sample::{Planner, Verify, folder_of, is_interrupted, sample_folder};

/// Choose the codec of every stream: measure this data, storage and machine, and predict how busy the GPU will be.
///
/// Measures candidate codecs on a sample of every stream, the loader on that sample, and the storage. From these it
/// predicts for every candidate plan the compute ratio, the bytes, the cores and the time of an epoch, and chooses the
/// plan with the highest compute ratio inside the limits; of equals, the smallest. Nothing is lost unless --bound, --bounds or
/// --quality allows it; a bound such as `signal(2%)` is first turned into codecs by the probe. Images keep
/// their size unless --allow-resize is given. A recording that is not packed yet is
/// sampled: a few episodes are packed into --folder, and removed afterwards. Only episodes with frames of every requested
/// stream are loaded; how many lack one is reported.
///
/// Exit codes: 0 done, 4 no plan keeps the limits, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("step").args(["step_ms", "report"]).required(true))]
pub(crate) struct Args {
    /// The recording or the dataset
    source: PathBuf,
    #[command(flatten)]
    source_options: PackedSourceArgs,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    root: RootArg,
    #[command(flatten)]
    planner: PlannerArgs,
    /// Also consider JPEG of this quality, 1 to 100, for images without a bound
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    quality: Option<u8>,
    /// Hours of training, to print how many epochs they buy
    #[arg(long, value_name = "H")]
    hours: Option<f64>,
    /// Price of a GPU hour, to print what waiting costs
    #[arg(long, value_name = "PRICE")]
    gpu_price: Option<f64>,
    /// Where to pack the sample of a recording: a folder on the storage that the dataset will be on
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Pack a sample with the chosen plan, load it in a loop of emulated steps, and print prediction and measurement
    #[arg(long)]
    verify: bool,
    /// Write the plan to this file, for `pack --plan`
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write an HTML report with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, videos: Option<Arc<dyn Videos>>) -> Result<Outcome> {
    let planned = match choose(args, videos) {
        Err(error) if is_interrupted(&error) => return Ok(Outcome::Interrupted),
        planned => planned?,
    };
    show(args, &planned)?;
    Ok(if planned.is_within_limits {
        Outcome::Done
    } else {
        Outcome::Missed
    })
}

fn choose(args: &Args, videos: Option<Arc<dyn Videos>>) -> Result<Planned> {
    let mut options = args.planner.options(args.quality)?;
    options.question.hours = args.hours;
    options.question.gpu_price = args.gpu_price;
    let planner = Planner {
        workload: &args.workload.read()?,
        options: &options,
        folder: &args.folder,
        sample_bytes: args.planner.sample_bytes(),
        verify: if args.verify {
            Verify::Chosen
        } else {
            Verify::Nothing
        },
    };
    let source = &args.source_options;
    if Dataset::is_at(&args.source) {
        if let Some(option) = source.of_recordings() {
            bail!(
                "{option} is for recordings, and {} is a dataset; remove it",
                args.source.display()
            );
        }
        let dataset = args.root.open(&args.source, None)?;
        return planner.plan_dataset(&dataset, &source.part());
    }
    if args.root.root.is_some() {
        bail!("--root is where the files of a linked dataset are; a recording has none");
    }
    planner.plan_recording(&args.source, &source.import(None, videos))
}

fn show(args: &Args, planned: &Planned) -> Result<()> {
    let write = |path: &PathBuf, text: String, what: &str| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        note(&format!("wrote {what} to {}", path.display()));
        anyhow::Ok(())
    };
    if let Some(path) = &args.html {
        write(path, planned.to_html(), "the HTML report")?;
    }
    if let Some(path) = &args.output {
        write(path, planned.to_toml(), "the plan")?;
    }
    if args.json {
        print_json(&serde_json::to_value(planned)?)
    } else {
        print(&planned.to_string())
    }
}
