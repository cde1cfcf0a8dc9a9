//! Maps samples, which are steps or episodes, to streams.
//!
//! | column of steps | becomes |
//! |---|---|
//! | numeric, of one shape | numeric stream |
//! | numeric, of a different shape in every step | text stream: each frame is JSON |
//! | text | text stream |
//! | an image | image stream |
//! | a list of images, as many in every step | a stream for each: `pair/0`, `pair/1` |
//!
//! | column of an episode of T frames | becomes |
//! |---|---|
//! | a list of T images, an array with a first axis of T | stream |
//! | text, any other small array | attribute |

use std::sync::Arc;

use kino_codec::{Dtype, FrameType};
use serde_json::Value;

use crate::image::{self, Encoded};
use crate::mds::column::Cell;
use crate::mds::frames::{MdsStream, Samples};
use crate::source::StreamSpec;
use crate::values::{self, kind_of};

/// A larger array is not an attribute.
const SMALL_BYTES: usize = 32 << 10;

/// The type of a column, as far as its values have been seen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Form {
    Numbers(FrameType),
    /// Numbers of many shapes.
    Lists(Dtype),
    Text,
    Image(Encoded),
    Images(Vec<Form>),
}

/// Where the frames of a stream are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The value of a step.
    Step,
    /// One of the values in the list of a step.
    Item(usize),
    /// The rows of an array of the episode.
    Rows,
    /// The items of a list of the episode.
    Items,
}

impl Form {
    /// What one value is.
    pub(crate) fn of(cell: &Cell<'_>) -> Result<Self, String> {
        Ok(match cell {
            Cell::Numbers(dtype, shape, _) => {
                let frame = FrameType::values(*dtype, shape);
                Self::Numbers(frame.map_err(|error| error.to_string())?)
            }
            Cell::Text(_) => Self::Text,
            Cell::Image(file) => Self::Image(image::look(file)?),
            Cell::List(items) => {
                Self::Images(items.iter().map(Self::of).collect::<Result<_, _>>()?)
            }
        })
    }

    /// What both are.
    pub(crate) fn and(self, other: Self) -> Result<Self, String> {
        let dtype = |form: &Self| match form {
            Self::Numbers(FrameType::Values(ty)) => Some(ty.dtype()),
            Self::Lists(dtype) => Some(*dtype),
            _ => None,
        };
        if self == other {
            return Ok(self);
        }
        match (dtype(&self), dtype(&other)) {
            (Some(a), Some(b)) if a == b => Ok(Self::Lists(a)),
            _ => Err("changes its type or size within the episode".to_owned()),
        }
    }

    pub(crate) fn frame(&self) -> FrameType {
        match self {
            Self::Numbers(frame) => frame.clone(),
            Self::Image(encoded) => encoded.frame(),
            Self::Lists(_) | Self::Text | Self::Images(_) => FrameType::Text,
        }
    }
}

/// A stream without its clock.
fn stream(name: &str, frames: usize, values: MdsStream) -> StreamSpec {
    let form = &values.form;
    let frame = form.frame();
    let kind = match form {
        Form::Image(encoded) => encoded.kind(),
        _ => kind_of(name, &frame),
    };
    let carried = matches!(form, Form::Image(encoded) if encoded.carried);
    let is_json = matches!(form, Form::Lists(_));
    let mut stream = StreamSpec::new(name, kind, frame, frames as u64, Arc::new(values));
    stream.carried = carried;
    if is_json {
        let attributes = &mut stream.attributes;
        attributes.insert("text_is".to_owned(), Value::from("JSON"));
    }
    stream
}

/// The streams of a column of steps.
pub(crate) fn steps(column: usize, name: &str, form: &Form, samples: &Samples) -> Vec<StreamSpec> {
    let one = |name: &str, form: &Form, reading| {
        let values = MdsStream {
            column,
            form: form.clone(),
            reading,
            samples: samples.clone(),
        };
        stream(name, samples.list.len(), values)
    };
    match form {
        Form::Images(items) => {
            let items = items.iter().enumerate();
            let item = |(item, form)| one(&format!("{name}/{item}"), form, Reading::Item(item));
            items.map(item).collect()
        }
        form => vec![one(name, form, Reading::Step)],
    }
}

/// What a column of an episode becomes.
#[derive(Debug)]
pub(crate) enum Becomes {
    Stream(Box<StreamSpec>),
    Attribute(Value),
}

/// How many frames the value of a column would have over time.
pub(crate) fn frames_of(cell: &Cell<'_>) -> Option<usize> {
    match cell {
        Cell::Numbers(_, shape, _) => shape.first().copied(),
        Cell::List(items) => Some(items.len()),
        Cell::Text(_) | Cell::Image(_) => None,
    }
}

/// What a column of an episode of this many frames becomes.
pub(crate) fn episode(
    column: usize,
    name: &str,
    cell: &Cell<'_>,
    frames: usize,
    samples: &Samples,
) -> Result<Becomes, String> {
    let stream = |form, reading| {
        let values = MdsStream {
            column,
            form,
            reading,
            samples: samples.clone(),
        };
        Ok(Becomes::Stream(Box::new(stream(name, frames, values))))
    };
    match cell {
        Cell::Numbers(dtype, shape, _) if shape.first() == Some(&frames) => {
            let frame =
                FrameType::values(*dtype, &shape[1..]).map_err(|error| error.to_string())?;
            stream(Form::Numbers(frame), Reading::Rows)
        }
        Cell::List(items) if items.len() == frames => {
            let mut forms = items.iter().map(Form::of);
            let first = forms
                .next()
                .unwrap_or_else(|| Err("is an empty list".to_owned()))?;
            let form = forms.try_fold(first, |form, next| form.and(next?))?;
            match form {
                Form::Lists(_) => Err("has images of many sizes".to_owned()),
                form => stream(form, Reading::Items),
            }
        }
        Cell::Numbers(.., values) if values.len() <= SMALL_BYTES => {
            Ok(Becomes::Attribute(json(cell)))
        }
        Cell::Text(text) => Ok(Becomes::Attribute(values::text(text))),
        Cell::Numbers(..) | Cell::List(_) => Err(format!(
            "does not have the {frames} frames of the episode, and is too large for an attribute"
        )),
        Cell::Image(_) => Err("is a single image per episode, not one per frame".to_owned()),
    }
}

/// Numbers as JSON.
pub(crate) fn json(cell: &Cell<'_>) -> Value {
    match cell {
        Cell::Numbers(dtype, shape, values) => {
            let shape: Vec<_> = shape.iter().map(|&len| len as u64).collect();
            values::numbers(*dtype, values, &shape)
        }
        Cell::Text(text) => Value::from(*text),
        Cell::Image(_) | Cell::List(_) => Value::Null,
    }
}
