//! `kinograph doctor`: does the training loop wait for data, what for, and what would help; and what an epoch costs.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use kino_advisor::{
    Diagnosis, DoctorOptions, Emulated, EpochCost, GpuPrice, Host, StoragePrice, Subject, diagnose,
};
use kino_dataset::{CostRecord, SlowStorage, Storage};
use kino_loader::Batch;

use crate::Outcome;
use crate::load_args::LoadArgs;
use crate::output::{note, print, print_json};

/// Find out whether a training loop waits for data, what for, and what to change.
///
/// Emulates training steps of the given duration, which keep one core busy as a training loop does, and runs the
/// loader: with the step, alone, and with one stage disabled at a time. Takes about five times --seconds if the loop
/// waits.
///
/// With --cost it measures nothing and reads no frame: it computes what an epoch of a remote dataset costs in requests, bytes and
/// money.
///
/// Exit codes: 0 target met, 4 target not met, 1 failed, 2 wrong usage.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    load: LoadArgs,
    /// Duration of a training step, in milliseconds
    #[arg(long, value_name = "MS", required_unless_present = "cost")]
    step_ms: Option<f64>,
    /// Print what an epoch of a remote dataset costs, before training: GETs, bytes, how much the cache serves, dollars
    #[arg(long, conflicts_with_all = ["step_ms", "emulate_storage", "gpu_price", "html"])]
    cost: bool,
    /// Dollars per 1000 GETs
    #[arg(
        long,
        value_name = "DOLLARS",
        default_value_t = 0.0004,
        conflicts_with = "step_ms"
    )]
    get_price: f64,
    /// Dollars per GB that leaves the storage
    #[arg(
        long,
        value_name = "DOLLARS",
        default_value_t = 0.0,
        conflicts_with = "step_ms"
    )]
    gb_price: f64,
    /// Fraction of the time that the loop should spend computing
    #[arg(long, value_name = "RATIO", default_value_t = 0.95)]
    target: f64,
    /// How long the loop is measured, in seconds; every other run takes half as long
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,
    /// Emulate slower storage: bandwidth, latency, and stalls of one read in 64, for example 100MB/s,5ms,stall=200ms
    #[arg(long, value_name = "STORAGE")]
    emulate_storage: Option<String>,
    /// What a GPU costs per hour, in any currency: shows what waiting costs per day, and what each change saves
    #[arg(long, value_name = "PRICE")]
    gpu_price: Option<f64>,
    /// Number of GPUs that wait
    #[arg(long, value_name = "N", default_value_t = 1, requires = "gpu_price")]
    gpus: u32,
    /// Write an HTML report with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Emulates the step, and reports progress on stderr.
struct Shown(Emulated);

impl Host for Shown {
    fn step(&mut self, batch: Batch) -> kino_advisor::Result<()> {
        self.0.step(batch)
    }

    fn begins(&mut self, what: &str) {
        note(&format!("measuring {what}"));
    }
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let subject = args.load.subject()?;
    let Some(step_ms) = args.step_ms else {
        return show_cost(args, &subject);
    };
    let price = args.gpu_price.map(|price| GpuPrice::new(price, args.gpus));
    let emulated = args.emulate_storage.as_deref();
    let slow: Option<SlowStorage> = emulated.map(str::parse).transpose()?;
    let options = DoctorOptions {
        step_s: Some(step_ms / 1e3),
        target: args.target,
        seconds: args.seconds,
        storage: Storage {
            slow,
            keep_bytes: 0,
        },
        storage_words: args.emulate_storage.clone(),
        costs: CostRecord::load(),
        gpu_price: price.transpose()?,
        ..DoctorOptions::default()
    };
    let step = Duration::try_from_secs_f64(step_ms / 1e3).context("invalid --step-ms")?;
    let found = diagnose(&subject, &options, &mut Shown(Emulated { step }))?;
    show(args, &found)?;
    Ok(if found.verdict.met {
        Outcome::Done
    } else {
        Outcome::Missed
    })
}

/// Prints what an epoch costs.
fn show_cost(args: &Args, subject: &Subject) -> Result<Outcome> {
    let price = StoragePrice::new(args.get_price, args.gb_price)?;
    let cost = EpochCost::of(subject, price)?;
    if args.json {
        print_json(&serde_json::to_value(cost)?)?;
    } else {
        print(&format!("{cost}\n"))?;
    }
    Ok(Outcome::Done)
}

fn show(args: &Args, found: &Diagnosis) -> Result<()> {
    if let Some(path) = &args.html {
        std::fs::write(path, found.to_html())
            .with_context(|| format!("cannot write {}", path.display()))?;
        note(&format!("wrote the HTML report to {}", path.display()));
    }
    if args.json {
        print_json(&serde_json::to_value(found)?)
    } else {
        print(&found.to_string())
    }
}
