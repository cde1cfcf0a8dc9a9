//! Splits and attributes of demos, in a tar of one npz per demo.
//!
//! ```text
//! mask.npz     train = ["demo_0", "demo_2"], valid = ["demo_1"]      ids, numbers, or a bool per demo
//! attrs.json   {"demo_0": {"num_samples": 36}, …}
//! ```

use std::collections::HashMap;
use std::path::PathBuf;

use kino_dataset::ending_number;
use serde_json::{Map, Value};

use crate::defect::Defect;
use crate::files;
use crate::source::EpisodeSpec;
use crate::webdataset::cell::{self, Cell, Place, Reader};
use crate::webdataset::names::Ending;
use crate::webdataset::samples::Samples;
use crate::webdataset::spec::Fields;

/// The sample with the splits, named like robomimic's group.
const MASK: &str = "mask";

/// The attribute with those of every demo.
const ATTRS: &str = "attrs";

/// Limit on a list of episodes.
const MAX_MASK_BYTES: usize = 4 << 20;

/// Names of splits, each with its episodes: ids, numbers, or a bool per episode.
#[derive(Debug, Default)]
pub(crate) struct Masks {
    splits: Vec<(String, Vec<Value>)>,
    /// The file that they are in.
    file: String,
}

/// Removes the sample `mask.npz` from the episodes.
pub(crate) fn take(samples: &mut Samples) -> Masks {
    let is_npz = |fields: &Fields| fields.keys().eq(["npz"]);
    let has_mask = samples.fields.get(MASK).is_some_and(is_npz);
    // A tar whose only sample has this name contains a demo.
    let place = (has_mask && samples.fields.len() > 1)
        .then(|| samples.fields.remove(MASK))
        .flatten();
    let Some(place) = place.and_then(|fields| fields.into_values().next()) else {
        return Masks::default();
    };
    let name = files::file_name(&samples.paths[place.file]);
    let mut masks = Masks {
        splits: Vec::new(),
        file: format!("{name}:{MASK}.npz"),
    };
    match read(&samples.paths, place) {
        Ok(splits) => masks.splits = splits,
        Err(what) => {
            samples.defects.push(Defect::lost(&masks.file, what));
        }
    }
    masks
}

fn read(paths: &[PathBuf], place: Place) -> Result<Vec<(String, Vec<Value>)>, String> {
    let bytes = Reader::default().read(paths, place);
    let bytes = bytes.map_err(|error| format!("cannot be read: {error}"))?;
    let mut splits = Vec::new();
    for name in cell::array_names(&bytes)? {
        let array = match cell::decode(Ending::Npz, &bytes, Some(&name))? {
            Cell::Array(npy) if npy.len() > MAX_MASK_BYTES => {
                return Err(format!("`{name}` is too large for a list of episodes"));
            }
            Cell::Array(npy) => cell::to_json(&npy),
            Cell::Text(_) | Cell::Image(_) => continue,
        };
        let members = match array {
            Value::Array(members) => members,
            one => vec![one],
        };
        splits.push((name, members));
    }
    Ok(splits)
}

impl Masks {
    /// Assigns the episodes to their splits; names that are not episodes are recorded.
    pub(crate) fn apply(self, episodes: &mut [EpisodeSpec], defects: &mut Vec<Defect>) {
        let places = places(episodes);
        for (split, members) in self.splits {
            let mut missing = Vec::new();
            for (position, member) in members.iter().enumerate() {
                let place = match member {
                    Value::Bool(false) => continue,
                    Value::Bool(true) => Some(position),
                    Value::String(id) => places.get(id.trim()).copied(),
                    member => places.get(&member.to_string()).copied(),
                };
                match place.and_then(|place| episodes.get_mut(place)) {
                    Some(episode) => episode.splits.push(split.clone()),
                    None => missing.push(member.to_string()),
                }
            }
            if let Some(first) = missing.first() {
                let what = format!(
                    "lists {} episodes that are not in the file, e.g. {first}",
                    missing.len()
                );
                let place = format!("{}:{split}", self.file);
                defects.push(Defect::lost(place, what));
            }
        }
    }
}

/// The position of each episode by its id, and by the number that its id ends in.
fn places(episodes: &[EpisodeSpec]) -> HashMap<String, usize> {
    let mut places = HashMap::new();
    for (place, episode) in episodes.iter().enumerate() {
        let id = &episode.id;
        if let Some(number) = ending_number(id) {
            places.entry(number.to_string()).or_insert(place);
        }
        places.insert(id.clone(), place);
    }
    places
}

/// Gives every episode its attributes from `attrs.json`. If it is not about episodes, it stays an attribute.
pub(crate) fn give_attributes(attributes: &mut Map<String, Value>, episodes: &mut [EpisodeSpec]) {
    let Some(Value::Object(of_all)) = attributes.get_mut(ATTRS) else {
        return;
    };
    for episode in episodes {
        if let Some(Value::Object(own)) = of_all.get(&episode.id) {
            episode.attributes.extend(own.clone());
            of_all.remove(&episode.id);
        }
    }
    if of_all.is_empty() {
        attributes.remove(ATTRS);
    }
}
