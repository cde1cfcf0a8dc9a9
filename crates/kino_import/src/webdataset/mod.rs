//! Tars of samples: WebDataset shards with one sample per step or per episode, and tars of one npz per demo.
//!
//! ```text
//! steps-000000.tar ─tar.rs─▶ members ─samples.rs─▶ samples ─spec.rs─▶ episodes of streams ─frames.rs, cell.rs─▶ frames
//! steps-000001.tar            where      by names.rs      steps or episodes?
//! ```
//!
//! A shard may end inside an episode, so an episode may span several files. Nothing is extracted. Opening reads every
//! array of a sample that is an episode, because its length is in it; of other streams it reads the first frame.

mod cell;
pub(crate) mod export;
mod frames;
mod masks;
mod names;
mod samples;
mod spec;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::about;
use crate::defect::{Action, Defect};
use crate::error::Result;
use crate::files;
use crate::formats::{files_at, files_ending};
use crate::npy::Npy;
use crate::open::ImportOptions;
use crate::recent::Recent;
use crate::source::{EpisodeSpec, Source, SourceInfo};
use crate::specs::{self, RATES};
use frames::Tars;
use masks::Masks;
use samples::Samples;
use spec::{Draft, Fields};

const ENDINGS: &[&str] = &["tar", "robo"];

/// The field that an export wrote: everything else about the episode.
const ABOUT: &str = "kinograph.json";

/// Whether this is a tar or a folder of them.
pub(crate) fn recognise(path: &Path) -> bool {
    let name = files::file_name(path);
    let is_named = ENDINGS
        .iter()
        .any(|ending| name.ends_with(&format!(".{ending}")));
    let is_packed = name.contains(".tar.") || name.ends_with(".tgz");
    path.is_file() && (is_named || is_packed) || !files_ending(path, ENDINGS).is_empty()
}

/// Lists the files and builds their specs.
pub(crate) fn open(path: &Path, options: &ImportOptions) -> Result<Source> {
    let mut samples = Samples::default();
    for file in files_at(path, ENDINGS) {
        samples.add(&file)?;
    }
    let is_steps = samples.are_steps();
    let (mut attributes, masks) = if is_steps {
        (Map::new(), Masks::default())
    } else {
        (samples.take_attributes(path)?, masks::take(&mut samples))
    };
    let said = about::read_dataset(path, options, &mut samples.defects)?;
    attributes.extend(said.unwrap_or_default());
    let is_npz = |fields: &Fields| fields.keys().eq(["npz"]);
    let format = if is_steps {
        "webdataset-steps"
    } else if samples.fields.values().all(is_npz) {
        "npz-tar"
    } else {
        "webdataset-episodes"
    };
    let mut walk = Walk {
        tars: Arc::new(Tars {
            paths: samples.paths,
            recent: Recent::by_bytes(Npy::len),
        }),
        episodes: Vec::new(),
        defects: samples.defects,
    };
    if is_steps {
        walk.add_steps(samples.keys, samples.fields);
    } else {
        walk.add_episodes(&samples.keys, &samples.fields);
    }
    masks.apply(&mut walk.episodes, &mut walk.defects);
    masks::give_attributes(&mut attributes, &mut walk.episodes);
    let info = SourceInfo {
        format,
        files: samples.files,
        attributes,
        defects: walk.defects,
    };
    let mut source = Source::new(info, walk.episodes);
    if source.episodes.is_empty() {
        let next = "name samples `<episode>_<step>.<field>`, one per step, or `<episode>.<field>`, one per episode";
        return Err(specs::nothing_left(path, &source.info.defects, next));
    }
    set_rates(&mut source, path, options)?;
    Ok(source)
}

/// Sets every stream's clock: the user's rate, or that of a JSON file.
fn set_rates(source: &mut Source, path: &Path, options: &ImportOptions) -> Result<()> {
    let rate =
        |attributes: &Map<String, Value>| attributes.values().find_map(|value| rate_in(value, 0));
    let of_all = rate(&source.info.attributes);
    specs::set_rates(
        &mut source.episodes,
        options.rate_hz,
        |episode| rate(&episode.attributes).or(of_all),
        || {
            format!(
                "{}: samples have neither timestamps nor a rate, and no JSON file of an episode has `rate_hz` or `fps`; \
                 pass --rate HZ (in Python rate_hz=)",
                path.display()
            )
        },
    )
}

/// A rate anywhere in a JSON value.
fn rate_in(value: &Value, depth: usize) -> Option<f64> {
    let object = value.as_object().filter(|_| depth < 4)?;
    let here = RATES.iter().find_map(|name| object.get(*name)?.as_f64());
    here.filter(specs::is_rate)
        .or_else(|| object.values().find_map(|value| rate_in(value, depth + 1)))
}

struct Walk {
    tars: Arc<Tars>,
    episodes: Vec<EpisodeSpec>,
    defects: Vec<Defect>,
}

impl Walk {
    fn add_steps(&mut self, keys: Vec<String>, mut fields: BTreeMap<String, Fields>) {
        let mut order = Vec::new();
        let mut episodes: BTreeMap<String, BTreeMap<u64, Fields>> = BTreeMap::new();
        for key in keys {
            let (Some((episode, step)), Some(found)) = (names::step(&key), fields.remove(&key))
            else {
                continue;
            };
            let steps = episodes.entry(episode.to_owned()).or_insert_with(|| {
                order.push(episode.to_owned());
                BTreeMap::new()
            });
            if steps.insert(step, found).is_some() {
                let what = format!("has two samples for step {step}; the last one is used");
                self.defects.push(Defect::lost(&key, what).of(episode));
            }
        }
        for id in order {
            let steps = episodes.remove(&id).unwrap_or_default();
            let numbers: Vec<_> = steps.keys().copied().collect();
            if let Some(pair) = numbers.windows(2).find(|pair| pair[1] - pair[0] != 1) {
                let what = format!("has step {} and then step {}", pair[0], pair[1]);
                self.defects.push(Defect::kept(&id, what).of(&id));
            }
            let steps: Vec<_> = steps.into_values().collect();
            let mut places = steps.iter().flat_map(BTreeMap::values);
            let file = places.next().map(|place| place.file);
            self.keep(id, file, spec::steps(&self.tars, &steps));
        }
    }

    fn add_episodes(&mut self, keys: &[String], fields: &BTreeMap<String, Fields>) {
        for key in keys {
            let Some(fields) = fields.get(key) else {
                continue;
            };
            let file = fields.values().next().map(|place| place.file);
            self.keep(key.clone(), file, spec::episode(&self.tars, fields));
        }
    }

    fn keep(&mut self, id: String, file: Option<usize>, draft: Result<Draft, String>) {
        let file = file.unwrap_or(0);
        let place = format!("{}:{id}", files::file_name(&self.tars.paths[file]));
        let draft = match draft {
            Ok(draft) => draft,
            Err(what) => {
                self.defects.push(Defect::lost(place, what).of(&id));
                return;
            }
        };
        for (found, action) in [(draft.lost, Action::Skipped), (draft.noted, Action::Noted)] {
            let defect =
                |(field, what)| Defect::new(format!("{place}.{field}"), what, action).of(&id);
            self.defects.extend(found.into_iter().map(defect));
        }
        let attributes = &draft.episode.attributes;
        let mut episode = EpisodeSpec {
            object: id.clone(),
            id,
            success: attributes.get("success").and_then(Value::as_bool),
            file,
            ..draft.episode
        };
        episode.sort_streams();
        if let Some(about) = draft.about {
            about.restore(&mut episode, &format!("{place}.{ABOUT}"), &mut self.defects);
        }
        self.episodes.push(episode);
    }
}
