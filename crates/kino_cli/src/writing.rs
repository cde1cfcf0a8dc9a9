//! What `pack`, `link` and `repack` share: the plan, what it does not match, defects, and the note after Ctrl-C.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kino_dataset::{
    ByteSize, Collect, Interrupted, Kind, Plan, Start, WriterOptions, collect_garbage, suggest,
};
use kino_import::{Defect, LinkOptions, OnDefect, PackOptions, group_defects};

use crate::Outcome;
use crate::output::{count, note};

/// How streams are stored.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PlanArgs {
    /// A TOML file that names codec, bound and page size per stream
    #[arg(long, value_name = "FILE")]
    pub(crate) plan: Option<PathBuf>,
    /// Store images as JPEG of this quality, 1 to 100, unless the plan has a rule for them, or that saves nothing;
    /// everything else stays as it is
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) quality: Option<u8>,
}

impl PlanArgs {
    /// Reads the plan.
    pub(crate) fn read(&self) -> Result<Plan> {
        let mut plan = match &self.plan {
            Some(path) => read_plan(path)?,
            None => Plan::lossless(),
        };
        plan.quality = self.quality.or(plan.quality);
        Ok(plan)
    }
}

/// Reads a plan from a TOML file.
pub(crate) fn read_plan(path: &Path) -> Result<Plan> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read plan {}", path.display()))?;
    Plan::from_toml(&text).with_context(|| format!("plan {}", path.display()))
}

/// What the target may contain.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct StartArgs {
    /// Add the episodes to an existing dataset, as a new version
    #[arg(long, conflicts_with_all = ["resume", "overwrite"])]
    pub(crate) append: bool,
    /// Continue what was interrupted, with the same source and the same options
    #[arg(long, conflicts_with = "overwrite")]
    pub(crate) resume: bool,
    /// Replace an existing dataset once everything is written and checked
    #[arg(long)]
    pub(crate) overwrite: bool,
}

impl StartArgs {
    pub(crate) fn start(&self) -> Start {
        match (self.append, self.resume, self.overwrite) {
            (true, _, _) => Start::Append,
            (_, true, _) => Start::Resume,
            (_, _, true) => Start::Overwrite,
            _ => Start::New,
        }
    }
}

/// Resources.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ResourceArgs {
    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) threads: usize,
    /// Memory limit for in-flight frames
    #[arg(long, value_name = "BYTES", default_value = "512MB")]
    pub(crate) memory: ByteSize,
    /// Target size of a shard
    #[arg(long, value_name = "BYTES", default_value = "128MB")]
    pub(crate) shard_size: ByteSize,
}

impl ResourceArgs {
    pub(crate) fn options(&self, plan: Plan) -> WriterOptions {
        WriterOptions {
            plan,
            threads: self.threads,
            memory_bytes: usize::try_from(self.memory.bytes()).unwrap_or(usize::MAX),
            shard_bytes: self.shard_size.bytes(),
            ..WriterOptions::default()
        }
    }
}

/// What becomes of the episodes of a recording.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct EpisodeArgs {
    /// What to do with defects of the source: refuse it, drop the affected episodes, or keep everything readable
    #[arg(long, value_name = "POLICY", default_value = "error", value_parser = clap::builder::PossibleValuesParser::new(OnDefect::NAMES))]
    pub(crate) on_defect: String,
    /// Prefix of the ids of the new episodes, such as `lab2/`
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) prefix: String,
    /// Random seed for the on-disk episode order
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
}

impl EpisodeArgs {
    pub(crate) fn options(
        &self,
        writer: WriterOptions,
        start: Start,
        link: Option<LinkOptions>,
    ) -> Result<PackOptions> {
        Ok(PackOptions {
            writer,
            start,
            seed: self.seed,
            prefix: self.prefix.clone(),
            on_defect: self.on_defect.parse()?,
            link,
        })
    }
}

/// Refuses what only the Python package can do, which takes this option before the command sees it.
pub(crate) fn check_ray(ray: Option<&str>) -> Result<()> {
    match ray {
        Some(_) => anyhow::bail!(
            "--ray needs the `kinograph` command of the Python package, and Ray: pip install 'kinograph[ray]'"
        ),
        None => Ok(()),
    }
}

/// Prints the defects of the source on stderr, grouped.
pub(crate) fn tell_defects(defects: &[Defect]) -> Outcome {
    for group in group_defects(defects) {
        note(&format!("{}: {}", group.action.name(), group.text()));
    }
    if defects.iter().any(Defect::is_lost) {
        Outcome::Lost
    } else {
        Outcome::Done
    }
}

/// Reports what is left of work that was stopped with Ctrl-C.
pub(crate) fn interrupted(target: &Path) -> Outcome {
    let garbage = collect_garbage(target, Collect::List, Interrupted::Keep);
    let episodes: u64 = match &garbage {
        Ok(garbage) => garbage.writers.iter().map(|work| work.episodes).sum(),
        Err(_) => 0,
    };
    let target = target.display();
    match episodes {
        0 => note("interrupted: no episode was finished, and no files are left behind"),
        episodes => note(&format!(
            "interrupted: {} kept in {target}; run the same command with `--resume` to continue, or \
             `kinograph gc {target} --delete --interrupted` to remove them",
            count(episodes, "finished episode"),
        )),
    }
    Outcome::Interrupted
}

/// A rule that matches nothing is most likely a typo.
pub(crate) fn warn_of_unused_rules<'a>(
    plan: &Plan,
    streams: impl Iterator<Item = (&'a str, Kind)> + Clone,
) {
    for rule in plan.unused_rules(streams.clone()) {
        let pattern = rule.pattern.as_deref().unwrap_or("*");
        let what = match (&rule.codec, &rule.bound) {
            (Some(codec), _) => codec.clone(),
            (None, Some(bound)) => bound.to_string(),
            (None, None) => "no codec named".to_owned(),
        };
        let there: Vec<&str> = streams.clone().map(|(name, _)| name).collect();
        note(&format!(
            "note: the rule for `{pattern}` ({what}) matches no stream; {}",
            suggest(pattern, &there)
        ));
    }
    for event in plan.unused_events(streams.map(|(name, _)| name)) {
        note(&format!(
            "note: the plan's event `{}` uses the pattern `{}`, which matches no stream",
            event.name, event.stream
        ));
    }
}
