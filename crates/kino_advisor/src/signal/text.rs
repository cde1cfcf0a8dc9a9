//! What the probe found, for people.

use std::fmt;

use super::judge::{one_percent, percent};
use super::outcome::{Contrast, Control, Outcome, Probed, ProbedCandidate, Region, Verdict};
use crate::html::to_quantity;

impl Probed {
    /// One sentence per candidate: the verdict on storing the data like this.
    pub fn verdicts(&self) -> Vec<String> {
        let sentence = |candidate| sentence(candidate, &self.controls);
        self.candidates.iter().map(sentence).collect()
    }

    /// What was done, and how well the probe predicts.
    pub(super) fn setting(&self) -> Vec<String> {
        let effort = &self.effort;
        let mut lines = vec![format!(
            "{} anchors of {} episodes ({} near events), {} folds of episodes, {} sets of {} features; took {} ({} expected).",
            effort.anchors,
            effort.episodes,
            effort.near_events,
            effort.folds,
            effort.seeds,
            effort.features,
            to_quantity(effort.took_s, "s"),
            to_quantity(effort.expected_s, "s"),
        )];
        lines.push(format!(
            "{} from {}.",
            self.targets.join(", "),
            self.inputs.join(", ")
        ));
        for skill in &self.skill {
            let of = |found: Option<super::Interval>| found.map_or("unknown".to_owned(), percent);
            let vectors = skill.over_vectors.map_or(String::new(), |found| {
                format!(", {} below that of the vectors alone", percent(found))
            });
            lines.push(format!(
                "`{}` {}: {} of the variance unexplained on raw frames; the error is {} below that of a constant{vectors}.",
                skill.target,
                skill.region.name(),
                one_percent(skill.unexplained),
                of(skill.over_constant),
            ));
        }
        lines
    }

    /// Every contrast of every arm, and of the controls.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let head = [
            "",
            "changed",
            "target",
            "where",
            "total",
            "information",
            "mismatch",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for candidate in &self.candidates {
            for arm in &candidate.arms {
                rows.extend(outcome_rows(
                    &candidate.name,
                    &arm.streams.join(" + "),
                    &arm.outcomes,
                ));
            }
        }
        for control in &self.controls {
            let name = format!("control: {}", control.name);
            rows.extend(outcome_rows(&name, &control.stream, &control.outcomes));
        }
        rows
    }

    /// What candidates do to streams, and their bytes.
    pub(super) fn change_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for candidate in &self.candidates {
            for change in &candidate.changes {
                let mut line = format!(
                    "{}: `{}` as {}",
                    candidate.name, change.stream, change.codec
                );
                if let Some(bytes) = change.frame_bytes {
                    line += &format!(", {} per frame", to_quantity(bytes, "B"));
                }
                line += &format!(
                    "; stored now in {}",
                    to_quantity(change.stored_frame_bytes, "B")
                );
                if change.is_identical {
                    line += "; every bit comes back";
                } else if change.is_stored_lossless
                    && change
                        .frame_bytes
                        .is_some_and(|bytes| bytes >= change.stored_frame_bytes)
                {
                    line += " without loss: there is nothing to gain";
                }
                lines.push(line + ".");
            }
            if !candidate.not_probed.is_empty() {
                lines.push(format!(
                    "{}: also changes {}, which are neither input nor target, so nothing is known about them.",
                    candidate.name,
                    candidate.not_probed.join(", ")
                ));
            }
        }
        lines
    }
}

/// The verdict on a candidate: trained on it, used on raw frames.
fn sentence(candidate: &ProbedCandidate, controls: &[Control]) -> String {
    let name = &candidate.name;
    let Some(worst) = candidate.worst(Contrast::Total) else {
        return format!("{name}: changes no stream that a policy sees or predicts.");
    };
    let target = &worst.target;
    let mut text = match (&worst.verdict, worst.increase) {
        (Verdict::Identical, _) => {
            return format!("{name}: every frame comes back bit by bit; exactly 0.");
        }
        (Verdict::Harm, Some(increase)) => format!(
            "{name}: harm. Trained on it and used on raw frames, the error of `{target}` grows by {}.",
            percent(increase)
        ),
        (Verdict::NoHarmAbove { limit }, _) => format!(
            "{name}: no harm larger than {} seen, trained on it and used on raw frames.",
            one_percent(*limit)
        ),
        (Verdict::CannotTell { reason }, _) => {
            format!("{name}: cannot tell (`{target}`: {reason}).")
        }
        (Verdict::Harm, None) => format!("{name}: harm."),
    };
    if worst.verdict == Verdict::Harm {
        let of_target = |one: &&Outcome| {
            (&one.target, one.region, one.contrast) == (target, worst.region, worst.contrast)
        };
        let seen = controls.iter().filter(|control| {
            candidate
                .changes
                .iter()
                .any(|one| one.stream == control.stream)
        });
        for control in seen {
            let increase = control
                .outcomes
                .iter()
                .find(of_target)
                .and_then(|one| one.increase);
            if let Some(increase) = increase {
                let by = one_percent(increase.mean);
                text += &format!(
                    " With {} of `{}` it grows by {by}.",
                    control.name, control.stream
                );
            }
        }
    }
    let mismatch = candidate.worst(Contrast::Mismatch);
    let mismatch = mismatch
        .filter(|one| one.verdict == Verdict::Harm)
        .and_then(|one| one.increase);
    if let Some(increase) = mismatch {
        text += &format!(
            " Trained on raw frames and fed these: {}.",
            percent(increase)
        );
    }
    text
}

fn outcome_rows(name: &str, changed: &str, outcomes: &[Outcome]) -> Vec<Vec<String>> {
    let mut rows: Vec<(&str, Region, Vec<String>)> = Vec::new();
    for outcome in outcomes {
        let at = rows
            .iter()
            .position(|(target, region, _)| *target == outcome.target && *region == outcome.region);
        let at = at.unwrap_or_else(|| {
            let first = [name, changed, &outcome.target, outcome.region.name()];
            rows.push((
                &outcome.target,
                outcome.region,
                first.map(str::to_owned).to_vec(),
            ));
            rows.len() - 1
        });
        rows[at].2.push(cell(outcome));
    }
    rows.into_iter().map(|(_, _, row)| row).collect()
}

fn cell(outcome: &Outcome) -> String {
    let increase = outcome.increase.map_or("unknown".to_owned(), percent);
    match &outcome.verdict {
        Verdict::Identical => "0, identical".to_owned(),
        Verdict::Harm => format!("{increase} harm"),
        Verdict::NoHarmAbove { .. } => increase,
        Verdict::CannotTell { .. } => format!("{increase} cannot tell"),
    }
}

impl fmt::Display for Probed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for verdict in self.verdicts() {
            writeln!(f, "{verdict}")?;
        }
        writeln!(f)?;
        let rows = self.rows();
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
        };
        let widths: Vec<usize> = (0..columns)
            .map(|column| width(column).unwrap_or(0))
            .collect();
        for row in &rows {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}"));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        writeln!(f)?;
        for line in self.change_lines().iter().chain(&self.setting()) {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}
