//! The plain reader: a sample's frames, gathered, blended and padded.
//!
//! Frames that follow each other are one read, a repeated frame is copied, a missing one stays zero. This is the
//! meaning of a plan; whatever reads faster is compared with it.

use kino_codec::{Dtype, FrameType, Scratch, ValueType};

use super::blend::{Blend, blend};
use super::episode::EpisodeSamples;
use super::frames::{NO_FRAME, SampleFrames, WindowFrames};
use super::include::Description;
use super::mask::MaskArray;
use super::request::{Stack, Window};
use super::samples::Samples;
use crate::error::{DatasetError, Result, invalid};
use crate::stream::Stream;

/// One training sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The episode's row in the table.
    pub row: usize,
    /// Which anchor of the episode, counted before any is skipped or dropped.
    pub anchor: u32,
    /// Its time.
    pub time_ns: i64,
    /// Key and frames of every window, then what the request includes.
    pub fields: Vec<(String, Array)>,
    /// One per mask: name and values.
    pub masks: Vec<(String, MaskArray)>,
}

/// The frames of a window; the shape begins with the axis of time if the window is stacked.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    /// Numbers: little-endian, row-major, packed.
    Values {
        /// Their type.
        dtype: Dtype,
        /// Their shape.
        shape: Vec<usize>,
        /// Their bytes.
        bytes: Vec<u8>,
    },
    /// Texts.
    Texts {
        /// `[T]`, or empty for one text.
        shape: Vec<usize>,
        /// The texts.
        texts: Vec<String>,
    },
}

impl Samples {
    /// Reads sample `index`; opens its episode unless it was opened a short while ago, see [`EpisodeSamples::read`].
    pub fn read(&self, index: u64) -> Result<Sample> {
        let located = self.locate(index)?;
        let episode = self.opened(located.position)?;
        let mut plan = SampleFrames::default();
        episode.plan(located.sample, &mut plan)?;
        episode.read(&plan)
    }
}

impl EpisodeSamples {
    /// Reads what a plan of this episode names.
    pub fn read(&self, plan: &SampleFrames) -> Result<Sample> {
        let bound = self.bound();
        let mut fields = Vec::with_capacity(plan.windows.len());
        for (idx, (window, planned)) in bound.request.windows.iter().zip(&plan.windows).enumerate()
        {
            let stream = self.stream(idx);
            let stream = stream.ok_or_else(|| invalid(format!("no {}", window.place())))?;
            fields.push((window.key.clone(), read_window(stream, window, planned)?));
        }
        let described = bound.request.include.iter();
        for field in described.flat_map(|include| include.fields()) {
            let value = field.value(self.episode().dataset().table(), plan)?;
            fields.push((field.name().to_owned(), to_array(value)));
        }
        let masks = bound.masks.iter().filter_map(|mask| {
            let planned = plan.windows.get(mask.window)?;
            Some((mask.name.clone(), mask.array(&planned.state)))
        });
        Ok(Sample {
            row: plan.row,
            anchor: plan.anchor,
            time_ns: plan.time_ns,
            masks: masks.collect(),
            fields,
        })
    }
}

/// One value as an array without axes.
fn to_array(value: Description) -> Array {
    match value {
        Description::Text(text) => Array::Texts {
            shape: Vec::new(),
            texts: vec![text],
        },
        Description::Int(value) => Array::Values {
            dtype: Dtype::I64,
            shape: Vec::new(),
            bytes: value.to_le_bytes().to_vec(),
        },
    }
}

fn read_window(stream: &Stream, window: &Window, plan: &WindowFrames) -> Result<Array> {
    let mut shape = match window.stack {
        Stack::Stacked => vec![plan.frames.len()],
        Stack::Single => Vec::new(),
    };
    match stream.frame_type() {
        FrameType::Text => {
            let texts = read_texts(stream, &plan.frames)?;
            Ok(Array::Texts { shape, texts })
        }
        FrameType::Values(ty) => {
            let bytes = read_values(stream, ty, window, plan)?;
            shape.extend(ty.shape());
            let dtype = ty.dtype();
            Ok(Array::Values {
                dtype,
                shape,
                bytes,
            })
        }
    }
}

fn read_values(
    stream: &Stream,
    ty: &ValueType,
    window: &Window,
    plan: &WindowFrames,
) -> Result<Vec<u8>> {
    let size = ty.frame_bytes();
    let mut out = zeros(window, plan.frames.len(), size)?;
    if size == 0 {
        return Ok(out);
    }
    let mut scratch = Scratch::new();
    for run in runs(&plan.frames) {
        let (first, len) = (plan.frames[run.start], run.len());
        if first == NO_FRAME {
            continue;
        }
        let frames = first as usize..first as usize + len;
        let dest = &mut out[run.start * size..run.end * size];
        if run.start > 0 && len == 1 && plan.frames[run.start - 1] == first {
            out.copy_within((run.start - 1) * size..run.start * size, run.start * size);
        } else {
            stream.read_into(frames, dest, &mut scratch)?;
        }
    }
    let Some(how) = Blend::of(window.resolve) else {
        return Ok(out);
    };
    let (mut low, mut high) = (vec![0; size], vec![0; size]);
    for (dest, &(other, weight)) in out.chunks_exact_mut(size).zip(&plan.other) {
        if other != NO_FRAME && weight > 0.0 {
            low.copy_from_slice(dest);
            let frames = other as usize..other as usize + 1;
            stream.read_into(frames, &mut high, &mut scratch)?;
            blend(how, ty.dtype(), [&low, &high], weight, dest);
        }
    }
    Ok(out)
}

fn read_texts(stream: &Stream, frames: &[u32]) -> Result<Vec<String>> {
    let mut texts: Vec<String> = Vec::with_capacity(frames.len());
    for run in runs(frames) {
        let first = frames[run.start];
        if first == NO_FRAME {
            texts.resize(run.end, String::new());
            continue;
        }
        let first = first as usize;
        texts.extend(stream.read_text(first..first + run.len())?);
    }
    Ok(texts)
}

/// Cuts a list of frames into runs in which each frame follows the one before.
fn runs(frames: &[u32]) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut start = 0;
    let follows = |pair: &[u32]| pair[0] < NO_FRAME - 1 && pair[1] == pair[0] + 1;
    std::iter::from_fn(move || {
        let rest = frames.get(start..).filter(|rest| !rest.is_empty())?;
        let len = 1 + rest.windows(2).take_while(|pair| follows(pair)).count();
        start += len;
        Some(start - len..start)
    })
}

/// Zeros for `frames` frames; a window may be larger than memory, so it is asked for politely.
fn zeros(window: &Window, frames: usize, size: usize) -> Result<Vec<u8>> {
    let too_large = || -> DatasetError {
        invalid(format!(
            "{}: {frames} frames of {size} bytes do not fit into memory; ask for fewer",
            window.place()
        ))
    };
    let len = frames.checked_mul(size).ok_or_else(too_large)?;
    let mut out = Vec::new();
    out.try_reserve_exact(len).map_err(|_| too_large())?;
    out.resize(len, 0);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_in_runs() {
        let cut = |frames: &[u32]| runs(frames).collect::<Vec<_>>();
        assert_eq!(cut(&[3, 4, 5, 5]), [0..3, 3..4]);
        assert_eq!(cut(&[0, 0, 1, 2, 2]), [0..1, 1..4, 4..5]);
        assert_eq!(cut(&[NO_FRAME, NO_FRAME, 0]), [0..1, 1..2, 2..3]);
        assert_eq!(cut(&[NO_FRAME - 1, NO_FRAME]), [0..1, 1..2]);
        assert_eq!(cut(&[]), []);
    }
}
