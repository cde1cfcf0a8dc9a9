//! The features of a step, and `features.json`, which gives TFDS their types.

use std::collections::BTreeMap;

use kino_codec::{Dtype, FrameType};
use serde_json::{Map, Value, json};

use super::{ID, METADATA};
use crate::error::Result;
use crate::export::{Outline, StreamOutline};
use crate::rlds::schema::STEPS;
use crate::rlds::spec::ABOUT;

/// A value that every step has.
#[derive(Debug)]
pub(super) struct Leaf {
    /// `observation/image`.
    pub(super) name: String,
    pub(super) form: Form,
    /// Its value if the dataset has no such stream.
    pub(super) added: Option<Added>,
}

impl Leaf {
    /// Its name in an episode: `steps/observation/image`.
    pub(super) fn step_name(&self) -> String {
        format!("{STEPS}/{}", self.name)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Form {
    Image {
        shape: Vec<usize>,
        dtype: Dtype,
        is_jpeg: bool,
    },
    Text,
    Numbers {
        shape: Vec<usize>,
        dtype: Dtype,
    },
    /// As one byte string per step: TFDS would store float64 as float32.
    Raw {
        shape: Vec<usize>,
        dtype: Dtype,
    },
}

/// The standard features of an RLDS step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    First,
    Last,
    Terminal,
    Reward,
    Discount,
    Instruction,
}

const ADDED: [(&str, Added); 6] = [
    ("discount", Added::Discount),
    ("is_first", Added::First),
    ("is_last", Added::Last),
    ("is_terminal", Added::Terminal),
    ("language_instruction", Added::Instruction),
    ("reward", Added::Reward),
];

/// The leaves of all episodes: those of the first, because [`Outline::keep_common`] kept no others, and the added ones.
pub(super) fn all(outline: &Outline) -> Vec<Leaf> {
    let first = outline.episodes.first();
    let streams = first.map_or(&[][..], |episode| &episode.streams);
    let mut leaves: Vec<_> = streams.iter().map(|stream| leaf(outline, stream)).collect();
    for (name, added) in ADDED {
        let inside = format!("{name}/");
        let is_there = |leaf: &Leaf| leaf.name == name || leaf.name.starts_with(&inside);
        if leaves.iter().any(is_there) {
            continue;
        }
        let dtype = match added {
            Added::Reward | Added::Discount => Dtype::F32,
            _ => Dtype::Bool,
        };
        leaves.push(Leaf {
            name: name.to_owned(),
            form: match added {
                Added::Instruction => Form::Text,
                _ => Form::Numbers {
                    shape: Vec::new(),
                    dtype,
                },
            },
            added: Some(added),
        });
    }
    leaves.sort_by(|a, b| a.name.cmp(&b.name));
    leaves
}

fn leaf(outline: &Outline, stream: &StreamOutline) -> Leaf {
    let same = outline.episodes.iter().flat_map(|episode| &episode.streams);
    let mut same = same.filter(|one| one.name == stream.name);
    let form = match &stream.frame {
        FrameType::Text => Form::Text,
        FrameType::Values(ty) => {
            let (shape, dtype) = (ty.shape().to_vec(), ty.dtype());
            match (stream.image_form(), shape.as_slice()) {
                // TFDS supports images of one, three and four channels.
                (Some(_), &[height, width] | &[height, width, 1 | 3 | 4]) => Form::Image {
                    shape: vec![height, width, shape.get(2).copied().unwrap_or(1)],
                    dtype,
                    is_jpeg: same.all(|one| one.is_jpeg),
                },
                // Empty frames have no bytes either.
                _ if dtype == Dtype::F64 && ty.elements() > 0 => Form::Raw { shape, dtype },
                _ => Form::Numbers { shape, dtype },
            }
        }
    };
    Leaf {
        name: stream.name.clone(),
        form,
        added: None,
    }
}

/// Attributes under `episode_metadata/` that every episode has with one value of one type, for other readers.
pub(super) fn metadata(outline: &Outline) -> Result<BTreeMap<String, Form>> {
    let mut common: Option<BTreeMap<String, Form>> = None;
    for episode in &outline.episodes {
        let said = outline.dataset.find(&episode.id)?.read_attributes()?;
        let forms = said.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix(METADATA)?.strip_prefix('/')?;
            let is_free =
                !name.contains('/') && name != ID && format!("{METADATA}/{name}") != ABOUT;
            Some((name.to_owned(), form_of(value).filter(|_| is_free)?))
        });
        let forms: BTreeMap<_, _> = forms.collect();
        match &mut common {
            None => common = Some(forms),
            Some(common) => common.retain(|name, form| forms.get(name) == Some(form)),
        }
    }
    Ok(common.unwrap_or_default())
}

fn form_of(value: &Value) -> Option<Form> {
    let dtype = match value {
        Value::String(_) => return Some(Form::Text),
        Value::Bool(_) => Dtype::Bool,
        Value::Number(number) if number.is_i64() => Dtype::I64,
        Value::Number(_) => Dtype::F64,
        _ => return None,
    };
    let shape = Vec::new();
    Some(Form::Numbers { shape, dtype })
}

/// `features.json`.
pub(super) fn to_json(leaves: &[Leaf], metadata: &BTreeMap<String, Form>) -> Value {
    let mut root = Dict::default();
    for leaf in leaves {
        root.put(&leaf.name, leaf.form.to_json());
    }
    let text = || Form::Text.to_json();
    let steps = json!({
        "pythonClassName": class("dataset_feature.Dataset"),
        "sequence": {"feature": root.to_json(), "length": "-1"},
    });
    let mut about = Dict::default();
    about.put(ID, text());
    about.put(ABOUT.rsplit('/').next().unwrap_or(ABOUT), text());
    for (name, form) in metadata {
        about.put(name, form.to_json());
    }
    dict(json!({STEPS: steps, METADATA: about.to_json()}))
}

fn class(name: &str) -> String {
    format!("tensorflow_datasets.core.features.{name}")
}

fn dict(features: Value) -> Value {
    json!({"pythonClassName": class("features_dict.FeaturesDict"), "featuresDict": {"features": features}})
}

/// Leaves as nested dictionaries.
#[derive(Default)]
struct Dict {
    leaves: Map<String, Value>,
    folders: BTreeMap<String, Dict>,
}

impl Dict {
    fn put(&mut self, name: &str, leaf: Value) {
        match name.split_once('/') {
            Some((folder, rest)) => self
                .folders
                .entry(folder.to_owned())
                .or_default()
                .put(rest, leaf),
            None => drop(self.leaves.insert(name.to_owned(), leaf)),
        }
    }

    fn to_json(&self) -> Value {
        let mut features = self.leaves.clone();
        for (name, folder) in &self.folders {
            features.insert(name.clone(), folder.to_json());
        }
        dict(Value::Object(features))
    }
}

impl Form {
    fn to_json(&self) -> Value {
        // JSON has no 64-bit integers: lengths are text.
        let dims = |shape: &[usize]| match shape {
            [] => json!({}),
            shape => {
                json!({"dimensions": shape.iter().map(ToString::to_string).collect::<Vec<_>>()})
            }
        };
        let tensor = |shape: &[usize], dtype: Dtype, encoding: &str| {
            json!({
                "pythonClassName": class("tensor_feature.Tensor"),
                "tensor": {"shape": dims(shape), "dtype": dtype.name(), "encoding": encoding},
            })
        };
        match self {
            Self::Text => json!({"pythonClassName": class("text_feature.Text"), "text": {}}),
            Self::Numbers { shape, dtype } => tensor(shape, *dtype, "none"),
            Self::Raw { shape, dtype } => tensor(shape, *dtype, "bytes"),
            Self::Image {
                shape,
                dtype,
                is_jpeg,
            } => json!({
                "pythonClassName": class("image_feature.Image"),
                "image": {
                    "shape": dims(shape),
                    "dtype": dtype.name(),
                    "encodingFormat": if *is_jpeg { "jpeg" } else { "png" },
                },
            }),
        }
    }
}
