//! Where episodes end in the video files of v3.0, by `to_timestamp`.
//!
//! `from_timestamp` and the length of an episode say which frames are its own, and LeRobot reads nothing else. Some
//! datasets have the time of the last frame in `to_timestamp`, not the end of it. That is noted, once for each camera:
//! such a dataset is wrong about every episode.

use std::collections::BTreeMap;

use crate::defect::Defect;

/// The episodes whose end disagrees with their length, by camera.
#[derive(Debug, Default)]
pub(super) struct Ends(BTreeMap<String, Wrong>);

#[derive(Debug)]
struct Wrong {
    count: u64,
    first: String,
}

/// The end of an episode in a file.
pub(super) struct End {
    pub(super) episode: u64,
    /// How many frames the episode has.
    pub(super) frames: u64,
    /// How many there are up to `to_timestamp`.
    pub(super) said: u64,
}

impl Ends {
    /// Compares the end of an episode with its length.
    pub(super) fn check(&mut self, key: &str, end: &End) {
        if end.said == end.frames {
            return;
        }
        let wrong = self.0.entry(key.to_owned()).or_insert_with(|| Wrong {
            count: 0,
            first: format!(
                "ends episode {} after {} frames, but its length is {}, which is used",
                end.episode, end.said, end.frames
            ),
        });
        wrong.count += 1;
    }

    /// A note for each camera.
    pub(super) fn notes(&self) -> impl Iterator<Item = Defect> {
        self.0.iter().map(|(key, Wrong { count, first })| {
            let place = format!("meta/episodes:videos/{key}/to_timestamp");
            let what = match count {
                1 => first.clone(),
                count => format!("{first} (and {} more episodes disagree)", count - 1),
            };
            Defect::noted(place, what)
        })
    }
}
