//! The probe: what would a policy lose if its streams were stored like this?
//!
//! ```text
//! layout.rs     what a policy sees, and what it has to predict
//! losses.rs     what candidates and controls do to frames         moments.rs   anchors near events
//! gather.rs     a sample of episodes, raw and compressed ──▶ features (convolution.rs) and targets
//! schedule.rs   how much of it in the time there is
//! problem.rs    ridge regression (columns.rs, ridge.rs, products.rs), held out by episode
//!        └──▶ arms.rs, judge.rs, outcome.rs, interval.rs   three contrasts, their intervals, verdicts ──▶ text.rs, html.rs
//! ```
//!
//! A regressor learns actions from the frames of most episodes and predicts those of the others. It is not a policy: its error
//! shows what frames still say, not how a robot would fare. So it must prove skill first, it must see damage that is known to
//! be there, and it never says that nothing is lost.

mod arms;
mod columns;
mod convolution;
mod gather;
mod html;
mod interval;
mod judge;
mod layout;
mod losses;
mod moments;
mod outcome;
mod problem;
mod products;
mod random;
mod ridge;
mod schedule;
#[cfg(test)]
mod tests;
mod text;
mod threads;

use std::ops::Range;
use std::time::Instant;

use kino_codec::ValueType;
use kino_dataset::{Dataset, Episode, EventRule, Fit, Plan, sample_episodes};

pub use interval::Interval;
pub use layout::Chosen;
pub use outcome::{
    Arm, Changed, Contrast, Control, Effort, Outcome, Probed, ProbedCandidate, Region, Skill,
    Verdict,
};

use convolution::Convolution;
use gather::{Gathered, Lane, anchors_of, is_complete};
use layout::{Layout, Source};
use losses::Variant;
use random::Random;
use schedule::{Amount, Cost};

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
    /// Random features of all images together.
    pub features: usize,
    /// Sets of random features.
    pub seeds: usize,
    /// Held-out parts of the episodes.
    pub folds: usize,
    /// Seconds that it may take.
    pub budget_s: f64,
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
            features: 1024,
            seeds: 3,
            folds: 10,
            budget_s: 180.0,
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
    check(candidates, options)?;
    let layout = Layout::of(dataset, options)?;
    let mut rules = moments::rules(dataset)?;
    for candidate in candidates {
        if let Change::Plan(plan) = &candidate.change {
            rules.extend(plan.events.iter().cloned());
        }
    }
    host.begins("the codecs on one episode");
    let anchor = layout.anchor;
    let names = arms::Names::of(dataset);
    let mut lanes = lanes(dataset, layout, candidates, options)?;
    let order = episodes(dataset, &lanes, options)?;
    let amount = amount(
        &order,
        &mut lanes,
        (anchor, &rules),
        (candidates.len(), options),
        host,
    )?;
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
    probed.effort.expected_s = amount.expected_s;
    probed.effort.took_s = began.elapsed().as_secs_f64();
    Ok(probed)
}

fn check(candidates: &[Candidate], options: &ProbeOptions) -> Result<()> {
    if candidates.is_empty() {
        return Err(invalid(
            "name a plan, codecs, a dataset or a function to probe",
        ));
    }
    if !(3..=100).contains(&options.folds) {
        return Err(invalid("`folds` must be from 3 to 100"));
    }
    if !(1..=20).contains(&options.seeds) || !(64..=8192).contains(&options.features) {
        return Err(invalid(
            "`seeds` must be from 1 to 20, and `features` from 64 to 8192",
        ));
    }
    if !(options.budget_s > 0.0 && options.budget_s <= 1e6) {
        return Err(invalid(
            "the time budget (`seconds`) must be above 0 and at most 1000000",
        ));
    }
    if !(0.0..1.0).contains(&options.margin) || !(1..=1000).contains(&options.chunk) {
        return Err(invalid(
            "`margin` must be from 0 to 1, and `chunk` from 1 to 1000",
        ));
    }
    Ok(())
}

/// Streams, with what candidates and controls make of them, and with filters for images.
fn lanes(
    dataset: &Dataset,
    layout: Layout,
    candidates: &[Candidate],
    options: &ProbeOptions,
) -> Result<Vec<Lane>> {
    let cameras = layout
        .sources
        .iter()
        .filter(|source| source.is_camera())
        .count();
    let width = options.features / cameras.max(1);
    let mut lanes = Vec::new();
    let mut is_changed = false;
    for (number, source) in layout.sources.into_iter().enumerate() {
        let mut variants = Vec::new();
        for candidate in candidates.iter().enumerate() {
            variants.extend(Variant::of_candidate(candidate, &source, options)?);
        }
        is_changed |= !variants.is_empty();
        if !variants.is_empty() {
            variants.extend(Variant::controls(&source, options)?);
        }
        let mut random = Random::new(options.seed.wrapping_add(1000 * (number as u64 + 1)));
        let convolution = if source.is_camera() {
            Some(learn(
                dataset,
                &source,
                (options.seeds, width),
                &mut random,
            )?)
        } else {
            None
        };
        lanes.push(Lane::new(source, variants, convolution, options.seeds));
    }
    if !is_changed {
        let names: Vec<&str> = lanes.iter().map(|lane| lane.source.name.as_str()).collect();
        return Err(invalid(format!(
            "nothing that is probed changes any of the streams that a policy sees or predicts: {}",
            names.join(", ")
        )));
    }
    Ok(lanes)
}

/// Filters for a camera, from a few frames of a few episodes.
fn learn(
    dataset: &Dataset,
    source: &Source,
    (seeds, width): (usize, usize),
    random: &mut Random,
) -> Result<Convolution> {
    const EPISODES: usize = 12;
    const FRAMES: usize = 4;
    let mut frames = Vec::new();
    for row in sample_episodes(dataset.len(), dataset.len() as u64, EPISODES as u64) {
        let Ok(stream) = dataset.episode(row)?.stream(&source.name) else {
            continue;
        };
        if stream.frame_type().as_values() != Some(&source.ty) {
            continue;
        }
        for idx in 0..FRAMES.min(stream.len()) {
            let at = idx * stream.len() / FRAMES.min(stream.len());
            frames.extend(stream.read(at..at + 1)?);
        }
    }
    let mut ty = source.ty.clone();
    if let Some(fit) = &source.fit {
        let refuse = |what: String| invalid(format!("stream `{}`: {what}", source.name));
        frames = fit
            .to_resized(&mut frames, &mut kino_dataset::ResizeScratch::default())
            .map_err(refuse)?;
        ty = fit
            .value_type(&ty)
            .map_err(|error| refuse(error.to_string()))?;
    }
    let shape = kino_dataset::image_size(&ty);
    let shape =
        shape.ok_or_else(|| invalid(format!("stream `{}` has no images of uint8", source.name)))?;
    Ok(Convolution::learn(&frames, shape, (seeds, width), random))
}

/// The episodes that have every stream, in an order of which any beginning is a fair sample.
fn episodes(dataset: &Dataset, lanes: &[Lane], options: &ProbeOptions) -> Result<Vec<Episode>> {
    let mut random = Random::new(options.seed ^ 0x0065_7069_736f_6465);
    let mut found = Vec::new();
    for row in random.permutation(dataset.len()) {
        if found.len() == schedule::MOST_EPISODES {
            break;
        }
        let episode = dataset.episode(row)?;
        if is_complete(&episode, lanes) {
            found.push(episode);
        }
    }
    if found.len() < options.folds.min(6) {
        return Err(invalid(format!(
            "{} episodes have every stream that is probed; at least {} are needed to hold some out",
            found.len(),
            options.folds.min(6)
        )));
    }
    Ok(found)
}

/// Measures one episode, and says how many fit into the budget.
fn amount(
    order: &[Episode],
    lanes: &mut [Lane],
    (anchor, rules): (usize, &[EventRule]),
    (candidates, options): (usize, &ProbeOptions),
    host: &mut dyn ProbeHost,
) -> Result<Amount> {
    let Some(first) = order.first() else {
        return Err(invalid("the dataset has no episode"));
    };
    let mut piece = Gathered::default();
    let anchors = anchors_of(first, &lanes[anchor].source.name, schedule::MOST_ANCHORS)?;
    piece.add((first, &anchors), lanes, (anchor, rules), host)?;
    let bytes = |lane: &Lane| {
        lane.tables
            .iter()
            .flatten()
            .map(|rows| rows.values.len() * 4)
            .sum::<usize>()
    };
    let count = anchors.len().max(1);
    let widths = lanes
        .iter()
        .filter_map(|lane| lane.convolution.as_ref())
        .map(Convolution::width);
    let cost = Cost {
        episode_s: piece.run_s,
        anchor_s: piece.feature_s / count as f64,
        anchor_bytes: lanes.iter().map(bytes).sum::<usize>() / count,
        width: widths.sum::<usize>() + 256,
        arms: arms::arms(lanes, candidates).len(),
        seeds: options.seeds,
        folds: options.folds.min(order.len()),
    };
    lanes.iter_mut().for_each(Lane::clear);
    Ok(cost.amount(order.len(), options.budget_s))
}

/// Reads all episodes, fold by fold.
fn gather(
    episodes: &[Episode],
    lanes: &mut [Lane],
    (anchor, rules): (usize, &[EventRule]),
    (amount, options): (&Amount, &ProbeOptions),
    host: &mut dyn ProbeHost,
) -> Result<Gathered> {
    let mut gathered = Gathered::default();
    let folds = options.folds.min(episodes.len());
    let name = lanes[anchor].source.name.clone();
    for fold in 0..folds {
        let start = gathered.near.len();
        for episode in episodes.iter().skip(fold).step_by(folds) {
            if gathered.episodes % 20 == 0 {
                host.begins(&format!(
                    "frames, episode {} of {}",
                    gathered.episodes + 1,
                    episodes.len()
                ));
            }
            host.look_up()?;
            let anchors = anchors_of(episode, &name, amount.anchors)?;
            gathered.add((episode, &anchors), lanes, (anchor, rules), host)?;
        }
        let rows: Range<usize> = start..gathered.near.len();
        gathered.folds.push(rows);
    }
    Ok(gathered)
}
