//! `kinograph pack --auto`: chooses the plan as `kinograph plan` does, then packs with it.
//!
//! Its options are those of `kinograph plan`, made from the same declarations. Where the pack has an option of that name
//! (`--memory`, `--seed`, `--threads`), it keeps its meaning there, and the loader gets its default.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, FromArgMatches};
use kino_dataset::Plan;
use kino_import::ImportOptions;

use crate::commands::plan::{Planner, Verify, folder_of};
use crate::load_args::WorkloadArgs;
use crate::output::note;
use crate::planner_args::PlannerArgs;

/// Whether to choose the plan, and what for.
#[derive(Debug)]
pub(super) struct AutoArgs {
    pub(super) auto: bool,
    workload: WorkloadArgs,
    planner: PlannerArgs,
}

impl clap::Args for AutoArgs {
    fn augment_args(command: Command) -> Command {
        let auto = Arg::new("auto")
            .long("auto")
            .action(ArgAction::SetTrue)
            .requires("step")
            .conflicts_with_all([
                "plan", "lossless", "resume", "append", "dry_run", "suggest_mapping", "part", "ray",
                "portions",
            ])
            .help("Choose the codecs first, as `kinograph plan` does for a step of --step-ms (--help has all its options), and write the plan to TARGET.plan.toml; JPEG of --quality may be chosen too");
        let plan = PlannerArgs::augment_args(WorkloadArgs::augment_args(Command::new("plan")));
        let is_new = |arg: &&Arg| {
            command
                .get_arguments()
                .all(|own| own.get_id() != arg.get_id())
        };
        let options = plan.get_arguments().filter(is_new).cloned();
        let options = options.map(|arg| {
            arg.requires("auto")
                .help_heading("With --auto, as in `kinograph plan`")
                .hide_short_help(true)
        });
        let options: Vec<Arg> = options.collect();
        let step = ArgGroup::new("step").args(["step_ms", "report"]);
        command.arg(auto).args(options).group(step)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for AutoArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self {
            auto: matches.get_flag("auto"),
            workload: WorkloadArgs::from_arg_matches(matches)?,
            planner: PlannerArgs::from_arg_matches(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl AutoArgs {
    /// Chooses the plan, says why, and keeps it in a file.
    pub(super) fn choose(
        &self,
        source: &Path,
        target: &Path,
        import: &ImportOptions,
        quality: Option<u8>,
    ) -> Result<Plan> {
        let planner = Planner {
            workload: &self.workload.read()?,
            options: &self.planner.options(quality)?,
            folder: &folder_of(target),
            sample_bytes: self.planner.sample_bytes(),
            verify: Verify::Nothing,
        };
        let planned = planner.plan_recording(source, import)?;
        let lines = planned.explanation().into_iter();
        lines
            .chain(planned.signal_lines())
            .for_each(|line| note(&line));
        let mut file = target.as_os_str().to_owned();
        file.push(".plan.toml");
        let file = PathBuf::from(file);
        std::fs::write(&file, planned.to_toml())
            .with_context(|| format!("cannot write the plan to {}", file.display()))?;
        note(&format!(
            "wrote the plan to {}; to continue an interrupted pack, pass it with --plan and --resume",
            file.display()
        ));
        Ok(Plan::from_toml(&planned.to_toml())?)
    }
}
