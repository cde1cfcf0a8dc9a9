//! Which codecs a plan's bounds allow for a stream, for programs that choose among them.

use kino_codec::{Bound, Description, FrameType};
use kino_format::Kind;

use super::bound::keeps;
use super::{Plan, checked};
use crate::costs::candidates;

/// Parameters that say how much a codec may lose: a bound replaces them.
const LOSS: [&str; 3] = ["abs=", "psnr=", "q="];

impl Plan {
    /// The codecs worth trying on a stream, and whether this plan allows each: lossless ones always, others if they
    /// keep the bound of the first rule that matches, or have the plan's quality.
    ///
    /// A foreign codec is allowed only if `foreign` has its name, because every reader of the dataset needs it too. One
    /// that is named may lose what it likes, unless there is a bound.
    pub fn codecs_for(
        &self,
        name: &str,
        kind: Kind,
        frame: &FrameType,
        foreign: &[String],
    ) -> Vec<(String, bool)> {
        let rule = self.rule(name, kind);
        let bound = rule.and_then(|rule| rule.bound_of(frame));
        let suitable = || kino_codec::codecs().filter(|codec| codec.suits(kind));
        let mut found: Vec<(String, bool)> = Vec::new();
        let mut add = |text: String, is_allowed: bool| {
            let Ok(codec) = checked(&text, frame) else {
                return;
            };
            let text = codec.spec().to_string();
            match found.iter_mut().find(|(known, _)| *known == text) {
                Some((_, known)) => *known |= is_allowed,
                None if codec.check_encoder().is_ok() => found.push((text, is_allowed)),
                None => {}
            }
        };
        for text in candidates(kind, frame) {
            let is_allowed = foreign_name(&text).is_none() && allows(&text, bound.as_ref(), frame);
            add(text, is_allowed);
        }
        for text in foreign.iter().map(|name| foreign_text(name)) {
            let is_allowed = bound.is_none() || allows(&text, bound.as_ref(), frame);
            add(text, is_allowed);
        }
        if let Some(parameter) = bound.as_ref().and_then(Bound::parameter) {
            for codec in suitable() {
                for text in bounded(codec, frame, &parameter) {
                    let is_allowed = allows(&text, bound.as_ref(), frame);
                    add(text, is_allowed);
                }
            }
        }
        // JPEG of a quality has no bound, so that it cannot keep frames exact.
        let is_protected = rule.is_some_and(|rule| !rule.protect.is_empty());
        if let Some(quality) = self.quality.filter(|_| bound.is_none() && !is_protected) {
            for setting in suitable().filter_map(|codec| codec.quality) {
                add(setting(quality), true);
            }
        }
        found
    }
}

/// The name of the foreign codec that a codec string uses.
fn foreign_name(text: &str) -> Option<String> {
    let codec = kino_codec::codec(text).ok()?;
    codec.foreign().map(str::to_owned)
}

/// The codec string of a foreign codec: lossless if it says so.
fn foreign_text(name: &str) -> String {
    kino_codec::foreign_codec_text(name).unwrap_or_else(|_| name.to_owned())
}

/// Whether a codec loses no more than `bound` allows; without one, nothing.
fn allows(codec: &str, bound: Option<&Bound>, frame: &FrameType) -> bool {
    let elements = frame.as_values().map_or(1, |ty| ty.elements());
    let wanted = bound.unwrap_or(&Bound::Lossless);
    kino_codec::codec(codec).is_ok_and(|codec| keeps(&codec.bound(), wanted, elements))
}

/// The settings of a codec with this bound instead of their own.
fn bounded(codec: &Description, frame: &FrameType, parameter: &str) -> Vec<String> {
    let with_bound = |text: String| {
        let (name, parameters) = text.split_once(':').unwrap_or((&text, ""));
        let kept = parameters
            .split(',')
            .filter(|one| !one.is_empty() && !LOSS.iter().any(|loss| one.starts_with(loss)));
        let parameters: Vec<&str> = kept.chain([parameter]).collect();
        format!("{name}:{}", parameters.join(","))
    };
    (codec.settings)(frame)
        .into_iter()
        .map(with_bound)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kino_codec::Dtype;

    fn allowed(plan: &str, kind: Kind, frame: &FrameType) -> Vec<String> {
        let plan = Plan::from_toml(plan).unwrap();
        let all = plan.codecs_for("wrist", kind, frame, &[]);
        let allowed = all.into_iter().filter(|(_, is_allowed)| *is_allowed);
        allowed.map(|(text, _)| text).collect()
    }

    fn has(all: &[String], start: &str) -> bool {
        all.iter().any(|text| text.starts_with(start))
    }

    #[test]
    fn nothing_is_lost_unless_a_bound_or_a_quality_allows_it() {
        let image = FrameType::values(Dtype::U8, &[8, 8, 3]).unwrap();
        let exact = allowed("", Kind::Image, &image);
        let is_exact = |text: &String| kino_codec::codec(text).unwrap().bound() == Bound::Lossless;
        assert!(exact.iter().all(is_exact) && has(&exact, "predict"));
        let bounded = allowed("[[stream]]\nbound = \"psnr(38)\"", Kind::Image, &image);
        assert!(has(&bounded, "predict"));
        assert!(
            bounded
                .iter()
                .any(|text| text.starts_with("jpeg") && text.contains("psnr=38")),
            "{bounded:?}"
        );
        assert!(
            !bounded.iter().any(|text| text.contains("q=")),
            "{bounded:?}"
        );
        // A tighter bound than the one asked for is allowed too.
        assert!(
            bounded.iter().any(|text| text.contains("psnr=42")),
            "{bounded:?}"
        );
        let quality = allowed("quality = 80", Kind::Image, &image);
        assert!(
            quality.iter().any(|text| text.contains("q=80")),
            "{quality:?}"
        );
        let other = allowed(
            "[[stream]]\nmatch = \"front\"\nbound = \"psnr(38)\"",
            Kind::Image,
            &image,
        );
        assert_eq!(other, exact);
    }

    /// Stores values as they are, and says whether it does.
    #[derive(Debug)]
    struct Foreign {
        name: &'static str,
        is_lossless: bool,
    }

    impl kino_codec::ForeignCodec for Foreign {
        fn name(&self) -> &str {
            self.name
        }

        fn is_lossless(&self) -> bool {
            self.is_lossless
        }

        fn suits(&self, _: &kino_codec::ValueType) -> Result<bool, String> {
            Ok(true)
        }

        fn encode(&self, _: &kino_codec::ValueType, values: &[u8]) -> Result<Vec<u8>, String> {
            Ok(values.to_vec())
        }

        fn decode(
            &self,
            _: &kino_codec::ValueType,
            page: kino_codec::Page<'_>,
            dest: &mut [u8],
        ) -> Result<(), String> {
            dest.copy_from_slice(page.bytes);
            Ok(())
        }
    }

    #[test]
    fn a_foreign_codec_is_compared_and_allowed_only_by_name() {
        for (name, is_lossless) in [("test-lossy", false), ("test-exact", true)] {
            let codec = Foreign { name, is_lossless };
            kino_codec::add_foreign_codec(std::sync::Arc::new(codec)).unwrap();
        }
        let image = FrameType::values(Dtype::U8, &[8, 8, 3]).unwrap();
        let (lossy, exact) = (
            "external:name=test-lossy",
            "external:name=test-exact,lossless",
        );
        let found = |plan: &str, foreign: &[&str]| {
            let foreign: Vec<String> = foreign.iter().map(|&name| name.to_owned()).collect();
            let plan = Plan::from_toml(plan).unwrap();
            let all = plan.codecs_for("wrist", Kind::Image, &image, &foreign);
            [lossy, exact].map(|text| all.iter().find(|(one, _)| one == text).unwrap().1)
        };
        let bound = "[[stream]]\nbound = \"psnr(38)\"";
        let both = ["test-lossy", "test-exact"];
        assert_eq!(found("", &[]), [false, false]);
        assert_eq!(found("quality = 80", &[]), [false, false]);
        assert_eq!(found("", &["test-lossy"]), [true, false]);
        assert_eq!(found("", &both), [true, true]);
        assert_eq!(found(bound, &both), [false, true]);
    }

    #[test]
    fn a_bound_on_values_reaches_the_codecs_that_take_it() {
        let joints = FrameType::values(Dtype::F32, &[7]).unwrap();
        let bounded = allowed("[[stream]]\nbound = \"abs(1e-4)\"", Kind::Vector, &joints);
        assert!(has(&bounded, "vector:level=8,abs=1e-4"), "{bounded:?}");
        let text = allowed(
            "[[stream]]\nbound = \"lossless\"",
            Kind::Text,
            &FrameType::Text,
        );
        assert!(
            matches!(&text[..], [only] if only.starts_with("text")),
            "{text:?}"
        );
    }
}
