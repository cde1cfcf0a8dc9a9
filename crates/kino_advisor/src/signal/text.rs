//! What the probe found, for people.

use std::fmt;

use super::interval::Interval;
use super::judge::{one_percent, percent};
use super::losses::BITS;
use super::outcome::{
    Changed, Contrast, Control, Outcome, Probed, ProbedCandidate, Region, Verdict,
};
use crate::html::to_quantity;

/// Said when vectors are rounded: `docs/measurements/rounding.md` has the rollouts.
const VECTORS: &str = "Rounded vectors: rollouts have not confirmed how the probe ranks them. Ask your own policy too (`kinograph.probe_policy`).";

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
            let constant = skill.over_constant;
            let constant = constant
                .map_or("not known beside that of a constant".to_owned(), |found| {
                    below(found, "a constant")
                });
            let vectors = skill.over_vectors.map_or(String::new(), |found| {
                format!(", {}", below(found, "the vectors alone"))
            });
            lines.push(format!(
                "`{}` {}: {} of the variance unexplained on raw frames; the error is {constant}{vectors}.",
                skill.target,
                skill.region.name(),
                one_percent(skill.unexplained),
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

    /// How to read [`Self::rows`]: what a sign means, and which figures rollouts have not confirmed.
    pub(super) fn legend(&self) -> Vec<&'static str> {
        let arms = self.candidates.iter().flat_map(|one| &one.arms);
        let candidates = arms.flat_map(|arm| &arm.outcomes);
        let mut all = candidates.chain(self.controls.iter().flat_map(|one| &one.outcomes));
        let has_limit = all.any(|one| matches!(one.verdict, Verdict::NoHarmAbove { .. }));
        let mut changes = self.candidates.iter().flat_map(|one| &one.changes);
        let has_vector = changes.any(|change| !change.is_identical && self.is_vector(change));
        [
            (has_limit, "≤ x: no harm larger than x was seen."),
            (has_vector, VECTORS),
        ]
        .into_iter()
        .filter_map(|(applies, line)| applies.then_some(line))
        .collect()
    }

    fn is_vector(&self, change: &Changed) -> bool {
        self.controls
            .iter()
            .any(|control| control.stream == change.stream && control.name == BITS)
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
        Verdict::NoHarmAbove { limit } => format!("{increase} ≤ {}", one_percent(*limit)),
        Verdict::CannotTell { .. } => format!("{increase} cannot tell"),
    }
}

/// How far an error is below that of a simpler predictor, or above it, with the interval.
pub(super) fn below(found: Interval, than: &str) -> String {
    let side = |share: f64| if share < 0.0 { "above" } else { "below" };
    let size = |share: f64| one_percent(share.abs());
    let Interval { mean, low, high } = found;
    let (low_side, high_side) = (side(low), side(high));
    let interval = if low_side != high_side {
        format!("{} {low_side} to {} {high_side}", size(low), size(high))
    } else if low < 0.0 {
        format!("{} to {}", size(high), size(low))
    } else {
        format!("{} to {}", size(low), size(high))
    };
    format!("{} {} that of {than} [{interval}]", size(mean), side(mean))
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
        for line in self.legend() {
            writeln!(f, "{line}")?;
        }
        writeln!(f)?;
        for line in self.change_lines().iter().chain(&self.setting()) {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_below_or_above_another() {
        let said = |mean, low, high| below(Interval { mean, low, high }, "a constant");
        for (found, expected) in [
            (
                said(0.39, 0.34, 0.44),
                "39 % below that of a constant [34 % to 44 %]",
            ),
            (
                said(0.05, -0.021, 0.12),
                "5.0 % below that of a constant [2.1 % above to 12 % below]",
            ),
            (
                said(-0.059, -0.21, 0.071),
                "5.9 % above that of a constant [21 % above to 7.1 % below]",
            ),
            (
                said(-0.059, -0.21, -0.01),
                "5.9 % above that of a constant [1.0 % to 21 %]",
            ),
        ] {
            assert_eq!(found, expected);
        }
    }
}
