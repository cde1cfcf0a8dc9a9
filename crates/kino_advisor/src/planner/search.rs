//! Candidate plans, and the choice among them.
//!
//! A plan is one codec per stream. For a price λ of a byte, the best plan gives each stream the codec with the least
//! decode time + λ · bytes, independently of the others; sweeping λ from "bytes are free" to "only bytes count" gives
//! the convex front of all combinations, without trying them all.

use serde::{Deserialize, Serialize};

use super::Limits;
use super::predict::{Prediction, Predictor};
use super::streams::{CodecOption, StreamOptions};

/// Compute ratios that differ by less than this part are equal: the plan with fewer bytes is better.
const TIE: f64 = 0.005;

/// Another codec than the one a stream has must be this much better: less is within the error of a sample.
const WORTH: f64 = 0.97;

/// Prices of a byte to try, in nanoseconds of decoding: from 10⁻⁵ to 10⁴.
const PRICES: i32 = 46;

/// A plan, and what it would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CandidatePlan {
    /// What it is, for people.
    pub name: String,
    /// The codec of each stream, by its number among the stream's options.
    pub codecs: Vec<usize>,
    /// Whether every bit comes back, apart from what the recording has lost already.
    pub is_lossless: bool,
    /// Whether the bounds allow it.
    pub is_allowed: bool,
    /// Whether no other allowed plan is both smaller and faster.
    pub is_on_front: bool,
    /// What it would do.
    pub prediction: Prediction,
}

/// The plans worth comparing, the smallest first.
pub(super) fn candidate_plans(predictor: &Predictor<'_>) -> Vec<CandidatePlan> {
    let mut plans: Vec<CandidatePlan> = Vec::new();
    let mut add = |name: &str, codecs: Vec<usize>| {
        if let Some(known) = plans.iter_mut().find(|plan| plan.codecs == codecs) {
            if !known.name.contains(name) && !name.is_empty() {
                let separator = if known.name.is_empty() { "" } else { ", " };
                known.name = format!("{}{separator}{name}", known.name);
            }
            return;
        }
        let chosen = |codecs: &[usize]| {
            let streams = predictor.measured.streams.iter().zip(codecs);
            let options = streams.filter_map(|(stream, &idx)| stream.options.get(idx).cloned());
            options.collect::<Vec<CodecOption>>()
        };
        let options = chosen(&codecs);
        plans.push(CandidatePlan {
            name: name.to_owned(),
            is_lossless: options
                .iter()
                .all(|option| option.is_stored || (option.is_lossless && option.resize.is_none())),
            is_allowed: options.iter().all(|option| option.is_allowed),
            is_on_front: false,
            prediction: predictor.predict(&codecs),
            codecs,
        });
    };
    add(predictor.now, vec![0; predictor.measured.streams.len()]);
    add("raw", named(&predictor.measured.streams, "raw"));
    add("zstd", named(&predictor.measured.streams, "zstd"));
    for allowed_only in [true, false] {
        for step in 0..PRICES {
            let price = 10_f64.powf(-5.0 + f64::from(step) / 5.0);
            let best = |stream: &StreamOptions| cheapest(stream, price, allowed_only);
            add("", predictor.measured.streams.iter().map(best).collect());
        }
    }
    plans.sort_by(|a, b| a.prediction.bytes.total_cmp(&b.prediction.bytes));
    mark_front(&mut plans);
    plans
}

/// The codec with the least decode time + price × bytes.
fn cheapest(stream: &StreamOptions, price: f64, allowed_only: bool) -> usize {
    let cost = |option: &CodecOption| {
        let decode = if stream.window > 0.0 {
            stream.load_ns(option)
        } else {
            0.0
        };
        let favour = if option.is_stored { WORTH } else { 1.0 };
        (decode + price * option.bytes) * favour
    };
    let options = stream.options.iter().enumerate();
    // A foreign codec that the caller does not name is compared with the others, but in no plan; what a smaller size
    // would bring is in the split points.
    let usable = options.filter(|(_, option)| {
        let is_aside = option.foreign.is_some() || option.resize.is_some();
        option.is_allowed || !(allowed_only || is_aside)
    });
    let best = usable.min_by(|a, b| cost(a.1).total_cmp(&cost(b.1)));
    best.map_or(0, |(idx, _)| idx)
}

/// The first option of each stream whose codec has this name; otherwise the first one.
fn named(streams: &[StreamOptions], name: &str) -> Vec<usize> {
    let find = |stream: &StreamOptions| {
        let is_named = |option: &CodecOption| option.codec.split(':').next() == Some(name);
        stream.options.iter().position(is_named).unwrap_or(0)
    };
    streams.iter().map(find).collect()
}

fn mark_front(plans: &mut [CandidatePlan]) {
    let all: Vec<(f64, f64, bool)> = plans
        .iter()
        .map(|plan| {
            (
                plan.prediction.bytes,
                plan.prediction.compute_ratio,
                plan.is_allowed,
            )
        })
        .collect();
    for plan in plans.iter_mut() {
        let (bytes, ratio) = (plan.prediction.bytes, plan.prediction.compute_ratio);
        let is_beaten = all.iter().any(|&(other_bytes, other_ratio, is_allowed)| {
            is_allowed
                && other_bytes <= bytes
                && other_ratio >= ratio
                && (other_bytes < bytes || other_ratio > ratio)
        });
        plan.is_on_front = plan.is_allowed && !is_beaten;
    }
}

/// The plan with the highest compute ratio inside the limits, of equals the smallest; and whether there is one inside.
pub(super) fn choose(plans: &[CandidatePlan], limits: &Limits) -> (usize, bool) {
    let allowed = || plans.iter().enumerate().filter(|(_, plan)| plan.is_allowed);
    let inside = || allowed().filter(|(_, plan)| keeps(plan, limits));
    let best = inside().map(|(_, plan)| plan.prediction.compute_ratio);
    let best = best.fold(f64::NEG_INFINITY, f64::max);
    let good = inside().filter(|(_, plan)| plan.prediction.compute_ratio >= best * (1.0 - TIE));
    let by_bytes = |a: &(usize, &CandidatePlan), b: &(usize, &CandidatePlan)| {
        a.1.prediction.bytes.total_cmp(&b.1.prediction.bytes)
    };
    if let Some((idx, _)) = good.min_by(by_bytes) {
        return (idx, true);
    }
    let smallest = allowed().min_by(by_bytes);
    (smallest.map_or(0, |(idx, _)| idx), false)
}

fn keeps(plan: &CandidatePlan, limits: &Limits) -> bool {
    let bytes = limits
        .max_bytes
        .is_none_or(|most| plan.prediction.bytes <= most as f64);
    let time = limits
        .max_pack_s
        .is_none_or(|most| plan.prediction.pack_s <= most);
    bytes && time
}
