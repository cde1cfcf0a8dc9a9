//! Complete episodes: those with frames of every requested stream, and what a dataset or a recording has beside them.
//!
//! ```text
//! requested: front, joints      demo_0  front 50, joints 50, text 3     complete: can be loaded
//!                               demo_1  joints 50                       stored, but not loaded
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::dataset::Dataset;
use crate::error::{DatasetError, Result, invalid};
use crate::part::Part;
use crate::repack::wanted_rows;

/// How many episodes there are, and how many frames of every stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EpisodeCounts {
    /// All episodes.
    pub episodes: u64,
    /// Episodes without frames of a requested stream.
    pub incomplete: u64,
    /// Requested streams that some episodes lack, and how many do.
    pub lacking: BTreeMap<String, u64>,
    /// The frames of every stream.
    pub frames: BTreeMap<String, u64>,
    /// The frames of every stream in complete episodes.
    pub complete_frames: BTreeMap<String, u64>,
}

impl EpisodeCounts {
    /// Of episodes with all streams.
    fn of_complete(episodes: u64, frames: BTreeMap<String, u64>) -> Self {
        Self {
            episodes,
            complete_frames: frames.clone(),
            frames,
            ..Self::default()
        }
    }

    /// Counts `episodes`, each with its streams and how many frames they have; also says which of them are complete.
    ///
    /// Every stream is requested if `requested` is empty. A stream that no episode has makes none of them incomplete.
    pub fn count<'s>(episodes: &[Vec<(&'s str, u64)>], requested: &[String]) -> (Self, Vec<bool>) {
        let all = episodes.iter().flatten().map(|(name, _)| *name);
        let all: BTreeSet<&'s str> = all.collect();
        let is_requested =
            |name: &str| requested.is_empty() || requested.iter().any(|one| one == name);
        let requested: Vec<&str> = all.into_iter().filter(|name| is_requested(name)).collect();
        let mut counts = Self::default();
        let mut complete = Vec::with_capacity(episodes.len());
        for streams in episodes {
            let has = |name: &str| {
                streams
                    .iter()
                    .any(|(one, frames)| *one == name && *frames > 0)
            };
            let lacking = requested.iter().filter(|name| !has(name));
            let mut is_complete = true;
            for name in lacking {
                *counts.lacking.entry((*name).to_owned()).or_default() += 1;
                is_complete = false;
            }
            counts.episodes += 1;
            counts.incomplete += u64::from(!is_complete);
            complete.push(is_complete);
            for (name, frames) in streams {
                *counts.frames.entry((*name).to_owned()).or_default() += frames;
                let loaded = counts
                    .complete_frames
                    .entry((*name).to_owned())
                    .or_default();
                *loaded += if is_complete { *frames } else { 0 };
            }
        }
        (counts, complete)
    }

    /// Refuses what has no complete episode; `place` is what was counted, for the message.
    pub fn check(&self, place: &str) -> Result<()> {
        if self.episodes == 0 || self.incomplete < self.episodes {
            return Ok(());
        }
        Err(self.none_complete(place))
    }

    fn none_complete(&self, place: &str) -> DatasetError {
        let lacking = self.lacking.iter();
        let lacking: Vec<String> = lacking
            .map(|(name, episodes)| format!("{episodes} of {} lack `{name}`", self.episodes))
            .collect();
        invalid(format!(
            "{place}: no episode has all requested streams ({}); request other streams with --window (in Python \
             windows=), or leave some out with --exclude",
            lacking.join(", ")
        ))
    }
}

/// The filter that selects the episodes with frames of a stream: `has("front")`.
pub fn has_filter(stream: &str) -> String {
    let escaped = stream.replace('\\', "\\\\").replace('"', "\\\"");
    format!("has(\"{escaped}\")")
}

/// The rows of the complete episodes of a part of a dataset, and what the part holds. An item of the part that matches
/// nothing is an error, and so is a part without a complete episode.
///
/// Requested are the streams named, or those of the part; variants are only counted. The index of every episode is read,
/// unless the manifest says that all of them have the streams.
pub fn complete_episodes(
    dataset: &Dataset,
    part: &Part,
    requested: &[String],
) -> Result<(Vec<usize>, EpisodeCounts)> {
    let rows = wanted_rows(dataset, part)?;
    let summaries = &dataset.manifest().streams;
    let taken = summaries.iter().filter(|one| part.takes_stream(&one.name));
    let requested: Vec<String> = match requested {
        [] => taken
            .clone()
            .filter(|one| one.variant_of.is_none())
            .map(|one| one.name.clone())
            .collect(),
        named => named.to_vec(),
    };
    if let Some(left_out) = requested.iter().find(|name| !part.takes_stream(name)) {
        return Err(invalid(format!(
            "stream `{left_out}` is requested, but --streams or --exclude leaves it out"
        )));
    }
    let mut asked = summaries.iter().filter(|one| requested.contains(&one.name));
    if rows.len() == dataset.len() && asked.all(|one| one.episodes == rows.len() as u64) {
        let frames = taken.map(|one| (one.name.clone(), one.frames)).collect();
        return Ok((
            rows,
            EpisodeCounts::of_complete(dataset.len() as u64, frames),
        ));
    }
    let episodes = dataset.episodes(&rows).into_iter();
    let episodes: Vec<_> = episodes.collect::<Result<_>>()?;
    let streams = episodes.iter().map(|episode| {
        let index = episode.index();
        let frames = episode.streams().enumerate();
        let frames = frames.map(|(at, stream)| (&*stream.name, u64::from(index.stream(at).frames)));
        frames
            .filter(|(name, _)| part.takes_stream(name))
            .collect::<Vec<_>>()
    });
    let (counts, complete) = EpisodeCounts::count(&streams.collect::<Vec<_>>(), &requested);
    counts.check(&dataset.path().display().to_string())?;
    let complete = rows.into_iter().zip(complete);
    let complete = complete.filter(|(_, is_complete)| *is_complete);
    Ok((complete.map(|(row, _)| row).collect(), counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(names: &[(&str, u64)]) -> BTreeMap<String, u64> {
        let names = names.iter();
        names
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    }

    #[test]
    fn an_episode_is_complete_if_it_has_frames_of_every_requested_stream() {
        let episodes = [
            vec![("front", 50), ("joints", 50)],
            vec![("joints", 40)],
            vec![("front", 0), ("joints", 30), ("text", 3)],
        ];
        let requested = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>()
        };
        let (found, complete) = EpisodeCounts::count(&episodes, &requested(&["front", "joints"]));
        assert_eq!(complete, [true, false, false]);
        assert_eq!((found.episodes, found.incomplete), (3, 2));
        assert_eq!(found.lacking, counts(&[("front", 2)]));
        assert_eq!(
            found.frames,
            counts(&[("front", 50), ("joints", 120), ("text", 3)])
        );
        assert_eq!(
            found.complete_frames,
            counts(&[("front", 50), ("joints", 50), ("text", 0)])
        );
        assert!(found.check("demos.hdf5").is_ok());
        // A stream that is nowhere is an error of the request, which is checked elsewhere.
        let (_, complete) = EpisodeCounts::count(&episodes, &requested(&["joints", "jonits"]));
        assert_eq!(complete, [true, true, true]);
    }

    #[test]
    fn where_no_episode_is_complete_the_error_counts_what_they_lack() {
        let episodes = [vec![("front", 5)], vec![("joints", 5)]];
        let (found, _) = EpisodeCounts::count(&episodes, &[]);
        let error = found.check("demos.hdf5").unwrap_err().to_string();
        assert!(error.starts_with("demos.hdf5: no episode has all requested streams (1 of 2 lack `front`, 1 of 2 lack `joints`)"), "{error}");
        assert!(EpisodeCounts::default().check("empty").is_ok());
    }
}
