//! `resize` of a rule: images and depth that are stored smaller than they were recorded.
//!
//! ```text
//! pushed uint8[480, 640, 3] ──resize──▶ uint8[224, 224, 3] ──codec──▶ pages         Choice::stored_frame
//! ```
//!
//! The codec, its bound and the statistics are those of the resized frames, and so is the check of every page: what is
//! lost between the recorded size and the stored one is what the user asked to lose. The manifest has the recorded size.

use std::borrow::Cow;

use kino_codec::{Codec, CodecError, FrameType, Frames, Scope};
use kino_format::Kind;

use super::{Arrival, Choice, Plan, Rule, Trial, carried};
use crate::error::{Result, invalid};
use crate::resize::{Filter, Fit, Resize, ResizeScratch, Size, check_side};

/// Refuses a size that no image can have, and a codec that keeps files as they are.
pub(super) fn check_rule(size: Size, codec: Option<&str>) -> Result<()> {
    check_side("resized", size).map_err(|what| invalid(format!("`resize` in the plan: {what}")))?;
    match codec.filter(|codec| carried(codec).is_some()) {
        Some(codec) => Err(invalid(format!(
            "the plan resizes a stream and stores it as `{codec}`, which keeps files as they are; name another codec, or \
             remove `resize`"
        ))),
        None => Ok(()),
    }
}

impl Rule {
    /// How such frames are resized before they are stored; `None` if they keep their size.
    pub(super) fn resize_of(
        &self,
        kind: Kind,
        frame: &FrameType,
    ) -> Result<Option<Resize>, String> {
        let Some(size) = self.resize else {
            return Ok(None);
        };
        let ty = frame.as_values();
        let filter = ty.map_or(Filter::Bilinear, |ty| Filter::of(kind, ty));
        let Some((ty, pixels)) = ty.and_then(|ty| Some((ty, filter.pixels(ty)?))) else {
            return Err(format!(
                "the plan resizes it to {size}, but it is neither a uint8 image nor depth; add `kind = \"image\"` or \
                 `match` to the rule"
            ));
        };
        if size.pixels() > pixels.size.pixels() {
            return Err(format!(
                "the plan would enlarge it from {} to {size}, which takes space and adds nothing; let the loader resize \
                 it (`images.size`), or remove `resize`",
                pixels.size
            ));
        }
        let fit = Fit {
            size: Some(size),
            filter,
            ..Fit::default()
        };
        fit.reduce(ty)
    }
}

impl Plan {
    /// How such frames are resized before they are stored; `None` if they keep their size.
    pub fn resize(&self, name: &str, kind: Kind, frame: &FrameType) -> Result<Option<Resize>> {
        let resize = self
            .rule(name, kind)
            .map(|rule| rule.resize_of(kind, frame));
        let resize = resize.transpose();
        let refused = |what: String| invalid(format!("stream `{name}` ({frame}): {what}"));
        Ok(resize.map_err(refused)?.flatten())
    }

    /// The type with which such frames are stored; their own if the plan cannot resize them, which
    /// [`choose`](Self::choose) refuses.
    pub fn stored_frame(&self, name: &str, kind: Kind, frame: &FrameType) -> FrameType {
        let resize = self.resize(name, kind, frame).ok().flatten();
        resized_type(resize.as_ref(), frame)
    }
}

impl Choice {
    /// How frames are resized before they are stored.
    pub fn resize(&self) -> Option<&Resize> {
        self.resize.as_deref()
    }

    /// The type with which frames of this type are stored.
    pub fn stored_frame(&self, frame: &FrameType) -> FrameType {
        resized_type(self.resize(), frame)
    }

    /// Packed frames as they are stored, before the codec. May copy.
    pub fn to_stored<'v>(&self, values: &'v [u8]) -> Result<Cow<'v, [u8]>, CodecError> {
        let Some(resize) = self.resize() else {
            return Ok(Cow::Borrowed(values));
        };
        let resized = resize.to_resized(&mut values.to_vec(), &mut ResizeScratch::default());
        let failed = |what| crate::compare::broken(&*self.codec, what);
        resized.map(Cow::Owned).map_err(failed)
    }

    /// Tries the codecs on the first frames of a stream, packed as they are pushed; see [`settle`](Self::settle).
    pub fn settle_values(
        &mut self,
        frame: &FrameType,
        values: &[u8],
    ) -> Result<Option<Trial>, CodecError> {
        let stored = self.stored_frame(frame);
        let values = self.to_stored(values)?;
        Ok(self.settle(&Frames::values(&stored, &values)?))
    }
}

/// How frames arrive at the codec: files that are resized are decoded first.
pub(super) fn resized_arrival(is_resized: bool, arrival: Arrival) -> Result<Arrival, String> {
    match arrival {
        Arrival::Jpeg if is_resized => Ok(Arrival::Values),
        Arrival::Video(_) if is_resized => Err(
            "the plan resizes it, but packets of video are pushed; push its decoded frames"
                .to_owned(),
        ),
        other => Ok(other),
    }
}

/// Refuses a codec of whole runs: a run may wait in a file, which is not resized.
pub(super) fn check_scope(codec: &dyn Codec) -> Result<(), String> {
    match codec.scope() {
        Scope::Page => Ok(()),
        Scope::Run => Err(format!(
            "codec `{}` needs a whole run at once, so it cannot be combined with `resize`; use `predict` or `zstd`",
            codec.spec()
        )),
    }
}

/// The type of frames of this type that were resized.
pub(super) fn resized_type(resize: Option<&Resize>, frame: &FrameType) -> FrameType {
    let resized = resize
        .zip(frame.as_values())
        .and_then(|(resize, ty)| resize.value_type(ty).ok());
    resized.map_or_else(|| frame.clone(), FrameType::Values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kino_codec::Dtype;

    fn plan(rule: &str) -> Plan {
        Plan::from_toml(&format!("[[stream]]\n{rule}")).unwrap()
    }

    fn camera() -> FrameType {
        FrameType::values(Dtype::U8, &[480, 640, 3]).unwrap()
    }

    #[test]
    fn the_codec_is_chosen_for_the_resized_frames() {
        let plan = plan("kind = \"image\"\nresize = [224, 224]");
        let choice = plan.choose("wrist", Kind::Image, &camera(), Arrival::Values);
        let stored = choice.unwrap().stored_frame(&camera());
        assert_eq!(
            stored,
            FrameType::values(Dtype::U8, &[224, 224, 3]).unwrap()
        );
        let small = FrameType::values(Dtype::U8, &[224, 224, 3]).unwrap();
        let choice = plan.choose("wrist", Kind::Image, &small, Arrival::Values);
        assert!(choice.unwrap().resize().is_none());
        // Files of another size are decoded, those of this size stay as they are.
        let arrival =
            |frame: &FrameType| plan.files_arrival("wrist", Kind::Image, frame, Arrival::Jpeg);
        assert_eq!(arrival(&camera()), Arrival::Values);
        assert_eq!(arrival(&small), Arrival::Jpeg);
    }

    #[test]
    fn what_cannot_be_resized_is_refused_with_the_reason() {
        let vector = FrameType::values(Dtype::F32, &[7]).unwrap();
        let many = FrameType::values(Dtype::U8, &[48, 64, 5]).unwrap();
        for (rule, kind, frame, says) in [
            ("resize = [224, 224]", Kind::Vector, &vector, "neither"),
            ("resize = [8, 8]", Kind::Text, &FrameType::Text, "neither"),
            ("resize = [481, 640]", Kind::Image, &camera(), "enlarge"),
            ("resize = [8, 8]", Kind::Image, &many, "1 to 4"),
        ] {
            let chosen = plan(rule).choose("s", kind, frame, Arrival::Values);
            let error = chosen.unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("`s`"), "{error}");
        }
        for (rule, says) in [
            ("resize = [0, 224]", "nearest valid size is 1 × 224"),
            ("resize = [99999, 1]", "nearest valid size is 16384 × 1"),
            ("resize = [-1, 1]", "cannot parse"),
            ("resize = 224", "cannot parse"),
            (
                "resize = [8, 8]\ncodec = \"jpeg:carry\"",
                "keeps files as they are",
            ),
            (
                "resize = [8, 8]\ncodec = \"video\"",
                "keeps files as they are",
            ),
        ] {
            let error = Plan::from_toml(&format!("[[stream]]\n{rule}")).unwrap_err();
            assert!(error.to_string().contains(says), "{rule}: {error}");
        }
        let wide = "resize = [500, 100]";
        let chosen = plan(wide).choose("s", Kind::Image, &camera(), Arrival::Values);
        assert!(
            chosen.is_ok(),
            "fewer pixels, although one side grows: {chosen:?}"
        );
        let packets = Arrival::Video(kino_codec::VideoCoding::H264);
        let chosen = plan("resize = [8, 8]").choose("s", Kind::Image, &camera(), packets);
        assert!(chosen.unwrap_err().to_string().contains("video"));
    }
}
