//! The steps of a `signal(…)` bound: codecs from mild to strong, each smaller than the one before, all smaller than lossless.
//!
//! ```text
//! images    45 dB ▶ 42 dB ▶ … ▶ 30 dB           at each the smallest codec that keeps it: JPEG, or AV1 where there is an encoder
//! vectors   2⁻¹⁵ of an element's range ▶ … ▶ 2⁻⁶     4 to 13 bits less than exact
//! ```

use kino_codec::{AbsBound, Frames, RoundTrip, ValueType};
use kino_dataset::{
    Arrival, Dataset, Kind, Plan, SignalBound, StreamSummary, sample_episodes, to_numbers,
};
use serde::{Deserialize, Serialize};

use crate::error::{Result, invalid};

/// Decibels of the steps of images.
const DECIBELS: [u32; 6] = [45, 42, 39, 36, 33, 30];

/// Bits of an element's range that the steps of vectors keep.
const BITS: [u32; 7] = [14, 12, 10, 8, 7, 6, 5];

/// A step must save this much of the bytes of the step before it: else it only adds loss.
const SAVES: f64 = 0.02;

/// Decoded bytes of a stream that sizes are measured on, in so many runs of consecutive frames.
const SAMPLE_BYTES: usize = 4 << 20;
const RUNS: usize = 4;

/// Parameters that say how much a codec may lose.
const LOSS: [&str; 3] = ["abs=", "psnr=", "q="];

/// A codec, and what a frame takes with it in a sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Rung {
    pub(super) codec: String,
    pub(super) frame_bytes: f64,
}

/// A stream with a `signal(…)` bound, and the steps to try.
#[derive(Debug)]
pub(super) struct Ladder {
    pub(super) stream: String,
    pub(super) asked: SignalBound,
    pub(super) frames: u64,
    /// The smallest way to keep every bit: a codec, or the stream as it is stored.
    pub(super) lossless: Rung,
    /// From mild to strong; empty if nothing lossy is smaller.
    pub(super) rungs: Vec<Rung>,
}

impl Ladder {
    pub(super) fn of(
        dataset: &Dataset,
        summary: &StreamSummary,
        asked: SignalBound,
    ) -> Result<Self> {
        let sample = Sample::of(dataset, summary)?;
        let stored = Rung {
            codec: summary.codecs.join(", "),
            frame_bytes: summary.bytes as f64 / summary.frames.max(1) as f64,
        };
        let lossless = match sample.lossless(summary)? {
            Some(found) if found.frame_bytes < stored.frame_bytes => found,
            _ => stored,
        };
        let mut rungs: Vec<Rung> = Vec::new();
        for codecs in steps(summary.kind, &sample, asked.codec.as_deref()) {
            let sized = codecs.iter().filter_map(|codec| sample.size(codec));
            let smallest = sized.min_by(|a, b| a.frame_bytes.total_cmp(&b.frame_bytes));
            let Some(rung) = smallest else { continue };
            let before = rungs.last().unwrap_or(&lossless);
            if rung.frame_bytes < before.frame_bytes * (1.0 - SAVES) {
                rungs.push(rung);
            }
        }
        Ok(Self {
            stream: summary.name.clone(),
            asked,
            frames: summary.frames,
            lossless,
            rungs,
        })
    }

    /// What a frame takes after so many steps.
    pub(super) fn frame_bytes(&self, step: usize) -> f64 {
        let rung = step.checked_sub(1).and_then(|idx| self.rungs.get(idx));
        rung.unwrap_or(&self.lossless).frame_bytes
    }

    /// Bytes of the whole stream that one more step saves; `None` after the last.
    pub(super) fn saving(&self, step: usize) -> Option<f64> {
        let next = self.rungs.get(step)?;
        Some(self.frames as f64 * (self.frame_bytes(step) - next.frame_bytes))
    }
}

/// Codecs of every step, from mild to strong; those of a step lose about the same.
fn steps(kind: Kind, sample: &Sample, named: Option<&str>) -> Vec<Vec<String>> {
    // Who names a setting asks about that one.
    if let Some(text) = named.filter(|text| LOSS.iter().any(|loss| text.contains(loss))) {
        return vec![vec![text.to_owned()]];
    }
    let with = |codec: &str, parameter: &str| {
        let separator = if codec.contains(':') { ',' } else { ':' };
        format!("{codec}{separator}{parameter}")
    };
    if kind == Kind::Image {
        let families: Vec<&str> = match named {
            Some(named) => vec![named],
            None => vec!["jpeg:sub=420", "jpeg:sub=444", "av1"],
        };
        let step = |db: u32| {
            let families = families.iter();
            families
                .map(|codec| with(codec, &format!("psnr={db}")))
                .collect()
        };
        return DECIBELS.into_iter().map(step).collect();
    }
    let spans = sample.spans();
    let step = |bits: u32| {
        let eps: Vec<String> = spans
            .iter()
            .map(|span| to_text(span / f64::from(1_u32 << (bits + 1))))
            .collect();
        let bound = AbsBound::parse(&eps.join("/"))?;
        Some(vec![with(
            named.unwrap_or("vector"),
            &format!("abs={bound}"),
        )])
    };
    BITS.into_iter().filter_map(step).collect()
}

/// A tolerance with two digits, rounded down.
fn to_text(eps: f64) -> String {
    if !(eps.is_finite() && eps > 0.0) {
        return "0".to_owned();
    }
    let scale = 10_f64.powf(eps.log10().floor() - 1.0);
    format!("{:.1e}", (eps / scale).floor() * scale)
}

/// Runs of consecutive frames of a stream.
struct Sample {
    ty: ValueType,
    runs: Vec<Vec<u8>>,
}

impl Sample {
    fn of(dataset: &Dataset, summary: &StreamSummary) -> Result<Self> {
        let refuse = |what: String| invalid(format!("stream `{}`: {what}", summary.name));
        let dtype = summary.dtype.parse();
        let dtype = dtype.map_err(|_| refuse("text has no lossy codec".to_owned()))?;
        let ty =
            ValueType::new(dtype, &summary.shape).map_err(|error| refuse(error.to_string()))?;
        let most = (SAMPLE_BYTES / RUNS / ty.frame_bytes().max(1)).max(1);
        let mut runs = Vec::new();
        for row in sample_episodes(dataset.len(), dataset.len() as u64, RUNS as u64) {
            let Ok(stream) = dataset.episode(row)?.stream(&summary.name) else {
                continue;
            };
            if stream.frame_type().as_values() == Some(&ty) && !stream.is_empty() {
                runs.push(stream.read(0..stream.len().min(most))?);
            }
        }
        Ok(Self { ty, runs })
    }

    /// The lossless codec that a stream gets by default.
    fn lossless(&self, summary: &StreamSummary) -> Result<Option<Rung>> {
        let frame = kino_codec::FrameType::Values(self.ty.clone());
        let plan = Plan::lossless();
        let mut choice = plan.choose(&summary.name, summary.kind, &frame, Arrival::Values)?;
        if let Some(first) = self.runs.first() {
            let frames = Frames::values(&frame, first);
            choice.settle(&frames.map_err(|error| invalid(error.to_string()))?);
        }
        Ok(self.size(&choice.codec.spec().to_string()))
    }

    /// What a codec makes of the runs; `None` if it cannot store them.
    fn size(&self, text: &str) -> Option<Rung> {
        let codec = kino_codec::codec(text).ok()?;
        let name = codec.spec().to_string();
        let mut trip = RoundTrip::new(codec, self.ty.clone()).ok()?;
        let (mut bytes, mut frames) = (0, 0);
        for run in &self.runs {
            bytes += trip.apply(run, &mut vec![0; run.len()]).ok()?;
            frames += run.len() / self.ty.frame_bytes().max(1);
        }
        (frames > 0).then(|| Rung {
            codec: name,
            frame_bytes: bytes as f64 / frames as f64,
        })
    }

    /// The range of every element.
    fn spans(&self) -> Vec<f64> {
        let elements = self.ty.elements();
        let mut ranges = vec![[f64::INFINITY, f64::NEG_INFINITY]; elements];
        for run in &self.runs {
            for (idx, value) in to_numbers(&self.ty, run).into_iter().enumerate() {
                let [low, high] = &mut ranges[idx % elements.max(1)];
                if value.is_finite() {
                    (*low, *high) = (low.min(value), high.max(value));
                }
            }
        }
        let spans = ranges.into_iter().map(|[low, high]| high - low);
        spans.map(|span| span.max(0.0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kino_codec::Dtype;

    #[test]
    fn tolerances_are_rounded_down_to_two_digits() {
        for (eps, text) in [
            (0.001_234, "1.2e-3"),
            (0.000_999_9, "9.9e-4"),
            (12.99, "1.2e1"),
            (0.0, "0"),
            (f64::INFINITY, "0"),
        ] {
            assert_eq!(to_text(eps), text);
        }
    }

    #[test]
    fn each_element_of_a_vector_keeps_so_many_bits_of_its_own_range() {
        let values: Vec<u8> = (0..64_u16)
            .flat_map(|idx| [f32::from(idx), 7.0, -1000.0 * f32::from(idx)])
            .flat_map(f32::to_le_bytes)
            .collect();
        let sample = Sample {
            ty: ValueType::new(Dtype::F32, &[3]).unwrap(),
            runs: vec![values],
        };
        let steps = steps(Kind::Vector, &sample, None);
        assert_eq!(steps.len(), BITS.len());
        for (step, bits) in steps.iter().zip(BITS) {
            let text = step[0].split_once("abs=").unwrap().1;
            let bound = AbsBound::parse(text).unwrap();
            for (element, span) in [63.0, 0.0, 63_000.0].into_iter().enumerate() {
                let most = span / 2_f64.powi(i32::try_from(bits).unwrap() + 1);
                let eps = bound.eps(element);
                assert!(eps <= most && eps >= 0.9 * most, "{text}: {element}");
            }
        }
        let named = super::steps(Kind::Vector, &sample, Some("vector:abs=1"));
        assert_eq!(named, [["vector:abs=1"]]);
    }
}
