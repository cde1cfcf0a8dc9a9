//! `kinograph copy`: a version of a dataset from one storage to another, bit for bit.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Result, bail};
use kino_dataset::{Dataset, Episodes, OpenOptions, Selection, copy_dataset};
use serde_json::json;

use crate::Outcome;
use crate::interrupt::Watch;
use crate::output::{bytes, count, note, print, print_json};
use crate::progress::Progress;

/// Copy a dataset from one storage to another: stage a remote one on a local disk, or upload a local one.
///
/// Every file is compared with its hash, and the version appears when all of them are there. The same command continues
/// a copy that was stopped.
///
/// With --shards needed-by only the shards are copied that have the episodes of --split, --episodes and --where. The copy has
/// the same version and order; episodes in other shards are an error that says so. The same command with another selection adds
/// shards, without one it completes the copy.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The dataset: a folder or a URL
    dataset: PathBuf,
    /// Where to copy it: a folder or a URL
    target: PathBuf,
    /// The version [default: the newest]
    #[arg(long)]
    version: Option<u64>,
    /// Which shards: `all`, or those `needed-by` a selection of episodes
    #[arg(long, value_name = "WHICH", default_value = "all", value_parser = clap::builder::PossibleValuesParser::new(["all", "needed-by"]))]
    shards: String,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Which episodes are needed.
#[derive(Debug, clap::Args)]
struct SelectionArgs {
    /// Needed are the episodes of this split (repeat for several)
    #[arg(long, value_name = "NAME")]
    split: Vec<String>,
    /// Needed are these episodes, by id: `demo_0,demo_7`
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    episodes: Vec<String>,
    /// Needed are the episodes of this filter: `success and has("wrist")`
    #[arg(long, value_name = "FILTER")]
    r#where: Option<String>,
}

impl SelectionArgs {
    fn read(&self, shards: &str) -> Result<Option<Selection>> {
        let selection = Selection {
            splits: self.split.clone(),
            episodes: (!self.episodes.is_empty()).then(|| Episodes::Ids(self.episodes.clone())),
            filter: self.r#where.clone(),
        };
        match (shards == "needed-by", selection == Selection::default()) {
            (false, true) => Ok(None),
            (true, false) => Ok(Some(selection)),
            (false, false) => bail!(
                "a selection of episodes says which shards are copied with `--shards needed-by`; `kinograph repack` copies the episodes alone"
            ),
            (true, true) => bail!(
                "`--shards needed-by` needs to know by what: add --split, --episodes or --where"
            ),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let selection = args.selection.read(&args.shards)?;
    let options = OpenOptions {
        version: args.version,
        ..OpenOptions::default()
    };
    let dataset = Dataset::open_with(&args.dataset, options)?;
    let watch = Watch::start();
    let mut progress = Progress::new("copy");
    let copied = copy_dataset(
        &dataset,
        &args.target,
        selection.as_ref(),
        &mut |done, all| {
            progress.update(done, all, "");
            if watch.as_ref().is_some_and(Watch::is_requested) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        },
    );
    progress.finish();
    let Some(copied) = copied? else {
        note("interrupted: the shards that are finished are kept; the same command continues");
        return Ok(Outcome::Interrupted);
    };
    if args.json {
        print_json(&json!({
            "version": copied.version, "id": dataset.id(), "shards": copied.shards, "kept": copied.kept,
            "bytes": copied.bytes, "missing": copied.missing,
        }))?;
        return Ok(Outcome::Done);
    }
    let partial = match copied.missing {
        0 => String::new(),
        missing => format!("; a partial copy: {} not needed", count(missing, "shard")),
    };
    print(&format!(
        "{}: version {} with {} copied, {} there already, {} in all{partial}\n",
        args.target.display(),
        copied.version,
        count(copied.shards, "shard"),
        copied.kept,
        bytes(copied.bytes),
    ))?;
    Ok(Outcome::Done)
}
