//! Which streams are compressed together: the arms whose errors are compared with those of raw frames.

use kino_dataset::{Dataset, StreamSummary};

use super::gather::Lane;
use super::losses::Of;
use super::outcome::Changed;
use super::problem::Versions;
use super::{Candidate, Change};

/// Everywhere, near events, elsewhere.
pub(super) const REGIONS: usize = 3;

/// Mean squared errors: by seed, fold, group of targets and region; NaN where there are no rows.
pub(super) type Errors = Vec<Vec<Vec<[f64; REGIONS]>>>;

/// The errors of an arm.
#[derive(Debug, Default)]
pub(super) struct ArmErrors {
    pub(super) total: Errors,
    pub(super) information: Errors,
    pub(super) mismatch: Errors,
}

/// The errors on raw frames of what is fitted on raw frames, of the vectors alone, and of the mean.
#[derive(Debug, Default)]
pub(super) struct RawErrors {
    pub(super) full: Errors,
    pub(super) vectors: Errors,
    pub(super) constant: Errors,
}

/// What the dataset says about its streams.
pub(super) struct Names {
    streams: Vec<StreamSummary>,
}

impl Names {
    pub(super) fn of(dataset: &Dataset) -> Self {
        Self {
            streams: dataset.manifest().streams.clone(),
        }
    }
}

/// Some lanes changed, the others raw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) of: Of,
    pub(super) lanes: Vec<usize>,
    pub(super) versions: Versions,
}

/// Every changed stream alone, then all of a candidate together; then the controls.
pub(super) fn arms(lanes: &[Lane], candidates: usize) -> Vec<Spec> {
    let mut found: Vec<Spec> = Vec::new();
    let changed = |of: Of| {
        let lanes = lanes.iter().enumerate();
        let version = move |lane: &Lane| {
            lane.variants
                .iter()
                .position(|one| one.of == of && !one.is_identical)
        };
        lanes
            .filter_map(move |(idx, lane)| version(lane).map(|at| (idx, at + 1)))
            .collect::<Vec<_>>()
    };
    let spec = |of: Of, parts: &[(usize, usize)]| {
        let mut versions = vec![0; lanes.len()];
        parts
            .iter()
            .for_each(|&(lane, version)| versions[lane] = version);
        Spec {
            of,
            lanes: parts.iter().map(|(lane, _)| *lane).collect(),
            versions,
        }
    };
    for of in (0..candidates).map(Of::Candidate) {
        let parts = changed(of);
        found.extend(parts.iter().map(|part| spec(of, &[*part])));
        if parts.len() > 1 {
            found.push(spec(of, &parts));
        }
    }
    for (lane, own) in lanes.iter().enumerate() {
        let is_candidate =
            |one: &Spec| matches!(one.of, Of::Candidate(_)) && one.lanes.contains(&lane);
        if !found.iter().any(is_candidate) {
            continue;
        }
        for (number, variant) in own.variants.iter().enumerate() {
            if matches!(variant.of, Of::Control(_)) {
                found.push(spec(variant.of, &[(lane, number + 1)]));
            }
        }
    }
    found
}

/// What a candidate does to streams.
pub(super) fn changes(lanes: &[Lane], candidate: usize, names: &Names) -> Vec<Changed> {
    let of_lane = |lane: &Lane| {
        let variant = lane
            .variants
            .iter()
            .find(|one| one.of == Of::Candidate(candidate))?;
        let summary = names
            .streams
            .iter()
            .find(|one| one.name == lane.source.name)?;
        Some(Changed {
            stream: lane.source.name.clone(),
            codec: variant.name.clone(),
            is_identical: variant.is_identical,
            frame_bytes: (variant.bytes > 0)
                .then(|| variant.bytes as f64 / variant.frames.max(1) as f64),
            stored_frame_bytes: summary.bytes as f64 / summary.frames.max(1) as f64,
            is_stored_lossless: summary.max_abs_error == 0.0 && summary.generations.is_empty(),
        })
    };
    lanes.iter().filter_map(of_lane).collect()
}

/// Streams that a plan has a rule for, but that a policy neither sees nor predicts.
pub(super) fn not_probed(lanes: &[Lane], candidate: &Candidate, names: &Names) -> Vec<String> {
    let Change::Plan(plan) = &candidate.change else {
        return Vec::new();
    };
    let is_read = |name: &str| lanes.iter().any(|lane| lane.source.name == name);
    let streams = names.streams.iter().filter(|one| one.variant_of.is_none());
    let missed = streams.filter(|one| plan.mentions(&one.name, one.kind) && !is_read(&one.name));
    missed.map(|one| one.name.clone()).collect()
}
