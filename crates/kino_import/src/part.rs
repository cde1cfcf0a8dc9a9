//! Part of a source: some of its streams, some of its episodes.
//!
//! ```text
//! --streams "obs/*" --exclude "obs/*_image" --episodes 0-9,17,demo_40
//!    │ source.episodes()                              │
//!    ▼                                                ▼
//! [restrict]  the same source with fewer streams  and fewer episodes
//! ```
//!
//! An importer that opens one file per stream or episode (LeRobot's videos) consults [`Part`] itself and never opens
//! what is excluded; for all others [`restrict`] removes it.

use std::collections::{BTreeSet, HashMap, HashSet};

use kino_dataset::{Part, ending_number, matches_pattern, suggest};

use crate::defect::Defect;
use crate::error::{Result, invalid};
use crate::source::Source;

/// What an importer did not open because it was excluded.
#[derive(Debug, Default)]
pub(crate) struct NotOpened {
    pub(crate) streams: BTreeSet<String>,
    pub(crate) episodes: BTreeSet<String>,
}

/// Restricts a source to some streams and episodes. A pattern or an id that matches nothing is an error.
pub(crate) fn restrict(source: &mut Source, part: &Part) -> Result<()> {
    // Without episodes no stream is known.
    let is_wanted = wanted_episodes(source, part)?;
    check_streams(source, part)?;
    let (files, is_other) = keep_wanted(source, &is_wanted);
    for episode in &mut source.episodes {
        let streams = episode.streams.iter().enumerate();
        let kept = streams.filter(|(_, stream)| part.takes_stream(&stream.name));
        let kept: Vec<_> = kept.map(|(idx, _)| idx).collect();
        episode.keep_streams(&kept);
    }
    if source.episodes.iter().all(|one| one.streams.is_empty()) {
        return Err(invalid(
            "no stream is left in any episode; check `--streams`, `--exclude` and `--episodes`",
        ));
    }
    let info = &mut source.info;
    info.defects.retain(|defect| {
        let is_other = |id: &String| match is_other.get(id) {
            Some(is_other) => *is_other,
            None => !part.takes_episode(ending_number(id).unwrap_or(u64::MAX), id),
        };
        !defect.episode.as_ref().is_some_and(is_other) && !is_of_excluded(&defect.place, part)
    });
    for episode in source.episodes.iter().filter(|one| one.streams.is_empty()) {
        let what = "has none of the requested streams and is skipped";
        info.defects
            .push(Defect::noted(info.place(episode, ""), what).of(&episode.id));
    }
    source.episodes.retain(|one| !one.streams.is_empty());
    leave_out_files(source, &files);
    Ok(())
}

/// Keeps only the episodes of these positions, and what concerns them.
pub(crate) fn keep_episodes(source: &mut Source, is_wanted: &[bool]) {
    let (files, is_other) = keep_wanted(source, is_wanted);
    let of_other = |id: &String| is_other.get(id).copied().unwrap_or(false);
    let defects = &mut source.info.defects;
    defects.retain(|defect| !defect.episode.as_ref().is_some_and(of_other));
    leave_out_files(source, &files);
    source.is_part = true;
}

/// Keeps the wanted episodes. Returns the files that any episode was in, and which ids belong to the others.
fn keep_wanted(source: &mut Source, is_wanted: &[bool]) -> (HashSet<usize>, HashMap<String, bool>) {
    let mut is_other = HashMap::new();
    for (episode, is_wanted) in source.episodes.iter().zip(is_wanted) {
        is_other.entry(episode.id.clone()).or_insert(!is_wanted);
    }
    let files = source.episodes.iter().map(|one| one.file).collect();
    let mut is_wanted = is_wanted.iter();
    source.episodes.retain(|_| is_wanted.next() == Some(&true));
    (files, is_other)
}

/// Removes the files that only excluded episodes use; `used` are those that any episode used.
fn leave_out_files(source: &mut Source, used: &HashSet<usize>) {
    let wanted: HashSet<usize> = source.episodes.iter().map(|one| one.file).collect();
    let (mut files, mut moved) = (Vec::new(), HashMap::new());
    for (idx, file) in source.info.files.drain(..).enumerate() {
        if wanted.contains(&idx) || !used.contains(&idx) {
            moved.insert(idx, files.len());
            files.push(file);
        }
    }
    source.info.files = files;
    for episode in &mut source.episodes {
        episode.file = moved.get(&episode.file).copied().unwrap_or(0);
    }
}

/// Refuses patterns that no stream of the source matches.
fn check_streams(source: &Source, part: &Part) -> Result<()> {
    let streams = source.episodes().iter().flat_map(|one| &one.streams);
    let mut names: BTreeSet<&str> = streams.map(|stream| stream.name.as_str()).collect();
    names.extend(source.not_opened.streams.iter().map(String::as_str));
    let defects = &source.describe().defects;
    for (option, patterns) in [("streams", &part.streams), ("exclude", &part.exclude)] {
        for pattern in patterns {
            let is_known = names.iter().any(|name| matches_pattern(pattern, name))
                || defects
                    .iter()
                    .any(|defect| names_in(&defect.place, pattern));
            if !is_known {
                let names: Vec<_> = names.iter().copied().collect();
                return Err(invalid(format!(
                    "--{option} `{pattern}` matches no stream of the source; {}",
                    suggest(pattern, &names)
                )));
            }
        }
    }
    Ok(())
}

/// The positions of the requested episodes. An item that matches no episode is an error.
fn wanted_episodes(source: &Source, part: &Part) -> Result<Vec<bool>> {
    let ids: Vec<&str> = source
        .episodes()
        .iter()
        .map(|one| one.id.as_str())
        .collect();
    let (wanted, unknown) = part.wanted(&ids);
    let defects = source.describe().defects.iter();
    let broken: HashSet<&str> = defects.filter_map(|one| one.episode.as_deref()).collect();
    for item in unknown {
        let one = Part {
            episodes: vec![item.to_owned()],
            ..Part::default()
        };
        // An episode that appears only in the defects was found too.
        let is_broken = |id: &&str| one.takes_episode(ending_number(id).unwrap_or(u64::MAX), id);
        if !broken.iter().any(is_broken) {
            let skipped = source.not_opened.episodes.iter();
            let all: Vec<_> = ids
                .iter()
                .copied()
                .chain(skipped.map(String::as_str))
                .collect();
            return Err(invalid(format!(
                "--episodes `{item}` matches no episode of the source; {}",
                suggest(item, &all)
            )));
        }
    }
    Ok(wanted)
}

/// Whether a defect is about a stream that is excluded by name.
fn is_of_excluded(place: &str, part: &Part) -> bool {
    part.exclude.iter().any(|pattern| names_in(place, pattern))
}

/// Whether a place (`demos.hdf5:/data/demo_0/obs/x`) ends in a stream name that the pattern matches. A pattern of stars
/// alone would match episode names too.
fn names_in(place: &str, pattern: &str) -> bool {
    if pattern
        .bytes()
        .all(|byte| matches!(byte, b'*' | b'?' | b'/'))
    {
        return false;
    }
    let place = place.trim_end_matches('`');
    let starts = place
        .char_indices()
        .filter(|(_, c)| matches!(c, ':' | '/' | '.' | '`'));
    let mut names = starts.filter_map(|(idx, _)| place.get(idx + 1..));
    names.any(|name| matches_pattern(pattern, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_names_its_stream() {
        for (place, pattern, is_named) in [
            ("demos.hdf5:/data/demo_0/obs/x", "obs/x", true),
            ("demos.hdf5:/data/demo_0, stream `obs/x`", "obs/*", true),
            ("a.tar:ep0.front", "front", true),
            ("demos.hdf5:/data/demo_0/obs/x", "obs/y", false),
            ("demos.hdf5:/data/demo_0", "*", false),
        ] {
            assert_eq!(names_in(place, pattern), is_named, "{place} {pattern}");
        }
    }
}
