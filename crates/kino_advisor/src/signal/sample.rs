//! What is measured: streams with what becomes of them, episodes, how many of them there is time for, and their frames.

use std::ops::Range;

use kino_dataset::{Dataset, Episode, EventRule, Size, sample_episodes, suggest};

use super::convolution::Convolution;
use super::encoder::Encoder;
use super::gather::{Gathered, Lane, anchors_of, is_complete};
use super::layout::{Layout, Source};
use super::losses::Variant;
use super::network::SharedNetwork;
use super::random::Random;
use super::schedule::{self, Amount, Cost};
use super::{Candidate, Change, ProbeHost, ProbeOptions};
use crate::error::{Result, invalid};

/// Features of a camera that a network learns, at most.
const TRAINED_WIDTH: usize = 128;

/// Streams, with what candidates and controls make of them, and with filters for images.
pub(super) fn lanes(
    dataset: &Dataset,
    layout: Layout,
    candidates: &[Candidate],
    (options, network): (&ProbeOptions, Option<&SharedNetwork>),
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
        let encoder = match (source.is_camera(), network) {
            (false, _) => None,
            (true, None) => {
                let wanted = (options.seeds, width);
                let convolution = learn(dataset, &source, wanted, &mut random)?;
                Some(Encoder::Random(convolution))
            }
            (true, Some(network)) => {
                let (size, channels) = image_shape(&source)?;
                Some(Encoder::Trained {
                    frame_len: size.pixels() * channels,
                    width: width.clamp(1, TRAINED_WIDTH),
                    network: network.clone(),
                })
            }
        };
        lanes.push(Lane::new(source, variants, encoder, options.seeds));
    }
    if !is_changed {
        let names: Vec<&str> = lanes.iter().map(|lane| lane.source.name.as_str()).collect();
        return Err(invalid(format!(
            "{}nothing that is probed changes any of the streams that a policy sees or predicts: {}",
            unmatched(dataset, candidates),
            names.join(", ")
        )));
    }
    Ok(lanes)
}

/// The first name or pattern of a candidate that is that of no stream: most likely a typo.
fn unmatched(dataset: &Dataset, candidates: &[Candidate]) -> String {
    let streams = dataset.manifest().streams.iter();
    let streams = streams.filter(|one| one.variant_of.is_none());
    let of_candidate = |candidate: &Candidate| match &candidate.change {
        Change::Plan(plan) => {
            let all = streams.clone().map(|one| (one.name.as_str(), one.kind));
            let mut unused = plan.unused_rules(all).into_iter();
            unused.find_map(|rule| rule.pattern.clone())
        }
        Change::Given(names) => {
            let is_missing = |name: &&String| !streams.clone().any(|one| one.name == **name);
            names.iter().find(is_missing).cloned()
        }
        Change::Stored(_) => None,
    };
    let there: Vec<&str> = streams.clone().map(|one| one.name.as_str()).collect();
    let unmatched = candidates.iter().find_map(of_candidate);
    unmatched.map_or(String::new(), |pattern| {
        let suggestion = suggest(&pattern, &there);
        format!("`{pattern:.255}` matches no stream; {suggestion}; ")
    })
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
    if let Some(fit) = &source.fit {
        frames = fit
            .to_resized(&mut frames, &mut kino_dataset::ResizeScratch::default())
            .map_err(|what| invalid(format!("stream `{}`: {what}", source.name)))?;
    }
    let shape = image_shape(source)?;
    Ok(Convolution::learn(&frames, shape, (seeds, width), random))
}

/// Size and channels of the images that the policy sees.
pub(super) fn image_shape(source: &Source) -> Result<(Size, usize)> {
    let refuse = |what: &str| invalid(format!("stream `{}`: {what}", source.name));
    let ty = match &source.fit {
        Some(fit) => fit.value_type(&source.ty),
        None => Ok(source.ty.clone()),
    };
    let ty = ty.map_err(|error| refuse(&error.to_string()))?;
    kino_dataset::image_size(&ty).ok_or_else(|| refuse("there are no images of uint8"))
}

/// The episodes that have every stream, in an order of which any beginning is a fair sample.
pub(super) fn episodes(
    dataset: &Dataset,
    sources: &[Source],
    options: &ProbeOptions,
) -> Result<Vec<Episode>> {
    let mut random = Random::new(options.seed ^ 0x0065_7069_736f_6465);
    let mut found = Vec::new();
    for row in random.permutation(dataset.len()) {
        if found.len() == schedule::MOST_EPISODES {
            break;
        }
        let episode = dataset.episode(row)?;
        if is_complete(&episode, sources) {
            found.push(episode);
        }
    }
    let least = least_episodes(options);
    if found.len() < least {
        return Err(invalid(format!(
            "{} episodes have every stream that is probed; at least {least} are needed to hold some out",
            found.len()
        )));
    }
    Ok(found)
}

/// How many episodes are needed to hold some out.
pub(super) fn least_episodes(options: &ProbeOptions) -> usize {
    options.folds.min(6)
}

/// What follows the gathering of frames.
pub(super) struct Work<'a> {
    /// How many arms are fitted, at most.
    pub(super) arms: &'a dyn Fn(&[Lane]) -> usize,
    /// Sets of features that are in memory at once, of raw frames.
    pub(super) kept: usize,
}

/// Measures one episode, and says how many fit into the budget.
pub(super) fn amount(
    order: &[Episode],
    lanes: &mut [Lane],
    (anchor, rules): (usize, &[EventRule]),
    (work, options): (&Work<'_>, &ProbeOptions),
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
        .filter_map(|lane| lane.encoder.as_ref())
        .map(Encoder::width);
    let width = widths.sum::<usize>() + 256;
    let cost = Cost {
        episode_s: piece.run_s,
        anchor_s: piece.feature_s / count as f64,
        anchor_bytes: lanes.iter().map(bytes).sum::<usize>() / count + 4 * width * work.kept,
        width,
        arms: (work.arms)(lanes),
        seeds: options.seeds,
        folds: options.folds.min(order.len()),
    };
    lanes.iter_mut().for_each(Lane::clear);
    Ok(cost.amount(order.len(), options.seconds))
}

/// Reads all episodes, fold by fold.
pub(super) fn gather(
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
