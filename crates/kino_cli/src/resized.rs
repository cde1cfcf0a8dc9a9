//! Sizes that frames had before they were resized, in words.

use kino_dataset::Size;
use serde_json::{Value, json};

use crate::output::one_line;

/// A line per stream that was resized: `obs/wrist: resized from 480 × 640 before it was stored`.
pub(crate) fn lines<'a>(streams: impl Iterator<Item = (&'a str, &'a [Size])>) -> String {
    let resized = streams.filter(|(_, sizes)| !sizes.is_empty());
    resized
        .map(|(name, sizes)| {
            let sizes: Vec<_> = sizes.iter().map(ToString::to_string).collect();
            let (name, sizes) = (one_line(name), sizes.join(" and "));
            format!("{name}: resized from {sizes} before it was stored\n")
        })
        .collect()
}

/// For programs: `[[height, width], …]`.
pub(crate) fn to_json(sizes: &[Size]) -> Value {
    json!(sizes)
}
