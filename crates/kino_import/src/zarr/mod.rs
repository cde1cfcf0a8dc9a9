//! Replay buffers of diffusion_policy and UMI: zarr v2, a folder or a zip file, as one [`Source`].
//!
//! ```text
//! store.rs           spec.rs                          frames.rs             array.rs          compressor.rs, blosc.rs
//! folder or zip  ─▶  arrays, episode_ends, defects ─▶ rows of an episode ─▶ rows of chunks ─▶ a chunk's bytes
//! ```

mod array;
mod blosc;
mod compressor;
mod frames;
mod spec;
mod store;

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::defect::{Action, Defect};
use crate::error::Result;
use crate::image::float_advice;
use crate::open::ImportOptions;
use crate::part::NotOpened;
use crate::recent::Recent;
use crate::source::{ClockSpec, EpisodeSpec, Source, SourceInfo, StreamSpec};
use crate::source_file::SourceFile;
use crate::specs;
use array::Array;
use frames::{Data, ZarrStream};
use spec::Walked;
use store::Store;

/// Whether a path looks like a zarr v2 store, or a later version, which the walk refuses by name.
pub(crate) fn is_store(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_folder = [".zgroup", ".zmetadata"]
        .iter()
        .any(|file| path.join(file).is_file());
    is_folder || name.ends_with(".zarr") || path.is_file() && name.ends_with(".zarr.zip")
}

/// Walks the store and builds its specs; reads metadata only.
pub(crate) fn open(path: &Path, options: &ImportOptions) -> Result<Source> {
    let store = Arc::new(Store::open(path)?);
    let mut walked = spec::walk(&store)?;
    let mut arrays = walked.take_data();
    let next = "check that this is a replay buffer with arrays under `data`";
    if arrays.is_empty() {
        return Err(specs::nothing_left(path, &walked.defects, next));
    }
    let rows = specs::most_common(arrays.iter().map(Array::rows)).unwrap_or(0);
    let ranges = spec::episodes(&store, &mut walked, rows)?;
    walked.take_asides(&store)?;
    let rate_hz = spec::rate_hz(&store, &mut walked, &arrays, options)?;
    let mut not_opened = NotOpened::default();
    arrays.retain(|array| {
        let is_taken = options.part.takes_stream(array.stream_name());
        if !is_taken {
            not_opened.streams.insert(array.stream_name().to_owned());
        }
        is_taken
    });
    let streams = streams(&store, &mut walked, arrays, &ranges, rows)?;
    let is_bare = streams.is_empty() && not_opened.streams.is_empty();
    if ranges.is_empty() || is_bare {
        return Err(specs::nothing_left(path, &walked.defects, next));
    }
    let episode = |(idx, rows): &(usize, Range<u64>)| EpisodeSpec {
        id: format!("episode_{idx}"),
        object: format!("/data[{}:{}]", rows.start, rows.end),
        streams: streams
            .iter()
            .map(|(data, stream)| StreamSpec {
                frames: rows.end - rows.start,
                clock: ClockSpec::Regular { rate_hz },
                reader: ZarrStream::new(data, rows.start),
                ..stream.clone()
            })
            .collect(),
        ..EpisodeSpec::default()
    };
    let skipped = not_opened.streams.iter();
    let skipped = skipped.map(|name| path.join("data").join(name));
    let file = SourceFile::new(path.to_owned(), store.len(&walked.keys)).without(skipped);
    let info = SourceInfo {
        format: "zarr",
        files: vec![file],
        attributes: walked.attributes,
        defects: walked.defects,
    };
    Ok(Source {
        not_opened,
        ..Source::new(info, ranges.iter().map(episode).collect())
    })
}

/// The arrays that are streams, and their specs without the episode; the others become defects.
fn streams(
    store: &Arc<Store>,
    walked: &mut Walked,
    arrays: Vec<Array>,
    ranges: &[(usize, Range<u64>)],
    rows: u64,
) -> Result<Vec<(Arc<Data>, StreamSpec)>> {
    let keys = std::mem::take(&mut walked.keys);
    let known: HashSet<&str> = keys.iter().map(String::as_str).collect();
    let decoded = Arc::new(Recent::by_bytes(Vec::len));
    let mut streams = Vec::new();
    for (number, array) in arrays.into_iter().enumerate() {
        let place = store.place(&array.path);
        let data = Arc::new(Data {
            array,
            number,
            store: Arc::clone(store),
            decoded: Arc::clone(&decoded),
        });
        let absent = match data.array.rows() {
            own if own == rows => spec::absent_rows(&data.array, &known),
            own => Err(format!("has {own} rows, but most arrays have {rows}")),
        };
        let draft = match absent {
            Ok(absent) => spec::stream(&data)?.map(|stream| (absent, stream)),
            Err(what) => Err(what),
        };
        let (absent, stream) = match draft {
            Ok(draft) => draft,
            Err(what) => {
                walked
                    .defects
                    .push(Defect::new(place, what, Action::Skipped));
                continue;
            }
        };
        note_absent(&place, walked, &absent, ranges);
        if let Some(what) = float_advice(&stream.frame) {
            walked.defects.push(Defect::new(place, what, Action::Noted));
        }
        streams.push((data, stream));
    }
    walked.keys = keys;
    Ok(streams)
}

/// One defect for each episode with a missing chunk.
fn note_absent(
    place: &str,
    walked: &mut Walked,
    absent: &[Range<u64>],
    ranges: &[(usize, Range<u64>)],
) {
    for (idx, rows) in ranges {
        let within = absent.iter().map(|gap| {
            let (start, end) = (gap.start.max(rows.start), gap.end.min(rows.end));
            start.saturating_sub(rows.start)..end.saturating_sub(rows.start)
        });
        let within: Vec<_> = within.filter(|gap| gap.start < gap.end).collect();
        let Some(first) = within.first() else {
            continue;
        };
        let frames: u64 = within.iter().map(|gap| gap.end - gap.start).sum();
        let what = format!(
            "has missing chunks: {frames} of {} frames are not stored, starting at frame {}; they read as the fill value",
            rows.end - rows.start,
            first.start
        );
        let defect = Defect::new(place, what, Action::Kept);
        walked.defects.push(defect.of(&format!("episode_{idx}")));
    }
}
