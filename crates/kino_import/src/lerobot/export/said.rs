//! The attributes of an episode: keys of its line in `episodes.jsonl`, columns of its row in `meta/episodes`.

use serde_json::{Map, Value};

use crate::error::Result;
use crate::export::{EpisodeOutline, Outline};

/// Names that LeRobot fills itself.
const OWN: [&str; 4] = ["episode_index", "tasks", "length", "stats"];

/// Everything about an episode except its tasks and its length.
pub(super) struct Said {
    pub(super) members: Map<String, Value>,
    /// Its tasks as listed in the original LeRobot recording.
    pub(super) tasks: Option<Vec<String>>,
}

impl Said {
    /// Reads the attributes of an episode and adds the columns of the episode table.
    pub(super) fn read(outline: &Outline, episode: &EpisodeOutline) -> Result<Self> {
        let mut members = outline.dataset.find(&episode.id)?.read_attributes()?;
        let tasks = members.get("tasks").cloned();
        members.retain(|name, _| refuse(name).is_none());
        if let Some(Value::Object(of_streams)) = members.get_mut("stream_attributes") {
            for stream in &episode.streams {
                if stream.name != stream.source
                    && let Some(said) = of_streams.remove(&stream.source)
                {
                    of_streams.insert(stream.name.clone(), said);
                }
            }
        }
        let mut add = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                members.insert(name.to_owned(), value);
            }
        };
        add("success", episode.success.map(Value::from));
        add("licence", episode.licence.clone().map(Value::from));
        let id = (episode.id != episode.name).then(|| Value::from(episode.id.as_str()));
        add("id", id);
        Ok(Self {
            members,
            tasks: tasks.and_then(|tasks| serde_json::from_value(tasks).ok()),
        })
    }
}

/// Records the attributes that cannot be stored.
pub(super) fn check(outline: &mut Outline) -> Result<()> {
    // LeRobot's own are written again.
    let is_lerobot = outline.attributes.contains_key("lerobot");
    for episode in &outline.episodes {
        let said = outline.dataset.find(&episode.id)?.read_attributes()?;
        for name in said.keys() {
            if let Some(what) = refuse(name)
                && !(is_lerobot && OWN.contains(&name.as_str()))
            {
                let place = format!("attribute `{name}` of an episode");
                outline.losses.lose(place, what);
            }
        }
    }
    Ok(())
}

/// Why an attribute of an episode cannot be stored.
fn refuse(name: &str) -> Option<&'static str> {
    match name {
        name if OWN.contains(&name) => Some("has a name that LeRobot fills itself"),
        name if name.contains('/') || name.starts_with("dataset_") => {
            Some("has a name that LeRobot reserves for file locations")
        }
        _ => None,
    }
}
