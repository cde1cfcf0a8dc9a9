//! Frames to measure codecs on: the user's own, or synthetic ones.

use std::f64::consts::TAU;

use kino_codec::{Dtype, FrameType, Frames};
use kino_format::Kind;

use crate::dataset::Dataset;
use crate::error::{Result, codec_at};
use crate::plan::matches_pattern;

/// A run of frames.
#[derive(Debug, Clone)]
pub struct CostSample {
    /// The stream's name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// The type of its frames.
    pub frame: FrameType,
    /// Packed values; empty for byte strings.
    pub values: Vec<u8>,
    /// Byte strings: texts, or images that are bitstreams already. Empty for packed values.
    pub strings: Vec<Vec<u8>>,
}

impl CostSample {
    /// Passes the frames to `work`.
    pub fn with_frames<R>(&self, work: impl FnOnce(&Frames<'_>) -> Result<R>) -> Result<R> {
        let strings: Vec<&[u8]> = self.strings.iter().map(Vec::as_slice).collect();
        let frames = match self.frame {
            FrameType::Values(_) if strings.is_empty() => {
                Frames::values(&self.frame, &self.values).map_err(codec_at(&*self.name))?
            }
            _ => Frames::bytes(&self.frame, &strings),
        };
        work(&frames)
    }

    /// The first frames, at most `max_bytes` of them and at least one.
    #[must_use]
    pub fn start(&self, max_bytes: usize) -> Self {
        let mut start = self.clone();
        let size = self.frame.as_values().map_or(0, |ty| ty.frame_bytes());
        let frames = max_bytes.checked_div(size).unwrap_or(1).max(1);
        start.values.truncate(frames.saturating_mul(size));
        start.strings.truncate(frames);
        start
    }

    /// The number of frames.
    pub fn len(&self) -> usize {
        let size = self.frame.as_values().map_or(0, |ty| ty.frame_bytes());
        let numbers = self.values.len().checked_div(size).unwrap_or(0);
        numbers.max(self.strings.len())
    }

    /// Whether the frames are images that are bitstreams already, to be stored as they are.
    pub fn is_carried(&self) -> bool {
        self.frame.as_values().is_some() && !self.strings.is_empty()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The streams of a dataset whose names match `pattern`: their first frames, up to `max_bytes` of each.
    ///
    /// They are the decoded frames: a lossy stream is measured on what is left after its loss.
    pub fn of_dataset(dataset: &Dataset, pattern: &str, max_bytes: usize) -> Result<Vec<Self>> {
        let streams = dataset.manifest().streams.iter();
        let wanted = streams.filter(|stream| matches_pattern(pattern, &stream.name));
        wanted
            .map(|stream| Self::of_stream(dataset, &stream.name, stream.kind, max_bytes))
            .collect()
    }

    fn of_stream(dataset: &Dataset, name: &str, kind: Kind, max_bytes: usize) -> Result<Self> {
        let mut sample = Self {
            name: name.to_owned(),
            kind,
            frame: FrameType::Text,
            values: Vec::new(),
            strings: Vec::new(),
        };
        let mut room = max_bytes;
        for row in 0..dataset.len() {
            let episode = dataset.episode(row)?;
            if !episode.streams().any(|stream| stream.name == name) {
                continue;
            }
            let stream = episode.stream(name)?;
            sample.frame = stream.frame_type().clone();
            let Some(ty) = stream.frame_type().as_values() else {
                let texts = stream.read_text(0..stream.len())?;
                room = room.saturating_sub(texts.iter().map(String::len).sum());
                sample
                    .strings
                    .extend(texts.into_iter().map(String::into_bytes));
                continue;
            };
            // At least one frame, however large.
            let least = usize::from(sample.values.is_empty());
            let fits = (room / ty.frame_bytes().max(1)).max(least);
            let bytes = stream.read(0..stream.len().min(fits))?;
            room = room.saturating_sub(bytes.len());
            sample.values.extend(bytes);
            if room < ty.frame_bytes() {
                break;
            }
        }
        Ok(sample)
    }

    /// Synthetic streams of each kind: images of two sizes, joints, depth, language.
    pub fn built_in() -> Result<Vec<Self>> {
        let made = |error| codec_at("a built-in sample")(error);
        let numbers = |name: &str, kind: Kind, ty: (Dtype, &[usize]), values: Vec<u8>| {
            Ok(Self {
                name: name.to_owned(),
                kind,
                frame: FrameType::values(ty.0, ty.1).map_err(made)?,
                values,
                strings: Vec::new(),
            })
        };
        let texts = ["pick up the red cube", "put it into the bowl"];
        Ok(vec![
            numbers("joints", Kind::Vector, (Dtype::F32, &[7]), joints(4000))?,
            numbers(
                "camera 84×84",
                Kind::Image,
                (Dtype::U8, &[84, 84, 3]),
                images(64, 84, 84),
            )?,
            numbers(
                "camera 480×640",
                Kind::Image,
                (Dtype::U8, &[480, 640, 3]),
                images(8, 480, 640),
            )?,
            numbers(
                "depth 480×640",
                Kind::Depth,
                (Dtype::U16, &[480, 640]),
                distances(4),
            )?,
            Self {
                name: "language".to_owned(),
                kind: Kind::Text,
                frame: FrameType::Text,
                values: Vec::new(),
                strings: (0..200).map(|idx| texts[idx / 100].into()).collect(),
            },
        ])
    }
}

/// Values from 0 to 1 without a pattern, the same on every machine.
fn noise() -> impl FnMut() -> f64 {
    let mut state = 0x9e37_79b9_u32;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1 << 24)
    }
}

/// Seven swinging joints, read by encoders with 4096 steps per turn.
fn joints(frames: u32) -> Vec<u8> {
    let mut noise = noise();
    let mut all = Vec::new();
    for frame in 0..frames {
        for joint in 0..7 {
            let phase = f64::from(frame) * (0.003 + 0.001 * f64::from(joint));
            let steps = ((phase.sin() + f64::from(joint)) * 4096.0 / TAU + noise()).floor();
            #[expect(clippy::cast_possible_truncation, reason = "a float32 is wanted")]
            all.extend(((steps * TAU / 4096.0) as f32).to_le_bytes());
        }
    }
    all
}

/// A static room with a round object moving through it, and sensor noise.
fn images(frames: u32, height: u32, width: u32) -> Vec<u8> {
    let mut noise = noise();
    let mut all = Vec::new();
    for frame in 0..frames {
        let (cy, cx) = (
            f64::from(height) / 2.0,
            f64::from(width) * f64::from(frame + 1) / f64::from(frames + 1),
        );
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            let (dy, dx) = (f64::from(y) - cy, f64::from(x) - cx);
            let inside = dy.hypot(dx) < f64::from(height) / 6.0;
            let wall =
                90.0 + 60.0 * (f64::from(x) / 37.0).sin() + 40.0 * (f64::from(y) / 23.0).cos();
            for channel in 0..3 {
                let value = if inside {
                    200.0 - 50.0 * f64::from(channel)
                } else {
                    wall
                };
                all.push(to_u8(value + 4.0 * noise()));
            }
        }
    }
    all
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the range first"
)]
fn to_u8(value: f64) -> u8 {
    value.clamp(0.0, 255.0) as u8
}

/// A slanted floor in millimetres, with holes where the sensor has no return.
fn distances(frames: u32) -> Vec<u8> {
    let mut noise = noise();
    let mut all = Vec::new();
    for (y, x) in
        (0..frames).flat_map(|_| (0..480_u32).flat_map(|y| (0..640_u32).map(move |x| (y, x))))
    {
        let hole = (x / 16 + y / 24) % 11 == 0;
        let distance = 4000 - 5 * y + x / 3;
        let steps = if hole {
            0
        } else {
            distance + u32::from(noise() > 0.5)
        };
        all.extend(u16::try_from(steps).unwrap_or(0).to_le_bytes());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_samples_are_whole_frames_of_every_kind() {
        let samples = CostSample::built_in().unwrap();
        let kinds = [Kind::Vector, Kind::Image, Kind::Depth, Kind::Text];
        for kind in kinds {
            assert!(samples.iter().any(|sample| sample.kind == kind), "{kind:?}");
        }
        for sample in samples {
            let frames = sample.with_frames(|frames| Ok(frames.len())).unwrap();
            assert!(frames > 1 && frames == sample.len(), "{}", sample.name);
        }
    }
}
