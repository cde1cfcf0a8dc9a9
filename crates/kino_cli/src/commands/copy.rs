//! `kinograph copy`: a version of a dataset from one storage to another, bit for bit.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::Result;
use kino_dataset::{Dataset, OpenOptions, copy_dataset};
use serde_json::json;

use crate::Outcome;
use crate::interrupt::Watch;
use crate::output::{bytes, count, note, print, print_json};
use crate::progress::Progress;

/// Copy a dataset from one storage to another: stage a remote one on a local disk, or upload a local one.
///
/// Every file is compared with its hash, and the version appears when all of them are there. The same command continues
/// a copy that was stopped.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The dataset: a folder or a URL
    dataset: PathBuf,
    /// Where to copy it: a folder or a URL
    target: PathBuf,
    /// The version [default: the newest]
    #[arg(long)]
    version: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let options = OpenOptions {
        version: args.version,
        ..OpenOptions::default()
    };
    let dataset = Dataset::open_with(&args.dataset, options)?;
    let watch = Watch::start();
    let mut progress = Progress::new("copy");
    let copied = copy_dataset(&dataset, &args.target, &mut |done, all| {
        progress.update(done, all, "");
        if watch.as_ref().is_some_and(Watch::is_requested) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    progress.finish();
    let Some(copied) = copied? else {
        note("interrupted: the shards that are finished are kept; the same command continues");
        return Ok(Outcome::Interrupted);
    };
    if args.json {
        print_json(&json!({
            "version": copied.version, "id": dataset.id(), "shards": copied.shards, "kept": copied.kept,
            "bytes": copied.bytes,
        }))?;
        return Ok(Outcome::Done);
    }
    print(&format!(
        "{}: version {} with {} copied, {} there already, {} in all\n",
        args.target.display(),
        copied.version,
        count(copied.shards, "shard"),
        copied.kept,
        bytes(copied.bytes),
    ))?;
    Ok(Outcome::Done)
}
