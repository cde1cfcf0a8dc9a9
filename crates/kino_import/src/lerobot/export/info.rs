//! `meta/info.json`, and the other files of `meta` that both versions share.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::columns::{Column, in_videos};
use super::layout;
use crate::error::Result;
use crate::export::{Outline, put_json};

/// Episodes per folder of v2.1, files per folder of v3.0.
const IN_FOLDER: u64 = 1000;

/// Version-specific keys with their values.
pub(super) struct OfVersion {
    pub(super) name: &'static str,
    pub(super) data_path: &'static str,
    pub(super) video_path: &'static str,
    pub(super) more: Vec<(&'static str, Value)>,
    /// Keys of the other version.
    pub(super) less: &'static [&'static str],
}

/// The maximum number of files per folder.
pub(super) fn in_folder(outline: &Outline) -> u64 {
    let said = before(outline, "info").and_then(|info| info.get("chunks_size")?.as_u64());
    said.filter(|&count| count > 0).unwrap_or(IN_FOLDER)
}

/// The content of a file of `meta` in the original LeRobot recording.
fn before<'a>(outline: &'a Outline, file: &str) -> Option<&'a Map<String, Value>> {
    outline.attributes.get("lerobot")?.get(file)?.as_object()
}

/// Writes `info.json`, and `modality.json` if the recording had one.
pub(super) fn write(
    outline: &Outline,
    path: &Path,
    columns: &[Column],
    tasks: usize,
    version: OfVersion,
) -> Result<()> {
    let mut info = before(outline, "info").cloned().unwrap_or_default();
    let known = info.remove("features");
    let fps = number(layout::rate_hz(outline));
    let has_videos = in_videos(columns).next().is_some();
    let features: Map<_, _> = columns
        .iter()
        .map(|column| {
            let known = known.as_ref().and_then(|known| known.get(&column.name));
            (column.name.clone(), column.to_info(known, &fps))
        })
        .collect();
    info.retain(|key, _| !version.less.contains(&key.as_str()));
    info.entry("robot_type").or_insert(Value::Null);
    let frames: usize = outline
        .episodes
        .iter()
        .map(|episode| episode.frames())
        .sum();
    let splits = layout::splits(outline).into_iter();
    let splits: Map<_, _> = splits
        .filter_map(|(name, range)| {
            let range = range?;
            Some((name, json!(format!("{}:{}", range.start, range.end))))
        })
        .collect();
    let same = [
        ("codebase_version", json!(version.name)),
        ("total_episodes", json!(outline.episodes.len())),
        ("total_frames", json!(frames)),
        ("total_tasks", json!(tasks)),
        ("chunks_size", json!(in_folder(outline))),
        ("fps", fps),
        ("splits", Value::Object(splits)),
        ("data_path", json!(version.data_path)),
        (
            "video_path",
            json!(has_videos.then_some(version.video_path)),
        ),
        ("features", Value::Object(features)),
    ];
    for (key, value) in same.into_iter().chain(version.more) {
        info.insert(key.to_owned(), value);
    }
    let others = outline
        .attributes
        .iter()
        .filter(|(key, _)| *key != "lerobot");
    let others: Map<_, _> = others
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if !others.is_empty() {
        info.insert("attributes".to_owned(), Value::Object(others));
    }
    put_json(&path.join("meta/info.json"), &Value::Object(info))?;
    match before(outline, "modality") {
        Some(modality) => put_json(&path.join("meta/modality.json"), &json!(modality)),
        None => Ok(()),
    }
}

/// LeRobot's rates are mostly integers.
fn number(rate_hz: f64) -> Value {
    if rate_hz.fract() == 0.0 && rate_hz < 1e9 {
        return serde_json::from_str(&format!("{rate_hz:.0}")).unwrap_or(Value::Null);
    }
    json!(rate_hz)
}
