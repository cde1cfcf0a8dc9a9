//! `kinograph bench storage`: bandwidth and latency of a dataset's storage.

use std::path::PathBuf;

use anyhow::Result;
use kino_advisor::bench_storage;
use kino_dataset::Dataset;

use super::{Shown, show};
use crate::Outcome;

/// Measure bandwidth and latency of a dataset's storage, by block size and reads in flight.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The dataset's folder
    dataset: PathBuf,
    /// Seconds in total
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,
    /// Print as JSON, for `bench compare`
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let dataset = Dataset::open(&args.dataset)?;
    let result = bench_storage(&dataset, args.seconds, &mut Shown)?;
    show(&result, args.json)
}
