//! Export to robomimic's layout: one file; `hdf5/robomimic.rs` shows the layout.
//!
//! | here | there |
//! |---|---|
//! | episode | `/data/demo_<i>`, from its id if it has that form, else from its position, with the id as an attribute |
//! | stream `actions`, `obs/x`, … | dataset of the same path in the demo |
//! | stream `action`, `observation.x`, `observations/x` | `actions`, `obs/x` |
//! | split | `/mask/<split>` |
//! | rate | `control_freq` in `env_args` of `/data` |

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::error::Result;
use crate::export::{FrameReader, Outline, StreamOutline, after};
use crate::hdf5::export::file::{Content, Leaf, OutFile};
use crate::hdf5::export::{Said, read_content};
use crate::hdf5::{number_order, robomimic};

/// Assigns each stream its dataset.
pub(crate) fn prepare(outline: &mut Outline) -> Result<()> {
    outline.restore_dtypes()?;
    outline.rename(stream_name);
    outline.one_clock("actions")?;
    // robomimic sorts demos by the number in their names.
    outline.rename_episodes(|id, place| {
        if number_order(id, "demo_").0 {
            format!("demo_{place}")
        } else {
            id.to_owned()
        }
    })?;
    if !outline.has_one_rate() {
        let what = "differs between episodes; the file has only one `control_freq`";
        outline.losses.lose("the rate", what);
    }
    let args = outline.attributes.get("env_args");
    if args.is_some_and(|args| !args.is_object()) {
        let what = "cannot be stored: `env_args` of the dataset is not a JSON object";
        outline.losses.lose("the rate", what);
    }
    Ok(())
}

fn stream_name(stream: &StreamOutline) -> String {
    let name = stream.source.as_str();
    match name {
        "action" => return "actions".to_owned(),
        "reward" | "next.reward" => return "rewards".to_owned(),
        "done" | "next.done" => return "dones".to_owned(),
        _ => {}
    }
    match after(name, &["observations/", "observation/", "observation."]) {
        Some(rest) => format!("obs/{rest}"),
        None => name.to_owned(),
    }
}

pub(crate) fn write(outline: &Outline, reader: &mut FrameReader<'_>, path: &Path) -> Result<()> {
    let mut out = OutFile::create(path)?;
    out.group("data")?;
    let (of_root, of_data) = attributes(outline);
    out.attributes("", &of_root)?;
    out.attributes("data", &of_data)?;
    let task = robomimic::task_of(&of_data);
    let mut masks: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for episode in &outline.episodes {
        let source = outline.dataset.find(&episode.id)?;
        let group = format!("data/{}", episode.name);
        out.group(&group)?;
        let mut said = Said::read(episode, &source)?;
        let found = robomimic::task_of(&said.attributes).or_else(|| task.clone());
        said.complete(episode, found);
        let frames = episode.streams.first().map_or(0, |stream| stream.frames);
        said.attributes
            .insert("num_samples".to_owned(), json!(frames));
        out.attributes(&group, &said.attributes)?;
        for stream in &episode.streams {
            let attributes = said.of_stream(stream);
            out.dataset(Leaf {
                path: format!("{group}/{}", stream.name),
                content: read_content(reader, &source, stream)?,
                attributes,
            })?;
        }
        for split in &episode.splits {
            let demos = masks.entry(split).or_default();
            demos.push(episode.name.clone());
        }
        reader.next_episode()?;
    }
    for (split, demos) in masks {
        out.dataset(Leaf {
            path: format!("mask/{split}"),
            content: Content::Names(demos),
            attributes: Map::new(),
        })?;
    }
    out.finish()
}

/// The attributes of the file and of `/data`, which has the rate and the total number of steps.
fn attributes(outline: &Outline) -> (Map<String, Value>, Map<String, Value>) {
    let (mut of_root, mut of_data) = (Map::new(), Map::new());
    for (name, value) in &outline.attributes {
        match name.strip_prefix("/@") {
            Some(name) => of_root.insert(name.to_owned(), value.clone()),
            None => of_data.insert(name.clone(), value.clone()),
        };
    }
    let first = outline.episodes.first();
    let rate_hz = first.map_or(0.0, |episode| episode.rate_hz);
    if rate_hz > 0.0 && robomimic::control_freq(&of_data) != Some(rate_hz) {
        let name = first.and_then(|episode| episode.task.clone());
        let empty = json!({"env_name": name.unwrap_or_default(), "type": 1});
        let args = of_data.entry("env_args").or_insert(empty);
        if let Some(args) = args.as_object_mut() {
            let kwargs = args.entry("env_kwargs").or_insert_with(|| json!({}));
            if let Some(kwargs) = kwargs.as_object_mut() {
                kwargs.insert("control_freq".to_owned(), json!(rate_hz));
            }
        }
    }
    let steps = outline
        .episodes
        .iter()
        .filter_map(|episode| episode.streams.first());
    let total: usize = steps.map(|stream| stream.frames).sum();
    of_data.insert("total".to_owned(), json!(total));
    (of_root, of_data)
}
