//! `kinograph bench au`: the highest step rate that keeps an emulated accelerator busy.

use anyhow::Result;
use kino_advisor::{AuOptions, bench_au};

use super::{Shown, show};
use crate::Outcome;
use crate::load_args::LoadArgs;

/// Find the highest step rate that keeps an emulated accelerator busy.
///
/// Utilisation is computed as in MLPerf Storage v3 (this is not an MLPerf result). The rules that make the figures
/// comparable are printed with them. Takes about eight times --seconds, plus --runs times --seconds.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    load: LoadArgs,
    /// Step time of your policy in milliseconds; if given, its utilisation is measured too
    #[arg(long, value_name = "MS")]
    step_ms: Option<f64>,
    /// Utilisation to sustain, as a fraction
    #[arg(long, value_name = "RATIO", default_value_t = 0.9)]
    held: f64,
    /// Seconds per run
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,
    /// Number of runs at the step time found
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: usize,
    /// Print as JSON, for `bench compare`
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let subject = args.load.subject()?;
    let options = AuOptions {
        step_s: args.step_ms.map(|ms| ms / 1e3),
        held: args.held,
        seconds: args.seconds,
        runs: args.runs,
    };
    let result = bench_au(&subject, &options, &mut Shown)?;
    show(&result, args.json)
}
