//! Live frames as bytes of the stored size, whatever a camera driver delivered.

use kino_codec::{Dtype, ValueType};
use kino_dataset::{Appearance, JpegSeen, JpegTrace, ResizeScratch, Size};
use serde::Serialize;

use super::parity::StreamParity;
use crate::error::{Result, invalid};

/// Live frames of one camera: an array of `[frames, height, width, channels]`.
#[derive(Debug, Clone)]
pub struct LiveFrames {
    /// The key that they are passed to the policy under.
    pub key: String,
    /// numpy's name of the dtype.
    pub dtype: String,
    /// The shape, frames first.
    pub shape: Vec<usize>,
    /// The values, packed.
    pub bytes: Vec<u8>,
}

/// What the values of frames of another dtype seem to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Values {
    /// From 0 to 1.
    Unit,
    /// Below 0, or NaN: no camera delivers them.
    Impossible,
    /// Anything else, such as from 0 to 255.
    Other,
}

/// Why live frames are not comparable with training frames, or only in part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) enum Mismatch {
    /// Another dtype.
    Dtype { found: String, values: Values },
    /// The channels come first.
    ChannelsFirst,
    /// Another number of channels.
    Channels { found: usize, expected: usize },
    /// Another height and width.
    Size { found: Size, expected: Size },
}

/// What live frames of one camera look like.
pub(super) struct Seen {
    pub(super) frames: Vec<Appearance>,
    pub(super) jpeg: Option<JpegSeen>,
    pub(super) mismatches: Vec<Mismatch>,
    /// Whether the plan resized training frames, and now these.
    pub(super) is_resized: bool,
}

impl LiveFrames {
    /// Looks at the frames as they would be stored.
    pub(super) fn look_at(&self, parity: &StreamParity) -> Result<Seen> {
        let stored = parity.stored.value_type()?;
        let &[height, width, channels] = stored.shape() else {
            return Err(invalid(format!("`{}` is not a camera", self.key)));
        };
        let mut seen = Seen {
            frames: Vec::new(),
            jpeg: None,
            mismatches: Vec::new(),
            is_resized: false,
        };
        let &[_, h, w, c] = self.shape.as_slice() else {
            return Err(invalid(format!(
                "`{}`: live frames have shape {:?}; give arrays of (height, width, channels), one per frame",
                self.key, self.shape
            )));
        };
        if c != channels && [h, w, c] == [channels, height, width] {
            seen.mismatches.push(Mismatch::ChannelsFirst);
            return Ok(seen);
        }
        if c != channels {
            let (found, expected) = (c, channels);
            seen.mismatches.push(Mismatch::Channels { found, expected });
            return Ok(seen);
        }
        let Some(pixels) = self.to_bytes(&mut seen.mismatches) else {
            return Ok(seen);
        };
        let live =
            ValueType::new(Dtype::U8, &[h, w, c]).map_err(|error| invalid(error.to_string()))?;
        let found = Size {
            height: h,
            width: w,
        };
        let resize = parity.resize(&live, &stored);
        if resize.is_err() {
            let expected = Size { height, width };
            seen.mismatches.push(Mismatch::Size { found, expected });
        }
        let mut trace = JpegTrace::default();
        let mut scratch = ResizeScratch::default();
        let resize = resize.ok().flatten();
        seen.is_resized = resize.is_some();
        for frame in pixels.chunks_exact(live.frame_bytes().max(1)) {
            // Traces of a codec are on its own grid: before resizing.
            trace.add(frame, &live);
            let appearance = match &resize {
                None => Appearance::of(frame, &live),
                Some(resize) => {
                    let resized = resize.to_resized(&mut frame.to_vec(), &mut scratch);
                    Appearance::of(&resized.map_err(invalid)?, &stored)
                }
            };
            seen.frames.extend(appearance);
        }
        seen.jpeg = trace.find();
        Ok(seen)
    }

    /// The values as bytes; `None` if their meaning is not known.
    fn to_bytes(&self, mismatches: &mut Vec<Mismatch>) -> Option<Vec<u8>> {
        let floats: Vec<f64> = match self.dtype.as_str() {
            "uint8" => return Some(self.bytes.clone()),
            "float32" => {
                let (values, _) = self.bytes.as_chunks::<4>();
                values
                    .iter()
                    .map(|one| f64::from(f32::from_le_bytes(*one)))
                    .collect()
            }
            "float64" => {
                let (values, _) = self.bytes.as_chunks::<8>();
                values.iter().map(|one| f64::from_le_bytes(*one)).collect()
            }
            _ => Vec::new(),
        };
        let most = floats.iter().copied().fold(0.0, f64::max);
        let values = if !floats.iter().all(|value| *value >= 0.0) {
            Values::Impossible
        } else if !floats.is_empty() && most <= 1.0 {
            Values::Unit
        } else {
            Values::Other
        };
        mismatches.push(Mismatch::Dtype {
            found: self.dtype.clone(),
            values,
        });
        if floats.is_empty() || values == Values::Impossible {
            return None;
        }
        let scale = if values == Values::Unit { 255.0 } else { 1.0 };
        let bytes = floats.iter().map(|value| to_byte(value * scale));
        Some(bytes.collect())
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, as intended"
)]
fn to_byte(value: f64) -> u8 {
    value.round() as u8
}
