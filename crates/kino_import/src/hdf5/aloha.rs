//! The layout of ACT and ALOHA: one file is one episode.
//!
//! ```text
//! /  @sim @compress
//!   action [T, 14]   base_action [T, 2]   compress_len [cameras, T]
//!   observations/qpos [T, 14]   qvel   effort   images/<camera> [T, 480, 640, 3], or [T, L] of JPEG files
//! ```
//!
//! JPEG files are stored unchanged, without the zeros that pad them to the longest. There are no timestamps: ALOHA
//! records at 50 Hz (`DT = 0.02`), the default unless the file or the user sets another rate.

use std::sync::Arc;

use serde_json::Value;

use crate::defect::Action;
use crate::error::{ImportError, Result};
use crate::hdf5::file::H5File;
use crate::hdf5::spec::{self, Frame};
use crate::hdf5::tree::Node;
use crate::hdf5::{Contents, stem};
use crate::open::ImportOptions;
use crate::source::EpisodeSpec;
use crate::specs;

/// ACT's `DT = 0.02`.
pub(super) const DEFAULT_RATE_HZ: f64 = 50.0;

/// The attributes with the task.
pub(super) const TASK_KEYS: &[&str] = &["language_instruction", "language", "task", "task_name"];

/// Builds the spec of a file's episode.
pub(crate) fn read_episodes(
    file: &Arc<H5File>,
    root: Node,
    options: &ImportOptions,
) -> Result<Contents> {
    let mut contents = Contents::default();
    contents.add(file, &stem(file.path()), |contents| {
        episode(file, root, options, contents)
    })?;
    Ok(contents)
}

fn episode(
    file: &Arc<H5File>,
    root: Node,
    options: &ImportOptions,
    contents: &mut Contents,
) -> Result<Option<EpisodeSpec>> {
    let says = root.leaf("action").and_then(|action| action.shape.first());
    let frames = says.copied().unwrap_or(0);
    if frames == 0 {
        contents.note_empty(file, "/action");
        return Ok(None);
    }
    let fps = root.attributes.get("fps").and_then(Value::as_f64);
    let fps = fps.filter(specs::is_rate);
    let frame = Frame {
        file,
        object: "",
        frames,
        says: "`action` has",
        rate_hz: options.rate_hz.or(fps).unwrap_or(DEFAULT_RATE_HZ),
        is_per_frame,
    };
    let is_compressed = root.attributes.get("compress").is_some_and(|value| {
        value == &Value::Bool(true) || value.as_i64().is_some_and(|value| value != 0)
    });
    let (episode, mut defects) = frame.episode(root)?;
    for stream in &episode.streams {
        let object = format!("/{}", stream.name);
        let ty = stream.frame.as_values().filter(|_| !stream.carried);
        let is_row = ty.is_some_and(|ty| ty.shape().len() < 2);
        if is_compressed && stream.name.starts_with("observations/images/") && is_row {
            let what = "does not start with a JPEG file, although `compress` is true";
            return Err(ImportError::incomplete(file.path(), &object, what));
        }
        if stream.carried {
            let what =
                "is stored as JPEG files, which decode to RGB; `cv2.imdecode` returns BGR instead";
            contents.note(file, &object, what.to_owned(), Action::Noted);
        }
    }
    contents.defects.append(&mut defects);
    Ok(Some(EpisodeSpec {
        id: stem(file.path()),
        task: spec::text_of(&episode.attributes, TASK_KEYS),
        ..episode
    }))
}

/// Where ACT stores one row per frame.
fn is_per_frame(name: &str) -> bool {
    matches!(name, "action" | "base_action") || name.starts_with("observations/")
}
