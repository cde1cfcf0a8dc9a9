//! `features.json`: the names and types of all features of an episode.
//!
//! ```text
//! {featuresDict: {features: {steps: {sequence: {feature: {featuresDict: …}}},   ─▶ steps/observation/image  per step
//!                            episode_metadata: {featuresDict: …}}}}             ─▶ episode_metadata/path    per episode
//! leaf: {tensor: {shape, dtype, encoding}} | {image: {shape, dtype, …}} | {text} | {classLabel} | a sequence of one
//! ```

use std::path::Path;

use kino_codec::Dtype;
use serde_json::{Map, Value};

use crate::error::{ImportError, Result};

/// The name of the sequence of steps.
pub(crate) const STEPS: &str = "steps";

/// A feature with values.
#[derive(Debug)]
pub(crate) struct Leaf {
    /// As in the episode: `steps/observation/image`.
    pub(crate) name: String,
    /// Whether every step has one.
    pub(crate) is_per_step: bool,
    /// How many lists enclose a value, besides that of the steps.
    pub(crate) lists: usize,
    pub(crate) ty: LeafType,
    /// Other metadata: `description`, `names` of labels.
    pub(crate) attributes: Map<String, Value>,
}

/// Whether a node is in a step, and in how many lists besides.
#[derive(Clone, Copy)]
struct Place {
    is_per_step: bool,
    lists: usize,
}

/// The shape of a value; `None` is a length that varies per value.
pub(crate) type Shape = Vec<Option<usize>>;

/// What a value is.
#[derive(Debug, PartialEq)]
pub(crate) enum LeafType {
    Image {
        /// Whether the four bytes of a pixel are one float, as TFDS stores depth.
        is_float: bool,
    },
    Numbers {
        dtype: Dtype,
        shape: Shape,
        encoding: Encoding,
    },
    Text {
        shape: Shape,
    },
    /// An unsupported feature, by its name.
    Other(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    None,
    /// As one byte string per value.
    Bytes,
    /// As one packed byte string per value.
    Zlib,
}

impl LeafType {
    /// The shape of values that are stored as plain numbers or texts.
    pub(crate) fn plain_shape(&self) -> Option<&Shape> {
        match self {
            Self::Numbers {
                encoding: Encoding::None,
                shape,
                ..
            }
            | Self::Text { shape } => Some(shape),
            _ => None,
        }
    }
}

impl Leaf {
    /// The name of its stream.
    pub(crate) fn stream(&self) -> &str {
        let stream = self.name.strip_prefix(STEPS);
        let stream = stream.and_then(|name| name.strip_prefix('/'));
        stream.unwrap_or(&self.name)
    }
}

/// The leaves of a `features.json`, sorted by name.
pub(crate) fn leaves(path: &Path, text: &[u8]) -> Result<Vec<Leaf>> {
    let root: Value = serde_json::from_slice(text)
        .map_err(|error| ImportError::corrupt(path, "/", "is not JSON").because(error))?;
    let mut leaves = Vec::new();
    let is_steps = &root["featuresDict"]["features"][STEPS]["sequence"];
    if !is_steps.is_object() {
        return Err(ImportError::unsupported(
            path,
            "/",
            "has no sequence `steps`: this is not a dataset of episodes (RLDS), or was written by a very old TFDS",
            "rewrite it with TFDS 4.3 or later, as episodes of steps",
        ));
    }
    let place = Place {
        is_per_step: false,
        lists: 0,
    };
    add(&root, "", place, &mut leaves);
    leaves.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(leaves)
}

/// Adds the leaves of a node.
fn add(node: &Value, name: &str, place: Place, leaves: &mut Vec<Leaf>) {
    let Place { is_per_step, lists } = place;
    if let Some(children) = node["featuresDict"]["features"].as_object() {
        for (child, node) in children {
            let name = match name {
                "" => child.clone(),
                name => format!("{name}/{child}"),
            };
            add(node, &name, place, leaves);
        }
        return;
    }
    if let Some(inner) = node["sequence"].get("feature") {
        let is_steps = name == STEPS;
        let place = Place {
            is_per_step: is_per_step || is_steps,
            lists: if is_steps { 0 } else { lists + 1 },
        };
        return add(inner, name, place, leaves);
    }
    let description = node.get("description").and_then(Value::as_str);
    let description = description.filter(|text| !text.is_empty());
    leaves.push(Leaf {
        name: name.to_owned(),
        is_per_step,
        lists,
        ty: leaf_type(node),
        attributes: description
            .map(|text| ("description".to_owned(), Value::from(text)))
            .into_iter()
            .collect(),
    });
}

fn leaf_type(node: &Value) -> LeafType {
    if let Some(tensor) = node.get("tensor") {
        return tensor_type(tensor);
    }
    if let Some(image) = node.get("image") {
        let is_float = image["dtype"] == "float32";
        return LeafType::Image { is_float };
    }
    if node.get("text").is_some() {
        return LeafType::Text { shape: Vec::new() };
    }
    if node.get("classLabel").is_some() {
        return LeafType::Numbers {
            dtype: Dtype::I64,
            shape: Vec::new(),
            encoding: Encoding::None,
        };
    }
    let class = node["pythonClassName"].as_str().unwrap_or("no type");
    let class = class.rsplit('.').next().unwrap_or(class);
    LeafType::Other(class.to_owned())
}

fn tensor_type(tensor: &Value) -> LeafType {
    let Some(shape) = shape(&tensor["shape"]["dimensions"]) else {
        return LeafType::Other("a tensor of an unknown shape".to_owned());
    };
    let encoding = match tensor["encoding"].as_str() {
        None | Some("" | "none") => Encoding::None,
        Some("bytes") => Encoding::Bytes,
        Some("zlib") => Encoding::Zlib,
        Some(other) => return LeafType::Other(format!("a tensor with the encoding {other:?}")),
    };
    let dtype = match tensor["dtype"].as_str().unwrap_or_default() {
        "string" | "object" | "str" | "bytes" => return LeafType::Text { shape },
        // Stored as float32, which represents every one of them.
        "bfloat16" if encoding == Encoding::None => Some(Dtype::F32),
        name => name.parse().ok(),
    };
    match dtype {
        Some(dtype) => LeafType::Numbers {
            dtype,
            shape,
            encoding,
        },
        None => LeafType::Other(format!("a tensor of {}", tensor["dtype"])),
    }
}

/// Lengths are text, because JSON has no 64-bit integers; -1 is unknown.
fn shape(dimensions: &Value) -> Option<Shape> {
    if dimensions.is_null() {
        return Some(Vec::new());
    }
    let dimension = |value: &Value| {
        let len = match value.as_str() {
            Some(text) => text.parse().ok()?,
            None => value.as_i64()?,
        };
        Some(usize::try_from(len).ok())
    };
    dimensions.as_array()?.iter().map(dimension).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(steps: Value) -> Result<Vec<Leaf>> {
        let dict = |inner: Value| json!({"featuresDict": {"features": inner}});
        let root = dict(json!({"steps": {"sequence": {"feature": dict(steps)}},
                               "episode_metadata": dict(json!({"path": {"text": {}}}))}));
        leaves(Path::new("features.json"), root.to_string().as_bytes())
    }

    #[test]
    fn names_are_joined_and_types_are_read() {
        let tensor = |shape: Value, dtype, encoding| json!({"tensor": {"shape": {"dimensions": shape}, "dtype": dtype, "encoding": encoding}});
        let leaves = read(json!({
            "a": tensor(json!(["7", "-1"]), "float16", "zlib"),
            "b": {"sequence": {"feature": tensor(json!(null), "string", "none"), "length": "-1"}},
            "c": {"pythonClassName": "x.y.Audio", "audio": {}},
            "d": tensor(json!(["x"]), "bool", "none"),
            "e": tensor(json!([2]), "complex64", "none"),
        }))
        .unwrap();
        let names: Vec<_> = leaves.iter().map(|leaf| leaf.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "episode_metadata/path",
                "steps/a",
                "steps/b",
                "steps/c",
                "steps/d",
                "steps/e"
            ]
        );
        assert!(!leaves[0].is_per_step && leaves[1].is_per_step);
        assert_eq!(
            (leaves[1].stream(), leaves[0].stream()),
            ("a", "episode_metadata/path")
        );
        let numbers = LeafType::Numbers {
            dtype: Dtype::F16,
            shape: vec![Some(7), None],
            encoding: Encoding::Zlib,
        };
        assert_eq!(leaves[1].ty, numbers);
        assert_eq!(
            (leaves[2].lists, &leaves[2].ty),
            (1, &LeafType::Text { shape: vec![] })
        );
        assert_eq!(leaves[3].ty, LeafType::Other("Audio".to_owned()));
        assert!(matches!(leaves[4].ty, LeafType::Other(_)));
        assert!(matches!(leaves[5].ty, LeafType::Other(_)));
    }

    #[test]
    fn a_dataset_without_steps_is_refused() {
        for text in [
            &b"{}"[..],
            b"[1]",
            b"not JSON",
            b"{\"featuresDict\": {\"features\": {}}}",
        ] {
            assert!(leaves(Path::new("features.json"), text).is_err());
        }
    }
}
