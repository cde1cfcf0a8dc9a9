//! A request checked against a dataset: every stream exists and can do what is requested.

use kino_codec::{Dtype, FrameType};
use kino_format::Kind;

use super::mask::{self, Mask};
use super::request::{Anchor, Request, Resolve, Window};
use super::shared::shared_anchor;
use super::variants;
use crate::dataset::Dataset;
use crate::error::{DatasetError, Result, invalid, not_found};
use crate::manifest::StreamSummary;

/// How many names an error lists.
const LISTED: usize = 20;

/// A request and what the dataset says of its streams.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) request: Request,
    pub(super) masks: Vec<Mask>,
    /// Every stream of the request once.
    pub(super) streams: Vec<BoundStream>,
    /// The stream of each window, as its place in `streams`.
    pub(super) stream_of: Vec<usize>,
    /// The stream whose frames are the anchors.
    pub(super) anchor: Option<usize>,
}

/// A stream of the request.
#[derive(Debug)]
pub(super) struct BoundStream {
    pub(super) name: String,
    /// The stream that it is a variant of.
    pub(super) variant_of: Option<String>,
    pub(super) kind: Kind,
    pub(super) frame: FrameType,
    /// How many episodes have it, its frames in all, and their bytes.
    pub(super) episodes: u64,
    pub(super) frames: u64,
    pub(super) raw_bytes: u64,
}

impl Bound {
    /// Refuses a request that `dataset` cannot serve, with the stream, the value and what would be right. Fills in what
    /// the request leaves to the dataset: the shared clock, as the episode at `row` has it, and how each stream resolves.
    pub(super) fn new(dataset: &Dataset, mut request: Request, row: usize) -> Result<Self> {
        request.check()?;
        variants::apply(dataset, &mut request)?;
        let mut bound = Self {
            masks: Vec::new(),
            streams: Vec::new(),
            stream_of: Vec::new(),
            anchor: None,
            request,
        };
        for idx in 0..bound.request.windows.len() {
            let window = bound.request.windows[idx].clone();
            let place = bound.add(dataset, &window.stream, || window.place())?;
            let frame = &bound.streams[place].frame;
            check_resolve(&window, frame)?;
            bound.request.windows[idx].resolve = window.resolve.of(frame);
            bound.stream_of.push(place);
        }
        if bound.request.anchor == Anchor::Shared {
            bound.request.anchor = shared_anchor(dataset, row, &bound.request.windows, &[])?;
            bound.request.check()?;
        }
        if let Anchor::Stream(name) = bound.request.anchor.clone() {
            bound.anchor = Some(bound.add(dataset, &name, || "anchor".to_owned())?);
        }
        bound.masks = mask::masks(&bound.request)?;
        Ok(bound)
    }

    /// The place of a stream, which is added when it is new.
    fn add(
        &mut self,
        dataset: &Dataset,
        name: &str,
        wanted_by: impl Fn() -> String,
    ) -> Result<usize> {
        if let Some(place) = self.streams.iter().position(|stream| stream.name == name) {
            return Ok(place);
        }
        let all = &dataset.manifest().streams;
        let Some(summary) = all.iter().find(|stream| stream.name == name) else {
            return Err(unknown_stream(&wanted_by(), name, all));
        };
        summary.check_decoder()?;
        self.streams.push(BoundStream {
            name: name.to_owned(),
            variant_of: summary.variant_of.clone(),
            kind: summary.kind,
            frame: summary.frame_type()?,
            episodes: summary.episodes,
            frames: summary.frames,
            raw_bytes: summary.raw_bytes,
        });
        Ok(self.streams.len() - 1)
    }

    /// What the stream of a window is.
    pub(super) fn kind(&self, window: usize) -> Kind {
        self.streams[self.stream_of[window]].kind
    }

    /// The type of the frames of a window.
    pub(super) fn frame(&self, window: usize) -> &FrameType {
        &self.streams[self.stream_of[window]].frame
    }
}

impl Resolve {
    /// How frames of a type are resolved: by default text is held, because it must not come from the future.
    fn of(self, frame: &FrameType) -> Self {
        match (self, frame) {
            (Self::Auto { max_staleness_ns }, FrameType::Text) => Self::Hold { max_staleness_ns },
            (Self::Auto { max_staleness_ns }, _) => Self::Nearest { max_staleness_ns },
            (given, _) => given,
        }
    }
}

/// Only floats can be interpolated, and only quaternions by `slerp`.
fn check_resolve(window: &Window, frame: &FrameType) -> Result<()> {
    if !window.resolve.blends() {
        return Ok(());
    }
    let (place, name) = (window.place(), window.resolve.name());
    let (dtype, shape) = match frame {
        FrameType::Text => ("text", &[][..]),
        FrameType::Values(ty) => (Dtype::name(ty.dtype()), ty.shape()),
    };
    let is_float = frame.as_values().is_some_and(|ty| ty.dtype().is_float());
    if !is_float {
        return Err(invalid(format!(
            "{place}: `{name}` needs a float dtype, but the stream is {dtype}; use `nearest` or `hold`"
        )));
    }
    let is_slerp = matches!(window.resolve, Resolve::Slerp { .. });
    if is_slerp && shape.last() != Some(&4) {
        return Err(invalid(format!(
            "{place}: `slerp` needs quaternions (a last axis of 4), but the stream has shape {shape:?}; use `linear`, `nearest` or `hold`"
        )));
    }
    Ok(())
}

pub(super) fn unknown_stream(wanted_by: &str, name: &str, all: &[StreamSummary]) -> DatasetError {
    let names: Vec<&str> = all.iter().map(|stream| stream.name.as_str()).collect();
    not_found(format!(
        "{wanted_by}: no stream `{name:.255}`; {}",
        suggest(name, &names)
    ))
}

/// Of `names` the one that `wrong` probably means, if any is near, and the names there are. A name that contains the
/// wrong one is nearer than any other.
pub fn suggest(wrong: &str, names: &[&str]) -> String {
    let is_near = |name: &&&str| {
        let longer = wrong.chars().count().max(name.chars().count());
        (!wrong.is_empty() && name.contains(wrong)) || 2 * edits(wrong, name) <= longer
    };
    let nearest = names
        .iter()
        .filter(is_near)
        .min_by_key(|name| (!name.contains(wrong), edits(wrong, name)));
    let listed = names.iter().take(LISTED).copied().collect::<Vec<_>>();
    let more = match names.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match nearest {
        Some(nearest) => format!(
            "did you mean `{nearest}`? There are {}{more}",
            listed.join(", ")
        ),
        None if names.is_empty() => "there are none".to_owned(),
        None => format!("there are {}{more}", listed.join(", ")),
    }
}

/// How many characters must change to turn one name into the other; only the first 255 characters count.
fn edits(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(255).collect();
    let mut costs: Vec<usize> = (0..=a.len()).collect();
    for (row, wanted) in b.chars().take(255).enumerate() {
        let mut diagonal = costs[0];
        costs[0] = row + 1;
        for (idx, &letter) in a.iter().enumerate() {
            let change = diagonal + usize::from(letter != wanted);
            diagonal = costs[idx + 1];
            costs[idx + 1] = change.min(diagonal + 1).min(costs[idx] + 1);
        }
    }
    costs[a.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_the_one_with_the_fewest_changed_letters() {
        assert_eq!(
            (edits("cam", "cam"), edits("cam", "came"), edits("", "ab")),
            (0, 1, 2)
        );
        assert_eq!(
            (edits("kitten", "sitting"), edits("größe", "grosse")),
            (3, 3)
        );
        let text = suggest("agentview", &["actions", "obs/agentview_image"]);
        assert!(
            text.starts_with("did you mean `obs/agentview_image`"),
            "{text}"
        );
        assert_eq!(
            suggest("action", &["obs", "actions"]),
            "did you mean `actions`? There are obs, actions"
        );
        let many = vec!["x"; 30];
        assert!(suggest("x", &many).ends_with("and 10 more"));
        assert_eq!(suggest("x", &[]), "there are none");
    }
}
