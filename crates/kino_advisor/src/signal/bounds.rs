//! A bound such as `signal(2%)`: the codecs that keep it, found by asking the probe step by step.
//!
//! ```text
//! all lossless ─▶ the step that saves most ─▶ all streams together: is the upper end of the increase below the bound?
//!       ▲                                          yes: keep it   no: this stream stays where it was
//!       └──────────────────────────────────────────┴────┘        until no stream has a step left
//! ```
//!
//! The contrast is *total*: trained on compressed frames, scored on raw ones. It is what stored frames and a robot without
//! compression come to, and of the contrasts it is the one that ranked storage as rollouts did. It exaggerates, which costs bytes and
//! not success; *information* would have passed a blur that cost policies 30 points.
//!
//! The order of the steps is fixed before anything is measured, from mild to strong, and a stream stops at its first step that does
//! not pass. So a bound is exceeded unnoticed with a probability of at most 2.5 % per stream, however many steps there are.

use std::time::Instant;

use kino_dataset::{Dataset, Plan, SignalEvidence};
use serde::{Deserialize, Serialize};

use super::bounds_search::{Search, controls};
use super::interval::Interval;
use super::layout::Layout;
use super::outcome::{Contrast, Control, Effort, Skill};
use super::rungs::Ladder;
use super::sample::{Work, amount, episodes, gather, lanes};
use super::{ProbeHost, ProbeOptions, check, moments};
use crate::error::Result;

/// What the bounds are about.
pub(super) const CONTRAST: Contrast = Contrast::Total;

/// What a `signal(…)` bound became for a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FoundBound {
    /// The stream.
    pub stream: String,
    /// By how many percent the error may grow.
    pub percent: f64,
    /// The codec that keeps the bound; `None` if the stream stays lossless.
    pub codec: Option<String>,
    /// Bytes of a frame with it, in a sample.
    pub frame_bytes: f64,
    /// Bytes of a frame without loss.
    pub lossless_frame_bytes: f64,
    /// Why it is not a step further; empty if there was none.
    pub reason: String,
    /// What was measured; `None` if the stream stays lossless.
    pub evidence: Option<SignalEvidence>,
}

/// A look at all streams together, one of them a step further than before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Looked {
    /// The stream that goes a step further.
    pub stream: String,
    /// Its codec.
    pub codec: String,
    /// Bytes of a frame with it, in a sample.
    pub frame_bytes: f64,
    /// By which share the error grows; of several targets, the one that decided.
    pub increase: Option<Interval>,
    /// Whether all bounds are kept.
    pub is_kept: bool,
}

/// What `signal(…)` bounds became.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FoundBounds {
    /// What was trained and scored on.
    pub contrast: Contrast,
    /// Every stream that has such a bound.
    pub streams: Vec<FoundBound>,
    /// The steps, in the order in which they were tried.
    pub looked: Vec<Looked>,
    /// What a policy sees, as the probe was told.
    pub inputs: Vec<String>,
    /// What it has to predict.
    pub targets: Vec<String>,
    /// How well targets are predicted.
    pub skill: Vec<Skill>,
    /// What must be seen.
    pub controls: Vec<Control>,
    /// What was done.
    pub effort: Effort,
}

impl FoundBounds {
    /// The codec that a stream may have because of its bound.
    pub fn codec(&self, stream: &str) -> Option<&str> {
        self.of(stream)?.codec.as_deref()
    }

    /// What became of a stream's bound.
    pub fn of(&self, stream: &str) -> Option<&FoundBound> {
        self.streams.iter().find(|one| one.stream == stream)
    }
}

/// Finds the codecs that keep the `signal(…)` bounds of a plan, all together.
///
/// A stream of which the probe cannot tell stays lossless, and so does one that is no smaller with loss.
pub fn find_bounds(
    dataset: &Dataset,
    asked: &Plan,
    options: &ProbeOptions,
    host: &mut dyn ProbeHost,
) -> Result<FoundBounds> {
    let began = Instant::now();
    check(options)?;
    let layout = Layout::of(dataset, options)?;
    let read: Vec<String> = layout.sources.iter().map(|one| one.name.clone()).collect();
    let order = episodes(dataset, &layout.sources, options);
    let mut search = Search::default();
    for summary in &dataset.manifest().streams {
        let bound = asked.signal_bound(&summary.name, summary.kind);
        let Some(bound) = bound.filter(|_| summary.variant_of.is_none()) else {
            continue;
        };
        if !read.contains(&summary.name) {
            search.refuse(
                summary,
                bound.percent,
                "the probe neither sees nor predicts it",
            );
            continue;
        }
        if let Err(error) = &order {
            search.refuse(summary, bound.percent, &error.to_string());
            continue;
        }
        host.look_up()?;
        host.begins(&format!("sizes of `{}` with loss", summary.name));
        search.add(Ladder::of(dataset, summary, bound)?);
    }
    if search.ladders.is_empty() {
        return Ok(search.finish());
    }
    let order = order?;
    let candidates = search.candidates(asked)?;
    let mut rules = moments::rules(dataset)?;
    rules.extend(asked.events.iter().cloned());
    let anchor = layout.anchor;
    host.begins("the codecs of signal bounds on one episode");
    let mut lanes = lanes(dataset, layout, &candidates, (options, None))?;
    let steps = search.steps();
    let work = Work {
        arms: &|lanes| steps + controls(lanes).len(),
        kept: options.seeds,
    };
    let moments = (anchor, &rules[..]);
    let amount = amount(&order, &mut lanes, moments, (&work, options), host)?;
    host.begins(&format!(
        "{} episodes with {} anchors each, at most {steps} steps: about {:.0} s",
        amount.episodes, amount.anchors, amount.expected_s
    ));
    let order = &order[..amount.episodes];
    let gathered = gather(order, &mut lanes, moments, (&amount, options), host)?;
    search.run(&lanes, &gathered, options, host)?;
    search.effort.expected_s = amount.expected_s;
    search.effort.took_s = began.elapsed().as_secs_f64();
    Ok(search.finish())
}
