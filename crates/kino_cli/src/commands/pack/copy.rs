//! Packing a dataset: a copy of it, page by page, that links to nothing.

use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::{Result, bail};
use kino_dataset::{CopyProgress, copy};
use serde_json::json;

use super::{Args, interrupted, plan, start, writer_options};
use crate::Outcome;
use crate::interrupt::Watch;
use crate::output::{bytes, count, print, print_json};
use crate::progress::Progress;

pub(super) fn run(args: &Args) -> Result<Outcome> {
    refuse_options(args)?;
    let dataset = args.root.open(&args.source, None)?;
    let options = writer_options(args, plan(args)?);
    let begin = Instant::now();
    let watch = Watch::start();
    let mut progress = Progress::new("pack");
    let mut report = |at: CopyProgress| {
        let (done, all) = at.episodes;
        let message = format!("{done} of {} written", count(all, "episode"));
        progress.update(at.bytes.0, at.bytes.1, &message);
        if watch.as_ref().is_some_and(Watch::is_requested) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let copied = copy(&dataset, &args.target, start(args), options, &mut report);
    progress.finish();
    drop(watch);
    let Some(copied) = copied? else {
        return Ok(interrupted(args));
    };
    let seconds = begin.elapsed().as_secs_f64();
    let linked = dataset.manifest().streams.iter();
    let linked: u64 = linked.map(|stream| stream.linked_bytes).sum();
    let written: u64 = copied.committed.streams.iter().map(|one| one.bytes).sum();
    if args.json {
        print_json(&json!({
            "dataset": args.target.display().to_string(),
            "version": copied.committed.version,
            "id": copied.committed.id,
            "episodes": copied.committed.episodes,
            "resumed": copied.resumed,
            "seconds": seconds,
            "bytes": written,
            "linked_bytes": linked,
        }))?;
    } else {
        print(&format!(
            "{}: version {} with {}, {seconds:.2} s: {} of pages copied as they are, {} of them from linked files\n",
            args.target.display(),
            copied.committed.version,
            count(copied.committed.episodes, "new episode"),
            bytes(written),
            bytes(linked),
        ))?;
    }
    Ok(Outcome::Done)
}

/// Refuses options that would change what is copied.
fn refuse_options(args: &Args) -> Result<()> {
    let given = [
        ("--format", args.format.is_some()),
        ("--mapping", args.mapping.is_some()),
        ("--suggest-mapping", args.suggest_mapping),
        ("--rate", args.rate.is_some()),
        ("--streams", !args.streams.is_empty()),
        ("--exclude", !args.exclude.is_empty()),
        ("--episodes", !args.episodes.is_empty()),
        ("--plan", args.plan.is_some()),
        ("--quality", args.quality.is_some()),
        ("--prefix", !args.prefix.is_empty()),
        ("--dry-run", args.dry_run),
    ];
    if let Some((option, _)) = given.iter().find(|(_, is_given)| *is_given) {
        bail!(
            "{} is a Kinograph dataset, which is copied as it is: {option} has no effect on it; remove it",
            args.source.display()
        );
    }
    Ok(())
}
