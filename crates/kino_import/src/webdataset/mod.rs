//! Tars of samples: WebDataset shards with one sample per step or per episode, and tars of one npz per demo.
//!
//! ```text
//! steps-000000.tar ─tar.rs─▶ members ─samples.rs─▶ samples ─spec.rs─▶ episodes of streams ─cell.rs─▶ frames
//! steps-000001.tar            where      by names.rs      steps or episodes?
//! ```
//!
//! A shard may end inside an episode, so an episode may span several files. Nothing is extracted. Opening reads every
//! array of a sample that is an episode, because its length is in it; of other streams it reads the first frame.

mod cell;
pub(crate) mod export;
mod masks;
mod names;
mod samples;
mod spec;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde_json::{Map, Value};

use crate::about;
use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result, invalid};
use crate::files;
use crate::formats::files_ending;
use crate::image;
use crate::npy::Npy;
use crate::open::ImportOptions;
use crate::recent::Recent;
use crate::source::{EpisodeSpec, FrameBuf, Source, SourceInfo};
use crate::specs::{self, RATES, places};
use cell::{Cell, Place, Reader};
use masks::Masks;
use samples::Samples;
use spec::{Draft, Fields, Part};

/// The file extensions.
const ENDINGS: &[&str] = &["tar", "robo"];

/// The field that an export wrote: everything else about the episode.
const ABOUT: &str = "kinograph.json";

/// Episodes of tars.
#[derive(Debug)]
pub(crate) struct TarSource {
    info: SourceInfo,
    episodes: Vec<EpisodeSpec>,
    /// For each episode, the source of each stream.
    parts: Vec<Vec<Part>>,
    /// Arrays with a time axis, by episode and stream.
    recent: Recent<(usize, usize), Npy>,
}

/// Whether this is a tar or a folder of them.
pub(crate) fn recognise(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_named = ENDINGS
        .iter()
        .any(|ending| name.ends_with(&format!(".{ending}")));
    let is_packed = name.contains(".tar.") || name.ends_with(".tgz");
    path.is_file() && (is_named || is_packed) || !files_ending(path, ENDINGS).is_empty()
}

impl TarSource {
    /// Lists the files and builds their specs.
    pub(crate) fn open(path: &Path, options: &ImportOptions) -> Result<Self> {
        let files = match path.is_dir() {
            true => files_ending(path, ENDINGS),
            false => vec![path.to_owned()],
        };
        let mut samples = Samples::default();
        for file in &files {
            samples.add(file)?;
        }
        let is_steps = samples.are_steps();
        let mut attributes = match is_steps {
            true => Map::new(),
            false => samples.take_attributes(path)?,
        };
        let masks = match is_steps {
            true => Masks::default(),
            false => masks::take(&mut samples),
        };
        let (said, fault) = about::read_dataset(path, options)?;
        attributes.extend(said.unwrap_or_default());
        samples.defects.extend(fault);
        let is_npz = samples
            .fields
            .values()
            .all(|fields| fields.keys().eq(["npz"]));
        let mut source = Self {
            info: SourceInfo {
                format: match (is_steps, is_npz) {
                    (true, _) => "webdataset-steps",
                    (false, true) => "npz-tar",
                    (false, false) => "webdataset-episodes",
                },
                files: samples.files,
                attributes,
                defects: samples.defects,
            },
            episodes: Vec::new(),
            parts: Vec::new(),
            recent: Recent::by_bytes(Npy::len),
        };
        match is_steps {
            true => source.add_steps(samples.keys, samples.fields),
            false => source.add_episodes(&samples.keys, &samples.fields),
        }
        masks.apply(&mut source.episodes, &mut source.info.defects);
        masks::give_attributes(&mut source.info.attributes, &mut source.episodes);
        if source.episodes.is_empty() {
            let next = "name samples `<episode>_<step>.<field>`, one per step, or `<episode>.<field>`, one per episode";
            return Err(specs::nothing_left(path, &source.info.defects, next));
        }
        source.set_rates(path, options)?;
        Ok(source)
    }

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
                self.info
                    .defects
                    .push(Defect::new(&key, what, Action::Skipped).of(episode));
            }
        }
        for id in order {
            let steps = episodes.remove(&id).unwrap_or_default();
            let numbers: Vec<_> = steps.keys().copied().collect();
            if let Some(pair) = numbers.windows(2).find(|pair| pair[1] - pair[0] != 1) {
                let what = format!("has step {} and then step {}", pair[0], pair[1]);
                self.info
                    .defects
                    .push(Defect::new(&id, what, Action::Kept).of(&id));
            }
            let steps: Vec<_> = steps.into_values().collect();
            let file = steps
                .iter()
                .flat_map(BTreeMap::values)
                .next()
                .map(|place| place.file);
            let draft = spec::steps(&self.info.files, &steps);
            self.keep(id, file.unwrap_or(0), draft);
        }
    }

    fn add_episodes(&mut self, keys: &[String], fields: &BTreeMap<String, Fields>) {
        for key in keys {
            let Some(fields) = fields.get(key) else {
                continue;
            };
            let file = fields.values().next().map(|place| place.file);
            let draft = spec::episode(&self.info.files, fields);
            self.keep(key.clone(), file.unwrap_or(0), draft);
        }
    }

    fn keep(&mut self, id: String, file: usize, draft: Result<Draft, String>) {
        let name = self.info.files[file].path().file_name().unwrap_or_default();
        let place = format!("{}:{id}", name.to_string_lossy());
        let mut draft = match draft {
            Ok(draft) => draft,
            Err(what) => {
                self.info
                    .defects
                    .push(Defect::new(place, what, Action::Skipped).of(&id));
                return;
            }
        };
        draft.sort();
        for (found, action) in [(draft.lost, Action::Skipped), (draft.noted, Action::Noted)] {
            let defects = found
                .into_iter()
                .map(|(field, what)| Defect::new(format!("{place}.{field}"), what, action).of(&id));
            self.info.defects.extend(defects);
        }
        let mut episode = EpisodeSpec {
            object: id.clone(),
            id,
            splits: Vec::new(),
            success: draft.attributes.get("success").and_then(Value::as_bool),
            attributes: draft.attributes,
            task: draft.task,
            licence: None,
            file,
            streams: draft.streams,
        };
        if let Some(about) = draft.about {
            let faults = about.apply(&mut episode, &mut draft.parts).into_iter();
            let place = format!("{place}.{ABOUT}");
            let faults = faults.map(|what| Defect::new(&place, what, Action::Skipped));
            let id = &episode.id;
            self.info.defects.extend(faults.map(|fault| fault.of(id)));
        }
        self.episodes.push(episode);
        self.parts.push(draft.parts);
    }

    /// Sets every stream's clock: the user's rate, or that of a JSON file.
    fn set_rates(&mut self, path: &Path, options: &ImportOptions) -> Result<()> {
        let of_all = self
            .info
            .attributes
            .values()
            .find_map(|value| rate_in(value, 0));
        for episode in &mut self.episodes {
            if options.rate_hz.is_none() && specs::has_clocks(episode) {
                continue;
            }
            let said = || {
                episode
                    .attributes
                    .values()
                    .find_map(|value| rate_in(value, 0))
            };
            let Some(rate_hz) = options.rate_hz.or_else(said).or(of_all) else {
                return Err(invalid(format!(
                    "{}: samples have neither timestamps nor a rate, and no JSON file of an episode has `rate_hz` or `fps`; \
                     pass --rate HZ (in Python rate_hz=)",
                    path.display()
                )));
            };
            specs::set_rate(episode, rate_hz);
        }
        Ok(())
    }
}

/// A rate anywhere in a JSON value.
fn rate_in(value: &Value, depth: usize) -> Option<f64> {
    let object = value.as_object().filter(|_| depth < 4)?;
    let here = RATES.iter().find_map(|name| object.get(*name)?.as_f64());
    here.filter(specs::is_rate)
        .or_else(|| object.values().find_map(|value| rate_in(value, depth + 1)))
}

impl Source for TarSource {
    fn describe(&self) -> &SourceInfo {
        &self.info
    }

    fn episodes(&self) -> &[EpisodeSpec] {
        &self.episodes
    }

    fn read(
        &self,
        episode: usize,
        stream: usize,
        frames: Range<u64>,
        out: &mut FrameBuf,
    ) -> Result<()> {
        let spec = specs::find(&self.episodes, (episode, stream), &frames)?;
        let id = &self.episodes[episode].id;
        let path = self.info.files[self.episodes[episode].file].path();
        let object = format!("{id}, stream `{}`", spec.name);
        let wrong = |what: String| ImportError::corrupt(path, &object, what);
        let part = &self.parts[episode][stream];
        let mut reader = Reader::default();
        let mut read = |place: Place| {
            let bytes = reader.read(&self.info.files, place);
            bytes.map_err(|source| files::cannot_read(self.info.files[place.file].path(), source))
        };
        if part.is_over_time {
            let npy = self.recent.get((episode, stream), || {
                let place = part.places[0];
                match cell::decode(place.ending, &read(place)?, part.array.as_deref())
                    .map_err(wrong)?
                {
                    Cell::Array(npy) => Ok(npy),
                    Cell::Text(list) => cell::texts(&list).map_err(wrong),
                    _ => Err(wrong("has changed since it was opened".to_owned())),
                }
            })?;
            *out = cell::rows(&npy, places(&frames)).map_err(wrong)?;
            return Ok(());
        }
        let wanted = part.places.get(places(&frames)).unwrap_or_default();
        if let Some(encoded) = &part.encoded {
            let files: Vec<_> = wanted
                .iter()
                .map(|place| read(*place))
                .collect::<Result<_>>()?;
            let files = files.iter().map(Vec::as_slice);
            *out = image::read(files, encoded, frames.start).map_err(wrong)?;
            return Ok(());
        }
        *out = match spec.frame.as_values() {
            Some(_) => FrameBuf::Values(Vec::new()),
            None => FrameBuf::Bytes(Vec::new()),
        };
        for (place, frame) in wanted.iter().zip(frames.start..) {
            let cell = cell::decode(place.ending, &read(*place)?, part.array.as_deref());
            cell.and_then(|cell| cell::push(cell, &spec.frame, out))
                .map_err(|what| wrong(format!("frame {frame} {what}")))?;
        }
        Ok(())
    }
}
