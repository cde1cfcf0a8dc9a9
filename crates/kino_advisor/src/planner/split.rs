//! Split points: how much of the way from a recording to a batch is done once, when it is packed, and how much in every epoch.
//!
//! ```text
//! as recorded ── decode ──▶ decoded ── resize ──▶ resized ── (x − mean) ÷ std ──▶ normalised float32
//!    lossless, or its files        raw              a codec, or raw                  raw
//! ```
//!
//! Further to the right the loader does less, but frames can be used for less. Normalised frames take four bytes for each
//! of uint8 and save only a conversion that happens while a sample is copied into its batch, so no plan stores them; the
//! row says what they would cost.

use std::time::Instant;

use kino_codec::{Dtype, FrameType, ValueType};
use kino_dataset::{CostSample, Filter, Fit, Resize, ResizeScratch, Size, measure};
use serde::{Deserialize, Serialize};

use super::predict::{Prediction, Predictor};
use super::search::CandidatePlan;
use super::streams::{CodecOption, StreamOptions, corrected, effort, to_option};
use super::{Planned, PlannerOptions};
use crate::html::to_quantity;

/// Bytes that a codec may take more if it decodes a nanosecond faster: a core that decodes less is worth some storage.
const BYTES_PER_NS: f64 = 0.01;

/// The name of the last split point.
const NORMALISED: &str = "normalised float32";

/// Images at one split point, all other streams as in the chosen plan, and what that would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SplitPoint {
    /// What it is, for people.
    pub name: String,
    /// The codec of each stream that the loader resizes.
    pub codecs: Vec<(String, String)>,
    /// Whether images are resized before they are stored.
    pub is_resized: bool,
    /// Whether a plan can store it and the caller allows it.
    pub is_allowed: bool,
    /// CPU seconds to decode and resize the frames of a sample, each for the first time.
    pub sample_cpu_s: f64,
    /// What it would do.
    pub prediction: Prediction,
}

/// Measures the codecs of a stream on frames of the size that the loader resizes them to, and the resizing.
pub(super) fn measure_resized(
    stream: &mut StreamOptions,
    sample: &CostSample,
    size: Size,
    options: &PlannerOptions,
) {
    let Some((resized, resize_ns)) = resized(sample, size) else {
        return;
    };
    stream.resize_ns = resize_ns;
    // A plan does not enlarge images.
    if resized.frame.as_values().map_or(0, ValueType::elements)
        > sample.frame.as_values().map_or(0, ValueType::elements)
    {
        return;
    }
    let foreign = &options.foreign;
    let codecs = options
        .bounds
        .codecs_for(&sample.name, sample.kind, &resized.frame, foreign);
    for (text, is_within_bounds) in codecs {
        let is_allowed = is_within_bounds && options.allow_resize;
        match measured(&text, &resized, options) {
            Ok(Some(mut option)) if option.foreign.is_none() || is_within_bounds => {
                let frame = resized.frame.as_values().map_or(0, ValueType::frame_bytes);
                option.bytes = corrected(option.bytes, frame as f64, stream.correction);
                option.is_allowed = is_allowed;
                option.resize = Some(size);
                stream.options.push(option);
            }
            Ok(_) => {}
            Err(error) => stream.failed.push((format!("{text} at {size}"), error)),
        }
    }
    stream.normalised = as_floats(&resized)
        .and_then(|floats| measured("raw", &floats, options).ok().flatten())
        .map(|option| CodecOption {
            resize: Some(size),
            is_allowed: false,
            ..option
        });
}

/// A codec on a sample; `None` for a foreign one that is not worth the time because it may not be chosen.
fn measured(
    text: &str,
    sample: &CostSample,
    options: &PlannerOptions,
) -> Result<Option<CodecOption>, String> {
    let codec = kino_codec::codec(text).map_err(|error| error.to_string())?;
    let is_named = |name: &str| options.foreign.iter().any(|one| one == name);
    if codec.foreign().is_some_and(|name| !is_named(name)) {
        return Ok(None);
    }
    let found = sample.with_frames(|frames| measure(&*codec, frames, effort(options, 1.0)));
    let found = found.map_err(|error| error.to_string())?;
    Ok(Some(to_option(&found, true)))
}

/// The same frames resized, and the nanoseconds for one; `None` if they are not images or depth, or of that size already.
fn resized(sample: &CostSample, size: Size) -> Option<(CostSample, f64)> {
    let ty = sample.frame.as_values()?;
    let fit = Fit {
        size: Some(size),
        filter: Filter::of(sample.kind, ty),
        ..Fit::default()
    };
    let resize = fit.reduce(ty).ok()??;
    let mut values = sample.values.clone();
    let (out, ns) = timed(&resize, &mut values)?;
    let mut small = sample.clone();
    small.frame = FrameType::Values(resize.value_type(ty).ok()?);
    small.values = out;
    Some((small, ns))
}

/// Resizes all frames, twice: the faster time counts, as for codecs.
fn timed(resize: &Resize, values: &mut [u8]) -> Option<(Vec<u8>, f64)> {
    let frames = values.len() / resize.source_bytes().max(1);
    let mut scratch = ResizeScratch::default();
    let mut best = f64::INFINITY;
    let mut out = Vec::new();
    for _ in 0..2 {
        let began = Instant::now();
        out = resize.to_resized(values, &mut scratch).ok()?;
        best = best.min(began.elapsed().as_secs_f64() * 1e9);
    }
    (frames > 0).then(|| (out, best / frames as f64))
}

/// Bytes as float32 from 0 to 1.
fn as_floats(sample: &CostSample) -> Option<CostSample> {
    let ty = sample
        .frame
        .as_values()
        .filter(|ty| ty.dtype() == Dtype::U8)?;
    let floats = sample.values.iter().map(|&value| f32::from(value) / 255.0);
    Some(CostSample {
        frame: FrameType::values(Dtype::F32, ty.shape()).ok()?,
        values: floats.flat_map(f32::to_le_bytes).collect(),
        ..sample.clone()
    })
}

/// A stream, and how a split point stores it.
type Stored<'s> = (&'s StreamOptions, &'s CodecOption);

/// Every split point of the streams that the loader resizes; none if it resizes none.
pub(super) fn split_points(
    predictor: &Predictor<'_>,
    chosen: Option<&CandidatePlan>,
) -> Vec<SplitPoint> {
    let streams = &predictor.measured.streams;
    let is_split = |stream: &StreamOptions| stream.options.iter().any(|one| one.resize.is_some());
    let (Some(chosen), true) = (chosen, streams.iter().any(is_split)) else {
        return Vec::new();
    };
    let point = |name: &str, pick: &dyn Fn(&StreamOptions) -> Option<&CodecOption>| {
        let mut pairs: Vec<Stored<'_>> = Vec::new();
        for (stream, &idx) in streams.iter().zip(&chosen.codecs) {
            let option = if is_split(stream) {
                pick(stream)?
            } else {
                stream.options.get(idx)?
            };
            pairs.push((stream, option));
        }
        Some(SplitPoint::new(name, predictor, &pairs))
    };
    let points = [
        point("as recorded", &|stream| stream.options.first()),
        point("decoded", &|stream| raw(stream, false)),
        point("resized, lossless", &|stream| best(stream, true)),
        // Depth may have no lossy codec that was tried.
        point("resized, lossy", &|stream| {
            best(stream, false).or_else(|| best(stream, true))
        })
        .filter(|_| streams.iter().any(|one| best(one, false).is_some())),
        point("resized, raw", &|stream| raw(stream, true)),
        point(NORMALISED, &|stream| {
            stream.normalised.as_ref().or_else(|| raw(stream, true))
        }),
    ];
    points.into_iter().flatten().collect()
}

/// A stream without a codec, resized or not.
fn raw(stream: &StreamOptions, is_resized: bool) -> Option<&CodecOption> {
    let mut options = stream.options.iter();
    options.find(|one| one.codec == "raw" && one.resize.is_some() == is_resized)
}

/// Of the resized options the one with the fewest bytes, where one that decodes much faster may take more; of lossy ones
/// those that the caller's bounds allow come first.
fn best(stream: &StreamOptions, is_lossless: bool) -> Option<&CodecOption> {
    let options = stream.options.iter();
    let wanted = options.filter(|one| one.resize.is_some() && one.is_lossless == is_lossless);
    let cost = |one: &CodecOption| one.bytes + BYTES_PER_NS * one.decode_ns;
    wanted.filter(|one| one.foreign.is_none()).min_by(|a, b| {
        let by_allowed = b.is_allowed.cmp(&a.is_allowed);
        by_allowed.then(cost(a).total_cmp(&cost(b)))
    })
}

impl Planned {
    /// Whether a plan resizes a stream before it is stored.
    pub(super) fn is_resized(&self, plan: &CandidatePlan) -> bool {
        let mut streams = self.measured.streams.iter().zip(&plan.codecs);
        streams.any(|(stream, &idx)| {
            stream
                .options
                .get(idx)
                .is_some_and(|one| one.resize.is_some())
        })
    }

    /// What the table of split points is about.
    pub(super) fn split_title(&self) -> String {
        let allow = if self
            .split_points
            .iter()
            .any(|one| one.is_resized && one.is_allowed)
        {
            "allowed here"
        } else {
            "allow it with --allow-resize"
        };
        format!(
            "Split points of the images that the loader resizes. Resized frames are those that it would make, and nothing else \
             can be made of them; {allow}:"
        )
    }

    /// The split points, with a head.
    pub(super) fn split_rows(&self) -> Vec<Vec<String>> {
        let head = [
            "stored",
            "codec",
            "bytes",
            "pack",
            "CPU per sample",
            "samples/s",
            "compute",
            "",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(self.split_points.iter().map(SplitPoint::row));
        rows
    }
}

impl SplitPoint {
    fn new(name: &str, predictor: &Predictor<'_>, pairs: &[Stored<'_>]) -> Self {
        let split = || pairs.iter().filter(|(stream, _)| stream.resize_ns > 0.0);
        let loaded = pairs.iter().filter(|(stream, _)| stream.window > 0.0);
        let ns = loaded.map(|(stream, option)| stream.window * stream.load_ns(option));
        let codecs = split().map(|(stream, option)| (stream.name.clone(), option.codec.clone()));
        Self {
            name: name.to_owned(),
            codecs: codecs.collect(),
            is_resized: split().any(|(_, option)| option.resize.is_some()),
            is_allowed: pairs.iter().all(|(_, option)| option.is_allowed),
            sample_cpu_s: ns.sum::<f64>() / 1e9,
            prediction: predictor.predict_pairs(pairs),
        }
    }

    fn row(&self) -> Vec<String> {
        let mut codecs: Vec<&str> = Vec::new();
        for (_, codec) in &self.codecs {
            if !codecs.contains(&codec.as_str()) {
                codecs.push(codec);
            }
        }
        let remark = match self.name.as_str() {
            NORMALISED => "for comparison: no plan stores it",
            _ if !self.is_allowed => "not allowed",
            _ => "",
        };
        let prediction = &self.prediction;
        vec![
            self.name.clone(),
            codecs.join(" "),
            to_quantity(prediction.bytes, "B"),
            to_quantity(prediction.pack_s, "s"),
            to_quantity(self.sample_cpu_s, "s"),
            format!("{:.0}", prediction.samples_per_s),
            format!("{:.3}", prediction.compute_ratio),
            remark.to_owned(),
        ]
    }
}
