//! A plan: which codec, bound and page size each stream gets.
//!
//! ```toml
//! # The first rule that matches a stream decides; streams that no rule matches get the default of their kind.
//! [[stream]]
//! match = "obs/*_image"        # `*` stays inside a path part, `**` crosses them
//! codec = "jpeg:q=92,sub=420"
//!
//! [[stream]]
//! kind = "vector"
//! codec = "pco:level=8"
//! bound = "lossless"           # refused if the codec does not promise it
//! page_frames = 128
//! ```

use std::num::NonZeroUsize;
use std::sync::Arc;

use kino_codec::{Bound, Codec, CodecError, FrameType};
use kino_format::{Kind, MAX_PAGE_FRAMES};
use serde::{Deserialize, Serialize};

use crate::error::{Result, codec_at, invalid};

/// Which codec, bound and page size each stream gets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// JPEG quality for pictures that no rule matches; lossless if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<u8>,
    /// The rules; the first that matches decides.
    #[serde(default, rename = "stream")]
    pub rules: Vec<Rule>,
}

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
    /// The codec's text.
    pub codec: String,
    /// What the codec must promise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<PlanBound>,
    /// Frames per page; the codec's own choice if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_frames: Option<NonZeroUsize>,
}

/// A bound as a plan asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PlanBound {
    /// Every bit comes back.
    Lossless,
}

/// How frames of a stream arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// As numbers, or as text for text streams.
    Values,
    /// As JPEG files, to be carried as they are.
    Jpeg,
}

/// The codec and page length a plan chose for a stream.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The codec.
    pub codec: Arc<dyn Codec>,
    /// Frames per page.
    pub page_frames: NonZeroUsize,
}

impl Plan {
    /// Everything comes back bit for bit: the default.
    pub fn lossless() -> Self {
        Self::default()
    }

    /// Pictures as JPEG of this quality (1 to 100) at full colour resolution, everything else lossless.
    pub fn quality(quality: u8) -> Self {
        Self {
            quality: Some(quality),
            rules: Vec::new(),
        }
    }

    /// Reads a plan from TOML.
    ///
    /// ```
    /// let plan = kino_dataset::Plan::from_toml("[[stream]]\nmatch = \"obs/*\"\ncodec = \"raw\"")?;
    /// assert_eq!(plan.rules.len(), 1);
    /// # Ok::<(), kino_dataset::DatasetError>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Self> {
        let plan: Self = toml::from_str(text)
            .map_err(|error| invalid(format!("the plan is not valid: {error}")))?;
        for rule in &plan.rules {
            kino_codec::codec(&rule.codec)
                .map_err(codec_at("the plan names a codec that cannot be used"))?;
        }
        Ok(plan)
    }

    /// The rules that match none of these streams: most likely a slip of the pen.
    pub fn unused_rules<'a>(
        &self,
        streams: impl Iterator<Item = (&'a str, Kind)> + Clone,
    ) -> Vec<&Rule> {
        let is_unused =
            |rule: &&Rule| !streams.clone().any(|(name, kind)| rule.matches(name, kind));
        self.rules.iter().filter(is_unused).collect()
    }

    /// The codec and page length for a stream.
    pub fn choose(
        &self,
        name: &str,
        kind: Kind,
        frame: &FrameType,
        arrival: Arrival,
    ) -> Result<Choice> {
        let place = || format!("stream `{name}` ({frame})");
        let rule = self.rules.iter().find(|rule| rule.matches(name, kind));
        let codec = match rule {
            Some(rule) => checked(&rule.codec, frame).map_err(codec_at(place()))?,
            None => self
                .default_codec(kind, frame, arrival)
                .map_err(codec_at(place()))?,
        };
        if rule.is_some_and(|rule| rule.bound == Some(PlanBound::Lossless))
            && codec.bound() != Bound::Lossless
        {
            let spec = codec.spec();
            return Err(invalid(format!(
                "{}: the plan asks for lossless, `{spec}` is not",
                place()
            )));
        }
        if arrival == Arrival::Jpeg && codec.spec().get("carry").is_none() {
            let spec = codec.spec();
            return Err(invalid(format!(
                "{} arrives as JPEG; only `jpeg:carry` takes it as it is, not `{spec}`",
                place()
            )));
        }
        let page_frames = rule
            .and_then(|rule| rule.page_frames)
            .unwrap_or_else(|| codec.page_frames(frame));
        if page_frames.get() > MAX_PAGE_FRAMES {
            return Err(invalid(format!(
                "{}: {page_frames} frames per page, at most {MAX_PAGE_FRAMES}",
                place()
            )));
        }
        Ok(Choice { codec, page_frames })
    }

    /// The first codec of the kind's list that can store such frames.
    fn default_codec(
        &self,
        kind: Kind,
        frame: &FrameType,
        arrival: Arrival,
    ) -> Result<Arc<dyn Codec>, CodecError> {
        let width = frame.as_values().map_or(1, |ty| ty.dtype().size());
        let zstd = format!("zstd:level=3,shuffle={width}");
        let jpeg = self
            .quality
            .map(|quality| format!("jpeg:q={quality},sub=444"));
        let candidates: Vec<String> = match (kind, arrival) {
            (_, Arrival::Jpeg) => vec!["jpeg:carry".to_owned()],
            (Kind::Text, _) => vec!["text".to_owned()],
            (Kind::Image, _) => jpeg
                .into_iter()
                .chain(["predict".to_owned(), zstd])
                .collect(),
            (Kind::Vector, _) => vec!["pco".to_owned(), zstd],
            _ => vec![zstd],
        };
        let last = candidates.len() - 1;
        for (idx, candidate) in candidates.iter().enumerate() {
            match checked(candidate, frame) {
                Err(CodecError::Unsuited { .. }) if idx < last => {}
                result => return result,
            }
        }
        kino_codec::codec("raw")
    }
}

/// The codec that `text` names, if it can store such frames.
fn checked(text: &str, frame: &FrameType) -> Result<Arc<dyn Codec>, CodecError> {
    let codec = kino_codec::codec(text)?;
    codec.check(frame)?;
    Ok(codec)
}

impl Rule {
    fn matches(&self, name: &str, kind: Kind) -> bool {
        let name_matches = self
            .pattern
            .as_ref()
            .is_none_or(|pattern| glob(pattern.as_bytes(), name.as_bytes()));
        name_matches && self.kind.is_none_or(|wanted| wanted == kind)
    }
}

/// Whether `name` matches `pattern`, in which `*` stands for any bytes but `/` and `**` for any bytes.
///
/// Keeps one place to go back to per kind of star, so hostile patterns take at most len(pattern) × len(name)
/// steps twice over, never exponentially many.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    // reachable[i]: the pattern so far can have consumed name[..i].
    let mut reachable = vec![false; name.len() + 1];
    reachable[0] = true;
    let mut rest = pattern;
    while let Some((&byte, tail)) = rest.split_first() {
        let mut next = vec![false; name.len() + 1];
        if byte == b'*' {
            let crosses = tail.first() == Some(&b'*');
            rest = if crosses { &tail[1..] } else { tail };
            let mut on = false;
            for idx in 0..=name.len() {
                on = reachable[idx] || (on && (crosses || name[idx - 1] != b'/'));
                next[idx] = on;
            }
        } else {
            rest = tail;
            for idx in 0..name.len() {
                next[idx + 1] = reachable[idx] && name[idx] == byte;
            }
        }
        reachable = next;
    }
    reachable[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use kino_codec::Dtype;

    fn image() -> FrameType {
        FrameType::values(Dtype::U8, &[8, 8, 3]).unwrap()
    }

    fn chosen(plan: &Plan, name: &str, kind: Kind, frame: &FrameType) -> String {
        plan.choose(name, kind, frame, Arrival::Values)
            .unwrap()
            .codec
            .spec()
            .name()
            .to_owned()
    }

    #[test]
    fn stars_match_as_documented() {
        for (pattern, name, expected) in [
            ("obs/*_image", "obs/agentview_image", true),
            ("obs/*_image", "obs/a/b_image", false),
            ("obs/**_image", "obs/a/b_image", true),
            ("**", "anything/at/all", true),
            ("*", "a/b", false),
            ("actions", "actions", true),
            ("actions", "actions2", false),
            ("*a*a*a*", "aaaa", true),
            ("", "", true),
            ("*", "", true),
        ] {
            assert_eq!(
                glob(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn the_first_matching_rule_decides_and_kinds_have_defaults() {
        let plan = Plan::from_toml(
            "quality = 90\n[[stream]]\nmatch = \"obs/*\"\nkind = \"image\"\ncodec = \"raw\"\n\
             [[stream]]\nmatch = \"obs/**\"\ncodec = \"zstd\"",
        )
        .unwrap();
        let vector = FrameType::values(Dtype::F32, &[7]).unwrap();
        assert_eq!(chosen(&plan, "obs/top", Kind::Image, &image()), "raw");
        assert_eq!(chosen(&plan, "obs/joints", Kind::Vector, &vector), "zstd");
        assert_eq!(chosen(&plan, "top", Kind::Image, &image()), "jpeg");
        assert_eq!(chosen(&plan, "actions", Kind::Vector, &vector), "pco");
        assert_eq!(
            chosen(&Plan::lossless(), "top", Kind::Image, &image()),
            "predict"
        );
        assert_eq!(
            chosen(&Plan::lossless(), "task", Kind::Text, &FrameType::Text),
            "text"
        );
    }

    #[test]
    fn mistakes_in_a_plan_are_refused_with_the_reason() {
        for (text, expected) in [
            ("[[stream]]\ncodec = \"no-such\"", "no-such"),
            ("[[stream]]\ncodec = \"raw\"\nspeed = 3", "speed"),
            ("[[streams]]\ncodec = \"raw\"", "streams"),
            ("[[stream]]\nmatch = \"x\"", "codec"),
        ] {
            let error = Plan::from_toml(text).unwrap_err();
            let chain = format!("{error}: {:?}", std::error::Error::source(&error));
            assert!(chain.contains(expected), "{chain}");
        }
        let plan =
            Plan::from_toml("[[stream]]\ncodec = \"jpeg:q=90\"\nbound = \"lossless\"").unwrap();
        let error = plan
            .choose("cam", Kind::Image, &image(), Arrival::Values)
            .unwrap_err();
        assert!(error.to_string().contains("asks for lossless"), "{error}");
    }
}
