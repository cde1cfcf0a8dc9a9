//! robomimic's layout, and LIBERO's, which is the same with other names.
//!
//! ```text
//! /data  @env_args @total
//!   /demo_0  @num_samples @model_file
//!      actions [N, A]   rewards [N]   dones [N]   states [N, D]
//!      obs/<key> [N, …]   next_obs/<key> [N, …]   action_dict/<key> [N, …]
//! /mask/<split> [names of demos]
//! ```
//!
//! There are no timestamps: frames are recorded at the control rate, which `env_args` may give.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::defect::Action;
use crate::error::{ImportError, Result, invalid};
use crate::hdf5::element::Element;
use crate::hdf5::file::H5File;
use crate::hdf5::spec::{self, Frame, Streams};
use crate::hdf5::tree::Node;
use crate::hdf5::{Contents, first_three, frames, number_order};
use crate::open::ImportOptions;
use crate::source::EpisodeSpec;
use crate::specs;

/// A longer list of demos is damage.
const MAX_NAMES: u64 = 1 << 20;

/// The splits of each demo.
pub(super) type Splits = BTreeMap<String, Vec<String>>;

/// Builds the specs of a file's episodes.
pub(crate) fn read_episodes(
    file: &Arc<H5File>,
    mut root: Node,
    options: &ImportOptions,
) -> Result<Contents> {
    let mut contents = Contents::default();
    let mut data = root.take_group("data").unwrap_or_default();
    // The targets of links in demos are imported with them.
    let mut imported = HashSet::new();
    data.places(&mut imported);
    root.leave_out(&imported);
    let mut splits = match root.take_group("mask") {
        Some(mask) => read_splits(file, mask, &mut contents)?,
        None => Splits::new(),
    };
    let task = task_of(&data.attributes);
    let mut demos = std::mem::take(&mut data.groups);
    demos.sort_by_cached_key(|demo| number_order(demo.name(), "demo_"));
    for demo in demos {
        let rate_hz = rate_hz(file, &data.attributes, options)?;
        let splits = splits.remove(demo.name()).unwrap_or_default();
        let id = demo.name().to_owned();
        contents.add(file, &id, |contents| {
            let episode = episode(file, demo, rate_hz, contents)?;
            Ok(episode.map(|episode| EpisodeSpec {
                splits,
                task: episode.task.or_else(|| task.clone()),
                ..episode
            }))
        })?;
    }
    note_absent(file, splits, &mut contents);
    check_total(file, &data.attributes, &mut contents);
    keep_the_rest(file, data, root, &mut contents)?;
    Ok(contents)
}

/// The demo that an object is in.
pub(super) fn demo_of(object: &str) -> Option<String> {
    let inside = object.strip_prefix("/data/")?;
    let demo = inside.split(['/', '@']).next()?;
    Some(demo.to_owned())
}

/// One demo, or `None` if it has no frames.
fn episode(
    file: &Arc<H5File>,
    demo: Node,
    rate_hz: f64,
    contents: &mut Contents,
) -> Result<Option<EpisodeSpec>> {
    let (object, id) = (demo.path.clone(), demo.name().to_owned());
    let Some(actions) = demo.leaf("actions") else {
        let what = "has no dataset `actions`: the recording stopped early, or this is not a demo";
        return Err(ImportError::incomplete(file.path(), &object, what));
    };
    let says = demo.attributes.get("num_samples").and_then(Value::as_u64);
    let frames = says.or(actions.shape.first().copied()).unwrap_or(0);
    let says = match says {
        Some(_) => "`num_samples` says",
        None => "`actions` has",
    };
    if frames == 0 {
        contents.note_empty(file, &object);
        return Ok(None);
    }
    let frame = Frame {
        file,
        object: &object,
        frames,
        says,
        rate_hz,
        is_per_frame,
    };
    let (episode, mut defects) = frame.episode(demo)?;
    contents.defects.append(&mut defects);
    Ok(Some(EpisodeSpec {
        id,
        task: task_of(&episode.attributes),
        ..episode
    }))
}

/// Where robomimic stores one row per frame.
fn is_per_frame(name: &str) -> bool {
    matches!(name, "actions" | "rewards" | "dones" | "states")
        || ["obs/", "next_obs/", "action_dict/"]
            .iter()
            .any(|group| name.starts_with(group))
}

fn rate_hz(file: &H5File, data: &Map<String, Value>, options: &ImportOptions) -> Result<f64> {
    let said = control_freq(data).filter(specs::is_rate);
    options.rate_hz.or(said).ok_or_else(|| {
        invalid(format!(
            "{}: the control rate is not in the file (`env_args` of `/data` has no `env_kwargs.control_freq`); \
             pass --rate HZ (in Python rate_hz=), which is 20 for robosuite's robots",
            file.path().display()
        ))
    })
}

/// The rate in robosuite's `env_args`.
pub(super) fn control_freq(attributes: &Map<String, Value>) -> Option<f64> {
    let kwargs = attributes.get("env_args")?.get("env_kwargs")?;
    kwargs.get("control_freq")?.as_f64()
}

/// The task: robocasa's `ep_meta`, LIBERO's `problem_info`, or the environment's name.
pub(super) fn task_of(attributes: &Map<String, Value>) -> Option<String> {
    let inside = |object: &str, key: &str| {
        let text = attributes.get(object)?.get(key)?.as_str()?;
        Some(text.to_owned())
    };
    spec::text_of(attributes, &["language_instruction", "lang", "task"])
        .or_else(|| inside("ep_meta", "lang"))
        .or_else(|| inside("problem_info", "language_instruction"))
        .or_else(|| inside("env_args", "env_name"))
}

/// Turns `/mask/<split>`, lists of demos, into lists of splits.
pub(super) fn read_splits(file: &H5File, mask: Node, contents: &mut Contents) -> Result<Splits> {
    let mut splits = Splits::new();
    let base = mask.path.clone();
    let (leaves, attributes) = mask.into_parts();
    contents.keep(&base, attributes);
    for leaf in leaves {
        let is_text = matches!(leaf.element, Element::FixedText { .. } | Element::Text);
        if !is_text || leaf.shape.len() != 1 || leaf.shape[0] > MAX_NAMES {
            let what = "is not a list of names".to_owned();
            contents.note(file, &leaf.path, what, Action::Skipped);
            continue;
        }
        let split = leaf.path[base.len() + 1..].to_owned();
        for demo in frames::read_texts(file, &leaf, 0..leaf.shape[0])? {
            let of_demo = splits.entry(demo).or_default();
            if !of_demo.contains(&split) {
                of_demo.push(split.clone());
            }
        }
        contents.keep(&leaf.path, leaf.attributes);
    }
    Ok(splits)
}

/// Records the demos that splits name but the file lacks, by split.
pub(super) fn note_absent(file: &H5File, splits: Splits, contents: &mut Contents) {
    let mut absent = BTreeMap::<String, Vec<String>>::new();
    for (demo, splits) in splits {
        for split in splits {
            absent.entry(split).or_default().push(demo.clone());
        }
    }
    for (split, mut demos) in absent {
        demos.sort_by_cached_key(|demo| number_order(demo, "demo_"));
        let what = format!(
            "names {} demos that are not in the file: {}",
            demos.len(),
            first_three(demos)
        );
        contents.note(file, &format!("/mask/{split}"), what, Action::Skipped);
    }
}

/// Notes if `total` is not the number of frames: a demo was lost after the recording.
fn check_total(file: &H5File, data: &Map<String, Value>, contents: &mut Contents) {
    let frames = |episode: &EpisodeSpec| episode.streams.first().map_or(0, |stream| stream.frames);
    let found: u64 = contents.episodes.iter().map(frames).sum();
    if let Some(total) = data.get("total").and_then(Value::as_u64)
        && total != found
    {
        let what = format!("has `total` {total}, but its demos have {found} frames");
        contents.note(file, "/data", what, Action::Kept);
    }
}

/// What is beside the demos and the splits.
fn keep_the_rest(file: &H5File, data: Node, root: Node, contents: &mut Contents) -> Result<()> {
    let mut aside = Streams::default();
    let (leaves, attributes) = data.into_parts();
    contents.attributes.extend(attributes);
    for leaf in leaves {
        let name = leaf.name().to_owned();
        aside.aside(file, leaf, name)?;
    }
    let (leaves, attributes) = root.into_parts();
    for (name, value) in attributes {
        let slash = if name.contains('@') { "/" } else { "/@" };
        contents.attributes.insert(format!("{slash}{name}"), value);
    }
    for leaf in leaves {
        let path = leaf.path.clone();
        aside.aside(file, leaf, path)?;
    }
    contents.attributes.append(&mut aside.attributes);
    contents.defects.append(&mut aside.defects);
    Ok(())
}
