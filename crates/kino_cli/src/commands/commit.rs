//! `kinograph commit`: makes the parts of a pack one version, and those of an export its target.

use std::path::{Path, PathBuf};

use anyhow::Result;
use kino_dataset::{Dataset, PortionsProgress, portions_progress};
use kino_import::{Defect, ExportProgress};
use serde_json::json;

use crate::Outcome;
use crate::commands::pack::streams_table;
use crate::output::{bytes, count, print, print_json};
use crate::progress::Progress;
use crate::writing::tell_defects;

/// Make the parts of a pack one version, or the parts of an export its target.
///
/// The parts are those of `kinograph pack SOURCE TARGET --part 1/N` to `--part N/N`, or of `repack` or `export`. Their receipts are compared with the
/// plan of the pack, and every shard with its hash; if a part is missing, the error names it and nothing is committed. It
/// is safe to run this twice, or at the same time on two machines: the version is made once.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder or URL that the parts were packed to
    target: PathBuf,
    /// Show which portions are finished and which are missing, and commit nothing
    #[arg(long)]
    status: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    if let Some(found) = kino_import::export_progress(&args.target)? {
        return commit_export(args, &found);
    }
    if args.status {
        return status(args);
    }
    let progress = kino_sync::Mutex::new(Progress::new("commit"));
    let done = kino_import::commit_parts(&args.target, &|done, total| {
        progress
            .lock()
            .update(done as u64, total as u64, "shards checked");
    });
    progress.into_inner().finish();
    let (packed, is_repeated) = done?;
    let committed = &packed.committed;
    if args.json {
        let defects: Vec<_> = packed.defects.iter().map(Defect::to_json).collect();
        print_json(&json!({
            "target": args.target.display().to_string(), "version": committed.version, "id": committed.id,
            "episodes": committed.episodes, "already_committed": is_repeated, "defects": defects,
        }))?;
        return Ok(tell_defects(&packed.defects));
    }
    let size = Dataset::open(&args.target)?.manifest().total_bytes();
    let what = if is_repeated {
        "was already committed"
    } else {
        "is committed"
    };
    print(&format!(
        "{}\n{}: version {} {what}, with {}, {}\nid {}\n",
        streams_table(&committed.streams),
        args.target.display(),
        committed.version,
        count(committed.episodes, "episode"),
        bytes(size),
        committed.id,
    ))?;
    Ok(tell_defects(&packed.defects))
}

/// The same for the parts of an export.
fn commit_export(args: &Args, found: &ExportProgress) -> Result<Outcome> {
    let target = args.target.display().to_string();
    if args.status {
        let (all, missing) = (found.parts, &found.missing);
        let finished = all - missing.len();
        if args.json {
            print_json(&json!({"portions": all, "finished": finished, "missing": missing}))?;
        } else {
            let next = next_step(&args.target, missing, all);
            print(&format!(
                "{target}: {finished} of {} finished; {next}\n",
                count(all, "part")
            ))?;
        }
        return Ok(Outcome::Done);
    }
    let exported = kino_import::commit_export(&args.target)?;
    if args.json {
        let defects: Vec<_> = exported.defects.iter().map(Defect::to_json).collect();
        print_json(&json!({
            "target": target, "episodes": exported.episodes, "frames": exported.frames, "defects": defects,
        }))?;
    } else {
        print(&format!(
            "{target}: {}, {} in all streams\n",
            count(exported.episodes, "episode"),
            count(exported.frames, "frame"),
        ))?;
    }
    Ok(tell_defects(&exported.defects))
}

fn status(args: &Args) -> Result<Outcome> {
    let found = portions_progress(&args.target)?;
    let found =
        found.ok_or_else(|| anyhow::anyhow!("{} has no parts of a pack", args.target.display()))?;
    if args.json {
        print_json(&json!({
            "portions": found.portions.1, "finished": found.portions.0,
            "bytes": found.bytes.1, "bytes_finished": found.bytes.0,
            "missing": found.missing.iter().map(|one| one + 1).collect::<Vec<_>>(),
        }))?;
    } else {
        print(&text(&args.target, &found))?;
    }
    Ok(Outcome::Done)
}

fn text(target: &Path, found: &PortionsProgress) -> String {
    let (done, all) = found.portions;
    let missing: Vec<_> = found.missing.iter().map(|one| one + 1).collect();
    let next = next_step(target, &missing, all);
    format!(
        "{}: {done} of {} finished, {} of {} as raw frames; {next}\n",
        target.display(),
        count(all, "portion"),
        bytes(found.bytes.0),
        bytes(found.bytes.1),
    )
}

/// What to do about parts that are missing, or if none is.
fn next_step(target: &Path, missing: &[usize], all: usize) -> String {
    let missing: Vec<_> = missing.iter().map(|one| format!("{one}/{all}")).collect();
    match missing.as_slice() {
        [] => format!("run `kinograph commit {}`", target.display()),
        some => format!("missing: --part {}", some.join(", ")),
    }
}
