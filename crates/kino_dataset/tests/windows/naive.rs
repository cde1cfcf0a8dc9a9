//! The samples of a request, computed from whole streams by looking at every frame. Slow, and nothing shared with
//! the library but the types: the rules of `docs/reference/samples.md` once more.

use kino_codec::{Dtype, FrameType};
use kino_dataset::{
    Anchor, Array, At, Clock, Dataset, Episode, Include, MaskArray, Pad, Request, Resolve, Sample,
    Stack, Window,
};

/// Two times at most this far apart are one instant.
const SAME: i64 = 1000;

struct Whole {
    times: Vec<i64>,
    clock: u32,
    /// The mean period and its half.
    periods: (i64, i64),
    frame: FrameType,
    frames: Vec<Vec<u8>>,
    texts: Vec<String>,
    is_explicit: bool,
}

/// A frame, the one blended in, and whether it is real.
struct Found {
    frame: usize,
    other: Option<(usize, f64)>,
    pad: Option<Pad>,
    /// Whether the stream has no frame at all for the moment: it lies past an end.
    is_past_end: bool,
}

impl Whole {
    /// Whether all frames have one time of their own.
    fn is_constant(&self) -> bool {
        self.is_explicit && self.times[0] == self.times[self.times.len() - 1]
    }
}

fn read_whole(episode: &Episode, name: &str) -> Whole {
    let stream = episode.stream(name).unwrap();
    let position = episode
        .streams()
        .position(|stream| stream.name == name)
        .unwrap();
    let times = stream.times_ns(0..stream.len()).unwrap();
    let gaps = times.len() as i64 - 1;
    let length = times[times.len() - 1] - times[0];
    let periods = match stream.clock().unwrap() {
        Clock::Regular(clock) => {
            let (num, den) = (clock.period_num as i64, i64::from(clock.period_den));
            (num / den, num / (2 * den))
        }
        Clock::Explicit(_) => (length / gaps.max(1), length / (2 * gaps.max(1))),
    };
    let is_explicit = matches!(stream.clock().unwrap(), Clock::Explicit(_));
    let frame = stream.frame_type().clone();
    let (mut frames, mut texts) = (Vec::new(), Vec::new());
    match &frame {
        FrameType::Text => texts = stream.read_text(0..stream.len()).unwrap(),
        FrameType::Values(ty) => {
            let bytes = stream.read(0..stream.len()).unwrap();
            frames = bytes.chunks(ty.frame_bytes()).map(<[u8]>::to_vec).collect();
        }
    }
    Whole {
        times,
        clock: episode.index().stream(position).clock,
        periods,
        is_explicit,
        frame,
        frames,
        texts,
    }
}

/// Every sample of the request in every episode.
pub(crate) fn samples(dataset: &Dataset, request: &Request) -> Vec<Sample> {
    let mut samples = Vec::new();
    for row in 0..dataset.len() {
        let episode = dataset.episode(row).unwrap();
        let (anchors, clock) = anchors(&episode, &request.anchor);
        let streams: Vec<Whole> = (request.windows.iter())
            .map(|window| read_whole(&episode, &window.stream))
            .collect();
        let kept =
            request.skip_first as usize..anchors.len().saturating_sub(request.skip_last as usize);
        for anchor in kept {
            let found: Vec<Vec<Found>> = (request.windows.iter().zip(&streams))
                .map(|(window, whole)| find_all(whole, window, (&anchors, clock), anchor))
                .collect();
            let drops = found
                .iter()
                .flatten()
                .any(|found| found.pad == Some(Pad::Drop));
            if !drops {
                let mut sample = gather(request, &streams, &found, (row, anchor, anchors[anchor]));
                for include in &request.include {
                    let index = samples.len();
                    sample
                        .fields
                        .extend(describe(*include, &episode, anchor, index));
                }
                samples.push(sample);
            }
        }
    }
    samples
}

/// What a request includes of an anchor of an episode; `index` is that of the sample.
fn describe(
    include: Include,
    episode: &Episode,
    anchor: usize,
    index: usize,
) -> Vec<(String, Array)> {
    let int = |value: usize| Array::Values {
        dtype: Dtype::I64,
        shape: vec![],
        bytes: (value as i64).to_le_bytes().to_vec(),
    };
    let text = |text: String| Array::Texts {
        shape: vec![],
        texts: vec![text],
    };
    let fields = match include {
        Include::Task if episode.row() == 1 => vec![("task", text(String::new()))],
        Include::Task => vec![("task", text(format!("task of {}", episode.id())))],
        Include::Episode => vec![
            ("episode", text(episode.id().to_owned())),
            ("episode_index", int(episode.row())),
        ],
        Include::Frame => vec![("frame", int(anchor))],
        Include::Sample => vec![("sample", int(index))],
    };
    let named = fields.into_iter();
    named
        .map(|(name, array)| (name.to_owned(), array))
        .collect()
}

fn anchors(episode: &Episode, anchor: &Anchor) -> (Vec<i64>, Option<u32>) {
    let index = episode.index();
    let clocks = (0..index.clock_count()).map(|idx| index.clock(idx));
    let clocks: Vec<_> = clocks.filter(|clock| clock.frames > 0).collect();
    let start = clocks.iter().map(|clock| clock.start_ns).min().unwrap();
    let end = clocks.iter().map(|clock| clock.end_ns).max().unwrap();
    match anchor {
        Anchor::Stream(name) => {
            let whole = read_whole(episode, name);
            (whole.times, Some(whole.clock))
        }
        Anchor::Rate(rate) => {
            let time =
                |k: i64| start + k * 1_000_000_000 * i64::from(rate.den) / i64::from(rate.num);
            (
                (0..)
                    .map(time)
                    .take_while(|&time| time <= end + SAME)
                    .collect(),
                None,
            )
        }
        Anchor::Episode => (vec![start], None),
        Anchor::Shared => panic!("the twin is told the anchor"),
    }
}

fn find_all(
    whole: &Whole,
    window: &Window,
    (anchors, clock): (&[i64], Option<u32>),
    anchor: usize,
) -> Vec<Found> {
    let real = |frame| Found {
        frame,
        other: None,
        pad: None,
        is_past_end: false,
    };
    match &window.at {
        At::All => (0..whole.times.len()).map(real).collect(),
        At::Last => vec![real(whole.times.len() - 1)],
        At::FromEnd(back) => vec![real((whole.times.len() - 1).saturating_sub(*back as usize))],
        At::Times(times) => {
            let find =
                |&offset: &i64| find(whole, window, anchors[anchor] + offset + window.latency_ns);
            times.iter().map(find).collect()
        }
        At::Steps(steps) => {
            let is_shared = clock == Some(whole.clock) && window.latency_ns == 0;
            let at_anchor = || {
                if is_shared {
                    real(anchor)
                } else {
                    find(whole, window, anchors[anchor] + window.latency_ns)
                }
            };
            let by_step = |&step: &i32| {
                let mut found = at_anchor();
                let is_constant = !is_shared && whole.is_constant();
                if found.is_past_end || is_constant {
                    return found;
                }
                let last = whole.times.len() as i64 - 1;
                let wanted = found.frame as i64 + i64::from(step);
                if wanted < 0 {
                    found.pad = Some(window.before);
                } else if wanted > last {
                    found.pad = Some(window.after);
                }
                found.frame = wanted.clamp(0, last) as usize;
                found
            };
            steps.iter().map(by_step).collect()
        }
    }
}

fn find(whole: &Whole, window: &Window, t: i64) -> Found {
    let (times, last) = (&whole.times, whole.times.len() - 1);
    let limit = window.resolve.max_staleness_ns().map(|limit| limit as i64);
    let is_hold = match window.resolve {
        Resolve::Hold { .. } => true,
        Resolve::Auto { .. } => whole.frame == FrameType::Text,
        _ => false,
    };
    let (period, half) = whole.periods;
    let reach = limit.unwrap_or(half);
    let alone = |frame, pad| Found {
        frame,
        other: None,
        pad,
        is_past_end: false,
    };
    let past_end = |frame, pad| Found {
        is_past_end: true,
        ..alone(frame, Some(pad))
    };
    // A constant has no ends but those that a limit gives it.
    let is_constant = whole.is_constant();
    let is_before = match (is_constant, limit) {
        (true, None) => false,
        (true, Some(limit)) => t < times[0] - limit - SAME,
        (false, _) => t < times[0] - if is_hold { 0 } else { reach } - SAME,
    };
    if is_before {
        return past_end(0, window.before);
    }
    let is_after = match (is_hold, limit) {
        (_, None) if is_constant => false,
        (true, None) => t > times[last] + SAME && t >= times[last] + period - SAME,
        _ => t > times[last] + reach + SAME,
    };
    if is_after {
        return past_end(last, window.after);
    }
    let held = (0..=last)
        .rev()
        .find(|&idx| times[idx] <= t + SAME)
        .unwrap_or(0);
    let is_nearer = |late: usize, early: usize| {
        let slack = if times[late] - t > SAME { SAME } else { 0 };
        (t - times[early]) - (times[late] - t) > slack
    };
    let early = (0..=last).rev().find(|&idx| times[idx] <= t);
    let late = (0..=last).find(|&idx| times[idx] > t);
    let last_of = |idx: usize| (0..=last).rev().find(|&other| times[other] == times[idx]);
    let mut nearer = match (early, late.and_then(last_of)) {
        (Some(early), Some(late)) if is_nearer(late, early) => late,
        (Some(early), _) => early,
        (None, late) => late.unwrap(),
    };
    let mut found = alone(nearer, None);
    match (window.resolve, early, late) {
        _ if is_hold => {
            nearer = held;
            found = alone(held, None);
        }
        (Resolve::Linear { .. } | Resolve::Slerp { .. }, Some(low), Some(high))
            if (times[nearer] - t).abs() > SAME && t > times[0] =>
        {
            let gap = (times[high] - times[low]) as f64;
            found = alone(low, None);
            found.other = Some((high, (t - times[low]) as f64 / gap));
        }
        _ => {}
    }
    match limit {
        Some(limit) if (times[nearer] - t).abs() > limit + SAME => {
            let pad = if times[nearer] > t {
                window.before
            } else {
                window.after
            };
            alone(nearer, Some(pad))
        }
        _ => found,
    }
}

fn gather(
    request: &Request,
    streams: &[Whole],
    found: &[Vec<Found>],
    (row, anchor, time_ns): (usize, usize, i64),
) -> Sample {
    let mut sample = Sample {
        row,
        anchor: anchor as u32,
        time_ns,
        fields: Vec::new(),
        masks: Vec::new(),
    };
    for ((window, whole), found) in request.windows.iter().zip(streams).zip(found) {
        let mut shape = match window.stack {
            Stack::Stacked => vec![found.len()],
            Stack::Single => vec![],
        };
        let array = match &whole.frame {
            FrameType::Text => {
                let text = |found: &Found| match found.pad {
                    Some(Pad::Zero) => String::new(),
                    _ => whole.texts[found.frame].clone(),
                };
                let texts = found.iter().map(text).collect();
                Array::Texts { shape, texts }
            }
            FrameType::Values(ty) => {
                let dtype = ty.dtype();
                shape.extend(ty.shape());
                let bytes = found
                    .iter()
                    .flat_map(|found| value(whole, dtype, window.resolve, found));
                Array::Values {
                    dtype,
                    shape,
                    bytes: bytes.collect(),
                }
            }
        };
        sample.fields.push((window.key.clone(), array));
        // Only the default dialect: the others are tested where they are made.
        if window.stack == Stack::Stacked && request.masks == kino_dataset::MaskDialect::IsPad {
            let mask = MaskArray {
                shape: vec![found.len()],
                values: found.iter().map(|found| found.pad.is_some()).collect(),
            };
            sample.masks.push((format!("{}_is_pad", window.key), mask));
        }
        if request.masks == kino_dataset::MaskDialect::PadMask && sample.masks.is_empty() {
            let mask = MaskArray {
                shape: vec![found.len(), 1],
                values: found.iter().map(|found| found.pad.is_none()).collect(),
            };
            sample.masks.push(("pad_mask".to_owned(), mask));
        }
    }
    sample
}

fn value(whole: &Whole, dtype: Dtype, resolve: Resolve, found: &Found) -> Vec<u8> {
    let frame = &whole.frames[found.frame];
    match (found.pad, found.other) {
        (Some(Pad::Zero), _) => vec![0; frame.len()],
        (_, None) => frame.clone(),
        (_, Some((other, weight))) => {
            let (a, b) = (floats(dtype, frame), floats(dtype, &whole.frames[other]));
            let blended: Vec<f64> = match resolve {
                Resolve::Slerp { .. } => {
                    let pairs = a.chunks(4).zip(b.chunks(4));
                    pairs.flat_map(|(a, b)| slerp(a, b, weight)).collect()
                }
                _ => a
                    .iter()
                    .zip(&b)
                    .map(|(a, b)| a + (b - a) * weight)
                    .collect(),
            };
            match dtype {
                Dtype::F32 => blended
                    .iter()
                    .flat_map(|&value| (value as f32).to_le_bytes())
                    .collect(),
                _ => blended
                    .iter()
                    .flat_map(|value| value.to_le_bytes())
                    .collect(),
            }
        }
    }
}

fn floats(dtype: Dtype, frame: &[u8]) -> Vec<f64> {
    let float = |bytes: &[u8]| match dtype {
        Dtype::F32 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
        _ => f64::from_le_bytes(bytes.try_into().unwrap()),
    };
    frame.chunks(dtype.size()).map(float).collect()
}

fn slerp(a: &[f64], b: &[f64], weight: f64) -> Vec<f64> {
    let unit = |value: &[f64]| -> Vec<f64> {
        let length = value.iter().map(|part| part * part).sum::<f64>().sqrt();
        value.iter().map(|part| part / length).collect()
    };
    let (a, mut b) = (unit(a), unit(b));
    let mut cosine: f64 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
    if cosine < 0.0 {
        b = b.iter().map(|part| -part).collect();
        cosine = -cosine;
    }
    let mix = |of_a: f64, of_b: f64| -> Vec<f64> {
        a.iter().zip(&b).map(|(a, b)| a * of_a + b * of_b).collect()
    };
    if cosine > 0.999_95 {
        return unit(&mix(1.0 - weight, weight));
    }
    let angle = cosine.acos();
    mix(
        ((1.0 - weight) * angle).sin() / angle.sin(),
        (weight * angle).sin() / angle.sin(),
    )
}
