//! The `kinograph` command: one file per subcommand, no logic of its own.
//!
//! Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done but something
//! was lost, 4 measured and the target was not met, 130 interrupted by Ctrl-C. A reader that closes the pipe early is not a failure.

mod commands;
mod generations;
mod interrupt;
mod load_args;
mod open_args;
mod output;
mod parts_args;
mod planner_args;
mod probe_args;
mod progress;
mod resized;
mod source_args;
mod trials;
mod writing;

use std::ffi::OsString;
use std::io;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use kino_import::Videos;

use commands::{
    bench, cache, cat, commit, copy, doctor, export, gc, info, link, pack, plan, probe, repack,
    verify,
};

/// The outcome of a command, which becomes its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Done.
    Done,
    /// A check failed: it found damage.
    Failed,
    /// Done, but something was lost.
    Lost,
    /// Measured, and the target was not met.
    Missed,
    /// Stopped by Ctrl-C.
    Interrupted,
}

/// Robot-learning data, compressed and loaded so that the GPU never waits.
#[derive(Debug, Parser)]
#[command(name = "kinograph", bin_name = "kinograph", version = version(), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Pack(pack::Args),
    Commit(commit::Args),
    Link(link::Args),
    Repack(repack::Args),
    Export(export::Args),
    /// Show what a dataset holds
    Info(info::Args),
    Verify(verify::Args),
    Cat(cat::Args),
    /// List and remove files that no version needs
    Gc(gc::Args),
    Copy(copy::Args),
    Cache(cache::Args),
    /// Measure codecs, loaders and storage on this machine
    Bench(bench::Args),
    Doctor(doctor::Args),
    Plan(plan::Args),
    Probe(probe::Args),
}

/// The version, with a note if this build is slow.
fn version() -> &'static str {
    if kino_codec::jpeg_simd() && kino_codec::av1_simd() {
        env!("CARGO_PKG_VERSION")
    } else {
        concat!(
            env!("CARGO_PKG_VERSION"),
            " (JPEG and AV1 without SIMD: several times slower; build with nasm to fix it)"
        )
    }
}

/// Runs the command line `args`, which starts with the program's name, and returns the exit code.
///
/// `videos` decodes the video files of a recording and encodes those of an export; `None` if the program cannot.
pub fn run(args: Vec<OsString>, videos: Option<Arc<dyn Videos>>) -> u8 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // `--help` and `--version` arrive here too. A pipe closed while printing is not a failure.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    let result = match cli.command {
        Command::Pack(args) => pack::run(&args, videos),
        Command::Commit(args) => commit::run(&args),
        Command::Link(args) => link::run(&args, videos),
        Command::Repack(args) => repack::run(&args),
        Command::Export(args) => export::run(&args, videos),
        Command::Info(args) => info::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Cat(args) => cat::run(&args),
        Command::Gc(args) => gc::run(&args),
        Command::Copy(args) => copy::run(&args),
        Command::Cache(args) => cache::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Plan(args) => plan::run(&args, videos),
        Command::Probe(args) => probe::run(&args, videos),
    };
    match result {
        Ok(Outcome::Done) => 0,
        Ok(Outcome::Failed) => 1,
        Ok(Outcome::Lost) => 3,
        Ok(Outcome::Missed) => 4,
        Ok(Outcome::Interrupted) => 130,
        Err(error) if is_closed_pipe(&error) => 0,
        Err(error) => {
            let causes: Vec<_> = error.chain().map(ToString::to_string).collect();
            output::note(&format!("error: {}", causes.join(": ")));
            1
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
