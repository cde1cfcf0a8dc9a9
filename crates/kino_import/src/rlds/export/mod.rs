//! Export to RLDS: a folder that TensorFlow Datasets opens, one Example per episode.
//!
//! ```text
//! kinograph.json                                     attributes of the dataset
//! 1.0.0/  dataset_info.json  features.json           leaves.rs
//!         NAME-train.tfrecord-00000-of-00002 …       example.rs: about 1 GB each
//!
//! steps/observation/…  action  reward  discount      per step
//!       is_first  is_last  is_terminal  language_instruction
//! episode_metadata/id  kinograph  …                  per episode; the second has everything else (about.rs)
//! ```
//!
//! | here | there |
//! |---|---|
//! | stream `actions`; `obs/x`, `observations/x`, `observation.x` | `action`; `observation/x` |
//! | stream `rewards` | `reward` |
//! | images | PNG, or the stored JPEG files |
//! | float64 | tensor with the encoding `bytes`: TFDS would store it as float32 |
//! | attribute `episode_metadata/x`, one number or string in every episode | the same |
//! | an episode of several splits | the file of the first of `train`, `val`, `valid`, `validation`, `test` |

mod example;
mod leaves;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kino_dataset::Episode;
use serde_json::{Map, Value, json};

use crate::about::{self, About, Clocks};
use crate::error::{Result, invalid};
use crate::export::{
    EpisodeOutline, FrameReader, Outline, StreamOutline, WritingPath, after, put_json,
};
use crate::rlds::spec::ABOUT;
use crate::specs::most_common;
use example::{Body, SplitFiles};
use leaves::{Added, Form, Leaf};

/// The prefix of episode attributes, and the name of the id.
const METADATA: &str = "episode_metadata";
const ID: &str = "id";

/// The version of a new dataset.
const VERSION: &str = "1.0.0";

/// A file of this size gets no more episodes (1 GB).
const MAX_SHARD_BYTES: u64 = 1_000_000_000;

/// Preferred splits for file names.
const SPLITS: &[&str] = &["train", "val", "valid", "validation", "test"];

/// Assigns each stream its feature.
pub(crate) fn prepare(outline: &mut Outline) -> Result<()> {
    outline.rename(stream_name);
    keep_steps(outline)?;
    outline.keep_common(|_| None);
    keep_apart(outline);
    match outline.episodes.iter().find(|one| one.streams.is_empty()) {
        None => Ok(()),
        Some(episode) => Err(invalid(format!(
            "episode `{}` has no stream in common with the others, with the same type; export them separately",
            episode.id
        ))),
    }
}

fn stream_name(stream: &StreamOutline) -> String {
    let name = stream.source.as_str();
    match name {
        "actions" => return "action".to_owned(),
        "rewards" | "next.reward" => return "reward".to_owned(),
        _ => {}
    }
    match after(name, &["obs/", "observations/", "observation."]) {
        Some(rest) => format!("observation/{rest}"),
        None => name.replace('.', "_"),
    }
}

/// Skips the streams whose length differs from the actions, or from most streams if there are none.
fn keep_steps(outline: &mut Outline) -> Result<()> {
    for episode in &mut outline.episodes {
        let steps = steps(episode);
        if steps == 0 {
            return Err(invalid(format!(
                "episode `{}` has no steps, which RLDS readers do not support; select the others",
                episode.id
            )));
        }
        episode.streams.retain(|stream| {
            if stream.frames != steps {
                let what = "does not have as many frames as the episode has steps";
                outline.losses.lose(stream.place(), what);
            }
            stream.frames == steps
        });
    }
    Ok(())
}

/// How many steps an episode has.
fn steps(episode: &EpisodeOutline) -> usize {
    let action = episode.streams.iter().find(|one| one.name == "action");
    if let Some(action) = action {
        return action.frames;
    }
    let lengths = episode.streams.iter().map(|stream| stream.frames);
    most_common(lengths).unwrap_or(0)
}

/// A name is a leaf or a dictionary of leaves, not both.
fn keep_apart(outline: &mut Outline) {
    for episode in &mut outline.episodes {
        let names: Vec<_> = episode.streams.iter().map(|one| one.name.clone()).collect();
        episode.streams.retain(|stream| {
            let inside = format!("{}/", stream.name);
            let is_apart = !names.iter().any(|name| name.starts_with(&inside));
            if !is_apart {
                let what = "has the same name as the prefix of other features";
                outline.losses.lose(stream.place(), what);
            }
            is_apart
        });
    }
}

pub(crate) fn write(outline: &Outline, reader: &mut FrameReader<'_>, path: &Path) -> Result<()> {
    let folder = path.join(VERSION);
    fs::create_dir_all(&folder).writing(&folder)?;
    about::write_dataset(path, &outline.attributes)?;
    let leaves = leaves::all(outline);
    let metadata = leaves::metadata(outline)?;
    let features = leaves::to_json(&leaves, &metadata);
    put_json(&folder.join("features.json"), &features)?;
    let name = name_of(&outline.target);
    let spool = folder.join(".spool");
    let mut body = Body::create(&spool)?;
    let mut splits = Vec::new();
    for (split, episodes) in by_split(outline) {
        let mut files = SplitFiles::new(
            folder.join(format!("{name}-{split}.tfrecord")),
            MAX_SHARD_BYTES,
        );
        for episode in episodes {
            let source = outline.dataset.find(&episode.id)?;
            write_body(&mut body, reader, &leaves, episode, &source)?;
            write_metadata(&mut body, &metadata, episode, &source)?;
            files.add(&mut body, &episode.id)?;
            reader.next_episode()?;
        }
        let (bytes, lengths) = files.finish()?;
        splits.push(json!({
            "name": split,
            "numBytes": bytes.to_string(),
            "shardLengths": lengths,
            "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
        }));
    }
    drop(body);
    fs::remove_file(&spool).writing(&spool)?;
    put_json(
        &folder.join("dataset_info.json"),
        &info(outline, &name, splits),
    )
}

/// The metadata that TFDS needs.
fn info(outline: &Outline, name: &str, splits: Vec<Value>) -> Value {
    let mut info = Map::new();
    info.insert("name".to_owned(), json!(name));
    info.insert("version".to_owned(), json!(VERSION));
    info.insert("fileFormat".to_owned(), json!("tfrecord"));
    if let Some(Value::String(text)) = outline.attributes.get("description") {
        info.insert("description".to_owned(), json!(text));
    }
    let mut licences = outline.episodes.iter().map(|one| one.licence.as_ref());
    if let Some(Some(licence)) = licences.next()
        && licences.all(|other| other == Some(licence))
    {
        info.insert("redistributionInfo".to_owned(), json!({"license": licence}));
    }
    info.insert("splits".to_owned(), Value::Array(splits));
    Value::Object(info)
}

/// The name of a dataset, from that of its folder: letters, digits and `_`.
fn name_of(target: &str) -> String {
    let stem = target.split('.').next().unwrap_or_default();
    match word(&stem.to_lowercase()).as_str() {
        "" => "dataset".to_owned(),
        name => name.to_owned(),
    }
}

fn word(text: &str) -> String {
    text.replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "_")
}

/// Which episodes go into the files of which split, in the order of the dataset.
fn by_split(outline: &Outline) -> Vec<(String, Vec<&EpisodeOutline>)> {
    let mut splits: Vec<(String, Vec<&EpisodeOutline>)> = Vec::new();
    for episode in &outline.episodes {
        let named = SPLITS
            .iter()
            .find(|name| episode.splits.iter().any(|one| one == *name));
        let first = episode.splits.first().map(String::as_str);
        let name = word(named.copied().or(first).unwrap_or("train"));
        match splits.iter_mut().find(|(known, _)| *known == name) {
            Some((_, episodes)) => episodes.push(episode),
            None => splits.push((name, vec![episode])),
        }
    }
    splits
}

/// Writes the values of an episode.
fn write_body(
    body: &mut Body,
    reader: &mut FrameReader<'_>,
    leaves: &[Leaf],
    episode: &EpisodeOutline,
    source: &Episode,
) -> Result<()> {
    body.clear()?;
    let steps = steps(episode);
    for leaf in leaves {
        let stream = episode.streams.iter().find(|one| one.name == leaf.name);
        match (stream, leaf.added) {
            (Some(stream), _) => {
                let source = source.stream(&stream.source)?;
                body.stream(leaf, stream, &source, reader)?;
            }
            (None, Some(added)) => add(body, &leaf.step_name(), added, episode, steps)?,
            (None, None) => {}
        }
    }
    Ok(())
}

/// Writes the attributes of an episode.
fn write_metadata(
    body: &mut Body,
    metadata: &BTreeMap<String, Form>,
    episode: &EpisodeOutline,
    source: &Episode,
) -> Result<()> {
    let said = source.read_attributes()?;
    for name in metadata.keys() {
        let name = format!("{METADATA}/{name}");
        match said.get(&name) {
            Some(Value::String(text)) => body.texts(&name, &[text])?,
            Some(Value::Bool(is)) => body.ints(&name, [i64::from(*is)].into_iter())?,
            Some(Value::Number(number)) => match number.as_i64() {
                Some(whole) => body.ints(&name, [whole].into_iter())?,
                None => {
                    let value = number.as_f64().unwrap_or(f64::NAN);
                    #[expect(
                        clippy::cast_possible_truncation,
                        reason = "TFDS stores float64 as float32; our importer reads the exact value from `kinograph`"
                    )]
                    body.floats(&name, [value as f32].into_iter())?;
                }
            },
            _ => {}
        }
    }
    let about = About::read(episode, source, Clocks::All)?;
    body.texts(&format!("{METADATA}/{ID}"), &[&episode.id])?;
    body.texts(ABOUT, &[&about.to_json()])
}

/// The standard features of an RLDS step, if the dataset has no such stream.
fn add(
    body: &mut Body,
    name: &str,
    added: Added,
    episode: &EpisodeOutline,
    steps: usize,
) -> Result<()> {
    let last = |value: f32| (1..=steps).map(move |step| if step == steps { value } else { 0.0 });
    let bits = |at: Option<usize>| (0..steps).map(move |step| i64::from(Some(step) == at));
    let end = steps.checked_sub(1);
    match added {
        Added::First => body.ints(name, bits(Some(0))),
        Added::Last => body.ints(name, bits(end)),
        Added::Terminal => body.ints(name, bits(end.filter(|_| episode.success != Some(false)))),
        Added::Reward => {
            let value = if episode.success == Some(true) {
                1.0
            } else {
                0.0
            };
            body.floats(name, last(value))
        }
        Added::Discount => body.floats(name, (0..steps).map(|_| 1.0)),
        Added::Instruction => {
            let task = episode.task.as_deref().unwrap_or_default();
            body.texts(name, &vec![task; steps])
        }
    }
}

/// File names while the total is not known.
fn numbered(stem: &Path, idx: usize, count: Option<usize>) -> PathBuf {
    let mut name = stem.as_os_str().to_owned();
    name.push(match count {
        None => format!("-{idx:05}"),
        Some(count) => format!("-{idx:05}-of-{count:05}"),
    });
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_is_named_by_its_folder() {
        let names = ["lift", "Lift-3.rlds", "日本", "", ".x"].map(name_of);
        assert_eq!(names, ["lift", "lift_3", "__", "dataset", "dataset"]);
    }
}
