//! `bound = "signal(2%)"`: a bound that only a measurement can turn into a codec, and what was measured.
//!
//! ```toml
//! [[stream]]                     # what is asked
//! kind = "image"
//! bound = "signal(2%)"
//!
//! [[stream]]                     # what `kinograph plan` makes of it
//! match = "obs/front_image"
//! codec = "jpeg:psnr=42,sub=420"
//! [stream.signal]                # why: kept in the manifest of every dataset that is written with it
//! bound = "signal(2%)"
//! …
//! ```

use kino_format::Kind;
use serde::{Deserialize, Serialize};

use super::Plan;
use super::bound::PlanBound;
use crate::error::{DatasetError, invalid};

/// A rule's `signal(…)` bound, and what else the rule says about the codec.
#[derive(Debug, Clone, PartialEq)]
pub struct SignalBound {
    /// By how many percent the held-out error may grow.
    pub percent: f64,
    /// The codec that is to be tightened; `None` for any.
    pub codec: Option<String>,
    /// Events around which frames stay exact.
    pub protect: Vec<String>,
}

/// What was measured of a stream that a `signal(…)` bound made lossy.
///
/// Increases are of the held-out error of `target`, relative to that on raw frames, as shares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SignalEvidence {
    /// The bound, as written: `signal(2%)`.
    pub bound: String,
    /// The codec that was measured.
    pub codec: String,
    /// What was trained and scored on: `total` is trained on compressed frames and scored on raw ones.
    pub contrast: String,
    /// What was predicted; of several targets, the one with the highest upper end.
    pub target: String,
    /// By which share its error grows with all streams of the plan that such a bound made lossy.
    pub increase: f64,
    /// The lower end of the 95 % interval.
    pub low: f64,
    /// The upper end, which is below the bound.
    pub high: f64,
    /// Damage to this stream that was seen, so that less would have been seen too.
    pub control: String,
    /// By which share the error grows with that damage.
    pub control_increase: f64,
    /// By which share the error on raw frames is below those of simpler predictors: the lower end, of the least.
    pub skill: f64,
    /// Episodes that were measured.
    pub episodes: u64,
    /// Frames of the target in them.
    pub frames: u64,
    /// Bytes of a frame with this codec, in the sample.
    pub frame_bytes: f64,
    /// Bytes of a frame without loss.
    pub lossless_frame_bytes: f64,
}

impl SignalEvidence {
    /// The table of a rule in a plan.
    pub fn to_toml(&self) -> String {
        format!("[stream.signal]\n{}", members(self))
    }
}

impl Plan {
    /// The `signal(…)` bound of the rule for a stream.
    pub fn signal_bound(&self, name: &str, kind: Kind) -> Option<SignalBound> {
        let rule = self.rule(name, kind)?;
        match rule.bound {
            Some(PlanBound::Signal(percent)) => Some(SignalBound {
                percent,
                codec: rule.codec.clone(),
                protect: rule.protect.clone(),
            }),
            _ => None,
        }
    }

    /// Whether a rule has a `signal(…)` bound.
    pub fn has_signal_bound(&self) -> bool {
        self.unmeasured().is_some()
    }

    /// The events around which the rule for a stream keeps frames exact.
    pub fn protected_by(&self, name: &str, kind: Kind) -> &[String] {
        self.rule(name, kind).map_or(&[], |rule| &rule.protect)
    }

    /// The events, as a plan has them.
    pub fn events_toml(&self) -> String {
        let table = |event| format!("\n[[event]]\n{}", members(event));
        self.events.iter().map(table).collect()
    }

    /// What was measured of a stream, if its rule says so.
    pub(crate) fn evidence(&self, name: &str, kind: Kind) -> Option<&SignalEvidence> {
        self.rule(name, kind)?.signal.as_ref()
    }

    /// Refuses a bound that has to be measured before anything can be written with it.
    pub(crate) fn check_measured(&self) -> Result<(), DatasetError> {
        match self.unmeasured() {
            Some((subject, bound)) => Err(invalid(unmeasured(&subject, &bound))),
            None => Ok(()),
        }
    }

    fn unmeasured(&self) -> Option<(String, String)> {
        self.rules.iter().find_map(|rule| match &rule.bound {
            Some(bound @ PlanBound::Signal(_)) => Some((rule.subject(), bound.to_string())),
            _ => None,
        })
    }
}

/// The lines of a table: strings, numbers and lists of JSON are those of TOML.
fn members(table: &impl Serialize) -> String {
    let Ok(serde_json::Value::Object(members)) = serde_json::to_value(table) else {
        return String::new();
    };
    let lines = members.iter();
    lines
        .map(|(name, value)| format!("{name} = {value}\n"))
        .collect()
}

/// That a bound must be measured first, and how.
pub(super) fn unmeasured(subject: &str, bound: &str) -> String {
    format!(
        "the plan asks for {bound} for {subject}, and only a measurement can say which codec that is; run `kinograph plan \
         SOURCE --bounds PLAN.toml --output NEW.toml`, and use the plan that it writes"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Arrival;
    use kino_codec::{Dtype, FrameType};

    fn evidence() -> SignalEvidence {
        SignalEvidence {
            bound: "signal(2%)".to_owned(),
            codec: "jpeg:psnr=42,sub=420".to_owned(),
            contrast: "total".to_owned(),
            target: "a \"name\"".to_owned(),
            increase: 0.004,
            low: -0.003,
            high: 0.011,
            control: "blur 4".to_owned(),
            control_increase: 0.8,
            skill: 0.3,
            episodes: 200,
            frames: 8000,
            frame_bytes: 1200.5,
            lossless_frame_bytes: 9000.0,
        }
    }

    #[test]
    fn a_measured_rule_comes_back_from_its_toml() {
        let text = format!(
            "[[stream]]\nmatch = \"cam\"\ncodec = \"jpeg:psnr=42\"\n{}",
            evidence().to_toml()
        );
        let plan = Plan::from_toml(&format!("{text}\n[[stream]]\ncodec = \"zstd\"")).unwrap();
        assert_eq!(plan.evidence("cam", Kind::Image), Some(&evidence()));
        assert_eq!(plan.evidence("joints", Kind::Vector), None);
        assert!(plan.check_measured().is_ok() && !plan.has_signal_bound());
    }

    #[test]
    fn events_come_back_from_their_toml() {
        let text = "[[event]]\nname = \"grip\"\nstream = \"actions\"\nelements = [6]\ndetect = \"transition\"\n\
                    [[event]]\nname = \"touch\"\nstream = \"force\"\ndetect = \"onset\"\nhold = 5";
        let plan = Plan::from_toml(text).unwrap();
        assert_eq!(Plan::from_toml(&plan.events_toml()).unwrap(), plan);
    }

    #[test]
    fn a_bound_that_was_not_measured_stores_nothing_and_says_what_to_do() {
        let plan = Plan::from_toml(
            "[[stream]]\nmatch = \"cam*\"\ncodec = \"jpeg\"\nbound = \"signal(1.5%)\"",
        )
        .unwrap();
        let frame = FrameType::values(Dtype::U8, &[8, 8, 3]).unwrap();
        let chosen = plan.choose("cam2", Kind::Image, &frame, Arrival::Values);
        for error in [
            chosen.unwrap_err().to_string(),
            plan.check_measured().unwrap_err().to_string(),
        ] {
            assert!(
                error.contains("signal(1.5%)") && error.contains("kinograph plan"),
                "{error}"
            );
        }
        // What it does not say anything about is not affected.
        assert!(
            plan.choose("side", Kind::Image, &frame, Arrival::Values)
                .is_ok()
        );
        let bound = plan.signal_bound("cam2", Kind::Image).unwrap();
        assert_eq!((bound.percent, bound.codec.as_deref()), (1.5, Some("jpeg")));
        assert_eq!(plan.signal_bound("side", Kind::Image), None);
        // Until it is measured, it allows nothing.
        let allowed = plan.codecs_for("cam2", Kind::Image, &frame, &[]);
        let lossy = |(text, is_allowed): &(String, bool)| {
            *is_allowed && kino_codec::codec(text).unwrap().bound() != kino_codec::Bound::Lossless
        };
        assert!(!allowed.iter().any(lossy), "{allowed:?}");
    }
}
