//! `kinograph verify`: check every byte of a dataset.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use kino_dataset::{DatasetError, Level, PartOf, Verified};
use serde_json::json;

use crate::Outcome;
use crate::open_args::RootArg;
use crate::output::{bytes, count, one_line, print, print_json};
use crate::progress::Progress;
use crate::writing::check_ray;

/// Check every byte of a dataset.
///
/// Compares every byte with its hash, and the manifest, the episode table and the statistics with the shards. Lists
/// every damaged page with its shard, episode, stream and first frame. If pages are linked to other files, these are
/// checked too. Exit code 1 means damage, an unreadable file, or with --decode a stream that cannot be decoded here.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The dataset's folder
    dataset: PathBuf,
    /// Also decode every frame, and compare the statistics with the frames and linked files with their hashes
    #[arg(long)]
    decode: bool,
    /// Check part I of N only, `3/64`, on any machine that sees DATASET: a share of the shards. Part 1 also checks what is about
    /// all of them; the statistics are compared with frames only without this
    #[arg(long, value_name = "I/N", value_parser = |text: &str| text.parse::<PartOf>())]
    part: Option<PartOf>,
    /// Check with Ray: `auto` for the cluster that this machine belongs to, `local`, or an address (needs `pip install
    /// 'kinograph[ray]'`)
    #[arg(long, value_name = "ADDRESS", conflicts_with = "part")]
    ray: Option<String>,
    #[command(flatten)]
    root: RootArg,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    check_ray(args.ray.as_deref())?;
    let depth = if args.decode {
        Level::Decode
    } else {
        Level::Bytes
    };
    let mut progress = Progress::new("verify");
    let dataset = args.root.open(&args.dataset, None);
    let verified = dataset.and_then(|dataset| {
        let mut report = |done, total| {
            progress.update(done, total, "");
            ControlFlow::Continue(())
        };
        let verified = match args.part {
            None => kino_dataset::verify_dataset(&dataset, depth, &mut report),
            Some(part) => kino_dataset::verify_part(&dataset, depth, part, &mut report),
        };
        Ok(verified?.unwrap_or_default())
    });
    progress.finish();
    let found = match verified {
        Err(error) => return Err(unreadable(error)),
        Ok(found) => found,
    };
    let is_valid =
        found.damage.is_empty() && found.unreadable.is_empty() && found.undecodable.is_empty();
    if args.json {
        let places = |all: &[kino_dataset::Damage]| -> Vec<_> {
            let place = |one: &kino_dataset::Damage| json!({"place": one.place, "what": one.what});
            all.iter().map(place).collect()
        };
        print_json(&json!({
            "valid": is_valid, "files": found.files, "bytes": found.bytes,
            "episodes": found.episodes, "frames": found.frames, "missing_shards": found.missing_shards,
            "damage": places(&found.damage), "unreadable": places(&found.unreadable),
            "undecodable": places(&found.undecodable),
        }))?;
    } else {
        print(&report(args, &found))?;
    }
    Ok(if is_valid {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}

/// The error if nothing can be checked: its own advice would be to run this command.
fn unreadable(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref() {
        Some(DatasetError::Corrupt { place, what }) => anyhow!(
            "{place} is damaged: {what}; nothing can be checked without it: restore it from a backup, or pack again"
        ),
        _ => error,
    }
}

fn report(args: &Args, found: &Verified) -> String {
    let mut text = String::new();
    for damage in &found.damage {
        let line = format!("damaged: {}: {}", damage.place, damage.what);
        text.push_str(&format!("{}\n", one_line(&line)));
    }
    for place in found.unreadable.iter().chain(&found.undecodable) {
        let line = format!("not checked: {}: {}", place.place, place.what);
        text.push_str(&format!("{}\n", one_line(&line)));
    }
    let decoded = if args.decode {
        format!(", {} decoded", count(found.frames, "frame"))
    } else {
        String::new()
    };
    let verdicts = [
        (&found.damage, "damaged place", ""),
        (&found.unreadable, "file", " cannot be read"),
        (&found.undecodable, "stream", " cannot be decoded here"),
    ];
    let verdicts: Vec<String> = verdicts
        .iter()
        .filter(|(places, ..)| !places.is_empty())
        .map(|(places, noun, verdict)| format!("{}{verdict}", count(places.len(), noun)))
        .collect();
    let verdict = match verdicts.as_slice() {
        [] if found.missing_shards > 0 => format!(
            "valid as far as it goes: a partial copy without {}",
            count(found.missing_shards, "shard")
        ),
        [] => "valid".to_owned(),
        some => some.join(", "),
    };
    text.push_str(&format!(
        "{}: {verdict} ({}, {} in {}{decoded})\n",
        args.dataset.display(),
        count(found.episodes, "episode"),
        bytes(found.bytes),
        count(found.files, "file"),
    ));
    text
}
