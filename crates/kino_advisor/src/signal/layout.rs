//! Which streams a policy sees, and what it has to predict.
//!
//! ```text
//! inputs    cameras, vectors (now, and their change since the frame before)
//! targets   action chunks; simulator state at the anchor, where there is one
//! ```
//!
//! Unless the caller names them, actions are the target, streams that are named after simulator state are further targets,
//! and every other image and vector is an input.

use kino_codec::ValueType;
use kino_dataset::{ACTIONS, Dataset, Filter, Fit, Kind, Resize, StreamSummary, suggest};

use super::ProbeOptions;
use crate::error::{Result, invalid};

/// A stream, and which of its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Its name.
    pub stream: String,
    /// The elements of a frame; `None` for all.
    pub elements: Option<Vec<usize>>,
}

/// A stream that is read.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) ty: ValueType,
    /// How an image is made to fit what the policy sees.
    pub(super) fit: Option<Resize>,
    pub(super) uses: Vec<Use>,
}

impl Source {
    pub(super) fn is_camera(&self) -> bool {
        self.uses.iter().any(|one| one.role == Role::Camera)
    }
}

/// What a stream is used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) role: Role,
    pub(super) elements: Vec<usize>,
    /// Frames relative to the anchor.
    pub(super) steps: Vec<isize>,
}

/// Input or target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Camera,
    Vector,
    Target,
}

/// All streams that are read; the anchors are the frames of the first target.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) sources: Vec<Source>,
    pub(super) anchor: usize,
}

/// Steps of a chunk that are predicted: all would cost more and say little more.
const STEPS: usize = 8;

/// A vector with more elements is not what a policy sees beside its cameras.
const MOST_ELEMENTS: usize = 256;

impl Layout {
    pub(super) fn of(dataset: &Dataset, options: &ProbeOptions) -> Result<Self> {
        let streams = &dataset.manifest().streams;
        let streams: Vec<_> = streams
            .iter()
            .filter(|one| one.variant_of.is_none())
            .collect();
        let targets = chosen_targets(&streams, options)?;
        let inputs = chosen_inputs(&streams, &targets, options)?;
        let mut layout = Self {
            sources: Vec::new(),
            anchor: 0,
        };
        let count = options.chunk.clamp(1, STEPS);
        let chunk: Vec<isize> = (0..count)
            .map(|idx| (idx * options.chunk.max(1) / count).cast_signed())
            .collect();
        for target in &targets {
            let steps = if is_action(&target.stream) {
                chunk.clone()
            } else {
                vec![0]
            };
            layout.add(&streams, target, (Role::Target, steps), options.fit)?;
        }
        for input in &inputs {
            let summary = named(&streams, &input.stream)?;
            let role = match summary.kind {
                Kind::Image => (Role::Camera, vec![0]),
                _ => (Role::Vector, vec![0, -1]),
            };
            layout.add(&streams, input, role, options.fit)?;
        }
        Ok(layout)
    }

    fn add(
        &mut self,
        streams: &[&StreamSummary],
        chosen: &Chosen,
        (role, steps): (Role, Vec<isize>),
        fit: Fit,
    ) -> Result<()> {
        let summary = named(streams, &chosen.stream)?;
        let name = &summary.name;
        let refuse = |what: String| invalid(format!("stream `{name}`: {what}"));
        let dtype = summary
            .dtype
            .parse()
            .map_err(|_| refuse("text cannot be probed; name images or vectors".to_owned()))?;
        let ty =
            ValueType::new(dtype, &summary.shape).map_err(|error| refuse(error.to_string()))?;
        if role == Role::Camera && ty.as_image().is_none() {
            return Err(refuse(format!(
                "frames of {ty} are not images of uint8 with channels"
            )));
        }
        if role == Role::Target && summary.kind == Kind::Image {
            return Err(refuse("images cannot be a target; name vectors".to_owned()));
        }
        let elements = match (&chosen.elements, role) {
            (None, _) | (_, Role::Camera) => (0..ty.elements()).collect(),
            (Some(elements), _) => elements.clone(),
        };
        if let Some(outside) = elements.iter().find(|element| **element >= ty.elements()) {
            let there = ty.elements();
            return Err(refuse(format!(
                "a frame has {there} elements, and none with the number {outside}"
            )));
        }
        let fit = if role == Role::Camera {
            fit_of(&ty, fit).map_err(refuse)?
        } else {
            None
        };
        let one = Use {
            role,
            elements,
            steps,
        };
        match self.sources.iter_mut().find(|source| source.name == *name) {
            Some(source) => source.uses.push(one),
            None => self.sources.push(Source {
                name: name.clone(),
                kind: summary.kind,
                ty,
                fit,
                uses: vec![one],
            }),
        }
        Ok(())
    }
}

/// How images of this type are made to fit what the policy sees.
pub(super) fn fit_of(ty: &ValueType, fit: Fit) -> Result<Option<Resize>, String> {
    Fit {
        filter: Filter::Bilinear,
        ..fit
    }
    .reduce(ty)
}

fn named<'a>(streams: &[&'a StreamSummary], name: &str) -> Result<&'a StreamSummary> {
    let found = streams.iter().find(|one| one.name == name);
    found.copied().ok_or_else(|| {
        let there: Vec<&str> = streams.iter().map(|one| one.name.as_str()).collect();
        invalid(format!(
            "there is no stream `{name:.255}`; {}",
            suggest(name, &there)
        ))
    })
}

fn last_part(name: &str) -> &str {
    name.rsplit(['/', '.']).next().unwrap_or(name)
}

/// Whether a stream has actions, by its name.
pub(crate) fn is_action(name: &str) -> bool {
    ACTIONS.contains(&last_part(name))
}

/// Whether a stream has what only a simulator knows, by its name: robomimic, LeRobot and diffusion policy.
fn is_simulator_state(name: &str) -> bool {
    [
        "states",
        "object",
        "environment_state",
        "env_state",
        "keypoint",
    ]
    .contains(&last_part(name))
}

fn whole(summary: &StreamSummary) -> Chosen {
    Chosen {
        stream: summary.name.clone(),
        elements: None,
    }
}

fn is_vector(summary: &StreamSummary) -> bool {
    let elements = summary.shape.iter().product::<usize>();
    summary.kind == Kind::Vector && (1..=MOST_ELEMENTS).contains(&elements)
}

fn chosen_targets(streams: &[&StreamSummary], options: &ProbeOptions) -> Result<Vec<Chosen>> {
    if !options.targets.is_empty() {
        return Ok(options.targets.clone());
    }
    let vectors = streams.iter().filter(|one| is_vector(one));
    let mut actions: Vec<_> = vectors.clone().filter(|one| is_action(&one.name)).collect();
    actions.sort_by_key(|one| one.name.matches('/').count());
    let Some(action) = actions.first() else {
        let there: Vec<&str> = vectors.map(|one| one.name.as_str()).collect();
        return Err(invalid(format!(
            "no stream is called {}; name what a policy has to predict as a target: {}",
            ACTIONS.join(" or "),
            there.join(", ")
        )));
    };
    // A policy that sees the state of a simulator need not predict it.
    let is_seen = |name: &str| {
        let mut inputs = options.inputs.iter();
        inputs.any(|input| input.stream == name && input.elements.is_none())
    };
    let state = vectors.filter(|one| is_simulator_state(&one.name) && !is_seen(&one.name));
    Ok([whole(action)]
        .into_iter()
        .chain(state.map(|one| whole(one)))
        .collect())
}

fn chosen_inputs(
    streams: &[&StreamSummary],
    targets: &[Chosen],
    options: &ProbeOptions,
) -> Result<Vec<Chosen>> {
    if !options.inputs.is_empty() {
        return Ok(options.inputs.clone());
    }
    let is_input = |one: &&&StreamSummary| {
        let is_camera = one.kind == Kind::Image && one.dtype == "uint8";
        let is_known = is_action(&one.name) || is_simulator_state(&one.name);
        let is_target = targets.iter().any(|target| target.stream == one.name);
        (is_camera || is_vector(one)) && !is_known && !is_target
    };
    let inputs: Vec<Chosen> = streams
        .iter()
        .filter(is_input)
        .map(|one| whole(one))
        .collect();
    if inputs.is_empty() {
        return Err(invalid(
            "the dataset has neither images nor vectors that a policy could see; name its inputs",
        ));
    }
    Ok(inputs)
}
