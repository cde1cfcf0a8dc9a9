//! Frames as they are after storage: encoded, and decoded again.
//!
//! ```text
//! frames ──encode──▶ pages ──decode──▶ frames that a policy would train on
//! ```
//!
//! For those who need the loss of a codec without a dataset: a live camera image on a robot, or the measurement of what a
//! codec costs a policy.

use std::sync::Arc;

use crate::codec::{Codec, Decoder, Encoded, EncodedPage};
use crate::error::{CodecError, Result, buffer};
use crate::frame::{FrameType, ValueType};
use crate::frames::Frames;
use crate::scratch::Scratch;

/// Passes frames of one type through a codec. Keep it: it reuses its working memory.
#[derive(Debug)]
pub struct RoundTrip {
    codec: Arc<dyn Codec>,
    frame: FrameType,
    frame_bytes: usize,
    encoded: Encoded,
    scratch: Scratch,
}

impl RoundTrip {
    /// An error if the codec cannot store such frames, takes files instead of values, or lacks a library.
    pub fn new(codec: Arc<dyn Codec>, ty: ValueType) -> Result<Self> {
        let frame_bytes = ty.frame_bytes();
        let frame = check(&*codec, ty)?;
        Ok(Self {
            codec,
            frame,
            frame_bytes,
            encoded: Encoded::default(),
            scratch: Scratch::new(),
        })
    }

    /// Only the values matter from now on, not how many bytes they take in between: some codecs encode faster then.
    #[must_use]
    pub fn for_values(self) -> Self {
        Self {
            scratch: Scratch::for_dropped_pages(),
            ..self
        }
    }

    /// Takes another codec and type from now on, and keeps the working memory. An error changes nothing.
    pub fn change(&mut self, codec: Arc<dyn Codec>, ty: ValueType) -> Result<()> {
        let frame_bytes = ty.frame_bytes();
        self.frame = check(&*codec, ty)?;
        self.frame_bytes = frame_bytes;
        self.codec = codec;
        Ok(())
    }

    /// Encodes consecutive frames as one run and decodes them into `dest`, which has the same size.
    ///
    /// Returns how many bytes they take in between.
    pub fn apply(&mut self, frames: &[u8], dest: &mut [u8]) -> Result<usize> {
        if frames.len() != dest.len() {
            return Err(buffer(format!(
                "{} bytes of frames do not fit a destination of {} bytes",
                frames.len(),
                dest.len()
            )));
        }
        let decoder = self.make_pages(frames)?;
        let mut rest = dest;
        for page in &self.encoded.pages {
            let (part, after) = rest
                .split_at_mut_checked(page.frames * self.frame_bytes)
                .ok_or_else(|| buffer("a codec has written more frames than it was given"))?;
            rest = after;
            decoder.decode(page.page(), 0..page.frames, part, &mut self.scratch)?;
        }
        if !rest.is_empty() {
            return Err(buffer("a codec has written fewer frames than it was given"));
        }
        let pages: usize = self.encoded.pages.iter().map(|page| page.bytes.len()).sum();
        Ok(self.encoded.shared.len() + pages)
    }

    /// Encodes consecutive frames as one run; their pages, and what decodes them.
    pub fn encode(&mut self, frames: &[u8]) -> Result<(Box<dyn Decoder>, &[EncodedPage])> {
        let decoder = self.make_pages(frames)?;
        Ok((decoder, &self.encoded.pages))
    }

    fn make_pages(&mut self, frames: &[u8]) -> Result<Box<dyn Decoder>> {
        let frames = Frames::values(&self.frame, frames)?;
        self.encoded.shared.clear();
        self.encoded.pages.clear();
        let page_frames = self.codec.page_frames(&self.frame);
        self.codec
            .encode(&frames, page_frames, &mut self.encoded, &mut self.scratch)?;
        self.codec.decoder(&self.frame, &self.encoded.shared)
    }
}

/// The frames of this type, if the codec can encode and decode them.
fn check(codec: &dyn Codec, ty: ValueType) -> Result<FrameType> {
    if let Some(files) = codec.carries() {
        let what = format!("it stores {files} files as they are and cannot encode values");
        return Err(CodecError::Parameter {
            spec: codec.spec().to_string(),
            what,
        });
    }
    let frame = FrameType::Values(ty);
    codec.check(&frame)?;
    codec.check_encoder()?;
    codec.check_decoder(&frame)?;
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Dtype;

    fn apply(codec: &str, ty: ValueType, frames: &[u8]) -> Result<(Vec<u8>, usize)> {
        let mut trip = RoundTrip::new(crate::codec(codec)?, ty)?;
        let mut dest = vec![0; frames.len()];
        // Twice: what the first left behind must not matter.
        trip.apply(frames, &mut dest)?;
        let bytes = trip.apply(frames, &mut dest)?;
        Ok((dest, bytes))
    }

    #[test]
    fn lossless_frames_come_back_and_lossy_ones_keep_their_bound() {
        let image = ValueType::new(Dtype::U8, &[24, 24, 3]).unwrap();
        let pixels: Vec<u8> = (0..5 * 24 * 24 * 3_u32)
            .map(|idx| u8::try_from(idx * idx / 90 % 256).unwrap())
            .collect();
        for codec in ["raw", "predict", "camera"] {
            assert_eq!(
                apply(codec, image.clone(), &pixels).unwrap().0,
                pixels,
                "{codec}"
            );
        }
        let (lossy, bytes) = apply("jpeg:q=40", image.clone(), &pixels).unwrap();
        assert_ne!(lossy, pixels);
        assert!(bytes < pixels.len());
        assert_eq!(apply("raw", image, &pixels).unwrap().1, pixels.len());

        let vector = ValueType::new(Dtype::F32, &[2]).unwrap();
        let values: Vec<f32> = (0..600_u16).map(|step| f32::from(step) * 0.01).collect();
        let packed: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let (back, bytes) = apply("vector:abs=1e-3", vector, &packed).unwrap();
        assert!(bytes < packed.len());
        assert_ne!(back, packed);
        for (value, after) in values.iter().zip(back.as_chunks().0) {
            assert!((value - f32::from_le_bytes(*after)).abs() <= 1e-3);
        }
    }

    #[test]
    fn where_only_values_matter_they_are_the_same() {
        let noise: Vec<u8> = (0..24 * 24 * 3_u32)
            .map(|idx| u8::try_from(idx.wrapping_mul(2_654_435_761) >> 24).unwrap())
            .collect();
        let mut dest = vec![0; noise.len()];
        let mut has_grown = false;
        for (channels, codecs) in [
            (
                3,
                &["jpeg:q=95", "jpeg:q=40,sub=420", "jpeg:psnr=30", "predict"][..],
            ),
            (1, &["jpeg:q=60"]),
        ] {
            let image = ValueType::new(Dtype::U8, &[24, 72 / channels, channels]).unwrap();
            for codec in codecs {
                let trip = RoundTrip::new(crate::codec(codec).unwrap(), image.clone());
                let bytes = trip.unwrap().for_values().apply(&noise, &mut dest).unwrap();
                let (expected, smaller) = apply(codec, image.clone(), &noise).unwrap();
                assert_eq!(dest, expected, "{codec}");
                has_grown |= bytes > smaller;
            }
        }
        assert!(has_grown, "without optimised tables, files are larger");
    }

    #[test]
    fn after_a_change_frames_come_back_as_from_a_new_one() {
        let image = |side| ValueType::new(Dtype::U8, &[side, side, 3]).unwrap();
        let pixels: Vec<u8> = (0..24 * 24 * 3_u32)
            .map(|idx| u8::try_from(idx * idx / 90 % 256).unwrap())
            .collect();
        let mut trip = RoundTrip::new(crate::codec("jpeg:q=90").unwrap(), image(24)).unwrap();
        for (codec, side) in [
            ("jpeg:q=10", 16_u32),
            ("predict", 24),
            ("jpeg:q=90,sub=420", 24),
        ] {
            let (ty, pixels) = (image(side as usize), &pixels[..(side * side * 3) as usize]);
            trip.change(crate::codec(codec).unwrap(), ty.clone())
                .unwrap();
            let mut dest = vec![0; pixels.len()];
            let bytes = trip.apply(pixels, &mut dest).unwrap();
            assert_eq!((dest, bytes), apply(codec, ty, pixels).unwrap(), "{codec}");
        }
        let (mut before, mut after) = (vec![0; pixels.len()], vec![0; pixels.len()]);
        trip.apply(&pixels, &mut before).unwrap();
        let carried = crate::codec("jpeg:carry").unwrap();
        assert!(trip.change(carried, image(8)).is_err());
        trip.apply(&pixels, &mut after).unwrap();
        assert_eq!(before, after);
    }

    #[test]
    fn what_cannot_be_encoded_is_refused() {
        let image = ValueType::new(Dtype::U8, &[24, 24, 3]).unwrap();
        let carried = apply("jpeg:carry", image.clone(), &[]).unwrap_err();
        assert!(carried.to_string().contains("JPEG"), "{carried}");
        assert!(apply("depth", image.clone(), &[]).is_err());
        assert!(apply("raw", image, &[0; 7]).is_err());
    }
}
