//! `kinograph verify`: check every byte of a dataset.

use std::path::PathBuf;

use anyhow::Result;
use kino_dataset::Level;
use serde_json::json;

use crate::Outcome;
use crate::output::{bytes, one_line, print, print_json};
use crate::progress::Progress;

/// Check every byte of a dataset.
///
/// Compares every byte with its hash, and what the manifest, the episode table and the statistics say with what the shards
/// hold. Lists every damaged page with its shard, episode, stream and first frame. Exit code 1 means damage.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The dataset's folder
    dataset: PathBuf,
    /// Also decode every frame, and compare the statistics with the frames
    #[arg(long)]
    decode: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let depth = if args.decode {
        Level::Decode
    } else {
        Level::Bytes
    };
    let mut progress = Progress::new("verify");
    let verified = kino_dataset::verify(&args.dataset, depth, &mut |done, total| {
        progress.update(done, total, "")
    });
    progress.finish();
    let found = verified?;
    let is_sound = found.damage.is_empty();
    if args.json {
        let damage: Vec<_> = found
            .damage
            .iter()
            .map(|damage| json!({"place": damage.place, "what": damage.what}))
            .collect();
        print_json(&json!({
            "sound": is_sound, "files": found.files, "bytes": found.bytes,
            "episodes": found.episodes, "frames": found.frames, "damage": damage,
        }))?;
    } else {
        for damage in &found.damage {
            let line = format!("damaged: {}: {}", damage.place, damage.what);
            print(&format!("{}\n", one_line(&line)))?;
        }
        let decoded = if args.decode {
            format!(", {} frames decoded", found.frames)
        } else {
            String::new()
        };
        let verdict = if is_sound {
            "sound".to_owned()
        } else {
            format!("{} damaged places", found.damage.len())
        };
        let (files, read, episodes) = (found.files, bytes(found.bytes), found.episodes);
        print(&format!(
            "{}: {verdict} ({episodes} episodes, {read} in {files} files{decoded})\n",
            args.dataset.display()
        ))?;
    }
    Ok(if is_sound {
        Outcome::Done
    } else {
        Outcome::Failed
    })
}
