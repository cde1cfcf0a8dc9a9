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
    match episode(file, root, options, &mut contents) {
        Ok(()) => {}
        Err(ImportError::Corrupt { object, what, .. }) => {
            contents.note(file, &object, what, Action::Skipped);
        }
        Err(error) => return Err(error),
    }
    contents.blame(0, &stem(file.path()));
    Ok(contents)
}

fn episode(
    file: &Arc<H5File>,
    root: Node,
    options: &ImportOptions,
    contents: &mut Contents,
) -> Result<()> {
    let says = root.leaf("action").and_then(|action| action.shape.first());
    let frames = says.copied().unwrap_or(0);
    if frames == 0 {
        contents.note(file, "/action", "has no frames".to_owned(), Action::Skipped);
        return Ok(());
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
    let (leaves, mut attributes) = root.into_parts();
    let mut draft = spec::streams(&frame, leaves)?;
    for stream in &draft.streams {
        let is_camera = stream.name.starts_with("observations/images/");
        if is_compressed
            && is_camera
            && !stream.carried
            && stream
                .frame
                .as_values()
                .is_some_and(|ty| ty.shape().len() < 2)
        {
            let what = "does not start with a JPEG file, although `compress` is true";
            let object = format!("/{}", stream.name);
            return Err(ImportError::incomplete(file.path(), &object, what));
        }
        if stream.carried {
            let what =
                "is stored as JPEG files, which decode to RGB; `cv2.imdecode` returns BGR instead";
            contents.note(
                file,
                &format!("/{}", stream.name),
                what.to_owned(),
                Action::Noted,
            );
        }
    }
    contents.defects.append(&mut draft.defects);
    attributes.append(&mut draft.attributes);
    contents.episodes.push(EpisodeSpec {
        id: stem(file.path()),
        task: spec::text_of(&attributes, TASK_KEYS),
        success: spec::success_of(&attributes),
        attributes,
        object: "/".to_owned(),
        streams: draft.streams,
        ..EpisodeSpec::default()
    });
    Ok(())
}

/// Where ACT stores one row per frame.
fn is_per_frame(name: &str) -> bool {
    matches!(name, "action" | "base_action") || name.starts_with("observations/")
}
