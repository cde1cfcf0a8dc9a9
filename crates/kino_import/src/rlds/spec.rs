//! Maps the features of an episode to streams, attributes and defects.
//!
//! | name | becomes |
//! |---|---|
//! | `steps/…`, numeric, of one shape | numeric stream |
//! | `steps/…`, images of one size | image stream |
//! | `steps/…`, one text per step | text stream |
//! | `steps/…`, a variable-length list per step, or several texts | text stream: each frame is JSON |
//! | anything else that is small | attribute of the episode |
//! | anything else | defect, skipped |

use std::sync::Arc;

use kino_codec::{Dtype, FrameType};
use kino_dataset::Kind;
use serde_json::Value;

use crate::image::{self, Encoded};
use crate::rlds::example::{Example, List};
use crate::rlds::frames::{self, Cached, Record, RldsStream};
use crate::rlds::schema::{Encoding, Leaf, LeafType, Shape};
use crate::source::{EpisodeSpec, StreamSpec};
use crate::specs::INSTRUCTIONS;
use crate::values::kind_of;

/// An attribute has at most this many values.
const SMALL: usize = 4096;

/// Features whose length is the number of steps, if they exist.
const COUNTED: &[&str] = &[
    "steps/is_first",
    "steps/is_last",
    "steps/reward",
    "steps/action",
];

/// Suffixes of the values of lists, and of their lengths per step.
pub(crate) const FLAT: &str = "ragged_flat_values";
pub(crate) const ROWS: &str = "ragged_row_lengths_0";

/// What an export wrote about the episode; see `about.rs`.
pub(crate) const ABOUT: &str = "episode_metadata/kinograph";

/// How the frames of a stream are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reading {
    Numbers,
    /// One byte string per frame, in this encoding.
    Raw(Encoding),
    Images(Encoded),
    Texts,
    /// JSON of this many values per frame.
    Several(usize),
    /// JSON of as many values as the frame has.
    Lists,
}

/// Fills in an episode from its features; returns the names of what is lost, and why. An error means that the episode is
/// invalid. Streams have no clock yet.
pub(crate) fn read_episode(
    leaves: &[Arc<Leaf>],
    record: &Record,
    cached: &Cached,
    episode: &mut EpisodeSpec,
) -> Result<Vec<(String, String)>, String> {
    let mut lost = Vec::new();
    let steps = steps(leaves, &record.example)?;
    for leaf in leaves {
        let found = if leaf.is_per_step {
            let stream = stream(leaf, record, steps, cached);
            stream.map(|stream| episode.streams.push(stream))
        } else {
            let value = attribute(leaf, record);
            value.map(|value| drop(episode.attributes.insert(leaf.name.clone(), value)))
        };
        match found {
            Ok(()) if episode.task.is_none() => episode.task = task(leaf, record, episode),
            Ok(()) => {}
            Err(Refusal::Lost(what)) => lost.push((leaf.name.clone(), what)),
            Err(Refusal::Broken(what)) => return Err(format!("`{}` {what}", leaf.name)),
        }
    }
    for name in record.example.names() {
        let is_known = |leaf: &Arc<Leaf>| {
            let rest = name.strip_prefix(leaf.name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("/ragged_"))
        };
        if !leaves.iter().any(is_known) {
            let what = "is in the episode but not in features.json";
            lost.push((name.to_owned(), what.to_owned()));
        }
    }
    Ok(lost)
}

/// Why a leaf has no spec.
enum Refusal {
    /// Only the leaf is lost.
    Lost(String),
    /// The episode is incomplete.
    Broken(String),
}

fn lost(what: impl Into<String>) -> Refusal {
    Refusal::Lost(what.into())
}

/// How many steps an episode has.
fn steps(leaves: &[Arc<Leaf>], example: &Example) -> Result<usize, String> {
    let counted = |leaf: &Arc<Leaf>| {
        let list = example.get(&leaf.name)?;
        match &leaf.ty {
            LeafType::Numbers {
                shape,
                encoding: Encoding::None,
                ..
            } => list.len().checked_div(elements(shape)?),
            LeafType::Other(_) => None,
            _ => Some(list.len()),
        }
        .filter(|_| leaf.is_per_step && leaf.lists == 0)
    };
    let known = COUNTED
        .iter()
        .filter_map(|name| leaves.iter().find(|leaf| leaf.name == *name));
    match known.chain(leaves).find_map(counted) {
        Some(0) => Err("has no frames".to_owned()),
        Some(steps) => Ok(steps),
        None => Err("has no values of steps".to_owned()),
    }
}

/// Numbers per value, if the shape is known.
fn elements(shape: &Shape) -> Option<usize> {
    let lens = shape.iter();
    lens.copied()
        .try_fold(1usize, |product, len| product.checked_mul(len?))
}

/// The stream of a leaf with values per step.
fn stream(
    leaf: &Arc<Leaf>,
    record: &Record,
    steps: usize,
    cached: &Cached,
) -> Result<StreamSpec, Refusal> {
    let (frame, reading) = match leaf.lists {
        0 => {
            let list = record.example.get(&leaf.name);
            let list = list.ok_or_else(|| lost("is in features.json but not in the episode"))?;
            one_per_step(leaf, list, steps, &record.body)?
        }
        1 => lists_per_step(leaf, &record.example, steps)?,
        lists => return Err(lost(format!("has lists nested {lists} deep"))),
    };
    let carried = matches!(&reading, Reading::Images(encoded) if encoded.carried);
    let kind = match (&reading, &leaf.ty) {
        // TFDS only has float images for depth.
        (Reading::Images(_), LeafType::Image { is_float: true }) => Kind::Depth,
        (Reading::Images(encoded), _) => encoded.kind(),
        _ => kind_of(&leaf.name, &frame),
    };
    let is_json = matches!(reading, Reading::Lists | Reading::Several(_));
    let values = RldsStream {
        leaf: Arc::clone(leaf),
        reading,
        cached: cached.clone(),
    };
    let name = leaf.stream();
    let mut stream = StreamSpec::new(name, kind, frame, steps as u64, Arc::new(values));
    stream.carried = carried;
    stream.attributes = leaf.attributes.clone();
    if is_json {
        let attributes = &mut stream.attributes;
        attributes.insert("text_is".to_owned(), Value::from("JSON"));
    }
    Ok(stream)
}

/// The value of a leaf with values per episode.
fn attribute(leaf: &Leaf, record: &Record) -> Result<Value, Refusal> {
    let Some(list) = record.example.get(&leaf.name) else {
        return Err(lost("is in features.json but not in the episode"));
    };
    if list.len() > SMALL {
        return Err(lost(format!(
            "has {} values, too many for an attribute",
            list.len()
        )));
    }
    let shape = leaf.ty.plain_shape();
    let shape = shape.ok_or_else(|| lost("has a type that attributes cannot hold"))?;
    let shape = match leaf.lists {
        0 => shape.clone(),
        1 => [&[None], shape.as_slice()].concat(),
        lists => return Err(lost(format!("has lists nested {lists} deep"))),
    };
    let shape = known_shape(&shape, list.len()).map_err(Refusal::Lost)?;
    let value = frames::to_json(&leaf.ty, list, &record.body, 0..list.len(), &shape);
    value.map_err(Refusal::Lost)
}

/// The instruction in a leaf: a text per step, of which the first counts, or one per episode.
fn task(leaf: &Leaf, record: &Record, episode: &EpisodeSpec) -> Option<String> {
    let last = leaf.name.rsplit('/').next()?;
    if !INSTRUCTIONS.contains(&last) {
        return None;
    }
    let text = if leaf.is_per_step {
        let is_text = matches!(&leaf.ty, LeafType::Text { shape } if shape.is_empty());
        let list = record.example.get(&leaf.name);
        let list = list.filter(|_| is_text && leaf.lists == 0)?;
        let text = frames::bytes_at(list, &record.body, 0)?;
        std::str::from_utf8(text).ok()?
    } else {
        episode.attributes.get(&leaf.name)?.as_str()?
    };
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

/// The shape with its one unknown length filled in.
fn known_shape(shape: &Shape, values: usize) -> Result<Vec<u64>, String> {
    let known: Shape = shape.iter().copied().filter(Option::is_some).collect();
    let known = elements(&known).ok_or("has a shape that overflows")?;
    let unknown = shape.len() - shape.iter().flatten().count();
    let free = values.checked_div(known).unwrap_or(0);
    let fits = match unknown {
        0 => known == values,
        1 => free * known == values,
        _ => false,
    };
    if !fits {
        return Err(format!(
            "has {values} values, which does not match the shape {shape:?}"
        ));
    }
    Ok(shape.iter().map(|len| len.unwrap_or(free) as u64).collect())
}

/// A leaf with one value per step.
fn one_per_step(
    leaf: &Leaf,
    list: &List,
    steps: usize,
    body: &[u8],
) -> Result<(FrameType, Reading), Refusal> {
    let count = |found: usize, per_step: usize| match steps.checked_mul(per_step) {
        Some(expected) if found == expected => Ok(()),
        _ => Err(Refusal::Broken(format!(
            "has {found} values, but the episode has {steps} steps with {per_step} each"
        ))),
    };
    let wrong_list = |expected: &str| {
        Refusal::Broken(format!(
            "contains {}, but features.json says {expected}",
            list.name()
        ))
    };
    match &leaf.ty {
        LeafType::Numbers {
            dtype,
            shape,
            encoding,
        } => {
            let known: Option<Vec<_>> = shape.iter().copied().collect();
            let known = known.ok_or_else(|| lost(format!("has an unknown shape, {shape:?}")))?;
            let frame = FrameType::values(*dtype, &known);
            let frame = frame.map_err(|error| lost(error.to_string()))?;
            let per_step = elements(shape).unwrap_or(0);
            let is_right = match (encoding, list) {
                (_, List::Empty) => per_step == 0,
                (Encoding::None, List::Floats(_)) => dtype.is_float(),
                (Encoding::None, List::Ints(_)) => !dtype.is_float(),
                (Encoding::Bytes | Encoding::Zlib, List::Bytes(_)) => true,
                _ => false,
            };
            if !is_right {
                return Err(wrong_list(dtype.name()));
            }
            if *encoding == Encoding::None {
                count(list.len(), per_step)?;
                return Ok((frame, Reading::Numbers));
            }
            count(list.len(), 1)?;
            Ok((frame, Reading::Raw(*encoding)))
        }
        LeafType::Image { is_float } => {
            if !matches!(list, List::Bytes(_)) {
                return Err(wrong_list("images"));
            }
            count(list.len(), 1)?;
            images(list, body, *is_float).map_err(lost)
        }
        LeafType::Text { shape } => {
            if !matches!(list, List::Bytes(_)) {
                return Err(wrong_list("text"));
            }
            let per_step = elements(shape).ok_or_else(|| lost("has an unknown shape"))?;
            count(list.len(), per_step)?;
            let first = frames::bytes_at(list, body, 0).unwrap_or_default();
            if per_step == 1 && image::is_image(first) {
                return images(list, body, false).map_err(lost);
            }
            let mut texts = (0..list.len()).filter_map(|at| frames::bytes_at(list, body, at));
            if !texts.all(|text| std::str::from_utf8(text).is_ok()) {
                return Err(lost("contains bytes that are neither text nor images"));
            }
            let reading = if shape.is_empty() {
                Reading::Texts
            } else {
                Reading::Several(per_step)
            };
            Ok((FrameType::Text, reading))
        }
        LeafType::Other(what) => Err(lost(format!("contains {what}, which a stream cannot hold"))),
    }
}

fn images(list: &List, body: &[u8], is_float: bool) -> Result<(FrameType, Reading), String> {
    let files = (0..list.len()).filter_map(|at| frames::bytes_at(list, body, at));
    let encoded = image::look_all(files)?;
    let frame = match (is_float, encoded.ty.dtype(), encoded.ty.shape()) {
        (false, ..) => encoded.frame(),
        (true, Dtype::U8, &[height, width, 4]) if !encoded.carried => {
            let frame = FrameType::values(Dtype::F32, &[height, width, 1]);
            frame.map_err(|error| error.to_string())?
        }
        _ => return Err(format!("contains images of {}, not of floats", encoded.ty)),
    };
    Ok((frame, Reading::Images(encoded)))
}

/// A leaf with a list per step.
fn lists_per_step(
    leaf: &Leaf,
    example: &Example,
    steps: usize,
) -> Result<(FrameType, Reading), Refusal> {
    let shape = leaf.ty.plain_shape();
    let shape = shape.ok_or_else(|| lost("is a list that is neither numeric nor text"))?;
    let elements = elements(shape).filter(|&elements| elements > 0);
    let elements = elements.ok_or_else(|| lost(format!("has an unknown shape, {shape:?}")))?;
    let flat = example.get(&format!("{}/{FLAT}", leaf.name));
    let rows = example.get(&format!("{}/{ROWS}", leaf.name));
    if let (Some(flat), Some(rows)) = (flat, rows) {
        let rows = frames::row_lengths(rows).map_err(Refusal::Broken)?;
        let items = rows
            .iter()
            .try_fold(0usize, |sum, &len| sum.checked_add(len));
        let values = items.and_then(|items| items.checked_mul(elements));
        if rows.len() != steps || values != Some(flat.len()) {
            return Err(Refusal::Broken(format!(
                "has {} lists with {} values, but the episode has {steps} steps",
                rows.len(),
                flat.len()
            )));
        }
        return Ok((FrameType::Text, Reading::Lists));
    }
    let list = example.get(&leaf.name);
    let list = list.ok_or_else(|| lost("is in features.json but not in the episode"))?;
    match list.len() % steps {
        0 if (list.len() / steps).is_multiple_of(elements) => {
            Ok((FrameType::Text, Reading::Several(list.len() / steps)))
        }
        _ => Err(lost(format!("has {} values in {steps} steps", list.len()))),
    }
}
