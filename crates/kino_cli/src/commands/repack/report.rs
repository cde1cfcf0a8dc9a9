//! The reports of `kinograph repack`: what would happen to each stream, and what did.

use anyhow::Result;
use kino_dataset::{Action, Dataset, Repack, Repacked, StreamChange, StreamUsage};
use serde_json::{Value, json};

use super::Args;
use crate::Outcome;
use crate::generations;
use crate::output::{
    Align, Table, beside, bytes, count, error, frame_type, note, one_line, print, print_json, speed,
};
use crate::trials;

/// `kinograph repack --dry-run`.
pub(super) fn dry_run(args: &Args, repack: &Repack) -> Result<Outcome> {
    let refused = repack.check().err();
    let changes = repack.streams();
    let before: u64 = changes.iter().map(|one| one.bytes).sum();
    let after: Option<u64> = changes.iter().map(StreamChange::estimated_bytes).sum();
    if args.json {
        let streams: Vec<_> = changes.iter().map(planned).collect();
        print_json(&json!({
            "dataset": args.dataset.display().to_string(), "episodes": repack.episodes(),
            "refused": refused.is_some(), "streams": streams, "bytes": before, "estimated_bytes": after,
        }))?;
    } else {
        let mut table = Table::new(&[
            ("stream", Align::Left),
            ("type", Align::Left),
            ("would be", Align::Left),
            ("stored as", Align::Left),
            ("becomes", Align::Left),
            ("stored", Align::Right),
            ("estimate", Align::Right),
        ]);
        for change in changes {
            table.row(vec![
                change.stored.name.clone(),
                shapes(change),
                change.action.name().to_owned(),
                change.stored.codecs.join(" "),
                change.codec.clone().unwrap_or_default(),
                bytes(change.bytes),
                change.estimated_bytes().map_or("–".to_owned(), bytes),
            ]);
        }
        let total = after.map_or(String::new(), |after| {
            let share = beside(after, before, "the dataset");
            let (before, after) = (bytes(before), bytes(after));
            format!(
                "{before} of pages → about {after} ({share}), estimated from the first frames.\n"
            )
        });
        print(&format!("{}{}{total}", table.render(), notes(changes)))?;
    }
    match refused {
        Some(refused) => {
            note(&format!("would be refused: {refused}"));
            Ok(Outcome::Failed)
        }
        None => {
            note("nothing was written: this was a dry run");
            Ok(Outcome::Done)
        }
    }
}

/// What was tried, and why a stream is copied although the plan has a rule for it.
fn notes(changes: &[StreamChange]) -> String {
    let encoded = changes.iter().filter(|one| one.action == Action::Encode);
    let tried = encoded.map(|one| (one.stored.name.as_str(), one.trial.as_ref()));
    let mut text = trials::lines(tried);
    for change in changes {
        if let Some(why) = &change.note {
            text.push_str(&format!("{}: {why}\n", one_line(&change.stored.name)));
        }
    }
    text
}

/// The shape of a stream's frames, and the one before if they are resized.
fn shapes(change: &StreamChange) -> String {
    let (dtype, stored) = (&change.stored.dtype, &change.stored.shape);
    let shown = frame_type(dtype, &change.shape);
    match change.resized_from {
        Some(_) => format!("{shown} from {}", frame_type(dtype, stored)),
        None => shown,
    }
}

fn planned(change: &StreamChange) -> Value {
    json!({
        "name": change.stored.name,
        "action": change.action.name(),
        "codecs": change.stored.codecs,
        "codec": change.codec,
        "bytes": change.bytes,
        "estimated_bytes": change.estimated_bytes(),
        "shape": change.shape,
        "resized_from": change.resized_from,
        "note": change.note,
        "second_loss": change.is_second_loss,
        "generations": generations::to_json(&change.generations),
        "trial": trials::to_json(change.trial.as_ref()),
    })
}

/// A finished repack.
pub(super) struct Summary<'a> {
    pub(super) args: &'a Args,
    pub(super) before: &'a Dataset,
    pub(super) repacked: &'a Repacked,
    /// The new version.
    pub(super) after: Dataset,
    pub(super) seconds: f64,
}

/// A stream after a repack.
struct After {
    codecs: Vec<String>,
    bytes: u64,
    max_abs_error: f64,
    psnr_db: Option<f64>,
}

impl Summary<'_> {
    /// A stream as it is now: in the episodes written, or in all of them if they are a version of the same dataset.
    fn after(&self, name: &str) -> Option<After> {
        let committed = &self.repacked.committed;
        if self.args.in_place || committed.episodes == 0 {
            let mut streams = self.after.manifest().streams.iter();
            let stream = streams.find(|stream| stream.name == name)?;
            return Some(After {
                codecs: stream.codecs.clone(),
                bytes: stream.bytes,
                max_abs_error: stream.max_abs_error,
                psnr_db: stream.psnr_db(),
            });
        }
        let used = committed.streams.iter();
        let used: Vec<&StreamUsage> = used.filter(|one| one.schema.name == name).collect();
        let largest = used.iter().map(|one| one.max_abs_error);
        (!used.is_empty()).then(|| After {
            codecs: used.iter().map(|one| one.schema.codec.clone()).collect(),
            bytes: used.iter().map(|one| one.bytes).sum(),
            max_abs_error: largest.fold(0.0, f64::max),
            psnr_db: used.iter().find_map(|one| one.psnr_db()),
        })
    }

    /// Bytes of pages, before and after.
    fn sizes(&self) -> (u64, u64) {
        let changes = self.repacked.streams.iter();
        let before = changes.clone().map(|change| change.bytes).sum();
        let after = changes.filter_map(|change| self.after(&change.stored.name));
        (before, after.map(|after| after.bytes).sum())
    }

    /// Bytes of frames that were written.
    fn raw_bytes(&self) -> u64 {
        let streams = self.repacked.committed.streams.iter();
        streams.map(|stream| stream.raw_bytes).sum()
    }

    /// For people.
    pub(super) fn to_text(&self) -> String {
        let mut table = Table::new(&[
            ("stream", Align::Left),
            ("type", Align::Left),
            ("was", Align::Left),
            ("codec", Align::Left),
            ("before", Align::Right),
            ("after", Align::Right),
            ("error", Align::Right),
        ]);
        for change in &self.repacked.streams {
            let stored = &change.stored;
            let after = self.after(&stored.name);
            let shown = |show: fn(&After) -> String| after.as_ref().map_or(String::new(), show);
            table.row(vec![
                stored.name.clone(),
                shapes(change),
                change.action.name().to_owned(),
                shown(|after| after.codecs.join(" ")),
                bytes(change.bytes),
                shown(|after| bytes(after.bytes)),
                shown(|after| error(after.psnr_db, after.max_abs_error)),
            ]);
        }
        let Repacked {
            committed, resumed, ..
        } = self.repacked;
        let (before, after) = self.sizes();
        let episodes = if self.args.in_place {
            "episode"
        } else {
            "new episode"
        };
        let mut text = table.render();
        text.push_str(&notes(&self.repacked.streams));
        text.push_str(&generations::lines(self.after.manifest().streams.iter()));
        text.push_str(&format!(
            "\n{}: version {} with {}, {:.2} s, {} MB/s of raw frames\n{} of pages → {} ({})\n",
            self.args.target().display(),
            committed.version,
            count(committed.episodes, episodes),
            self.seconds,
            speed(self.raw_bytes(), self.seconds),
            bytes(before),
            bytes(after),
            beside(after, before, "before"),
        ));
        if *resumed > 0 {
            text.push_str(&format!(
                "{resumed} of them were finished by the interrupted repack\n"
            ));
        }
        text
    }

    /// For programs.
    pub(super) fn to_json(&self) -> Value {
        let streams = self.repacked.streams.iter().map(|change| {
            let after = self.after(&change.stored.name);
            json!({
                "name": change.stored.name,
                "action": change.action.name(),
                "codecs_before": change.stored.codecs,
                "codecs": after.as_ref().map(|after| after.codecs.clone()),
                "bytes_before": change.bytes,
                "bytes": after.as_ref().map(|after| after.bytes),
                "max_abs_error": after.as_ref().map(|after| after.max_abs_error),
                "psnr_db": after.as_ref().and_then(|after| after.psnr_db),
                "generations": generations::to_json(&change.generations),
                "shape": change.shape,
                "resized_from": change.resized_from,
                "note": change.note,
            })
        });
        let (before, after) = self.sizes();
        let committed = &self.repacked.committed;
        json!({
            "dataset": self.args.target().display().to_string(),
            "version": committed.version,
            "id": committed.id,
            "episodes": committed.episodes,
            "resumed": self.repacked.resumed,
            "skipped": self.repacked.skipped,
            "seconds": self.seconds,
            "raw_bytes": self.raw_bytes(),
            "bytes_before": before,
            "bytes": after,
            "dataset_bytes_before": self.before.manifest().total_bytes(),
            "dataset_bytes": self.after.manifest().total_bytes(),
            "streams": streams.collect::<Vec<_>>(),
        })
    }

    /// Says on stderr what the user must know.
    pub(super) fn warn(&self) {
        for change in &self.repacked.streams {
            let after = self.after(&change.stored.name).map(|after| after.bytes);
            if let (Action::Encode, Some(after)) = (change.action, after)
                && after > change.bytes
            {
                note(&format!(
                    "note: {} is larger than before: {} as {}, {} as {}",
                    one_line(&change.stored.name),
                    bytes(change.bytes),
                    change.stored.codecs.join(" "),
                    bytes(after),
                    change.codec.as_deref().unwrap_or_default()
                ));
            }
        }
        if self.repacked.skipped > 0 {
            note(&format!(
                "note: {} without any of the requested streams left out",
                count(self.repacked.skipped, "episode")
            ));
        }
    }
}
