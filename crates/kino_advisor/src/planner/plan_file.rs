//! The chosen plan as TOML, for `kinograph pack --plan` and `kinograph repack --plan`.

use std::fmt::Write;

use kino_dataset::SignalEvidence;

use super::{CandidatePlan, CodecOption, Planned, StreamOptions};
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
            // Writing to a string cannot fail.
            if let Some(bound) = self
                .measured
                .signal
                .as_ref()
                .and_then(|all| all.of(&stream.name))
            {
                let _ = write!(text, "\n# {}", one_line(&bound.sentence()));
            }
            if option.is_stored {
                let _ = writeln!(
                    text,
                    "\n# `{}` keeps {}",
                    one_line(&stream.name),
                    option.codec
                );
                continue;
            }
            let _ = write!(text, "\n{}", rule_toml(stream, option));
            let protect = self.protect(stream, option);
            if !protect.is_empty() {
                let _ = writeln!(text, "protect = {}", serde_json::json!(protect));
            }
            if let Some(evidence) = self.evidence(stream, option) {
                text += &evidence.to_toml();
            }
        }
        text + &self.measured.bounds.events_toml()
    }

    /// What was measured before a stream may have this codec, if it is because of a `signal(…)` bound.
    fn evidence(&self, stream: &StreamOptions, option: &CodecOption) -> Option<&SignalEvidence> {
        let bound = self.measured.signal.as_ref()?.of(&stream.name)?;
        let evidence = bound.evidence.as_ref();
        evidence.filter(|one| one.codec == option.codec)
    }
}

/// The rule of a stream, without what follows from bounds.
pub(super) fn rule_toml(stream: &StreamOptions, option: &CodecOption) -> String {
    let resize = option.resize.map_or(String::new(), |size| {
        format!("resize = [{}, {}]\n", size.height, size.width)
    });
    format!(
        "[[stream]]\nmatch = {}\ncodec = {}\n{resize}",
        quoted(&pattern(&stream.name)),
        quoted(&option.codec)
    )
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
