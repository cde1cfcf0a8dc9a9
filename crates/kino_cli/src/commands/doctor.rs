//! `kinograph doctor`: does the training loop wait, for what, and what would help.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use kino_advisor::{Diagnosis, DoctorOptions, Emulated, Host, diagnose};
use kino_dataset::{CostRecord, SlowStorage, Storage};
use kino_loader::Batch;

use crate::Outcome;
use crate::load_args::LoadArgs;
use crate::output::{note, print, print_json};

/// Find out whether a training loop waits for data, for what, and what to change.
///
/// Emulates steps of the given time, which keep one core busy as a training loop does, and runs the loader: with the
/// step, alone, and with one stage taken away at a time. Takes about five times --seconds where the loop waits.
///
/// Exit codes: 0 the target is met, 4 it is not, 1 failed, 2 wrong usage.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    load: LoadArgs,
    /// How long a training step takes, in milliseconds
    #[arg(long, value_name = "MS")]
    step_ms: f64,
    /// The part of the time in which the loop is to compute
    #[arg(long, value_name = "RATIO", default_value_t = 0.95)]
    target: f64,
    /// How long the loop is watched; every other run takes half as long
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,
    /// What if storage were slower: bandwidth, latency, stalls of one read in 64, as in 100MB/s,5ms,stall=200ms
    #[arg(long, value_name = "WORDS")]
    emulate_storage: Option<String>,
    /// Write a page with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Emulates the step, and says on stderr what is measured.
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
    let words = args.emulate_storage.as_deref();
    let slow: Option<SlowStorage> = words.map(str::parse).transpose()?;
    let options = DoctorOptions {
        step_s: Some(args.step_ms / 1e3),
        target: args.target,
        seconds: args.seconds,
        storage: Storage {
            slow,
            keep_bytes: 0,
        },
        storage_words: args.emulate_storage.clone(),
        costs: CostRecord::load(),
        ..DoctorOptions::default()
    };
    let step = Duration::try_from_secs_f64(args.step_ms / 1e3).context("--step-ms")?;
    let found = diagnose(&subject, &options, &mut Shown(Emulated { step }))?;
    show(args, &found)?;
    Ok(match found.verdict.met {
        true => Outcome::Done,
        false => Outcome::Missed,
    })
}

fn show(args: &Args, found: &Diagnosis) -> Result<()> {
    if let Some(path) = &args.html {
        std::fs::write(path, found.to_html())
            .with_context(|| format!("cannot write {}", path.display()))?;
        note(&format!("plots are in {}", path.display()));
    }
    match args.json {
        true => print_json(&serde_json::to_value(found)?),
        false => print(&found.to_string()),
    }
}
