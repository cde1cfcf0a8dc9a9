//! A leaf: one value of a message, over all messages of a topic.

use std::collections::BTreeMap;

use kino_codec::Dtype;

use super::message::Value;

/// A message with more leaves than this gets no streams.
pub(super) const MAX_LEAVES: usize = 4096;

/// A larger value is not compared with the next.
const MAX_COMPARED_BYTES: usize = 4096;

/// What is known of a leaf.
#[derive(Debug)]
pub(super) struct Leaf {
    /// Its position in the first message.
    pub(super) order: usize,
    pub(super) shape: Shape,
    /// How many messages have it.
    pub(super) seen: usize,
    /// The minimum and maximum length of a list.
    pub(super) lens: (usize, usize),
    /// Another type seen in another message.
    pub(super) is_mixed: bool,
    /// Its value, as long as it has never changed.
    pub(super) constant: Option<Value<'static>>,
}

/// What a leaf is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Number(Dtype),
    Numbers(Dtype),
    Text,
    Texts,
    Other,
}

/// Adds a leaf of a message.
pub(super) fn note(leaves: &mut BTreeMap<String, Leaf>, path: &str, value: &Value<'_>) {
    let (shape, len, bytes) = match value {
        Value::Number(dtype, _) => (Shape::Number(*dtype), 1, 8),
        Value::Numbers(dtype, bytes) => (
            Shape::Numbers(*dtype),
            bytes.len() / dtype.size(),
            bytes.len(),
        ),
        Value::Text(text) => (Shape::Text, 1, text.len()),
        Value::Texts(texts) => (
            Shape::Texts,
            texts.len(),
            texts.iter().map(|text| text.len() + 8).sum(),
        ),
        _ => (Shape::Other, 0, 0),
    };
    if let Some(leaf) = leaves.get_mut(path) {
        leaf.seen += 1;
        leaf.is_mixed |= leaf.shape != shape;
        leaf.lens = (leaf.lens.0.min(len), leaf.lens.1.max(len));
        if leaf
            .constant
            .as_ref()
            .is_some_and(|constant| constant != value)
        {
            leaf.constant = None;
        }
        return;
    }
    // One more than allowed marks that there are too many.
    if leaves.len() > MAX_LEAVES {
        return;
    }
    let is_small = bytes <= MAX_COMPARED_BYTES && shape != Shape::Other;
    let leaf = Leaf {
        order: leaves.len(),
        shape,
        seen: 1,
        lens: (len, len),
        is_mixed: false,
        constant: is_small.then(|| value.to_owned()),
    };
    leaves.insert(path.to_owned(), leaf);
}
