//! `kinograph pack --dry-run`: what would be packed, with which codecs, and the estimated size.

use anyhow::{Result, bail};
use kino_dataset::{CostRecord, Plan};
use kino_import::{
    Action, Defect, OnDefect, Preview, Source, StreamPreview, group_defects, preview,
};
use serde_json::{Value, json};

use super::{Args, defects};
use crate::Outcome;
use crate::output::{Align, Table, bytes, count, decode_us, note, print, print_json, ratio};
use crate::trials;

pub(super) fn run(args: &Args, plan: &Plan, source: &Source) -> Result<Outcome> {
    let on_defect: OnDefect = args.new_episodes.on_defect.parse()?;
    let found = preview(
        source,
        plan,
        args.new_episodes.seed,
        on_defect,
        args.resources.threads,
    )?;
    let is_refused = on_defect == OnDefect::Error && found.defects.iter().any(Defect::is_fault);
    let format = source.describe().format;
    if args.json {
        let streams: Vec<Value> = found.streams.iter().map(to_json).collect();
        print_json(&json!({
            "format": format, "episodes": found.episodes.len(), "refused": is_refused, "streams": streams,
            "raw_bytes": raw_bytes(&found), "estimated_bytes": estimated_bytes(&found),
            "defects": defects(&found.defects),
        }))?;
    } else {
        let head = format!(
            "{} ({format}): {}, {} raw\n",
            args.source.display(),
            count(found.episodes.len(), "episode"),
            bytes(raw_bytes(&found)),
        );
        let streams = found.streams.iter();
        let tried = streams.map(|stream| (stream.spec.name.as_str(), stream.trial.as_ref()));
        let tried = trials::lines(tried);
        print(&format!(
            "{head}\n{}{tried}{}",
            table(&found),
            estimate(&found)
        ))?;
    }
    if found.episodes.is_empty() && !is_refused {
        tell(&found.defects);
        bail!("no episode would be left; see the list above");
    }
    tell(&found.defects);
    if is_refused {
        note(
            "the source has defects, so nothing would be packed; fix them, or pass `--on-defect drop-episode` or \
             `--on-defect keep` to import the rest",
        )
    } else {
        note("nothing was written: this was a dry run")
    }
    Ok(
        match (is_refused, found.defects.iter().any(Defect::is_lost)) {
            (true, _) => Outcome::Failed,
            (false, true) => Outcome::Lost,
            (false, false) => Outcome::Done,
        },
    )
}

fn tell(defects: &[Defect]) {
    for group in group_defects(defects) {
        let action = match group.action {
            Action::Noted => "note",
            Action::Kept => "would be kept",
            Action::Skipped => "would be lost",
            Action::Dropped => "would be dropped",
        };
        note(&format!("{action}: {}", group.text()));
    }
}

fn raw_bytes(found: &Preview) -> u64 {
    let raw = found.streams.iter().map(|stream| stream.raw_bytes);
    raw.fold(0, u64::saturating_add)
}

/// The sum of the estimates, if there is one for each stream.
fn estimated_bytes(found: &Preview) -> Option<u64> {
    let estimates = found.streams.iter().map(|stream| stream.estimated_bytes);
    estimates.sum()
}

fn table(found: &Preview) -> String {
    let mut table = Table::new(&[
        ("stream", Align::Left),
        ("kind", Align::Left),
        ("type", Align::Left),
        ("episodes", Align::Right),
        ("codec", Align::Left),
        ("bound", Align::Left),
        ("raw", Align::Right),
        ("estimate", Align::Right),
        ("decode µs", Align::Right),
    ]);
    let costs = CostRecord::load();
    for stream in &found.streams {
        let codec = &stream.choice.codec;
        table.row(vec![
            stream.spec.name.clone(),
            stream.spec.kind.name().to_owned(),
            stored_type(stream),
            stream.episodes.to_string(),
            codec.spec().to_string(),
            codec.bound().to_string(),
            bytes(stream.raw_bytes),
            stream.estimated_bytes.map_or("–".to_owned(), bytes),
            decode_us(&costs, codec.spec(), &stream.stored_frame()),
        ]);
    }
    let mut text = table.render();
    if costs.costs().is_empty() {
        text.push_str("No decode timings for this machine yet: run `kinograph bench codecs`.\n");
    }
    text
}

/// The type of the stored frames, and the recorded size if it is another: `uint8[224, 224, 3] from 480 × 640`.
fn stored_type(stream: &StreamPreview) -> String {
    let stored = stream.stored_frame();
    match stream.choice.resize() {
        Some(resize) => format!("{stored} from {}", resize.source().size),
        None => stored.to_string(),
    }
}

/// The estimated size, and what it is estimated from.
fn estimate(found: &Preview) -> String {
    let Some(estimated) = estimated_bytes(found) else {
        return String::new();
    };
    let most = found
        .streams
        .iter()
        .map(|stream| stream.sampled_frames)
        .max();
    format!(
        "About {} ({} smaller than raw), estimated from the first {} of a stream at most.\n",
        bytes(estimated),
        ratio(raw_bytes(found), estimated),
        count(most.unwrap_or(0), "frame"),
    )
}

fn to_json(stream: &StreamPreview) -> Value {
    let codec = &stream.choice.codec;
    let costs = CostRecord::load();
    let stored = stream.stored_frame();
    let cost = costs.cost(codec.spec(), &stored);
    let resize = stream.choice.resize();
    let resized_from: Vec<_> = resize.map(|one| one.source().size).into_iter().collect();
    json!({
        "name": stream.spec.name, "kind": stream.spec.kind.name(), "frame": stored.to_string(), "resized_from": resized_from,
        "codec": codec.spec().to_string(), "bound": codec.bound().to_string(),
        "episodes": stream.episodes, "frames": stream.frames, "raw_bytes": stream.raw_bytes,
        "estimated_bytes": stream.estimated_bytes, "sampled_frames": stream.sampled_frames,
        "decode_ns": cost.map(|cost| cost.decode_ns), "trial": trials::to_json(stream.trial.as_ref()),
    })
}
