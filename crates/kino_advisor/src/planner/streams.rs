//! Every stream, and what candidate codecs cost on a sample of it.
//!
//! The codec that a stream is stored with is timed on its own pages: carried video cannot be encoded again. If the loader
//! resizes a stream, the codecs are measured on resized frames too (`split.rs`).

use std::time::Duration;

use kino_codec::{Bound, ValueType};
use kino_dataset::{
    CostSample, Dataset, Effort, Filter, Fit, Kind, Measured, Resize, ResizeMode, Samples, Size,
    StreamSummary, measure, measure_stored,
};
use serde::{Deserialize, Serialize};

use super::{PlannerOptions, Whole, split};
use crate::doctor::{Host, Subject};
use crate::error::Result;
use crate::signal::FoundBounds;

/// Each figure of a codec is measured for this share of the time that the loader is measured…
const EFFORT: f64 = 0.02;

/// … and for a twentieth of that if the stream has less than one part in this many of the decoded bytes: it hardly matters.
const SMALL_PART: u64 = 50;

/// Foreign codecs are measured on this much of a sample: most are slow, and their frames are independent.
const FOREIGN_BYTES: usize = 1 << 20;

/// A stream, and the codecs that could store it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StreamOptions {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// The type of its frames.
    pub frame: String,
    /// Bytes of a decoded frame, on average.
    pub frame_bytes: f64,
    /// Frames in the whole recording.
    pub frames: f64,
    /// Those of episodes that can be loaded.
    pub loaded_frames: f64,
    /// Frames in a sample of the training loop; 0 if it is not loaded.
    pub window: f64,
    /// Nanoseconds to resize a frame to the size that is loaded; 0 if it is loaded as it is.
    #[serde(default)]
    pub resize_ns: f64,
    /// The codecs; the first is the one it is stored with now. Those of resized frames come last.
    pub options: Vec<CodecOption>,
    /// Resized frames as float32 between 0 and 1, uncompressed, which no plan stores; `None` if it is not resized.
    #[serde(default)]
    pub normalised: Option<CodecOption>,
    /// How much better the whole stream compresses than the sample: a factor of the logarithm of the compression ratio.
    #[serde(default = "one")]
    pub correction: f64,
    /// Codecs that could not be measured, and why.
    pub failed: Vec<(String, String)>,
}

fn one() -> f64 {
    1.0
}

/// A codec, and what it costs for one frame of a stream, on one core of this machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CodecOption {
    /// Name and parameters.
    pub codec: String,
    /// Stored bytes.
    pub bytes: f64,
    /// Nanoseconds to decode it after the frame before it.
    pub decode_ns: f64,
    /// Nanoseconds to decode it alone.
    pub random_ns: f64,
    /// Nanoseconds to decode it at a fraction of its size and to resize it, if the loader does that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduced_ns: Option<f64>,
    /// Nanoseconds to encode it.
    pub encode_ns: f64,
    /// The largest difference from the original, in the stream's unit.
    pub max_abs_error: f64,
    /// The peak signal-to-noise ratio of lossy 8-bit images.
    pub psnr_db: Option<f64>,
    /// The size that frames are resized to before they are stored.
    #[serde(default)]
    pub resize: Option<Size>,
    /// Whether every bit comes back: of the recorded frames, or with `resize` of the resized ones.
    pub is_lossless: bool,
    /// Whether the caller allows it.
    pub is_allowed: bool,
    /// Whether the stream is stored with it already, so that its pages can be copied.
    pub is_stored: bool,
    /// The codec outside Kinograph that every reader of the dataset needs too.
    #[serde(default)]
    pub foreign: Option<String>,
}

impl StreamOptions {
    /// Stored bytes of the whole stream with this codec.
    pub fn bytes(&self, option: &CodecOption) -> f64 {
        self.frames * option.bytes
    }

    /// Nanoseconds to decode a frame after the one before it, and to resize it if it is not stored in the size that is
    /// loaded.
    pub fn load_ns(&self, option: &CodecOption) -> f64 {
        self.resized_ns(option, option.decode_ns)
    }

    /// Nanoseconds to decode a frame alone, and to resize it as above.
    pub(super) fn load_random_ns(&self, option: &CodecOption) -> f64 {
        self.resized_ns(option, option.random_ns)
    }

    fn resized_ns(&self, option: &CodecOption, decode_ns: f64) -> f64 {
        match (option.resize, option.reduced_ns) {
            (Some(_), _) => decode_ns,
            (None, Some(reduced_ns)) => reduced_ns,
            (None, None) => decode_ns + self.resize_ns,
        }
    }
}

/// Measures every stream of the dataset.
pub(super) fn measure_streams(
    subject: &Subject,
    whole: &Whole,
    (options, signal): (&PlannerOptions, Option<&FoundBounds>),
    host: &mut dyn Host,
) -> Result<Vec<StreamOptions>> {
    let Some(samples) = subject.windows.first().and_then(|all| all.first()) else {
        return Ok(Vec::new());
    };
    let dataset = samples.dataset();
    let mut found = Vec::new();
    let streams = dataset.manifest().streams.iter();
    for summary in streams.filter(|one| one.variant_of.is_none()) {
        // A stream that is left out of the plan.
        let Some(&frames) = whole.counts.frames.get(&summary.name) else {
            continue;
        };
        host.look_up()?;
        host.begins(&format!("codecs of `{}`", summary.name));
        let size = loaded_size(subject, samples, &summary.name);
        let how = How {
            fast: size.filter(|_| !subject.options.images.resize.is_exact()),
            bounded: signal.and_then(|found| found.codec(&summary.name)),
            options,
        };
        if let Some((mut stream, sample)) = measure_stream(dataset, summary, whole, how)? {
            let loaded = whole.counts.complete_frames.get(&summary.name);
            stream.frames = frames as f64;
            stream.loaded_frames = loaded.copied().unwrap_or(0) as f64;
            stream.window = window(samples, &summary.name);
            let is_image = matches!(summary.kind, Kind::Image | Kind::Depth);
            if let Some(size) = size.filter(|_| is_image) {
                host.begins(&format!("codecs of `{}` at {size}", summary.name));
                split::measure_resized(&mut stream, &sample, size, options);
            }
            found.push(stream);
        }
    }
    Ok(found)
}

/// The size that the loader resizes a stream to, if all windows of it have the same.
fn loaded_size(subject: &Subject, samples: &Samples, stream: &str) -> Option<Size> {
    let windows = samples.request().windows.iter();
    let windows = windows.filter(|window| window.stream == stream);
    let mut sizes = windows.map(|window| subject.options.images.size_of(&window.key));
    let first = sizes.next().flatten()?;
    sizes.all(|size| size == Some(first)).then_some(first)
}

/// How a loader resizes the images of a stream that it may decode at a fraction of their size.
fn fast_resize(summary: &StreamSummary, size: Size) -> Option<Resize> {
    let ty = ValueType::new(summary.dtype.parse().ok()?, &summary.shape).ok()?;
    let fit = Fit {
        size: Some(size),
        filter: Filter::of(summary.kind, &ty),
        mode: ResizeMode::Fast,
        ..Fit::default()
    };
    fit.reduce(&ty).ok()?
}

/// Frames of a stream in one sample.
fn window(samples: &Samples, stream: &str) -> f64 {
    let all = samples.request().windows.iter();
    let frames = all.filter(|window| window.stream == stream);
    let mean = || samples.dataset().manifest().streams.iter();
    let frames = frames.map(|window| match window.len() {
        Some(len) => len as f64,
        // A whole episode.
        None => mean()
            .find(|one| one.name == stream)
            .map_or(0.0, |one| one.frames as f64 / one.episodes.max(1) as f64),
    });
    frames.sum()
}

/// How a stream is measured.
#[derive(Clone, Copy)]
struct How<'a> {
    /// The size that images may be decoded near to.
    fast: Option<Size>,
    /// The codec that keeps a bound of the probe.
    bounded: Option<&'a str>,
    options: &'a PlannerOptions,
}

fn measure_stream(
    dataset: &Dataset,
    summary: &StreamSummary,
    whole: &Whole,
    how: How<'_>,
) -> Result<Option<(StreamOptions, CostSample)>> {
    let How {
        fast,
        bounded,
        options,
    } = how;
    let all = dataset.manifest().streams.iter().map(|one| one.raw_bytes);
    let is_small = summary.raw_bytes < all.sum::<u64>() / SMALL_PART;
    let effort = Effort {
        resize: fast.and_then(|size| fast_resize(summary, size)),
        ..effort(options, if is_small { 0.05 } else { 1.0 })
    };
    let max_bytes = options.sample_bytes;
    let name = &summary.name;
    if summary.frames == 0 {
        return Ok(None);
    }
    let stored = measure_stored(dataset, name, max_bytes, effort)?;
    let sample = CostSample::of_dataset(dataset, name, max_bytes)?;
    let Some(sample) = sample.into_iter().find(|sample| sample.name == *name) else {
        return Ok(None);
    };
    let mut now = to_option(&stored, true);
    now.is_stored = true;
    // What is already lost is no new loss.
    now.is_lossless &= summary.max_abs_error == 0.0;
    let again = measure_again(&stored.codec, &sample, effort);
    if let (Some(again), false) = (&again, whole.is_packed) {
        now.encode_ns = again.encode_ns;
    }
    // A sample has longer runs than an episode, and other frames than the whole: its sizes are corrected by what is
    // known of the codec at hand.
    let bytes = summary.bytes as f64 / summary.frames as f64;
    let frame_bytes = summary.raw_bytes as f64 / summary.frames as f64;
    let sampled = again.as_ref().map_or(now.bytes, |again| again.bytes);
    let correction = correction(frame_bytes, sampled, bytes);
    now.bytes = bytes;
    let mut found = StreamOptions {
        name: name.clone(),
        kind: summary.kind.name().to_owned(),
        frame: stored.frame.clone(),
        frame_bytes,
        frames: summary.frames as f64,
        loaded_frames: summary.frames as f64,
        window: 0.0,
        resize_ns: 0.0,
        options: vec![now],
        normalised: None,
        correction,
        failed: Vec::new(),
    };
    let start = sample.start(FOREIGN_BYTES);
    let bounds = &options.bounds;
    let mut codecs = bounds.codecs_for(name, summary.kind, &sample.frame, &options.foreign);
    if let Some(bounded) = bounded {
        codecs.retain(|(text, _)| text != bounded);
        codecs.push((bounded.to_owned(), true));
    }
    for (text, is_allowed) in codecs {
        if text == stored.codec {
            continue;
        }
        let measured = kino_codec::codec(&text)
            .map_err(|error| error.to_string())
            .and_then(|codec| {
                let sample = if codec.foreign().is_some() {
                    &start
                } else {
                    &sample
                };
                let measured = sample.with_frames(|frames| measure(&*codec, frames, effort));
                measured.map_err(|error| error.to_string())
            });
        match measured {
            Ok(measured) => {
                let mut option = to_option(&measured, is_allowed);
                option.bytes = corrected(option.bytes, frame_bytes, correction);
                found.options.push(option);
            }
            Err(error) => found.failed.push((text, error)),
        }
    }
    Ok(Some((found, sample)))
}

/// How long each figure of a codec is measured, and a share of that for a stream that hardly matters.
pub(super) fn effort(options: &PlannerOptions, share: f64) -> Effort {
    let seconds = options.seconds * EFFORT * share;
    Effort {
        budget: Duration::try_from_secs_f64(seconds).unwrap_or_default(),
        page_frames: None,
        resize: None,
    }
}

/// How much better or worse the whole stream compresses than the sample of it: with the codec at hand, frames of
/// `frame` bytes take `sampled` bytes in the sample and `whole` in all.
///
/// Where one codec needs half of the bytes, one that saves little cannot. So it is a factor of the logarithm of the
/// compression ratio, which leaves raw frames as large as they are.
fn correction(frame: f64, sampled: f64, whole: f64) -> f64 {
    let log = |bytes: f64| (frame / bytes.max(1e-9)).ln();
    // Below this ratio, a logarithm says little.
    if log(sampled) <= 0.1 || log(whole) <= 0.0 {
        return 1.0;
    }
    (log(whole) / log(sampled)).clamp(0.5, 2.0)
}

/// Bytes per frame of the whole stream with another codec, from those of the sample.
pub(super) fn corrected(sampled: f64, frame: f64, correction: f64) -> f64 {
    if sampled >= frame {
        return sampled;
    }
    frame * (sampled / frame).powf(correction)
}

/// The codec at hand on the sample, as the others are measured; `None` for a bitstream that is stored as it is.
fn measure_again(codec: &str, sample: &CostSample, effort: Effort) -> Option<CodecOption> {
    let codec = kino_codec::codec(codec).ok()?;
    if codec.carries().is_some() || codec.check_encoder().is_err() {
        return None;
    }
    let measured = sample.with_frames(|frames| measure(&*codec, frames, effort));
    measured.ok().map(|measured| to_option(&measured, true))
}

pub(super) fn to_option(measured: &Measured, is_allowed: bool) -> CodecOption {
    let frames = measured.frames.max(1) as f64;
    let each = |time: Duration| time.as_secs_f64() * 1e9 / frames;
    let codec = kino_codec::codec(&measured.codec);
    let foreign = codec.as_ref().ok().and_then(|codec| codec.foreign());
    let foreign = foreign.map(str::to_owned);
    let bound = codec.map(|codec| codec.bound());
    CodecOption {
        codec: measured.codec.clone(),
        bytes: measured.bytes as f64 / frames,
        decode_ns: each(measured.decode),
        random_ns: measured.random.as_secs_f64() * 1e9,
        reduced_ns: measured.reduced.map(each),
        encode_ns: each(measured.encode),
        max_abs_error: measured.max_abs_error,
        psnr_db: measured.psnr_db,
        resize: None,
        is_lossless: bound.is_ok_and(|bound| bound == Bound::Lossless),
        is_allowed,
        is_stored: false,
        foreign,
    }
}
