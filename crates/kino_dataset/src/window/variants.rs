//! Which encoding of a stream a window reads: the stream itself, or a variant of it.
//!
//! ```text
//! variants  [["wrist", null], ["**", "small"]]        the first pattern that matches a stream applies
//! windows   wrist, front, actions                 ▶  wrist, front@small, actions (which has no variant)
//! ```
//!
//! A variant has the times and the frames of its stream, so which samples there are does not depend on it. Binding puts
//! the name of the variant into the window; the key of the window stays.

use kino_format::variant_stream;

use super::request::{Request, Window};
use crate::dataset::Dataset;
use crate::error::{Result, invalid, not_found};
use crate::manifest::StreamSummary;
use crate::plan::matches_pattern;

/// Names the variants in the windows of a request.
pub(super) fn apply(dataset: &Dataset, request: &mut Request) -> Result<()> {
    let streams = &dataset.manifest().streams;
    let variants = std::mem::take(&mut request.variants);
    let mut is_decided = vec![false; request.windows.len()];
    for (pattern, variant) in &variants {
        let (mut is_requested, mut is_there) = (false, false);
        for (window, is_decided) in request.windows.iter_mut().zip(&mut is_decided) {
            let base = base_of(streams, &window.stream);
            if !matches_pattern(pattern, base) {
                continue;
            }
            is_requested = true;
            if *is_decided {
                is_there = true;
            } else if let Some(name) = found(streams, window, variant.as_deref()) {
                window.stream = name;
                (*is_decided, is_there) = (true, true);
            } else if !pattern.contains(['*', '?']) {
                return Err(missing(streams, base, variant.as_deref()));
            }
        }
        if !is_requested {
            return Err(not_requested(request, pattern));
        }
        if let Some(variant) = variant.as_ref().filter(|_| !is_there) {
            return Err(not_found(format!(
                "variants: no requested stream that matches `{pattern}` has a variant `{variant}`; `*` stays inside a part of \
                 a name, `**` crosses `/`"
            )));
        }
    }
    Ok(())
}

/// The stream that a stream is a variant of, or itself.
fn base_of<'a>(streams: &'a [StreamSummary], name: &'a str) -> &'a str {
    let stream = streams.iter().find(|stream| stream.name == name);
    let base = stream.and_then(|stream| stream.variant_of.as_deref());
    base.unwrap_or(name)
}

/// The name of the variant of a window's stream, or of the stream itself; `None` if it does not have that variant.
fn found(streams: &[StreamSummary], window: &Window, variant: Option<&str>) -> Option<String> {
    let Some(variant) = variant else {
        return Some(window.stream.clone());
    };
    let name = variant_stream(&window.stream, variant);
    let is_it = |stream: &StreamSummary| {
        stream.name == name && stream.variant_of.as_ref() == Some(&window.stream)
    };
    streams.iter().any(is_it).then_some(name)
}

fn missing(
    streams: &[StreamSummary],
    base: &str,
    variant: Option<&str>,
) -> crate::error::DatasetError {
    let of_it = streams
        .iter()
        .filter(|one| one.variant_of.as_deref() == Some(base));
    let there: Vec<_> = of_it.filter_map(StreamSummary::variant).collect();
    let there = match there.as_slice() {
        [] => "it has none; `kinograph repack` with a plan adds one".to_owned(),
        there => format!("it has {}", there.join(", ")),
    };
    not_found(format!(
        "variants: stream `{base}` has no variant `{}`; {there}",
        variant.unwrap_or_default()
    ))
}

fn not_requested(request: &Request, pattern: &str) -> crate::error::DatasetError {
    let windows = request.windows.iter();
    let names: Vec<_> = windows.map(|window| window.stream.as_str()).collect();
    invalid(format!(
        "variants: `{pattern}` matches none of the requested streams, which are {}; `*` stays inside a part of a name, `**` \
         crosses `/`",
        names.join(", ")
    ))
}
