//! The chosen plan as TOML, for `kinograph pack --plan` and `kinograph repack --plan`.

use std::fmt::Write;

use super::{CandidatePlan, Planned};
use crate::html::to_quantity;

impl Planned {
    /// The chosen plan. Streams that stay as they are have no rule: `pack` and `repack` keep them.
    pub fn to_toml(&self) -> String {
        self.choice()
            .map_or(String::new(), |plan| self.plan_toml(plan))
    }

    /// Any of the candidate plans.
    pub fn plan_toml(&self, plan: &CandidatePlan) -> String {
        let prediction = &plan.prediction;
        let mut text = format!(
            "# Chosen by `kinograph plan` for {}, steps of {:.1} ms: predicted compute ratio {:.3}, {}.\n",
            one_line(&self.measured.whole.name),
            self.question.step_s * 1e3,
            prediction.compute_ratio,
            to_quantity(prediction.bytes, "B")
        );
        for (stream, &idx) in self.measured.streams.iter().zip(&plan.codecs) {
            let Some(option) = stream.options.get(idx) else {
                continue;
            };
            if option.is_stored {
                // Writing to a string cannot fail.
                let _ = writeln!(
                    text,
                    "\n# `{}` keeps {}",
                    one_line(&stream.name),
                    option.codec
                );
                continue;
            }
            let _ = write!(
                text,
                "\n[[stream]]\nmatch = {}\ncodec = {}\n",
                quoted(&pattern(&stream.name)),
                quoted(&option.codec)
            );
            if let Some(size) = option.resize {
                let _ = writeln!(text, "resize = [{}, {}]", size.height, size.width);
            }
        }
        text
    }
}

/// A name as a pattern that matches nothing else: wildcards in it match any one character.
fn pattern(name: &str) -> String {
    name.replace('*', "?")
}

fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
