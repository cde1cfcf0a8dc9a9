//! Counting samples by opening every selected episode, where the episode table is not enough.
//!
//! Episodes without a requested stream are collected first, so that one error names them all and the filter that skips
//! them.

use kino_storage::at_once;
use rayon::prelude::{IntoParallelRefIterator, ParallelIterator};

use super::anchors::{self, Anchors, Track};
use super::bound::Bound;
use super::episode::Opened;
use super::request::Window;
use crate::complete::has_filter;
use crate::dataset::Dataset;
use crate::episode::Episode;
use crate::error::{DatasetError, Result, invalid};

/// Episodes surveyed between two looks at their errors.
const SURVEY_BLOCK: usize = 1 << 10;

/// How many episodes an error lists.
const LISTED: usize = 5;

/// Streams of a request that an episode does not have, or has no frames of.
#[derive(Debug)]
pub(super) struct Missing {
    /// The episode's id.
    pub(super) episode: String,
    /// Places in `Bound::streams`; at least one.
    pub(super) streams: Vec<usize>,
}

/// Samples of an episode, and the decoded bytes of its requested streams.
type Counted = (u32, u64);

/// Counts and sizes from every selected episode, on all cores where they are many.
pub(super) fn survey_all(bound: &Bound, dataset: &Dataset, rows: &[u32]) -> Result<Vec<Counted>> {
    let one = |&row: &u32| survey(bound, dataset.episode(row as usize)?);
    let mut counted = Vec::with_capacity(rows.len());
    let mut missing = Vec::new();
    let mut add = |found: Result<Result<Counted, Missing>>| {
        match found? {
            Ok(found) => counted.push(found),
            Err(found) => missing.push(found),
        }
        Ok::<(), DatasetError>(())
    };
    if dataset.is_remote() {
        for block in rows.chunks(SURVEY_BLOCK) {
            let rows: Vec<usize> = block.iter().map(|&row| row as usize).collect();
            let episodes = dataset.episodes(&rows).into_iter();
            let episodes: Vec<Episode> = episodes.collect::<Result<_>>()?;
            // Explicit times are pages of their own.
            let found = at_once(&episodes, |episode| survey(bound, episode.clone()));
            found.into_iter().try_for_each(&mut add)?;
        }
    } else if rows.len() < SURVEY_BLOCK {
        rows.iter().map(one).try_for_each(&mut add)?;
    } else {
        // Threads of its own: the shared ones of rayon would be missing in a process that was forked.
        let threads = rayon::ThreadPoolBuilder::new()
            .thread_name(|idx| format!("kino-survey-{idx}"))
            .build()
            .map_err(|error| {
                invalid(format!(
                    "cannot start threads to count samples: {error}; retry with fewer processes"
                ))
            })?;
        // In blocks, so that the error is that of the first bad episode and no more than a block is held twice.
        for block in rows.chunks(SURVEY_BLOCK) {
            let found: Vec<_> = threads.install(|| block.par_iter().map(one).collect());
            found.into_iter().try_for_each(&mut add)?;
        }
    }
    if missing.is_empty() {
        Ok(counted)
    } else {
        Err(missing_streams(bound, &missing))
    }
}

/// The number of samples of an episode and the decoded bytes of its requested streams; reads no more than that needs.
fn survey(bound: &Bound, episode: Episode) -> Result<Result<Counted, Missing>> {
    let opened = match Opened::new(bound, episode)? {
        Ok(opened) => opened,
        Err(missing) => return Ok(Err(missing)),
    };
    let dropping = bound.request.windows.iter().enumerate();
    let tracks: Vec<(&Window, Track)> = dropping
        .filter(|(_, window)| window.drops())
        .map(|(idx, window)| Ok((window, opened.read_track(idx)?)))
        .collect::<Result<_>>()?;
    let by_time = tracks
        .iter()
        .any(|(_, track)| matches!(track, Track::Time(_)));
    let anchors = match (by_time, bound.anchor) {
        (false, Some(stream)) => Anchors::Untimed(opened.frames(stream)),
        _ => opened.read_anchors()?,
    };
    let samples = anchors::samples(&bound.request, &anchors, &tracks);
    let mut requested: Vec<usize> = bound.stream_of.clone();
    requested.sort_unstable();
    requested.dedup();
    let bytes = requested.iter().map(|&idx| opened.raw_bytes(idx));
    Ok(Ok((samples.len(), bytes.fold(0, u64::saturating_add))))
}

/// The error of episodes without a requested stream: grouped by stream, with the filter that skips them.
pub(super) fn missing_streams(bound: &Bound, missing: &[Missing]) -> DatasetError {
    let (mut groups, mut filters) = (Vec::new(), Vec::new());
    for (idx, stream) in bound.streams.iter().enumerate() {
        let lacking = missing.iter().filter(|one| one.streams.contains(&idx));
        let ids: Vec<&str> = lacking.map(|one| one.episode.as_str()).collect();
        let (name, count) = (&stream.name, ids.len());
        let mut listed: Vec<String> = ids
            .iter()
            .take(LISTED)
            .map(|id| format!("`{id}`"))
            .collect();
        if count > LISTED {
            listed.push("…".to_owned());
        }
        let listed = listed.join(", ");
        match count {
            0 => continue,
            1 => groups.push(format!("episode {listed} has no frames of stream `{name}`")),
            _ => groups.push(format!(
                "{count} episodes have no frames of stream `{name}`: {listed}"
            )),
        }
        filters.push(has_filter(name));
    }
    invalid(format!(
        "{}; skip them with the filter `{}`, or request other streams",
        groups.join("; "),
        filters.join(" and ")
    ))
}
