//! Maps streams to columns, and finds what a LeRobot dataset cannot hold.

use std::collections::BTreeMap;
use std::ops::Range;

use kino_codec::{Dtype, FrameType};
use kino_dataset::Kind;

use super::{columns, said, tasks};
use crate::error::{Result, invalid};
use crate::export::{Cameras, Outline, StreamOutline};

/// Name prefixes of observations.
const SENSED: [&str; 3] = ["obs/", "observations/", "observation/"];

/// Assigns each stream its column.
pub(crate) fn prepare(outline: &mut Outline) -> Result<()> {
    if outline.episodes.is_empty() {
        return Err(invalid(
            "no episode is selected; a LeRobot dataset needs at least one",
        ));
    }
    outline.rename(stream_name);
    outline.one_clock("action")?;
    outline.rename_episodes(|_, place| format!("episode_{place:06}"))?;
    leave_own(outline);
    outline.keep_common(columns::refuse);
    note_types(outline);
    note_videos(outline);
    said::check(outline)?;
    check_rates(outline)?;
    for (split, episodes) in splits(outline) {
        if episodes.is_none() {
            let what = "is not a contiguous range of episodes, which LeRobot requires";
            outline.losses.lose(format!("split `{split}`"), what);
        }
    }
    Ok(())
}

fn stream_name(stream: &StreamOutline) -> String {
    let name = stream.source.as_str();
    let sensed = SENSED.iter().find_map(|start| name.strip_prefix(start));
    match (name, sensed) {
        ("actions", _) => "action".to_owned(),
        // ACT's joint positions are LeRobot's state.
        ("observations/qpos", _) => "observation.state".to_owned(),
        (_, Some(rest)) if columns::image(stream).is_some() && stream.kind == Kind::Image => {
            let rest = rest.strip_prefix("images/").unwrap_or(rest);
            format!("observation.images.{}", rest.replace('/', "."))
        }
        (_, Some(rest)) => format!("observation.{}", rest.replace('/', ".")),
        (name, None) => name.replace('/', "."),
    }
}

/// Skips the streams that LeRobot fills itself.
fn leave_own(outline: &mut Outline) {
    let losses = &mut outline.losses;
    for episode in &mut outline.episodes {
        episode.streams.retain(|stream| {
            let own = columns::OWN.iter().find(|(name, _)| *name == stream.name);
            let place = stream.place();
            match own {
                Some((_, dtype)) if !is_number(stream, *dtype) => {
                    losses.lose(place, "has the name of a column that LeRobot fills itself");
                }
                // Timestamps are written unchanged; indexes follow from the position.
                Some(("timestamp", _)) => return true,
                Some(_) => losses.note(place, "is renumbered"),
                None if stream.name != tasks::STREAM => return true,
                None if stream.frame == FrameType::Text => {
                    losses.note(place, "becomes the task of each frame");
                }
                None => losses.lose(place, "has the name that LeRobot reserves for the task"),
            }
            false
        });
    }
}

fn is_number(stream: &StreamOutline, dtype: Dtype) -> bool {
    let ty = stream.frame.as_values();
    ty.is_some_and(|ty| ty.dtype() == dtype && ty.shape().is_empty())
}

/// Notes streams whose shape changes.
fn note_types(outline: &mut Outline) {
    for stream in outline.episodes.iter().flat_map(|episode| &episode.streams) {
        let what = match stream.frame.as_values().map(|ty| ty.shape()) {
            Some([1]) => "is an array of one value, which becomes a scalar",
            Some([_, _, 1]) if stream.kind == Kind::Depth && columns::image(stream).is_some() => {
                "is depth with one channel, which loses its third dimension"
            }
            _ => continue,
        };
        outline.losses.note(stream.place(), what);
    }
}

/// Notes which cameras change.
fn note_videos(outline: &mut Outline) {
    let mut notes = Vec::new();
    for stream in outline.episodes.iter().flat_map(|episode| &episode.streams) {
        let is_stored = columns::packets(stream, outline).is_some();
        let what = match &outline.cameras {
            _ if is_stored => continue,
            Cameras::Video(_) if columns::is_encoded(stream, &outline.cameras) => {
                "is encoded as video, which changes its pixels"
            }
            Cameras::Video(_) if columns::image(stream).is_some() => {
                "is written as images: video needs RGB with even height and width"
            }
            Cameras::Stored if stream.video.is_some() => {
                "is written as images: its episodes are not all video of the same coding"
            }
            _ => continue,
        };
        notes.push((stream.place(), what));
    }
    for (place, what) in notes {
        outline.losses.note(place, what);
    }
}

fn check_rates(outline: &mut Outline) -> Result<()> {
    let first = rate_hz(outline);
    if !(first.is_finite() && first > 0.0) {
        return Err(invalid(format!(
            "episode `{}` has one frame and no rate, which LeRobot requires; pack it with a rate, or skip it",
            outline.episodes[0].id
        )));
    }
    if !outline.has_one_rate() {
        let what = "differs between episodes; LeRobot has only one";
        outline.losses.lose("the rate", what);
    }
    if outline.episodes[0].rate_hz <= 0.0 {
        let what = format!("is written as {first} Hz, the mean rate of the first episode");
        outline.losses.note("the rate", what);
    }
    Ok(())
}

/// The rate of the export: that of the first episode, or the mean of its timestamps.
pub(super) fn rate_hz(outline: &Outline) -> f64 {
    let Some(first) = outline.episodes.first() else {
        return 0.0;
    };
    if first.rate_hz > 0.0 {
        return first.rate_hz;
    }
    let main = first.streams.iter().find(|stream| stream.name == "action");
    // Digits beyond a millihertz are clock noise.
    main.map_or(0.0, |main| (main.mean_hz * 1e3).round() / 1e3)
}

/// The splits, each with its range of episodes, or `None` if it is not a range.
pub(super) fn splits(outline: &Outline) -> BTreeMap<String, Option<Range<usize>>> {
    let mut found: BTreeMap<String, Option<Range<usize>>> = BTreeMap::new();
    for (idx, episode) in outline.episodes.iter().enumerate() {
        for split in &episode.splits {
            let range = found.entry(split.clone()).or_insert(Some(idx..idx));
            *range = match range.take() {
                Some(range) if range.end == idx => Some(range.start..idx + 1),
                _ => None,
            };
        }
    }
    found
}
