//! A plan: which codec, bound and page size each stream gets.
//!
//! ```toml
//! # The first rule that matches a stream applies; streams without a matching rule get the default of their kind, or an
//! # alternative that is smaller on their first frames.
//! [[stream]]
//! match = "obs/*_image"        # `*` matches within a path segment, `**` across segments
//! codec = "jpeg:q=92,sub=420"
//! resize = [224, 224]          # height and width to store; see `resize`
//!
//! [[stream]]
//! kind = "vector"
//! bound = "abs(1e-4)"          # without `codec`, the best one that satisfies the bound
//! protect = ["gripper"]        # frames around these events are bit-exact
//! page_frames = 128
//!
//! [[stream]]
//! match = "obs/*_image"
//! variant = "small"            # a second encoding beside it: the stream `obs/front_image@small`
//! codec = "jpeg:q=60"
//!
//! [[event]]                    # see `events`
//! name = "gripper"
//! stream = "actions"
//! elements = [6]
//! detect = "transition"
//! ```

mod allowed;
mod bound;
mod choice;
mod glob;
mod resize;
mod rule;
mod signal;
mod trial;

use std::sync::Arc;

use kino_codec::{Bound, Codec, CodecError, FrameType, Scope, VideoCoding};
use kino_format::{Kind, MAX_PAGE_FRAMES, variant_stream};
use serde::{Deserialize, Serialize};

use crate::error::{Result, codec_at, invalid};
use crate::events::EventRule;

pub use choice::Choice;
pub use glob::matches_pattern;
pub(crate) use rule::Rule;
pub use signal::{SignalBound, SignalEvidence};
pub use trial::{Trial, Tried};

use bound::{PlanBound, keeps};
use choice::Candidate;
use resize::{check_scope, resized_arrival, resized_type};
use signal::unmeasured;

/// Which codec, bound and page size each stream gets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Quality of images without a matching rule, from 1 to 100; `None` for lossless. Images that are no larger
    /// without loss are lossless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quality: Option<u8>,
    /// The rules; the first match applies.
    #[serde(default, rename = "stream")]
    pub rules: Vec<Rule>,
    /// Events around which streams can be bit-exact.
    #[serde(default, rename = "event", skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventRule>,
}

/// How the frames of a stream are pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// As values, or as text for text streams.
    Values,
    /// As JPEG files, to be stored as they are.
    Jpeg,
    /// As packets of a video, to be stored as they are: the first frame of a page is a
    /// [`VideoPage`](kino_codec::VideoPage), the others are empty.
    Video(VideoCoding),
}

impl Arrival {
    /// The files that the frames are, and the codec that stores them as they are.
    fn files(self) -> Option<(&'static str, String)> {
        match self {
            Self::Values => None,
            Self::Jpeg => Some(("JPEG", "jpeg:carry".to_owned())),
            Self::Video(coding) => Some(("video", coding.codec())),
        }
    }
}

impl Plan {
    /// Everything is bit-exact: the default.
    pub fn lossless() -> Self {
        Self::default()
    }

    /// Images as JPEG of this quality (1 to 100) without chroma subsampling where that is smaller than lossless,
    /// everything else lossless.
    pub fn quality(quality: u8) -> Self {
        Self {
            quality: Some(quality),
            ..Self::default()
        }
    }

    /// Parses a plan from TOML.
    ///
    /// ```
    /// let plan = kino_dataset::Plan::from_toml("[[stream]]\nmatch = \"obs/*\"\ncodec = \"raw\"")?;
    /// assert_eq!(plan.rules.len(), 1);
    /// # Ok::<(), kino_dataset::DatasetError>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Self> {
        let plan: Self = toml::from_str(text)
            .map_err(|error| invalid(format!("cannot parse the plan: {error}")))?;
        plan.check()?;
        Ok(plan)
    }

    /// Refuses invalid rules, such as an unknown codec or an undefined event.
    pub fn check(&self) -> Result<()> {
        for rule in &self.rules {
            rule.check()?;
            let is_known = |name: &String| {
                name == "*" || name == GIVEN || self.events.iter().any(|event| event.name == *name)
            };
            if let Some(unknown) = rule.protect.iter().find(|name| !is_known(name)) {
                return Err(invalid(format!(
                    "the plan protects event `{unknown}`, but no [[event]] defines it; use `{GIVEN}` for the events \
                     that come with an episode, or `*` for all"
                )));
            }
        }
        self.events.iter().try_for_each(EventRule::check)
    }

    /// The rules that match none of these streams: most likely a typo.
    pub fn unused_rules<'a>(
        &self,
        streams: impl Iterator<Item = (&'a str, Kind)> + Clone,
    ) -> Vec<&Rule> {
        let is_unused =
            |rule: &&Rule| !streams.clone().any(|(name, kind)| rule.matches(name, kind));
        self.rules.iter().filter(is_unused).collect()
    }

    /// The events that are detected in none of these streams.
    pub fn unused_events<'a>(
        &self,
        streams: impl Iterator<Item = &'a str> + Clone,
    ) -> Vec<&EventRule> {
        let is_unused = |event: &&EventRule| !streams.clone().any(|name| event.matches(name));
        self.events.iter().filter(is_unused).collect()
    }

    /// How a stream that a source has as JPEG files or video should arrive: as it is, unless the plan asks for another
    /// codec, a bound, a quality or another size, for which it must be decoded.
    pub fn files_arrival(
        &self,
        name: &str,
        kind: Kind,
        frame: &FrameType,
        files: Arrival,
    ) -> Arrival {
        if !matches!(self.resize(name, kind, frame), Ok(None)) {
            return Arrival::Values;
        }
        let is_as_it_is = match self.rule(name, kind) {
            Some(rule) => match &rule.codec {
                Some(codec) => carried(codec) == files.files().map(|(format, _)| format),
                None => rule.bound.is_none(),
            },
            None => self.quality.is_none() || kind != Kind::Image,
        };
        if is_as_it_is { files } else { Arrival::Values }
    }

    /// The rule for a stream, which is not that of a variant of it.
    pub(crate) fn rule(&self, name: &str, kind: Kind) -> Option<&Rule> {
        self.variant_rule(name, kind, None)
    }

    /// The rule for a variant of a stream, or for the stream itself.
    pub(crate) fn variant_rule(
        &self,
        name: &str,
        kind: Kind,
        variant: Option<&str>,
    ) -> Option<&Rule> {
        let mut rules = self.rules.iter();
        rules.find(|rule| rule.variant.as_deref() == variant && rule.matches(name, kind))
    }

    /// The variants that the plan makes of a stream, in the order of its rules.
    pub fn variants(&self, name: &str, kind: Kind) -> Vec<&str> {
        let matching = self.rules.iter().filter(|rule| rule.matches(name, kind));
        let mut variants = Vec::new();
        for variant in matching.filter_map(|rule| rule.variant.as_deref()) {
            if !variants.contains(&variant) {
                variants.push(variant);
            }
        }
        variants
    }

    /// Whether the plan says something about such a stream: by a rule, or by its quality.
    pub fn mentions(&self, name: &str, kind: Kind) -> bool {
        self.rule(name, kind).is_some() || (self.quality.is_some() && kind == Kind::Image)
    }

    /// The codec and page length for a stream of frames that are pushed like this. JPEG files of another size than the
    /// plan's are decoded; packets of video are not.
    pub fn choose(
        &self,
        name: &str,
        kind: Kind,
        frame: &FrameType,
        arrival: Arrival,
    ) -> Result<Choice> {
        let place = format!("stream `{name}` ({frame})");
        self.choose_by(self.rule(name, kind), &place, (kind, frame), arrival)
    }

    /// The codec and page length for a variant of a stream; its frames are pushed as values.
    pub fn choose_variant(
        &self,
        name: &str,
        variant: &str,
        kind: Kind,
        frame: &FrameType,
    ) -> Result<Choice> {
        let place = format!("stream `{}` ({frame})", variant_stream(name, variant));
        let Some(rule) = self.variant_rule(name, kind, Some(variant)) else {
            return Err(invalid(format!(
                "{place}: no rule of the plan has `variant = \"{variant}\"` for it"
            )));
        };
        self.choose_by(Some(rule), &place, (kind, frame), Arrival::Values)
    }

    /// The codec and page length by a rule, or by the defaults.
    fn choose_by(
        &self,
        rule: Option<&Rule>,
        place: &str,
        (kind, frame): (Kind, &FrameType),
        arrival: Arrival,
    ) -> Result<Choice> {
        let place = || place.to_owned();
        let refused = |what: String| invalid(format!("{}: {what}", place()));
        if let Some(bound @ PlanBound::Signal(_)) = rule.and_then(|rule| rule.bound.as_ref()) {
            return Err(refused(unmeasured("it", &bound.to_string())));
        }
        let resize = rule.map(|rule| rule.resize_of(kind, frame)).transpose();
        let resize = resize.map_err(refused)?.flatten().map(Arc::new);
        let arrival = resized_arrival(resize.is_some(), arrival).map_err(refused)?;
        let (pushed, frame) = (frame, &resized_type(resize.as_deref(), frame));
        let wanted = rule.and_then(|rule| rule.bound_of(frame));
        let text = match rule {
            Some(rule) => rule.codec_text(kind, wanted.as_ref()).map_err(refused)?,
            None => None,
        };
        let codec = match text {
            Some(text) => checked(&of_coding(text, arrival), frame),
            None => {
                // An explicit bound takes precedence over the plan's quality.
                let quality = self.quality.filter(|_| wanted.is_none());
                default_codec(kind, frame, arrival, quality)
            }
        }
        .map_err(codec_at(place()))?;
        let spec = codec.spec();
        let elements = frame.as_values().map_or(1, |ty| ty.elements());
        if let Some(wanted) = wanted.filter(|wanted| !keeps(&codec.bound(), wanted, elements)) {
            let promised = codec.bound();
            return Err(refused(format!(
                "the plan asks for {wanted}, but codec `{spec}` is {promised}"
            )));
        }
        if let Some((format, carry)) = arrival.files().filter(|_| codec.carries().is_none()) {
            return Err(invalid(format!(
                "{} consists of {format} files; use codec `{carry}` to store them as they are, not `{spec}`",
                place(),
            )));
        }
        if resize.is_some() {
            check_scope(&*codec).map_err(refused)?;
        }
        let protect = rule.map(|rule| rule.protect.clone()).unwrap_or_default();
        if !protect.is_empty() && codec.bound() == Bound::Unbounded {
            return Err(refused(format!(
                "codec `{spec}` cannot protect frames; use a codec with a bound, for images `psnr(42)`"
            )));
        }
        let page_frames = rule.and_then(|rule| rule.page_frames);
        if let Some(page_frames) = page_frames.filter(|frames| frames.get() > MAX_PAGE_FRAMES) {
            return Err(refused(format!(
                "{page_frames} frames per page are too many; use at most {MAX_PAGE_FRAMES}"
            )));
        }
        let candidate = |codec: Arc<dyn Codec>| Candidate {
            page_frames: page_frames.unwrap_or_else(|| codec.page_frames(frame)),
            codec,
        };
        let is_named = rule.is_some_and(|rule| rule.codec.is_some());
        let is_exact = codec.bound() == Bound::Lossless;
        let rivals = match arrival {
            Arrival::Values if codec.scope() == Scope::Page && !(is_named && is_exact) => {
                rivals(&*codec, kind, frame)
            }
            _ => Vec::new(),
        };
        let chosen = candidate(codec);
        Ok(Choice {
            codec: chosen.codec,
            page_frames: chosen.page_frames,
            protect,
            is_named,
            resize,
            rivals: rivals
                .into_iter()
                .map(candidate)
                .filter(|rival| rival.is_affordable(pushed))
                .collect(),
        })
    }
}

/// The codecs to try on the first frames of a stream beside `codec`: the alternatives of its kind and, against a lossy
/// one, the lossless default.
fn rivals(codec: &dyn Codec, kind: Kind, frame: &FrameType) -> Vec<Arc<dyn Codec>> {
    let default = match codec.bound() {
        Bound::Lossless => None,
        _ => default_codec(kind, frame, Arrival::Values, None).ok(),
    };
    let alternatives = kino_codec::codecs().filter(|one| one.is_alternative && one.suits(kind));
    let usual = alternatives.filter_map(|one| (one.settings)(frame).into_iter().next());
    let usual = usual.filter_map(|text| checked(&text, frame).ok());
    default.into_iter().chain(usual).collect()
}

/// The first codec that can store such frames: of the quality, if there is one, or a default of the kind.
fn default_codec(
    kind: Kind,
    frame: &FrameType,
    arrival: Arrival,
    quality: Option<u8>,
) -> Result<Arc<dyn Codec>, CodecError> {
    if let Some((_, carry)) = arrival.files() {
        return checked(&carry, frame);
    }
    let suitable = || kino_codec::codecs().filter(|codec| codec.suits(kind));
    let of_quality = suitable().find_map(|codec| codec.quality).zip(quality);
    let defaults = suitable().filter(|codec| codec.is_default);
    let usual = defaults.filter_map(|codec| (codec.settings)(frame).into_iter().next());
    let texts = of_quality.map(|(text, quality)| text(quality));
    let mut refused = CodecError::Unsuited {
        codec: "default",
        frame: frame.to_string(),
        what: format!("no codec is the default for `{}` streams", kind.name()),
    };
    for text in texts.into_iter().chain(usual) {
        match checked(&text, frame) {
            Err(error @ CodecError::Unsuited { .. }) => refused = error,
            result => return result,
        }
    }
    Err(refused)
}

/// The format of the files that a codec stores as they are; `None` if it stores values.
pub(crate) fn carried(text: &str) -> Option<&'static str> {
    let files = kino_codec::describe(text).and_then(|codec| codec.files)?;
    let carries = kino_codec::codec(text).is_ok_and(|codec| codec.carries().is_some());
    (carries || text == files.carry).then_some(files.format)
}

/// Whether a codec string names the codec that stores video as it is.
fn is_video(text: &str) -> bool {
    let carries = kino_codec::describe(text).and_then(|codec| codec.files);
    carries.is_some_and(|files| files.format == "video")
}

/// The codec that a plan names; `video` becomes that of the packets' own coding.
fn of_coding(text: String, arrival: Arrival) -> String {
    match arrival {
        Arrival::Video(coding) if is_video(&text) => coding.codec(),
        _ => text,
    }
}

/// The event name of time ranges that come with an episode instead of from a rule.
pub const GIVEN: &str = "given";

/// The codec `text`, if it can store such frames, in this process.
fn checked(text: &str, frame: &FrameType) -> Result<Arc<dyn Codec>, CodecError> {
    let codec = kino_codec::codec(text)?;
    codec.check(frame)?;
    codec.check_encoder()?;
    Ok(codec)
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
    fn images_whose_groups_would_not_fit_in_memory_are_not_tried() {
        let tried = |side: usize| {
            let frame = FrameType::values(Dtype::U8, &[side, side, 3]).unwrap();
            let plan = Plan::default();
            let choice = plan.choose("wrist", Kind::Image, &frame, Arrival::Values);
            choice.unwrap().trial_frames(&frame)
        };
        assert!(tried(1024).is_some());
        assert_eq!(tried(3200), None);
    }

    #[test]
    fn the_first_matching_rule_applies_and_kinds_have_defaults() {
        let plan = Plan::from_toml(
            "quality = 90\n[[stream]]\nmatch = \"obs/*\"\nkind = \"image\"\ncodec = \"raw\"\n\
             [[stream]]\nmatch = \"obs/**\"\ncodec = \"zstd\"",
        )
        .unwrap();
        let vector = FrameType::values(Dtype::F32, &[7]).unwrap();
        assert_eq!(chosen(&plan, "obs/top", Kind::Image, &image()), "raw");
        assert_eq!(chosen(&plan, "obs/joints", Kind::Vector, &vector), "zstd");
        assert_eq!(chosen(&plan, "top", Kind::Image, &image()), "jpeg");
        assert_eq!(chosen(&plan, "actions", Kind::Vector, &vector), "vector");
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
    fn a_rule_of_a_variant_is_for_the_variant_alone() {
        let plan = Plan::from_toml(
            "[[stream]]\nkind = \"image\"\nvariant = \"small\"\ncodec = \"jpeg:q=40\"\n\
             [[stream]]\nmatch = \"obs/**\"\ncodec = \"raw\"\n\
             [[stream]]\nmatch = \"obs/*\"\nvariant = \"tiny\"\ncodec = \"jpeg:q=10\"",
        )
        .unwrap();
        assert_eq!(chosen(&plan, "obs/top", Kind::Image, &image()), "raw");
        assert_eq!(plan.variants("obs/top", Kind::Image), ["small", "tiny"]);
        assert_eq!(plan.variants("top", Kind::Image), ["small"]);
        assert!(plan.variants("top", Kind::Vector).is_empty());
        let tiny = plan.choose_variant("obs/top", "tiny", Kind::Image, &image());
        assert_eq!(tiny.unwrap().codec.spec().to_string(), "jpeg:q=10,sub=444");
        let none = plan.choose_variant("top", "tiny", Kind::Image, &image());
        assert!(none.unwrap_err().to_string().contains("tiny"));
        let unused = plan.unused_rules([("top", Kind::Image)].into_iter());
        assert_eq!(unused.len(), 2);
        // A plan comes back from its own JSON, by which a resumed pack is recognised.
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    }

    #[test]
    fn mistakes_in_a_plan_are_refused_with_the_reason() {
        for (text, expected) in [
            ("[[stream]]\ncodec = \"no-such\"", "no-such"),
            ("[[stream]]\ncodec = \"raw\"\nspeed = 3", "speed"),
            ("[[streams]]\ncodec = \"raw\"", "streams"),
            ("[[stream]]\nbound = \"cm(1)\"", "cm(1)"),
            ("[[stream]]\nprotect = [\"grasp\"]", "grasp"),
            ("[[stream]]\nvariant = \"a@b\"", "letters, digits"),
            (
                "[[stream]]\nvariant = \"a\"\ncodec = \"video\"",
                "encoded anew",
            ),
            (
                "[[event]]\nname = \"x\"\nstream = \"*\"\ndetect = \"magic\"",
                "magic",
            ),
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
