//! The `kinograph` binary; the wheel's console script runs the same [`kino_cli::run`].

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(kino_cli::run(std::env::args_os().collect(), None))
}
