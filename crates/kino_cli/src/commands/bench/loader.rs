//! `kinograph bench loader`: the speed of a loader alone.

use anyhow::Result;
use kino_advisor::bench_loader;

use super::{Shown, show};
use crate::Outcome;
use crate::load_args::LoadArgs;

/// Measure a loader: samples per second, CPU time, time to first batch and memory; cold and warm.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    load: LoadArgs,
    /// Seconds per run; there is a cold and a warm one
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,
    /// Print as JSON, for `bench compare`
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let subject = args.load.subject()?;
    let result = bench_loader(&subject, args.seconds, &mut Shown)?;
    show(&result, args.json)
}
