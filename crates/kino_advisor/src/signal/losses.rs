//! What is done to frames: the codecs that are probed, and the controls that must be seen.

use kino_codec::{FrameType, RoundTrip, ValueType};
use kino_dataset::{Arrival, Dataset, Episode, EventRule, GIVEN, Plan, Resize, Size, find_events};

use super::layout::{Source, fit_of};
use super::{Candidate, Change, ProbeHost, ProbeOptions};
use crate::error::{AdvisorError, Result, invalid};

/// What a stream's frames become.
#[derive(Debug)]
pub(super) struct Variant {
    pub(super) of: Of,
    loss: Loss,
    /// What comes out, and how it is made to fit what the policy sees.
    pub(super) ty: ValueType,
    pub(super) fit: Option<Resize>,
    /// The codec, or what else it is.
    pub(super) name: String,
    /// Whether every frame so far came back bit by bit.
    pub(super) is_identical: bool,
    /// Around which events frames stay as they are; `None` if nothing is protected.
    pub(super) exact: Option<Exact>,
    /// Bytes in between, of how many frames; 0 if not known.
    pub(super) bytes: u64,
    pub(super) frames: u64,
}

/// Whose variant it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Candidate(usize),
    Control(&'static str),
}

#[derive(Debug)]
enum Loss {
    Codec {
        trip: Box<RoundTrip>,
        resize: Option<Resize>,
        is_single: bool,
    },
    Given(usize),
    Stored(Dataset),
    Blur,
    Bits,
}

/// An image control: its sides are reduced to a quarter.
pub(super) const BLUR: &str = "blur 4";
/// An image control.
pub(super) const JPEG: &str = "JPEG 5";
/// A control for vectors.
pub(super) const BITS: &str = "3 bits";

/// Events around which a plan keeps frames exact.
#[derive(Debug)]
pub(super) struct Exact {
    rules: Vec<EventRule>,
    /// Whether events that come with an episode are among them.
    is_given: bool,
}

impl Exact {
    fn of(plan: &Plan, protect: &[String]) -> Option<Self> {
        let has = |event: &str| protect.iter().any(|name| name == "*" || name == event);
        let rules = plan.events.iter().filter(|rule| has(&rule.name));
        (!protect.is_empty()).then(|| Self {
            rules: rules.cloned().collect(),
            is_given: has(GIVEN),
        })
    }

    /// Which frames of an episode these are, by their times.
    pub(super) fn frames(&self, episode: &Episode, times: &[i64]) -> Result<Vec<bool>> {
        let mut ranges = find_events(episode, &self.rules)?;
        if self.is_given {
            let stored = episode.read_protected()?.into_iter();
            ranges.extend(stored.filter(|range| range.event == GIVEN));
        }
        let is_in = |time: &i64| {
            let mut ranges = ranges.iter();
            ranges.any(|range| (range.start_ns..=range.end_ns).contains(time))
        };
        Ok(times.iter().map(is_in).collect())
    }
}

/// Frames of a stream in an episode: consecutive ones, or those that are used.
pub(super) struct Run<'a> {
    pub(super) episode: &'a str,
    pub(super) first: usize,
    pub(super) frames: &'a [u8],
    /// Which of them stay as they are; empty for none.
    pub(super) exact: &'a [bool],
}

impl Variant {
    /// What a candidate makes of a stream; `None` if it leaves it alone.
    pub(super) fn of_candidate(
        (idx, candidate): (usize, &Candidate),
        source: &Source,
        options: &ProbeOptions,
    ) -> Result<Option<Self>> {
        let of = Of::Candidate(idx);
        match &candidate.change {
            Change::Plan(plan) => Self::of_plan(of, plan, source, options),
            Change::Given(streams) => {
                let is_named = streams.contains(&source.name);
                Ok(is_named.then(|| Self::new(of, Loss::Given(idx), source, &candidate.name)))
            }
            Change::Stored(dataset) => {
                let streams = dataset.manifest().streams.iter();
                let Some(summary) = streams.clone().find(|one| one.name == source.name) else {
                    return Ok(None);
                };
                let loss = Loss::Stored(dataset.clone());
                let mut found = Self::new(of, loss, source, &summary.codecs.join(", "));
                let refuse = |what: String| {
                    invalid(format!(
                        "stream `{}` of {}: {what}",
                        source.name, candidate.name
                    ))
                };
                found.ty = ValueType::new(source.ty.dtype(), &summary.shape)
                    .map_err(|error| refuse(error.to_string()))?;
                found.make_fit(source, options).map_err(refuse)?;
                Ok(Some(found))
            }
        }
    }

    fn of_plan(
        of: Of,
        plan: &Plan,
        source: &Source,
        options: &ProbeOptions,
    ) -> Result<Option<Self>> {
        if !plan.mentions(&source.name, source.kind) {
            return Ok(None);
        }
        let frame = FrameType::Values(source.ty.clone());
        let choice = plan.choose(&source.name, source.kind, &frame, Arrival::Values)?;
        let refuse = |what: String| invalid(format!("stream `{}`: {what}", source.name));
        let resize = choice.resize().cloned();
        if !choice.protect.is_empty() && resize.is_some() {
            return Err(refuse(
                "the plan resizes it and protects events; repack the dataset with the plan, and compare with that one \
                 (`against`)"
                    .to_owned(),
            ));
        }
        let exact = Exact::of(plan, &choice.protect);
        let ty = resize.as_ref().map_or(Ok(source.ty.clone()), |resize| {
            resize.value_type(&source.ty)
        });
        let ty = ty.map_err(|error| refuse(error.to_string()))?;
        let name = choice.codec.spec().to_string();
        let is_single = choice
            .codec
            .page_frames(&FrameType::Values(ty.clone()))
            .get()
            == 1;
        let trip = RoundTrip::new(choice.codec, ty.clone())
            .map(Box::new)
            .map_err(|error| refuse(error.to_string()))?;
        let loss = Loss::Codec {
            trip,
            resize,
            is_single,
        };
        let mut found = Self::new(of, loss, source, &name);
        found.ty = ty;
        found.exact = exact;
        found.make_fit(source, options).map_err(refuse)?;
        Ok(Some(found))
    }

    /// The controls of a stream.
    pub(super) fn controls(source: &Source, options: &ProbeOptions) -> Result<Vec<Self>> {
        if !source.is_camera() {
            return Ok(vec![Self::new(Of::Control(BITS), Loss::Bits, source, BITS)]);
        }
        let mut found = vec![Self::new(Of::Control(BLUR), Loss::Blur, source, BLUR)];
        let plan = Plan::from_toml("[[stream]]\nmatch = \"**\"\ncodec = \"jpeg:q=5\"")?;
        // Images of two channels cannot be JPEG; the blur remains.
        if let Ok(Some(mut jpeg)) = Self::of_plan(Of::Control(JPEG), &plan, source, options) {
            JPEG.clone_into(&mut jpeg.name);
            found.push(jpeg);
        }
        Ok(found)
    }

    fn new(of: Of, loss: Loss, source: &Source, name: &str) -> Self {
        Self {
            of,
            loss,
            ty: source.ty.clone(),
            fit: source.fit,
            name: name.to_owned(),
            is_identical: true,
            exact: None,
            bytes: 0,
            frames: 0,
        }
    }

    /// Images that were stored in another size must come out in the size that the policy sees.
    fn make_fit(&mut self, source: &Source, options: &ProbeOptions) -> Result<(), String> {
        if !source.is_camera() {
            return Ok(());
        }
        self.fit = fit_of(&self.ty, options.fit)?;
        let shape = |fit: &Option<Resize>, ty: &ValueType| match fit {
            Some(fit) => fit.shape(),
            None => ty.shape().to_vec(),
        };
        if shape(&self.fit, &self.ty) == shape(&source.fit, &source.ty) {
            return Ok(());
        }
        Err(format!(
            "images of {} are stored as {}; say in which size the policy sees them (`images.size`)",
            source.ty, self.ty
        ))
    }

    /// Whether a frame does not depend on its neighbours, so that only those that are used need the round trip.
    pub(super) fn is_single(&self) -> bool {
        match &self.loss {
            Loss::Codec { is_single, .. } => *is_single,
            Loss::Blur => true,
            Loss::Given(_) | Loss::Stored(_) | Loss::Bits => false,
        }
    }

    /// What the frames of a run become.
    pub(super) fn apply(
        &mut self,
        source: &Source,
        run: &Run<'_>,
        host: &mut dyn ProbeHost,
    ) -> Result<Vec<u8>> {
        let frame_bytes = source.ty.frame_bytes().max(1);
        let count = run.frames.len() / frame_bytes;
        let mut bytes = 0;
        let mut found = match &mut self.loss {
            Loss::Codec { trip, resize, .. } => {
                let mut frames = run.frames.to_vec();
                if let Some(resize) = resize {
                    let resized =
                        resize.to_resized(&mut frames, &mut kino_dataset::ResizeScratch::default());
                    frames = resized.map_err(|what| failed(source, run, &what))?;
                }
                let mut found = vec![0; frames.len()];
                let stored = trip.apply(&frames, &mut found);
                bytes = stored.map_err(|error| failed(source, run, &error.to_string()))?;
                found
            }
            Loss::Given(candidate) => {
                host.apply(*candidate, source.name.as_str(), &source.ty, run.frames)?
            }
            Loss::Stored(dataset) => {
                let stream = dataset.find(run.episode)?.stream(&source.name)?;
                stream.read(run.first..run.first + count)?
            }
            Loss::Blur => blur(run.frames, &source.ty),
            Loss::Bits => run.frames.to_vec(),
        };
        let expected = count * self.ty.frame_bytes();
        if found.len() != expected {
            let what = format!("{} bytes came back instead of {expected}", found.len());
            return Err(failed(source, run, &what));
        }
        for (idx, _) in run.exact.iter().enumerate().filter(|(_, exact)| **exact) {
            let frame = idx * frame_bytes..(idx + 1) * frame_bytes;
            found[frame.clone()].copy_from_slice(&run.frames[frame]);
        }
        self.bytes += bytes as u64;
        self.frames += count as u64;
        self.is_identical &= found == run.frames && !matches!(self.loss, Loss::Bits);
        Ok(found)
    }

    /// What is done to numbers: 8 levels for the control of vectors, nothing for others.
    pub(super) fn round(&self, values: &mut [f64], elements: usize) {
        if !matches!(self.loss, Loss::Bits) || elements == 0 {
            return;
        }
        for element in 0..elements {
            let column = || {
                values
                    .iter()
                    .skip(element)
                    .step_by(elements)
                    .copied()
                    .filter(|value| value.is_finite())
            };
            let low = column().fold(f64::INFINITY, f64::min);
            let step = (column().fold(f64::NEG_INFINITY, f64::max) - low) / 7.0;
            if step > 0.0 {
                let column = values.iter_mut().skip(element).step_by(elements);
                column.for_each(|value| *value = low + ((*value - low) / step).round() * step);
            }
        }
    }
}

fn failed(source: &Source, run: &Run<'_>, what: &str) -> AdvisorError {
    invalid(format!(
        "stream `{}` of episode `{}`, frames from {}: {what}",
        source.name, run.episode, run.first
    ))
}

/// Blocks of 4 × 4 pixels are averaged, and enlarged again linearly.
fn blur(frames: &[u8], ty: &ValueType) -> Vec<u8> {
    const BY: usize = 4;
    let Some((height, width, channels)) = ty.as_image() else {
        return frames.to_vec();
    };
    let small = Size {
        height: height.div_ceil(BY),
        width: width.div_ceil(BY),
    };
    let mut out = Vec::with_capacity(frames.len());
    for frame in frames.chunks_exact(ty.frame_bytes().max(1)) {
        let mut sums = vec![[0_u32; 2]; small.pixels() * channels];
        for (idx, value) in frame.iter().enumerate() {
            let (pixel, channel) = (idx / channels, idx % channels);
            let block = pixel / width / BY * small.width + pixel % width / BY;
            let sum = &mut sums[block * channels + channel];
            *sum = [sum[0] + u32::from(*value), sum[1] + 1];
        }
        let mean = |row: usize, col: usize, channel: usize| {
            let [sum, count] = sums[(row * small.width + col) * channels + channel];
            f64::from(sum) / f64::from(count.max(1))
        };
        for y in 0..height {
            let (top, down) = between(y, BY, small.height);
            for x in 0..width {
                let (left, across) = between(x, BY, small.width);
                let (below, right) = (
                    (top + 1).min(small.height - 1),
                    (left + 1).min(small.width - 1),
                );
                out.extend((0..channels).map(|channel| {
                    let upper = mean(top, left, channel) * (1.0 - across)
                        + mean(top, right, channel) * across;
                    let lower = mean(below, left, channel) * (1.0 - across)
                        + mean(below, right, channel) * across;
                    to_u8(upper * (1.0 - down) + lower * down)
                }));
            }
        }
    }
    out
}

/// The block centre before a pixel, and how far the pixel is towards the next.
fn between(pixel: usize, by: usize, blocks: usize) -> (usize, f64) {
    let at = ((pixel as f64 + 0.5) / by as f64 - 0.5).clamp(0.0, (blocks - 1) as f64);
    let before = (0..blocks)
        .take_while(|block| *block as f64 <= at)
        .count()
        .saturating_sub(1);
    (before, at - before as f64)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a mean of uint8 values"
)]
pub(super) fn to_u8(value: f64) -> u8 {
    value.round() as u8
}
