//! `kinograph gc`: lists or removes files that no version of a dataset needs.

use std::path::PathBuf;

use anyhow::Result;
use kino_dataset::{Collect, Garbage, Interrupted, StagedWork, WorkState, collect_garbage};
use serde_json::{Value, json};

use crate::Outcome;
use crate::output::{Align, Table, bytes, count, print, print_json};

/// List files that no version of a dataset needs: leftovers of interrupted writers, and work that could be resumed.
///
/// Nothing is removed without --delete, or while a writer is active. Every version keeps its files.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The dataset's folder
    dataset: PathBuf,
    /// Remove the garbage instead of listing it
    #[arg(long)]
    delete: bool,
    /// Count work that could be resumed (`kinograph pack --resume`) as garbage too
    #[arg(long)]
    interrupted: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let collect = if args.delete {
        Collect::Remove
    } else {
        Collect::List
    };
    let interrupted = if args.interrupted {
        Interrupted::GiveUp
    } else {
        Interrupted::Keep
    };
    let garbage = collect_garbage(&args.dataset, collect, interrupted)?;
    if args.json {
        print_json(&to_json(&garbage, args.delete))?
    } else {
        print(&report(args, &garbage))?
    }
    Ok(Outcome::Done)
}

fn report(args: &Args, garbage: &Garbage) -> String {
    let mut text = String::new();
    if !garbage.writers.is_empty() {
        let mut table = Table::new(&[
            ("staged work", Align::Left),
            ("state", Align::Left),
            ("episodes", Align::Right),
            ("size", Align::Right),
            ("settings", Align::Left),
        ]);
        for work in &garbage.writers {
            table.row(vec![
                work.path.display().to_string(),
                work.state.name().to_owned(),
                work.episodes.to_string(),
                bytes(work.bytes),
                settings(work),
            ]);
        }
        text.push_str(&table.render());
        text.push('\n');
    }
    let done = if args.delete { "removed" } else { "garbage" };
    for (path, len) in &garbage.files {
        text.push_str(&format!("{done}: {} ({})\n", path.display(), bytes(*len)));
    }
    let staged = garbage.writers.iter();
    let folders = staged.filter(|work| work.state == WorkState::Garbage);
    let next = match (args.delete, garbage.bytes()) {
        (true, _) => "removed",
        (false, 0) => "nothing to remove",
        (false, _) => "can be removed with --delete",
    };
    text.push_str(&format!(
        "{}: {} and {}, {}: {next}\n",
        args.dataset.display(),
        count(garbage.files.len(), "file"),
        count(folders.count(), "staging folder"),
        bytes(garbage.bytes()),
    ));
    text
}

/// The settings that distinguish one pack from another; a plan is long, and in the JSON.
fn settings(work: &StagedWork) -> String {
    let shown = work.settings.iter().filter(|(name, _)| *name != "plan");
    let shown: Vec<_> = shown
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    shown.join(" ")
}

fn to_json(garbage: &Garbage, deleted: bool) -> Value {
    let writers: Vec<_> = garbage
        .writers
        .iter()
        .map(|work| {
            json!({
                "path": work.path, "state": work.state.name(), "episodes": work.episodes, "bytes": work.bytes,
                "settings": work.settings,
            })
        })
        .collect();
    let files: Vec<_> = garbage
        .files
        .iter()
        .map(|(path, len)| json!({"path": path, "bytes": len}))
        .collect();
    json!({"deleted": deleted, "bytes": garbage.bytes(), "writers": writers, "files": files})
}
