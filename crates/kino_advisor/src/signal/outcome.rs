//! What the probe found: contrasts, with their intervals, and what may be said about them.

use serde::{Deserialize, Serialize};

use super::interval::Interval;

/// What is trained on, and what it is scored on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Contrast {
    /// Trained on compressed frames, scored on raw ones: a dataset that is stored lossily, a robot that is not.
    Total,
    /// Trained and scored on compressed frames: what is lost even if the robot's frames pass through the same codec.
    Information,
    /// Trained on raw frames, scored on compressed ones: a camera that compresses in front of a policy that has not seen it.
    Mismatch,
}

impl Contrast {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Total, Self::Information, Self::Mismatch];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Information => "information",
            Self::Mismatch => "mismatch",
        }
    }
}

/// Which anchors count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Region {
    /// All of them.
    Everywhere,
    /// Those close to an event: a gripper that opens or closes, a contact.
    Events,
    /// The others.
    Elsewhere,
}

impl Region {
    /// All of them, in the order of the errors.
    pub(super) const ALL: [Self; 3] = [Self::Everywhere, Self::Events, Self::Elsewhere];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Everywhere => "everywhere",
            Self::Events => "events",
            Self::Elsewhere => "elsewhere",
        }
    }
}

/// What may be said about an increase of the error. There is no "no loss".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Verdict {
    /// Every frame came back bit by bit.
    Identical,
    /// The error grows: the interval is above 0.
    Harm,
    /// Harm is not shown, and more than this is ruled out: the upper end of the interval.
    NoHarmAbove {
        /// The upper end, relative to the error on raw frames.
        limit: f64,
    },
    /// The probe would not have seen it.
    CannotTell {
        /// Why.
        reason: String,
    },
}

impl Verdict {
    pub(super) fn of(increase: Option<Interval>, able: Result<(), String>) -> Self {
        match (increase, able) {
            (_, Err(reason)) => Self::CannotTell { reason },
            (None, Ok(())) => Self::CannotTell {
                reason: "too few episodes have such moments".to_owned(),
            },
            (Some(increase), Ok(())) if increase.low > 0.0 => Self::Harm,
            (Some(increase), Ok(())) => Self::NoHarmAbove {
                limit: increase.high.max(0.0),
            },
        }
    }

    /// Harm first, then what cannot be told.
    fn rank(&self) -> u8 {
        match self {
            Self::Harm => 3,
            Self::CannotTell { .. } => 2,
            Self::NoHarmAbove { .. } => 1,
            Self::Identical => 0,
        }
    }
}

/// One contrast, for one target and region.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The stream that is predicted.
    pub target: String,
    /// Which anchors count.
    pub region: Region,
    /// The contrast.
    pub contrast: Contrast,
    /// By which share of the error on raw frames the error grows; `None` if it could not be measured.
    pub increase: Option<Interval>,
    /// What may be said about it.
    pub verdict: Verdict,
}

/// Some streams compressed, the others raw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// The streams that are compressed.
    pub streams: Vec<String>,
    /// Every contrast, target and region.
    pub outcomes: Vec<Outcome>,
}

/// What a candidate does to a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// The stream.
    pub stream: String,
    /// The codec, or what else it is.
    pub codec: String,
    /// Whether every sampled frame came back bit by bit.
    pub is_identical: bool,
    /// Bytes of a frame with this codec; `None` if unknown.
    pub frame_bytes: Option<f64>,
    /// Bytes of a frame as the dataset stores it.
    pub stored_frame_bytes: f64,
    /// Whether the dataset stores it without loss.
    pub is_stored_lossless: bool,
}

/// A candidate, and what a policy would lose with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbedCandidate {
    /// Its name.
    pub name: String,
    /// What it does to the streams that a policy sees or predicts.
    pub changes: Vec<Changed>,
    /// Streams that it changes, but that are neither input nor target.
    pub not_probed: Vec<String>,
    /// Every changed stream alone, then all together if there are several.
    pub arms: Vec<Arm>,
}

impl ProbedCandidate {
    /// The outcomes of everything that it changes, everywhere, by target.
    pub fn outcomes(&self, contrast: Contrast) -> impl Iterator<Item = &Outcome> {
        let all = self.arms.last().into_iter().flat_map(|arm| &arm.outcomes);
        all.filter(move |one| one.contrast == contrast && one.region == Region::Everywhere)
    }

    /// The worst outcome over targets: harm before what cannot be told, and that before a limit.
    pub fn worst(&self, contrast: Contrast) -> Option<&Outcome> {
        let mean = |one: &Outcome| one.increase.map_or(0.0, |increase| increase.mean);
        self.outcomes(contrast).max_by(|a, b| {
            a.verdict
                .rank()
                .cmp(&b.verdict.rank())
                .then(mean(a).total_cmp(&mean(b)))
        })
    }
}

/// Something that must be seen before anything is certified.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// What it is.
    pub name: String,
    /// The stream that it was done to.
    pub stream: String,
    /// The increase of the error, by contrast, target and region.
    pub outcomes: Vec<Outcome>,
}

/// How well a target is predicted on raw frames of held-out episodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Skill {
    /// The stream that is predicted.
    pub target: String,
    /// Which anchors count.
    pub region: Region,
    /// The share of the variance that is not explained.
    pub unexplained: f64,
    /// By which share the error is below that of a constant.
    pub over_constant: Option<Interval>,
    /// By which share it is below that of the vectors alone; `None` without images or without vectors.
    pub over_vectors: Option<Interval>,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Effort {
    /// Episodes that were read.
    pub episodes: usize,
    /// Anchors in them.
    pub anchors: usize,
    /// Anchors near an event.
    pub near_events: usize,
    /// Other episodes, which a network learned features from; 0 with random features.
    #[serde(default)]
    pub set_aside: usize,
    /// Held-out parts.
    pub folds: usize,
    /// Sets of features.
    pub seeds: usize,
    /// Features of a set, with those of vectors.
    pub features: usize,
    /// Pixels between the patches that are looked at, by camera.
    pub strides: Vec<(String, usize)>,
    /// What a predictor must gain over simpler ones before it counts.
    pub margin: f64,
    /// How long it was expected to take, in seconds.
    pub expected_s: f64,
    /// How long it took.
    pub took_s: f64,
}

/// What a policy would lose, by candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Probed {
    /// The dataset.
    pub name: String,
    /// What a policy sees.
    pub inputs: Vec<String>,
    /// What it has to predict.
    pub targets: Vec<String>,
    /// What was done.
    pub effort: Effort,
    /// How well targets are predicted.
    pub skill: Vec<Skill>,
    /// What must be seen.
    pub controls: Vec<Control>,
    /// What was asked about.
    pub candidates: Vec<ProbedCandidate>,
}
