//! The options of commands that run a loader. Flags are made from `kino_loader::OPTIONS`: none is declared here.

use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use kino_advisor::{Subject, Workload};
use kino_loader::{Form, OPTIONS, OptionInfo, Part, set_option};
use serde_json::{Value, json};

use crate::open_args::RootArg;

/// Samples per batch if nothing is given.
const BATCH_SIZE: u64 = 64;

/// A dataset, and what a training loop asks for.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// The dataset's folder, or a URL
    pub(crate) dataset: PathBuf,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    root: RootArg,
}

impl LoadArgs {
    /// The loader that is asked for.
    pub(crate) fn subject(&self) -> Result<Subject> {
        let dataset = self.root.open(&self.dataset, None)?;
        Ok(self.workload.read()?.subject(&dataset)?)
    }
}

/// What a training loop asks for.
#[derive(Debug, clap::Args)]
pub(crate) struct WorkloadArgs {
    /// Frames of a stream, counted from its frame at the anchor, end not included: wrist=-9:1. May be repeated. Without
    /// it, every stream's frame at the anchor
    #[arg(long, value_name = "STREAM=FROM:TO", value_parser = window)]
    window: Vec<(String, Range<i32>)>,
    #[command(flatten)]
    options: OptionArgs,
}

impl WorkloadArgs {
    /// The workload that is asked for.
    pub(crate) fn read(&self) -> Result<Workload> {
        Ok(Workload {
            windows: self.window.clone(),
            order: self.options.order.clone(),
            options: serde_json::from_value(self.options.loader.clone())
                .context("the options of the loader")?,
        })
    }
}

/// The loader's own options, as the JSON that its structs are read from.
#[derive(Debug)]
struct OptionArgs {
    order: Value,
    loader: Value,
}

/// Rows that a command line can give.
fn flags() -> impl Iterator<Item = &'static OptionInfo> {
    OPTIONS.iter().filter(|row| row.form != Form::Python)
}

fn to_arg(row: &'static OptionInfo) -> Arg {
    let default = match row.name {
        "batch_size" => BATCH_SIZE.to_string(),
        _ => row.default.to_owned(),
    };
    let arg = Arg::new(row.name).long(row.flag());
    if row.form == Form::Flag {
        return arg.help(row.help).action(ArgAction::SetTrue);
    }
    let name = match row.form {
        Form::Bytes => "BYTES",
        Form::Size => "HxW",
        Form::Quality => "LOWEST-HIGHEST",
        Form::Cpu => "CORES",
        Form::Choice(_) => "NAME",
        _ => "N",
    };
    let choices = match row.form {
        Form::Choice(names) => format!(": {}", names.join(", ")),
        _ => String::new(),
    };
    arg.help(format!("{}{choices} [default: {default}]", row.help))
        .value_name(name)
        .value_parser(move |text: &str| row.parse(text))
}

impl clap::Args for OptionArgs {
    fn augment_args(command: Command) -> Command {
        command.args(flags().map(to_arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for OptionArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut found = Self {
            order: json!({"batch_size": BATCH_SIZE}),
            loader: json!({}),
        };
        found.update_from_arg_matches(matches)?;
        Ok(found)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for row in flags() {
            let value = match row.form {
                Form::Flag => is_given(matches, row).then_some(Value::Bool(true)),
                // `pack --auto` has options of its own by some of these names, of other types.
                _ => matches
                    .try_get_one::<Value>(row.name)
                    .ok()
                    .flatten()
                    .cloned(),
            };
            let part = match row.part {
                Part::Order => &mut self.order,
                Part::Loader => &mut self.loader,
                // These have no flags.
                Part::Python => continue,
            };
            if let Some(value) = value {
                set_option(part, row.name, value);
            }
        }
        Ok(())
    }
}

fn is_given(matches: &ArgMatches, row: &OptionInfo) -> bool {
    matches!(matches.try_get_one(row.name), Ok(Some(true)))
}

/// Reads `wrist=-9:1`.
fn window(text: &str) -> Result<(String, Range<i32>)> {
    let wrong = || format!("`{text}`: a window looks like wrist=-9:1, from step -9 to step 0");
    let (stream, steps) = text.split_once('=').with_context(wrong)?;
    let (from, to) = steps.split_once(':').with_context(wrong)?;
    let steps = from.trim().parse().with_context(wrong)?..to.trim().parse().with_context(wrong)?;
    if steps.is_empty() || steps.len() > 1 << 16 {
        bail!("{}; it has to have 1 to 65536 steps", wrong());
    }
    Ok((stream.to_owned(), steps))
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    fn read(text: &[&str]) -> Result<OptionArgs, clap::Error> {
        let command = OptionArgs::augment_args(Command::new("doctor"));
        let matches = command.try_get_matches_from([&["doctor"], text].concat())?;
        OptionArgs::from_arg_matches(&matches)
    }

    #[test]
    fn flags_become_the_options_of_the_table() {
        let found = read(&[
            "--image-size",
            "480x640",
            "--memory",
            "2GB",
            "--image-random-crop",
            "--seed",
            "7",
        ])
        .unwrap();
        assert_eq!(found.order, json!({"batch_size": 64, "seed": 7}));
        let expected =
            json!({"memory": "2GB", "images": {"size": [480, 640], "random_crop": true}});
        assert_eq!(found.loader, expected);
    }

    #[test]
    fn wrong_flags_are_refused_with_right_ones() {
        let error = |flag: &str, value: &str| read(&[flag, value]).unwrap_err().to_string();
        assert!(error("--image-dtype", "int8").contains("float16"));
        assert!(error("--image-size", "480").contains("224x224"));
        assert!(error("--threads", "many").contains("whole number"));
    }

    #[test]
    fn windows_are_read_with_their_ends() {
        assert_eq!(
            window("obs/wrist=-9:1").unwrap(),
            ("obs/wrist".to_owned(), -9..1)
        );
        for wrong in ["wrist", "wrist=1", "wrist=3:3", "wrist=0:99999999"] {
            let error = window(wrong).unwrap_err().to_string();
            assert!(error.contains("wrist=-9:1"), "{wrong}");
        }
    }
}
