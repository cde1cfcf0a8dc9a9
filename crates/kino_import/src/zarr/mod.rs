//! Replay buffers of diffusion_policy and UMI: zarr v2, a folder or a zip file, as one [`Source`].
//!
//! ```text
//! store.rs           spec.rs                          array.rs            compressor.rs  blosc.rs
//! folder or zip  ─▶  arrays, episode_ends, defects ─▶ rows of chunks  ─▶  a chunk's bytes
//! ```

mod array;
mod blosc;
mod compressor;
mod spec;
mod store;

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kino_codec::FrameType;
use serde_json::Map;

use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result};
use crate::image::float_advice;
use crate::jpeg;
use crate::open::ImportOptions;
use crate::part::NotOpened;
use crate::recent::Recent;
use crate::source::{EpisodeSpec, FrameBuf, Source, SourceFile, SourceInfo, StreamSpec};
use crate::specs;
use array::{Array, Values};
use spec::Walked;
use store::Store;

/// Episodes of a replay buffer.
#[derive(Debug)]
pub(crate) struct ZarrSource {
    info: SourceInfo,
    episodes: Vec<EpisodeSpec>,
    /// The rows of each episode.
    rows: Vec<Range<u64>>,
    /// The array behind each stream, the same for every episode.
    arrays: Vec<Array>,
    store: Store,
    decoded: Recent<(usize, Vec<u64>), Vec<u8>>,
    not_opened: NotOpened,
}

/// Whether a path looks like a zarr v2 store, or a later version, which the walk refuses by name.
pub(crate) fn is_store(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_folder = [".zgroup", ".zmetadata"]
        .iter()
        .any(|file| path.join(file).is_file());
    is_folder || name.ends_with(".zarr") || path.is_file() && name.ends_with(".zarr.zip")
}

impl ZarrSource {
    /// Walks the store and builds its specs; reads metadata only.
    pub(crate) fn open(path: &Path, options: &ImportOptions) -> Result<Self> {
        let store = Store::open(path)?;
        let mut walked = spec::walk(&store)?;
        let (data, others) = std::mem::take(&mut walked.arrays)
            .into_iter()
            .partition(|(name, _)| name.starts_with("data/"));
        walked.arrays = others;
        let data: std::collections::BTreeMap<String, Array> = data;
        let mut data: Vec<_> = data.into_values().collect();
        let next = "check that this is a replay buffer with arrays under `data`";
        if data.is_empty() {
            return Err(specs::nothing_left(path, &walked.defects, next));
        }
        let rows = spec::common_rows(&data);
        let ranges = spec::episodes(&store, &mut walked, rows)?;
        walked.take_asides(&store)?;
        let rate_hz = spec::rate_hz(&store, &mut walked, &data, options)?;
        let mut not_opened = NotOpened::default();
        data.retain(|array| {
            let is_taken = options.part.takes_stream(array.stream_name());
            if !is_taken {
                let name = array.stream_name().to_owned();
                not_opened.streams.insert(name);
            }
            is_taken
        });
        let (arrays, streams) = stream_specs(&store, &mut walked, data, (rows, &ranges), rate_hz)?;
        let episodes: Vec<_> = ranges
            .iter()
            .map(|(idx, rows)| {
                let mut episode = episode(*idx, rows);
                episode.streams.clone_from(&streams);
                for stream in &mut episode.streams {
                    stream.frames = rows.end - rows.start;
                }
                episode
            })
            .collect();
        let is_bare = streams.is_empty() && not_opened.streams.is_empty();
        if episodes.is_empty() || is_bare {
            return Err(specs::nothing_left(path, &walked.defects, next));
        }
        let skipped = not_opened.streams.iter();
        let skipped = skipped.map(|name| path.join("data").join(name));
        let file = SourceFile::new(path.to_owned(), store.len(&walked.keys)).without(skipped);
        Ok(Self {
            info: SourceInfo {
                format: "zarr",
                files: vec![file],
                attributes: walked.attributes,
                defects: walked.defects,
            },
            episodes,
            rows: ranges.into_iter().map(|(_, rows)| rows).collect(),
            arrays,
            store,
            decoded: Recent::by_bytes(Vec::len),
            not_opened,
        })
    }

    /// A chunk of an array, decoded once while it is in use.
    fn chunk(&self, stream: usize, index: &[u64]) -> Result<Option<Arc<Vec<u8>>>> {
        let array = &self.arrays[stream];
        let key = (stream, index.to_vec());
        let chunk = self.decoded.get(key, || {
            // An empty chunk represents a missing one: no chunk has zero bytes.
            let chunk = array.read_chunk(&self.store, index);
            chunk.map(Option::unwrap_or_default)
        })?;
        Ok((!chunk.is_empty()).then_some(chunk))
    }

    fn texts(&self, stream: usize, rows: Range<u64>) -> Result<Vec<Vec<u8>>> {
        let array = &self.arrays[stream];
        let wrong = |what| ImportError::corrupt(self.store.path(), &array.path, what);
        if let Values::Fixed(element) = array.values {
            let bytes = array.read_rows(rows, &|index| self.chunk(stream, index))?;
            let texts = element.texts(&bytes).map_err(wrong)?;
            return Ok(texts.into_iter().map(String::into_bytes).collect());
        }
        let mut texts = Vec::new();
        let (mut index, mut row) = (vec![0; array.shape.len()], rows.start);
        while row < rows.end {
            index[0] = row / array.chunk[0];
            let end = rows.end.min((index[0] + 1) * array.chunk[0]);
            let within =
                |row: u64| usize::try_from(row - index[0] * array.chunk[0]).unwrap_or(usize::MAX);
            let wanted = within(row)..within(end);
            match self.chunk(stream, &index)? {
                None => texts.extend(wanted.map(|_| Vec::new())),
                Some(chunk) => {
                    let all = Array::texts_of(&chunk);
                    let some = all.as_ref().and_then(|all| all.get(wanted));
                    let some =
                        some.ok_or_else(|| wrong(format!("has no text for rows {row}..{end}")))?;
                    texts.extend(some.iter().map(|text| text.to_vec()));
                }
            }
            row = end;
        }
        Ok(texts)
    }

    /// One JPEG file per row.
    fn jpegs(&self, stream: usize, rows: Range<u64>) -> Result<Vec<Vec<u8>>> {
        let array = &self.arrays[stream];
        let mut index = vec![0; array.shape.len()];
        rows.map(|row| {
            index[0] = row;
            let file = array.read_stored(&self.store, &index)?.unwrap_or_default();
            let header =
                jpeg::header(&file).map(|header| [header.height, header.width, header.components]);
            let size = header.map(|size| size.map(|dim| dim as u64));
            match size.is_some_and(|size| size == array.shape[1..]) {
                true => Ok(file),
                false => {
                    let what = "is not a JPEG file of the size in its array's shape";
                    Err(ImportError::corrupt(
                        self.store.path(),
                        &array.key(&index),
                        what,
                    ))
                }
            }
        })
        .collect()
    }
}

impl Source for ZarrSource {
    fn describe(&self) -> &SourceInfo {
        &self.info
    }

    fn episodes(&self) -> &[EpisodeSpec] {
        &self.episodes
    }

    fn not_opened(&self) -> &NotOpened {
        &self.not_opened
    }

    fn read(
        &self,
        episode: usize,
        stream: usize,
        frames: Range<u64>,
        out: &mut FrameBuf,
    ) -> Result<()> {
        let spec = specs::find(&self.episodes, (episode, stream), &frames)?;
        let (rows, array) = (&self.rows[episode], &self.arrays[stream]);
        let wanted = rows.start + frames.start..rows.start + frames.end;
        *out = match (&spec.frame, array.values) {
            (FrameType::Text, _) => FrameBuf::Bytes(self.texts(stream, wanted)?),
            (FrameType::Values(_), _) if spec.carried => {
                FrameBuf::Bytes(self.jpegs(stream, wanted)?)
            }
            (FrameType::Values(_), Values::Fixed(element)) => {
                let mut values = array.read_rows(wanted, &|index| self.chunk(stream, index))?;
                element
                    .to_little(&mut values)
                    .map_err(|what| ImportError::corrupt(self.store.path(), &array.path, what))?;
                FrameBuf::Values(values)
            }
            (FrameType::Values(_), Values::Texts) => FrameBuf::Values(Vec::new()),
        };
        Ok(())
    }
}

/// The arrays that are streams, and their specs; the others become defects.
fn stream_specs(
    store: &Store,
    walked: &mut Walked,
    data: Vec<Array>,
    (rows, ranges): (u64, &[(usize, Range<u64>)]),
    rate_hz: f64,
) -> Result<(Vec<Array>, Vec<StreamSpec>)> {
    let keys = std::mem::take(&mut walked.keys);
    let known: HashSet<&str> = keys.iter().map(String::as_str).collect();
    let (mut arrays, mut streams) = (Vec::new(), Vec::new());
    for array in data {
        let draft = match array.rows() == rows {
            true => spec::absent_rows(&array, &known),
            false => Err(format!(
                "has {} rows, but most arrays have {rows}",
                array.rows()
            )),
        };
        let draft = match draft {
            Ok(absent) => spec::stream(store, &array, rate_hz)?.map(|stream| (absent, stream)),
            Err(what) => Err(what),
        };
        match draft {
            Err(what) => {
                let defect = Defect::new(store.place(&array.path), what, Action::Skipped);
                walked.defects.push(defect);
            }
            Ok((absent, stream)) => {
                note_absent(store, walked, &array, &absent, ranges);
                if let Some(what) = float_advice(&stream.frame) {
                    let defect = Defect::new(store.place(&array.path), what, Action::Noted);
                    walked.defects.push(defect);
                }
                arrays.push(array);
                streams.push(stream);
            }
        }
    }
    walked.keys = keys;
    Ok((arrays, streams))
}

/// One defect for each episode with a missing chunk.
fn note_absent(
    store: &Store,
    walked: &mut Walked,
    array: &Array,
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
        let defect = Defect::new(store.place(&array.path), what, Action::Kept);
        walked.defects.push(defect.of(&format!("episode_{idx}")));
    }
}

/// An episode without its streams.
fn episode(idx: usize, rows: &Range<u64>) -> EpisodeSpec {
    EpisodeSpec {
        id: format!("episode_{idx}"),
        splits: Vec::new(),
        attributes: Map::new(),
        task: None,
        success: None,
        licence: None,
        file: 0,
        object: format!("/data[{}:{}]", rows.start, rows.end),
        streams: Vec::new(),
    }
}
