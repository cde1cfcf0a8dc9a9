//! `kinograph cache`: what the local cache of remote shards holds, its limit, and clearing it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kino_dataset::{ByteSize, CacheListing, cache_folder, clear_cache, limit_cache, list_cache};
use serde_json::json;

use crate::Outcome;
use crate::output::{Align, Table, bytes, count, note, print, print_json};

/// Shards that the listing shows.
const SHOWN: usize = 20;

/// List the local cache of remote shards, limit it or clear it.
///
/// The folder is the one that KINOGRAPH_CACHE names, or FOLDER. It is shared by all processes of this machine.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cache's folder [default: KINOGRAPH_CACHE]
    folder: Option<PathBuf>,
    /// Set how many bytes it may use, such as 200GB, for processes that open it from now on
    #[arg(long, value_name = "SIZE")]
    limit: Option<ByteSize>,
    /// Remove what was not used for this long: 0s removes everything, 7d what no one used for a week
    #[arg(long, value_name = "UNUSED", value_parser = parse_duration, conflicts_with = "limit")]
    clear: Option<Duration>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    kino_dataset::parse_duration(text).map_err(|error| error.to_string())
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let folder = args.folder.clone().or_else(cache_folder);
    let folder = folder.context("which cache? Pass its folder, or set KINOGRAPH_CACHE to it")?;
    let mut freed = None;
    if let Some(limit) = args.limit {
        freed = Some(limit_cache(&folder, limit.bytes())?);
    }
    if let Some(unused) = args.clear {
        freed = Some(clear_cache(&folder, unused)?);
    }
    let listing = list_cache(&folder)?;
    if args.json {
        let mut value = json!(listing);
        value["freed_bytes"] = json!(freed);
        print_json(&value)?;
        return Ok(Outcome::Done);
    }
    if let Some(freed) = freed {
        note(&format!("{} removed", bytes(freed)));
    }
    print(&report(&folder.display().to_string(), &listing))?;
    Ok(Outcome::Done)
}

fn report(folder: &str, listing: &CacheListing) -> String {
    let mut table = Table::new(&[
        ("shard", Align::Left),
        ("cached", Align::Right),
        ("last used", Align::Right),
    ]);
    for shard in listing.shards.iter().take(SHOWN) {
        let minutes = shard.unused_s / 60;
        table.row(vec![
            shard.shard.clone(),
            bytes(shard.bytes),
            match minutes {
                0 => "now".to_owned(),
                1..=119 => format!("{minutes} min ago"),
                _ => format!("{} h ago", minutes / 60),
            },
        ]);
    }
    let mut text = String::new();
    if !listing.shards.is_empty() {
        text.push_str(&table.render());
    }
    if listing.shards.len() > SHOWN {
        text.push_str(&format!("… {} more\n", listing.shards.len() - SHOWN));
    }
    text.push_str(&format!(
        "{folder}: {} of at most {}, {}\n",
        bytes(listing.used_bytes),
        bytes(listing.limit_bytes),
        count(listing.shards.len(), "shard"),
    ));
    text
}
