//! The probe: what would a policy lose if its streams were stored like this?
//!
//! ```text
//! layout.rs     what a policy sees, and what it has to predict
//! losses.rs     what candidates and controls do to frames         moments.rs   anchors near events
//! sample.rs     which episodes, and as much of them as there is time for (schedule.rs)
//! lesson.rs     frames that a network (network.rs) learns features from, of episodes that are set aside; only if asked for
//! gather.rs     their frames, raw and compressed ──▶ features (encoder.rs: convolution.rs, or network.rs) and targets
//! problem.rs    ridge regression (columns.rs, ridge.rs, products.rs), held out by episode
//!        └──▶ arms.rs, judge.rs, outcome.rs, interval.rs   three contrasts, their intervals, verdicts ──▶ text.rs, html.rs
//! bounds.rs     a bound such as `signal(2%)` ──▶ the codecs that keep it: rungs.rs, from mild to strong, each asked of trained.rs
//! ```
//!
//! A regressor learns actions from the frames of most episodes and predicts those of the others. It is not a policy: its error
//! shows what frames still say, not how a robot would fare. So it must prove skill first, it must see damage that is known to
//! be there, and it never says that nothing is lost.

mod arms;
mod bounds;
mod bounds_search;
mod bounds_text;
mod columns;
mod convolution;
mod encoder;
mod gather;
mod html;
mod interval;
mod judge;
mod layout;
mod lesson;
mod losses;
mod moments;
mod network;
mod outcome;
mod problem;
mod products;
mod random;
mod ridge;
mod rungs;
mod sample;
mod schedule;
#[cfg(test)]
mod tests;
mod text;
mod threads;
mod trained;

use std::time::Instant;

use kino_codec::ValueType;
use kino_dataset::{Dataset, Fit, Plan};

pub use bounds::{FoundBound, FoundBounds, Looked, find_bounds};
pub use interval::Interval;
pub use layout::Chosen;
pub use lesson::{Lesson, LessonCamera};
pub use network::{Features, Network, set_network};
pub use outcome::{
    Arm, Changed, Contrast, Control, Effort, Outcome, Probed, ProbedCandidate, Region, Skill,
    Verdict,
};

pub(crate) use judge::one_percent;
pub(crate) use layout::is_action;

use layout::Layout;
use sample::{Work, amount, episodes, gather, lanes};

use crate::error::{Result, invalid};

/// What is to be measured.
#[derive(Debug, Clone)]
pub struct ProbeOptions {
    /// What a policy sees; empty for every image and vector that is not a target.
    pub inputs: Vec<Chosen>,
    /// What it has to predict; empty for actions and simulator state.
    pub targets: Vec<Chosen>,
    /// Frames of an action chunk.
    pub chunk: usize,
    /// How images are resized and cropped for the policy.
    pub fit: Fit,
    /// What turns images into features.
    pub encoder: Features,
    /// Features of all images together.
    pub features: usize,
    /// Sets of features.
    pub seeds: usize,
    /// Held-out parts of the episodes.
    pub folds: usize,
    /// Seconds that it may take.
    pub seconds: f64,
    /// What a predictor must gain over simpler ones before it counts, as a share of their error.
    pub margin: f64,
    /// What random numbers start from.
    pub seed: u64,
}

impl Default for ProbeOptions {
    fn default() -> Self {
        Self {
            inputs: Vec::new(),
            targets: Vec::new(),
            chunk: 16,
            fit: Fit::default(),
            encoder: Features::default(),
            features: 1024,
            seeds: 3,
            folds: 10,
            seconds: 180.0,
            margin: 0.02,
            seed: 0,
        }
    }
}

/// One way to store the streams.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Its name, for people.
    pub name: String,
    /// What it does.
    pub change: Change,
}

/// What a candidate does to frames.
#[derive(Debug, Clone)]
pub enum Change {
    /// The codecs of the streams that the plan has a rule for; the others stay as they are.
    Plan(Plan),
    /// The host changes the frames of these streams ([`ProbeHost::apply`]).
    Given(Vec<String>),
    /// The frames of another dataset with the same episodes.
    Stored(Dataset),
}

/// Who asks.
pub trait ProbeHost {
    /// Announces what comes next.
    fn begins(&mut self, _what: &str) {}

    /// Called regularly; an error ends the measurement.
    fn look_up(&mut self) -> Result<()> {
        Ok(())
    }

    /// What a candidate makes of consecutive packed frames of a stream.
    fn apply(
        &mut self,
        _candidate: usize,
        stream: &str,
        _ty: &ValueType,
        _frames: &[u8],
    ) -> Result<Vec<u8>> {
        Err(invalid(format!("nothing is given for stream `{stream}`")))
    }
}

/// Measures what a policy would lose with each candidate.
pub fn probe(
    dataset: &Dataset,
    candidates: &[Candidate],
    options: &ProbeOptions,
    host: &mut dyn ProbeHost,
) -> Result<Probed> {
    let began = Instant::now();
    if candidates.is_empty() {
        return Err(invalid(
            "name a plan, codecs, a dataset or a function to probe",
        ));
    }
    check(options)?;
    let layout = Layout::of(dataset, options)?;
    let mut rules = moments::rules(dataset)?;
    for candidate in candidates {
        if let Change::Plan(plan) = &candidate.change {
            rules.extend(plan.events.iter().cloned());
        }
    }
    let mut order = episodes(dataset, &layout.sources, options)?;
    let anchor = layout.anchor;
    let names = arms::Names::of(dataset);
    let network = options.encoder.network()?;
    let mut lanes = lanes(dataset, layout, candidates, (options, network.as_ref()))?;
    let spent = lesson::learn(
        &mut order,
        (&lanes, anchor),
        (options, network.as_ref()),
        host,
    )?;
    let options = &ProbeOptions {
        seconds: options.seconds - spent.seconds,
        ..options.clone()
    };
    host.begins("the codecs on one episode");
    let work = Work {
        arms: &|lanes| arms::arms(lanes, candidates.len()).len(),
        kept: 1,
    };
    let amount = amount(&order, &mut lanes, (anchor, &rules), (&work, options), host)?;
    host.begins(&format!(
        "{} episodes with {} anchors each: about {:.0} s",
        amount.episodes, amount.anchors, amount.expected_s
    ));
    let gathered = gather(
        &order[..amount.episodes],
        &mut lanes,
        (anchor, &rules),
        (&amount, options),
        host,
    )?;
    let mut probed = judge::measure(&lanes, &gathered, (candidates, &names), options, host)?;
    probed.name = dataset.path().display().to_string();
    probed.effort.set_aside = spent.episodes;
    probed.effort.expected_s = amount.expected_s + spent.seconds;
    probed.effort.took_s = began.elapsed().as_secs_f64();
    Ok(probed)
}

/// Refuses what cannot be probed: a dataset without actions, or without anything that a policy could see.
pub(crate) fn check_streams(dataset: &Dataset, options: &ProbeOptions) -> Result<()> {
    check(options)?;
    Layout::of(dataset, options).map(drop)
}

/// Also refuses a dataset with too few episodes.
pub(crate) fn check_episodes(dataset: &Dataset, options: &ProbeOptions) -> Result<()> {
    check(options)?;
    let layout = Layout::of(dataset, options)?;
    episodes(dataset, &layout.sources, options).map(drop)
}

fn check(options: &ProbeOptions) -> Result<()> {
    if !(3..=100).contains(&options.folds) {
        return Err(invalid("`folds` must be from 3 to 100"));
    }
    if !(1..=20).contains(&options.seeds) || !(64..=8192).contains(&options.features) {
        return Err(invalid(
            "`seeds` must be from 1 to 20, and `features` from 64 to 8192",
        ));
    }
    if !(options.seconds > 0.0 && options.seconds <= 1e6) {
        return Err(invalid(
            "`seconds` of the probe must be above 0 and at most 1000000",
        ));
    }
    if !(0.0..1.0).contains(&options.margin) || !(1..=1000).contains(&options.chunk) {
        return Err(invalid(
            "`margin` must be from 0 to 1, and `chunk` from 1 to 1000",
        ));
    }
    Ok(())
}
