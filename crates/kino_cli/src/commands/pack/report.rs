//! The final report of `kinograph pack`: a row per stream, and source, raw and stored sizes.
//!
//! Three sizes with one meaning each, here, in `kinograph info` and in Python's `repr`: *source* is the files that were
//! read, as on disk; *raw* is every frame decoded; *dataset* is every file of the version on disk.

use kino_dataset::{Kind, StreamUsage};
use kino_import::Packed;
use serde_json::{Value, json};

use super::{Args, defects};
use crate::output::{Align, Table, beside, bytes, count, frame_type, ratio, speed};
use crate::resized;
use crate::trials;

/// The error of a stream without one.
const LOSSLESS: &str = "lossless";

/// A finished pack.
pub(super) struct Summary<'a> {
    pub(super) packed: &'a Packed,
    pub(super) seconds: f64,
    /// Bytes of all files of the version, and of the version before.
    pub(super) dataset_bytes: u64,
    pub(super) bytes_before: u64,
}

impl Summary<'_> {
    /// For people.
    pub(super) fn to_text(&self, args: &Args) -> String {
        let Packed {
            committed,
            resumed,
            shifts,
            ..
        } = self.packed;
        let raw = self.raw_bytes();
        let mut text = table(&committed.streams);
        let streams = committed.streams.iter();
        let tried = streams.map(|stream| (stream.schema.name.as_str(), stream.trial.as_ref()));
        text.push_str(&trials::lines(tried));
        let streams = committed.streams.iter();
        text.push_str(&resized::lines(
            streams.map(|one| (one.schema.name.as_str(), one.resized_from.as_slice())),
        ));
        text.push_str(&format!(
            "\n{}: version {} with {}, {:.2} s, {} MB/s of raw frames\n",
            args.target.display(),
            committed.version,
            count(committed.episodes, "new episode"),
            self.seconds,
            speed(raw, self.seconds),
        ));
        text.push_str(&self.sizes(args));
        if *resumed > 0 {
            text.push_str(&format!(
                "{resumed} of them were finished by the interrupted pack\n"
            ));
        }
        if *shifts > 0 {
            text.push_str(&format!(
                "{} not stored again: they equal obs shifted by one step\n",
                count(*shifts, "next_obs stream")
            ));
        }
        text
    }

    fn raw_bytes(&self) -> u64 {
        let streams = self.packed.committed.streams.iter();
        streams.map(|stream| stream.raw_bytes).sum()
    }

    /// Bytes that this pack has added to the dataset.
    fn added_bytes(&self) -> u64 {
        self.dataset_bytes.saturating_sub(self.bytes_before)
    }

    /// The size of the source beside that of the dataset: `21 MB in the source, 1.9 GB as raw frames → 25 MB (…)`.
    fn sizes(&self, args: &Args) -> String {
        let (source, added, raw) = (
            self.packed.source_bytes,
            self.added_bytes(),
            self.raw_bytes(),
        );
        let whole = match self.bytes_before {
            0 => String::new(),
            _ => format!("; {} with the existing episodes", bytes(self.dataset_bytes)),
        };
        let is_part = !args.source_options.part().is_all();
        let part = if is_part { ", partly packed" } else { "" };
        let of_source = match source {
            _ if is_part => String::new(),
            0 => String::new(),
            source => format!("{}, ", beside(added, source, "the source")),
        };
        let mut text = format!(
            "{} in the source{part}, {} as raw frames → {} ({of_source}{}){whole}\n",
            bytes(source),
            bytes(raw),
            bytes(added),
            beside(added, raw, "raw"),
        );
        if added > source && source > 0 && !is_part {
            text.push_str(&self.why_larger());
        }
        text
    }

    /// Why the dataset is larger than its source, and what to do.
    fn why_larger(&self) -> String {
        let (source, raw) = (self.packed.source_bytes, self.raw_bytes());
        let why = if source < raw {
            let times = ratio(raw, source);
            format!("its frames are compressed there ({times} smaller than raw), perhaps with loss")
        } else {
            "the plan stores frames almost as they are, and pages have checksums and an index"
                .to_owned()
        };
        let mut streams = self.packed.committed.streams.iter();
        let has_images = streams.any(|one| {
            let codec = kino_codec::codec(&one.schema.codec);
            let is_carried = codec.is_ok_and(|codec| codec.carries() == Some("JPEG"));
            one.schema.kind == Kind::Image && (is_carried || error(one) == LOSSLESS)
        });
        let advice = if has_images {
            "`--quality 90` stores images as JPEG, and a plan can use `av1`"
        } else {
            "a plan can set bounds, and `kinograph bench codecs` compares codecs"
        };
        format!(
            "The dataset is LARGER than its source: {why}.\nTo make it smaller: {advice} (docs/guide/plans.md).\n"
        )
    }

    /// For programs.
    pub(super) fn to_json(&self, args: &Args) -> Value {
        let packed = self.packed;
        let streams = packed.committed.streams.iter().map(|stream| {
            json!({
                "name": stream.schema.name,
                "kind": stream.schema.kind.name(),
                "dtype": stream.schema.dtype,
                "shape": stream.schema.shape,
                "codec": stream.schema.codec,
                "episodes": stream.episodes,
                "frames": stream.frames,
                "raw_bytes": stream.raw_bytes,
                "bytes": stream.bytes,
                "coded_bytes": stream.coded_bytes(),
                "encode_s": stream.encode_time.as_secs_f64(),
                "decode_s": stream.decode_time.as_secs_f64(),
                "max_abs_error": stream.max_abs_error,
                "psnr_db": stream.psnr_db(),
                "resized_from": resized::to_json(&stream.resized_from),
                "trial": trials::to_json(stream.trial.as_ref()),
            })
        });
        json!({
            "dataset": args.target.display().to_string(),
            "version": packed.committed.version,
            "id": packed.committed.id,
            "episodes": packed.committed.episodes,
            "resumed": packed.resumed,
            "shifts": packed.shifts,
            "seconds": self.seconds,
            "source_bytes": packed.source_bytes,
            "raw_bytes": self.raw_bytes(),
            "added_bytes": self.added_bytes(),
            "dataset_bytes": self.dataset_bytes,
            "streams": streams.collect::<Vec<_>>(),
            "defects": defects(&packed.defects),
        })
    }
}

pub(crate) fn table(streams: &[StreamUsage]) -> String {
    let mut table = Table::new(&[
        ("stream", Align::Left),
        ("type", Align::Left),
        ("codec", Align::Left),
        ("raw", Align::Right),
        ("stored", Align::Right),
        ("ratio", Align::Right),
        ("encode MB/s", Align::Right),
        ("decode MB/s", Align::Right),
        ("error", Align::Right),
    ]);
    for stream in streams {
        table.row(vec![
            stream.schema.name.clone(),
            frame_type(&stream.schema.dtype, &stream.schema.shape),
            stream.schema.codec.clone(),
            bytes(stream.raw_bytes),
            bytes(stream.bytes),
            ratio(stream.raw_bytes, stream.bytes),
            speed(stream.coded_bytes(), stream.encode_time.as_secs_f64()),
            speed(stream.coded_bytes(), stream.decode_time.as_secs_f64()),
            error(stream),
        ]);
    }
    table.render()
}

/// `lossless`, the PSNR of images, or the largest error of values.
fn error(stream: &StreamUsage) -> String {
    match stream.psnr_db() {
        Some(psnr) => format!("{psnr:.1} dB"),
        None if stream.max_abs_error > 0.0 => format!("{:.3e}", stream.max_abs_error),
        None => match kino_codec::codec(&stream.schema.codec).map(|codec| codec.carries()) {
            Ok(Some(format)) => format!("{format} unchanged"),
            _ => LOSSLESS.to_owned(),
        },
    }
}
