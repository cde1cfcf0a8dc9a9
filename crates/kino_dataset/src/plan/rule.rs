//! One rule of a plan: which streams it is for, and how they are stored.

use std::num::NonZeroUsize;

use kino_codec::{Bound, CodecError, FrameType};
use kino_format::{Kind, is_variant_name};
use serde::{Deserialize, Serialize};

use crate::error::{Result, invalid};
use crate::resize::Size;

use super::bound::PlanBound;
use super::glob::matches_pattern;
use super::resize::check_rule;
use super::signal::SignalEvidence;

/// One rule of a plan. A rule without `match` and `kind` matches every stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// A pattern for the stream's name.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// The stream's kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Makes another encoding of each stream that matches, as a stream `NAME@VARIANT` beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The codec; `None` for the best of the stream's kind that satisfies the bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codec: Option<String>,
    /// The bound that the codec must guarantee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<PlanBound>,
    /// Millimetres per unit of a distance, for `mm(…)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit_mm: Option<f64>,
    /// Events around which frames are bit-exact; `*` for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protect: Vec<String>,
    /// Height and width to which images and depth are resized before they are stored; `None` to keep their size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<Size>,
    /// Frames per page; `None` for the codec's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_frames: Option<NonZeroUsize>,
    /// What was measured, if the codec is what a `signal(…)` bound became.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<SignalEvidence>,
}

impl Rule {
    pub(super) fn check(&self) -> Result<()> {
        if let Some(variant) = &self.variant {
            check_variant(variant, self.codec.as_deref())?;
        }
        if let Some(text) = &self.codec {
            // A codec may only be valid with its bound (`vector:quat=3`), which is added once a stream is known.
            let bound = self
                .bound
                .as_ref()
                .map(|bound| bound.in_unit_of(None, self.unit_mm));
            let parameter = bound.as_ref().and_then(Bound::parameter);
            let bounded = parameter.map(|parameter| with_parameter(text, &parameter));
            let is_known = bounded.is_some_and(|text| kino_codec::codec(&text).is_ok());
            let made = kino_codec::codec(text).map(|_| ());
            made.or_else(|error| if is_known { Ok(()) } else { Err(error) })
                .map_err(|error| match error {
                    CodecError::Unknown { name, known } => invalid(format!(
                        "the plan has an unknown codec `{name}`; there are {known}"
                    )),
                    CodecError::Retired { name, instead } => invalid(format!(
                        "the plan has codec `{name}`, which cannot be stored: `kinograph bench codecs` only compares \
                         it with others; use {instead}"
                    )),
                    error => invalid(format!(
                        "the plan names a codec that cannot be used: {error}"
                    )),
                })?;
        }
        if let Some(size) = self.resize {
            check_rule(size, self.codec.as_deref())?;
        }
        match self.unit_mm {
            Some(unit) if !(unit > 0.0 && unit.is_finite()) => {
                Err(invalid("`unit_mm` in the plan must be above 0"))
            }
            _ => Ok(()),
        }
    }

    /// The bound in the unit of such frames.
    pub(super) fn bound_of(&self, frame: &FrameType) -> Option<Bound> {
        let bound = self.bound.as_ref()?;
        Some(bound.in_unit_of(frame.as_values(), self.unit_mm))
    }

    /// The codec that satisfies the bound; `None` for the lossless one of the stream's kind.
    pub(super) fn codec_text(
        &self,
        kind: Kind,
        bound: Option<&Bound>,
    ) -> Result<Option<String>, String> {
        let Some((bound, parameter)) = bound.and_then(|bound| Some((bound, bound.parameter()?)))
        else {
            return Ok(self.codec.clone());
        };
        let mut codecs = kino_codec::codecs();
        let keeper = codecs.find(|codec| codec.suits(kind) && codec.takes(bound));
        let key = parameter.split('=').next().unwrap_or_default();
        match (&self.codec, keeper) {
            // The rule's own parameter stays, and is compared with the bound.
            (Some(text), _) if text.contains(&format!("{key}=")) => Ok(Some(text.clone())),
            (Some(text), _) if is_lossless(text) && !takes(text, &parameter) => {
                Ok(Some(text.clone()))
            }
            (Some(text), _) => Ok(Some(with_parameter(text, &parameter))),
            (None, Some(keeper)) => Ok(Some(with_parameter(keeper.name, &parameter))),
            (None, None) => Err(format!(
                "no codec for `{}` streams supports a bound on `{key}`; use abs(…) for vectors and depth, psnr(…) for images",
                kind.name()
            )),
        }
    }

    /// The streams that it is for, in words.
    pub fn subject(&self) -> String {
        match (&self.pattern, self.kind) {
            (Some(pattern), _) => format!("`{pattern}`"),
            (None, Some(kind)) => format!("`{}` streams", kind.name()),
            (None, None) => "every stream".to_owned(),
        }
    }

    pub(super) fn matches(&self, name: &str, kind: Kind) -> bool {
        let name_matches = self
            .pattern
            .as_ref()
            .is_none_or(|pattern| matches_pattern(pattern, name));
        name_matches && self.kind.is_none_or(|wanted| wanted == kind)
    }
}

/// Refuses the name of a variant that a stream cannot have, and a codec that encodes nothing.
fn check_variant(variant: &str, codec: Option<&str>) -> Result<()> {
    if !is_variant_name(variant) {
        return Err(invalid(format!(
            "the plan has variant {variant:?}; use letters, digits, `_`, `-` and `.`, such as \"small\""
        )));
    }
    if let Some(codec) = codec.filter(|codec| super::carried(codec).is_some()) {
        return Err(invalid(format!(
            "the plan has variant `{variant}` with codec `{codec}`, which stores files as they are: a variant is encoded anew, so \
             name a codec such as `jpeg:q=60`"
        )));
    }
    Ok(())
}

fn is_lossless(text: &str) -> bool {
    kino_codec::codec(text).is_ok_and(|codec| codec.bound() == Bound::Lossless)
}

fn takes(text: &str, parameter: &str) -> bool {
    kino_codec::codec(&with_parameter(text, parameter)).is_ok()
}

fn with_parameter(text: &str, parameter: &str) -> String {
    let separator = if text.contains(':') { ',' } else { ':' };
    format!("{text}{separator}{parameter}")
}
