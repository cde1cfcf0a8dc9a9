//! The choice as text: what was chosen and why, the plans side by side, the streams, and what follows.

use std::fmt;

use super::{CandidatePlan, CodecOption, FewerDecodes, Planned, StreamOptions};
use crate::html::to_quantity;
use crate::idle_cost::ALARM_RATIO;
use crate::signal::FoundBounds;

/// The columns of the tables of streams.
const STREAM_HEAD: [&str; 6] = ["stream", "codec", "smaller", "decode", "encode", "error"];

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for sentence in self.explanation() {
            writeln!(f, "{sentence}")?;
        }
        writeln!(f)?;
        for line in self.setting() {
            writeln!(f, "{line}")?;
        }
        writeln!(f)?;
        write_table(f, &self.plan_rows())?;
        writeln!(f)?;
        write_table(f, &self.stream_rows())?;
        let split = self.split_rows();
        if split.len() > 1 {
            writeln!(f, "\n{}", self.split_title())?;
            write_table(f, &split)?;
        }
        let foreign = self.foreign_rows();
        if foreign.len() > 1 {
            writeln!(
                f,
                "\nForeign codecs, which readers need too; allow one with --foreign NAME:"
            )?;
            write_table(f, &foreign)?;
        }
        let signal = self.signal_lines();
        if !signal.is_empty() {
            writeln!(f, "\nWhat a policy would lose, by the probe:")?;
            signal.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        }
        let looked = self.looked_rows();
        if looked.len() > 1 {
            write_table(f, &looked)?;
        }
        let answers = self.answer_lines();
        if !answers.is_empty() {
            writeln!(f)?;
        }
        answers.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl Planned {
    /// Why this plan, in a few sentences.
    pub fn explanation(&self) -> Vec<String> {
        let Some(choice) = self.choice() else {
            return vec!["There is nothing to plan: no stream has a frame.".to_owned()];
        };
        let prediction = &choice.prediction;
        let mut lines = vec![format!(
            "{} With steps of {}, the loop would compute {:.1} % of the time: {}, {} per epoch, {} to pack.",
            self.chosen_codecs(choice),
            to_quantity(self.question.step_s, "s"),
            100.0 * prediction.compute_ratio,
            to_quantity(prediction.bytes, "B"),
            to_quantity(prediction.epoch_s, "s"),
            to_quantity(prediction.pack_s, "s"),
        )];
        lines.push(self.binding(choice));
        lines.extend(self.memory_limit());
        if self.is_resized(choice) {
            lines.push(
                "Images are stored in the size that the loader resizes them to: nothing else can be made of them."
                    .to_owned(),
            );
        }
        if prediction.compute_ratio < ALARM_RATIO {
            lines.push(format!(
                "That is below {ALARM_RATIO}: even the best plan leaves the GPU waiting for data."
            ));
        }
        lines.extend(self.measured.whole.incomplete());
        if !self.is_within_limits {
            lines.push("No plan keeps the limits; this is the smallest.".to_owned());
        }
        if let Some(line) = self.lossy_gain(choice) {
            lines.push(line);
        }
        lines
    }

    fn chosen_codecs(&self, choice: &CandidatePlan) -> String {
        let streams = self.measured.streams.iter().zip(&choice.codecs);
        let kept = streams
            .filter(|(stream, idx)| stream.options.get(**idx).is_some_and(|one| one.is_stored))
            .count();
        let all = self.measured.streams.len();
        match all - kept {
            0 if self.measured.whole.is_packed => "Keep every stream as it is.".to_owned(),
            0 => "The default codec of every stream is best.".to_owned(),
            changed => format!("Another codec for {changed} of {all} streams."),
        }
    }

    /// Which resource limits the chosen plan.
    fn binding(&self, choice: &CandidatePlan) -> String {
        let prediction = &choice.prediction;
        let step_s = self.question.step_s;
        if prediction.batch_s < 0.95 * step_s {
            return format!(
                "A batch takes {}, {:.0} % of a step, so the smallest such plan is best.",
                to_quantity(prediction.batch_s, "s"),
                100.0 * prediction.batch_s / step_s
            );
        }
        let what = if prediction.fetch_s >= prediction.batch_s {
            "Storage is the limit: fewer bytes would help, or faster storage."
        } else {
            "The CPU is the limit: a codec that decodes faster would help, or more cores."
        };
        format!(
            "A batch takes {}: {} of storage, {} of CPU time for decoding and {} for the rest. {what}",
            to_quantity(prediction.batch_s, "s"),
            to_quantity(prediction.fetch_s, "s"),
            to_quantity(prediction.decode_s, "s"),
            to_quantity(prediction.other_s, "s"),
        )
    }

    /// That memory limits the chosen plan, and what would change that.
    fn memory_limit(&self) -> Option<String> {
        let better = &self.answers.fewer_decodes;
        let option = |one: &FewerDecodes| {
            format!(
                "{} {}would reach {:.1} %",
                one.option,
                if one.mixes_less {
                    "(batches of fewer episodes) "
                } else {
                    ""
                },
                100.0 * one.compute_ratio
            )
        };
        let options: Vec<String> = better.iter().map(option).collect();
        (!options.is_empty()).then(|| {
            let loader = &self.measured.loader;
            format!(
                "Memory is the limit: {} are too few for this shuffle, so a frame is decoded {:.1} times per epoch. Options of the \
                 loader: {}.",
                to_quantity(loader.memory_bytes as f64, "B"),
                loader.decodes,
                options.join("; ")
            )
        })
    }

    /// What a lossy plan would bring that the bounds do not allow.
    fn lossy_gain(&self, choice: &CandidatePlan) -> Option<String> {
        let refused = self.plans.iter().filter(|plan| !plan.is_allowed);
        let ratio = |plan: &CandidatePlan| plan.prediction.compute_ratio;
        let better = refused.filter(|plan| {
            ratio(plan) > ratio(choice) + 0.02
                || plan.prediction.bytes < choice.prediction.bytes / 2.0
        });
        let best = better.max_by(|a, b| {
            let by_ratio = (ratio(a) * 100.0)
                .round()
                .total_cmp(&(ratio(b) * 100.0).round());
            by_ratio.then(b.prediction.bytes.total_cmp(&a.prediction.bytes))
        })?;
        Some(format!(
            "With loss, which your bounds do not allow: {:.1} % in {}. Allow it with --bound or --quality if the policy can take it.",
            100.0 * ratio(best),
            to_quantity(best.prediction.bytes, "B"),
        ))
    }

    pub(super) fn setting(&self) -> Vec<String> {
        let (host, loader, storage) = (
            &self.question,
            &self.measured.loader,
            &self.measured.storage,
        );
        let bandwidth = storage
            .bytes_per_s
            .map_or("no limit".to_owned(), |rate| to_quantity(rate, "B/s"));
        vec![
            format!(
                "{}: {} episodes, batch size {:.0}: {}",
                self.measured.whole.name,
                self.measured.whole.counts.episodes,
                loader.batch,
                self.measured.windows.join(", ")
            ),
            format!(
                "{} cores and {} of memory for {}, {} of it for decoded frames: {}",
                host.cores,
                to_quantity(host.memory_bytes as f64, "B"),
                match host.ranks {
                    1 => "1 rank".to_owned(),
                    ranks => format!("{ranks} ranks"),
                },
                to_quantity(loader.memory_bytes as f64, "B"),
                match loader.decodes {
                    0.0 => "all frames stay decoded".to_owned(),
                    decodes => format!("a frame is decoded {decodes:.2} times per epoch"),
                }
            ),
            format!(
                "storage, {}: {bandwidth}, {} per read",
                if storage.is_given {
                    "as given"
                } else {
                    "measured"
                },
                to_quantity(storage.latency_s, "s")
            ),
        ]
    }

    /// The plans, with a head.
    pub(super) fn plan_rows(&self) -> Vec<Vec<String>> {
        let mut head = vec![
            "plan",
            "bytes",
            "compute",
            "samples/s",
            "cores",
            "read",
            "epoch",
            "pack",
        ];
        if self.probed.is_some() {
            head.push("harm");
        }
        head.push("");
        let mut rows = vec![head.into_iter().map(str::to_owned).collect()];
        for (idx, plan) in self.plans.iter().enumerate() {
            if self.is_shown(idx) {
                rows.push(self.plan_row(idx, plan));
            }
        }
        rows
    }

    /// Whether a plan is worth a row.
    pub(super) fn is_shown(&self, idx: usize) -> bool {
        let is_named = |plan: &CandidatePlan| plan.is_on_front || !plan.name.is_empty();
        idx == self.chosen || self.plans.get(idx).is_some_and(is_named) || self.is_lossy_front(idx)
    }

    /// The steps of `signal(…)` bounds, with a head.
    pub(super) fn looked_rows(&self) -> Vec<Vec<String>> {
        let signal = self.measured.signal.as_ref();
        signal.map_or(Vec::new(), FoundBounds::rows)
    }

    fn plan_row(&self, idx: usize, plan: &CandidatePlan) -> Vec<String> {
        let prediction = &plan.prediction;
        let mut remarks = Vec::new();
        if idx == self.chosen {
            remarks.push("chosen");
        }
        if !plan.is_allowed {
            remarks.push("loses more than allowed");
        } else if !plan.is_lossless {
            remarks.push("lossy");
        }
        if self.is_resized(plan) {
            remarks.push("resized");
        }
        if prediction.is_page_cached {
            remarks.push("in page cache");
        }
        let mut row = vec![
            self.plan_name(plan),
            to_quantity(prediction.bytes, "B"),
            format!("{:.3}", prediction.compute_ratio),
            format!("{:.0}", prediction.samples_per_s),
            format!("{:.2}", prediction.cores),
            to_quantity(prediction.read_bytes_per_s, "B/s"),
            to_quantity(prediction.epoch_s, "s"),
            to_quantity(prediction.pack_s, "s"),
        ];
        row.extend(self.probed.is_some().then(|| self.verdict(plan)));
        row.push(remarks.join(", "));
        row
    }

    /// The name of a plan, or the codecs of its loaded image streams, or of the largest stream.
    pub(super) fn plan_name(&self, plan: &CandidatePlan) -> String {
        if !plan.name.is_empty() {
            return plan.name.clone();
        }
        let streams = self.measured.streams.iter().zip(&plan.codecs);
        let mut sized: Vec<(f64, String)> = streams
            .filter_map(|(stream, &idx)| {
                let option = stream.options.get(idx)?;
                Some((stream.frames * stream.frame_bytes, stored_as(option)))
            })
            .collect();
        sized.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut codecs: Vec<String> = Vec::new();
        for (_, codec) in sized {
            if !codecs.contains(&codec) {
                codecs.push(codec);
            }
        }
        codecs.truncate(2);
        codecs.join(" + ")
    }

    /// Whether no other plan at all is both smaller and faster.
    fn is_lossy_front(&self, idx: usize) -> bool {
        let (Some(plan), all) = (self.plans.get(idx), self.plans.iter()) else {
            return false;
        };
        let (bytes, ratio) = (plan.prediction.bytes, plan.prediction.compute_ratio);
        !all.clone()
            .any(|other| other.prediction.bytes < bytes && other.prediction.compute_ratio >= ratio)
    }

    /// The chosen codec of every stream, with a head.
    pub(super) fn stream_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![STREAM_HEAD.map(str::to_owned).to_vec()];
        let Some(choice) = self.choice() else {
            return rows;
        };
        for (stream, &idx) in self.measured.streams.iter().zip(&choice.codecs) {
            let Some(option) = stream.options.get(idx) else {
                continue;
            };
            rows.push(self.codec_row(stream, option));
        }
        rows
    }

    /// The foreign codecs that were compared but are not allowed.
    pub(super) fn foreign_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![STREAM_HEAD.map(str::to_owned).to_vec()];
        for stream in &self.measured.streams {
            let refused = |option: &&CodecOption| option.foreign.is_some() && !option.is_allowed;
            let options = stream.options.iter().filter(refused);
            rows.extend(options.map(|option| self.codec_row(stream, option)));
        }
        rows
    }

    /// What a codec costs on a stream.
    fn codec_row(&self, stream: &StreamOptions, option: &CodecOption) -> Vec<String> {
        let error = match (option.is_lossless, option.psnr_db) {
            (true, _) if option.resize.is_some() => "resized".to_owned(),
            (true, _) => "none".to_owned(),
            // Carried bitstreams lost something before, and nothing here.
            (false, None) if option.max_abs_error == 0.0 => "none".to_owned(),
            (false, Some(psnr)) => format!("{psnr:.1} dB"),
            (false, None) => format!("{:.2e}", option.max_abs_error),
        };
        let encode = if option.is_stored && self.measured.whole.is_packed {
            "as it is".to_owned()
        } else {
            to_quantity(option.encode_ns / 1e9, "s")
        };
        vec![
            stream.name.clone(),
            stored_as(option),
            format!("{:.1}×", stream.frame_bytes / option.bytes.max(1e-9)),
            to_quantity(option.decode_ns / 1e9, "s"),
            encode,
            error,
        ]
    }
}

/// A codec, and the size that frames are resized to before it: `predict:level=1 at 224 × 224`.
pub(super) fn stored_as(option: &CodecOption) -> String {
    match option.resize {
        Some(size) => format!("{} at {size}", option.codec),
        None => option.codec.clone(),
    }
}

/// Columns of equal width; the first is left-aligned, and so is the last.
fn write_table(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            if column == 0 || column + 1 == columns {
                line += &format!("{cell:width$}  ");
            } else {
                line += &format!("{cell:>width$}  ");
            }
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}
