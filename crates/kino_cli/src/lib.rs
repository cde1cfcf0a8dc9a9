//! The `kinograph` command: one file per verb, no logic.
//!
//! Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage,
//! 3 done but something was lost, 4 measured and not good enough, 130 stopped by Ctrl-C. A reader that closes the pipe early is no failure.

mod commands;
mod interrupt;
mod load_args;
mod output;
mod progress;

use std::ffi::OsString;
use std::io;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use kino_import::Videos;

use commands::{bench, cat, doctor, export, gc, info, pack, verify};

/// What a command did, as the shell sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Done.
    Done,
    /// What was asked for is not so: a check that found damage.
    Failed,
    /// Done, but something was lost.
    Lost,
    /// Measured, and what was asked for is not reached.
    Missed,
    /// Stopped by Ctrl-C.
    Interrupted,
}

/// Robot-learning data, stored and fed so that the GPU never waits.
#[derive(Debug, Parser)]
#[command(name = "kinograph", version = version(), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Pack a recording into a dataset
    Pack(pack::Args),
    /// Write a dataset in another tool's format
    Export(export::Args),
    /// Show what a dataset holds
    Info(info::Args),
    /// Check every byte of a dataset
    Verify(verify::Args),
    /// Print frames of a stream
    Cat(cat::Args),
    /// List and remove what no version needs
    Gc(gc::Args),
    /// Measure what things cost on this machine
    Bench(bench::Args),
    Doctor(doctor::Args),
}

/// The version, and whether this build is slow.
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

/// Runs the command line `args`, of which the first is the program's name, and returns the exit code.
///
/// `videos` decodes the video files of a recording and encodes those of an export, where the program can.
pub fn run(args: Vec<OsString>, videos: Option<Arc<dyn Videos>>) -> u8 {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; a closed pipe while printing them neither.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    let result = match cli.command {
        Command::Pack(args) => pack::run(&args, videos),
        Command::Export(args) => export::run(&args, videos),
        Command::Info(args) => info::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Cat(args) => cat::run(&args),
        Command::Gc(args) => gc::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Doctor(args) => doctor::run(&args),
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
