//! What `signal(…)` bounds became, for people.

use super::Interval;
use super::bounds::{FoundBound, FoundBounds, Looked};
use super::judge::{one_percent, percent as range};
use crate::html::to_quantity;

impl FoundBound {
    /// What the stream may lose, or why nothing.
    pub fn sentence(&self) -> String {
        let (name, percent) = (&self.stream, self.percent);
        match (&self.codec, &self.evidence) {
            (Some(codec), Some(evidence)) => {
                let increase = Interval {
                    mean: evidence.increase,
                    low: evidence.low,
                    high: evidence.high,
                };
                let further = match &*self.reason {
                    "" => String::new(),
                    reason => format!(" No further: {reason}."),
                };
                format!(
                    "`{name}`, signal({percent}%): {codec}, {} per frame instead of {}. The error of `{}` grows by {}; with {} \
                     it would by {}.{further}",
                    to_quantity(self.frame_bytes, "B"),
                    to_quantity(self.lossless_frame_bytes, "B"),
                    evidence.target,
                    range(increase),
                    evidence.control,
                    one_percent(evidence.control_increase)
                )
            }
            _ => format!(
                "`{name}`, signal({percent}%): stays lossless; {}.",
                self.reason
            ),
        }
    }
}

impl FoundBounds {
    /// What every stream may lose, and how that was measured.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.streams.iter().map(FoundBound::sentence).collect();
        let effort = &self.effort;
        if effort.episodes > 0 {
            lines.push(format!(
                "Trained on these frames and scored on raw ones, {} from {}: {} frames of {} episodes, {} folds; took {} ({} expected).",
                self.targets.join(", "),
                self.inputs.join(", "),
                effort.anchors,
                effort.episodes,
                effort.folds,
                to_quantity(effort.took_s, "s"),
                to_quantity(effort.expected_s, "s"),
            ));
        }
        lines
    }

    /// Every step that was tried, with a head.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let head = ["step", "codec", "bytes of a frame", "error grows by", ""];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let row = |looked: &Looked| {
            vec![
                looked.stream.clone(),
                looked.codec.clone(),
                to_quantity(looked.frame_bytes, "B"),
                looked.increase.map_or("unknown".to_owned(), range),
                if looked.is_kept { "kept" } else { "not kept" }.to_owned(),
            ]
        };
        rows.extend(self.looked.iter().map(row));
        rows
    }
}
