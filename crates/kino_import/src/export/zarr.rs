//! To the zarr of diffusion_policy: a folder of arrays over all frames of all episodes, zarr version 2.
//!
//! ```text
//! .zgroup  .zattrs                    attributes of the dataset, rate_hz
//! data/<stream>/.zarray  0.0  1.0 …   [all frames, …], a chunk of rows per file, uncompressed
//! meta/episode_ends/.zarray  0        int64: where each episode ends
//! ```
//!
//! | here | there |
//! |---|---|
//! | stream `actions`; `obs/x`, `observation.x`, `observations/x` | `action`; `x` |
//! | any other stream | its name, with `_` for `/` and `.` |
//! | id, splits, task, success, licence and attributes of an episode, text | nowhere |

use std::fs;
use std::path::Path;

use kino_codec::{Dtype, ValueType};
use serde_json::{Value, json};

use crate::error::Result;
use crate::export::{FrameReader, Outline, StreamOutline, WritingPath, put_json};
use crate::npy;
use crate::whole_numbers;

/// A chunk has at most this many bytes, unless one row has more.
const CHUNK_BYTES: usize = 4 << 20;

/// Assigns each stream its array.
pub(super) fn prepare(outline: &mut Outline) -> Result<()> {
    outline.restore_dtypes()?;
    outline.rename(stream_name);
    outline.one_clock("action")?;
    let mut places = Vec::new();
    for (idx, episode) in outline.episodes.iter().enumerate() {
        // Episodes are numbered there, which reads as this id.
        if episode.id != format!("episode_{idx}") {
            places.push("id of an episode".to_owned());
        }
        let splits = episode.splits.iter();
        places.extend(splits.map(|split| format!("split `{split}`")));
        places.extend(episode.task.iter().map(|_| "task".to_owned()));
        places.extend(episode.success.iter().map(|_| "success".to_owned()));
        places.extend(episode.licence.iter().map(|_| "licence".to_owned()));
        let mut said = outline.dataset.find(&episode.id)?.read_attributes()?;
        episode.forget_restored(&mut said);
        let keys = said.keys();
        places.extend(keys.map(|key| format!("attribute `{key}` of an episode")));
    }
    for place in places {
        let what = "cannot be stored: the format only has arrays of frames";
        outline.losses.lose(place, what);
    }
    outline.keep_common(refuse);
    if !outline.has_one_rate() {
        let what = "differs between episodes; the format has only one";
        outline.losses.lose("the rate", what);
    }
    Ok(())
}

fn stream_name(stream: &StreamOutline) -> String {
    let name = stream.source.as_str();
    if name == "actions" {
        return "action".to_owned();
    }
    let beginnings = ["obs/", "observations/", "observation/", "observation."];
    let rest = beginnings.iter().find_map(|one| name.strip_prefix(one));
    rest.unwrap_or(name).replace(['/', '.'], "_")
}

/// Why a stream cannot be an array.
fn refuse(stream: &StreamOutline) -> Option<&'static str> {
    match stream.frame.as_values().map(ValueType::elements) {
        None => Some("is text; the format only has numeric arrays"),
        Some(0) => Some("has empty frames"),
        _ => None,
    }
}

pub(super) fn write(outline: &Outline, reader: &mut FrameReader<'_>, path: &Path) -> Result<()> {
    for folder in ["", "data", "meta"] {
        let folder = path.join(folder);
        fs::create_dir(&folder).writing(&folder)?;
        put_json(&folder.join(".zgroup"), &json!({"zarr_format": 2}))?;
    }
    let mut attributes = outline.attributes.clone();
    let first = outline.episodes.first();
    let rate_hz = first.map_or(0.0, |episode| episode.rate_hz);
    if rate_hz > 0.0 {
        attributes.insert("rate_hz".to_owned(), json!(rate_hz));
    }
    put_json(&path.join(".zattrs"), &Value::Object(attributes))?;
    let (mut ends, mut end) = (Vec::new(), 0_i64);
    for episode in &outline.episodes {
        end += i64::try_from(episode.frames()).unwrap_or(0);
        ends.extend(end.to_le_bytes());
    }
    let total = usize::try_from(end).unwrap_or(0);
    let folder = path.join("meta/episode_ends");
    let mut array = Array::create(&folder, Dtype::I64, &[], outline.episodes.len())?;
    array.push(&ends)?;
    array.finish()?;
    for stream in first.map_or(&[][..], |episode| &episode.streams) {
        let Some(ty) = stream.frame.as_values() else {
            continue;
        };
        let folder = path.join("data").join(&stream.name);
        let mut array = Array::create(&folder, ty.dtype(), ty.shape(), total)?;
        for episode in &outline.episodes {
            let same = episode.streams.iter().find(|one| one.name == stream.name);
            let Some(same) = same else { continue };
            let source = outline.dataset.find(&episode.id)?.stream(&same.source)?;
            reader.each_block(&source, |_, block| {
                array.push(&whole_numbers::restore(same.restored, block))
            })?;
        }
        array.finish()?;
    }
    Ok(())
}

/// An array that grows by rows; a chunk is written when it is full.
struct Array<'a> {
    folder: &'a Path,
    chunk_bytes: usize,
    /// The suffix of a chunk's name after its number: `.0.0`.
    tail: String,
    chunk: Vec<u8>,
    chunks: usize,
}

impl<'a> Array<'a> {
    fn create(folder: &'a Path, dtype: Dtype, shape: &[usize], rows: usize) -> Result<Self> {
        let row_bytes = shape.iter().product::<usize>() * dtype.size();
        let in_chunk = (CHUNK_BYTES / row_bytes.max(1)).clamp(1, rows.max(1));
        let with = |first: usize| -> Vec<usize> {
            let shape = shape.iter().copied();
            [first].into_iter().chain(shape).collect()
        };
        let head = json!({
            "zarr_format": 2,
            "shape": with(rows),
            "chunks": with(in_chunk),
            "dtype": npy::name_of(dtype),
            "compressor": null,
            "filters": null,
            "fill_value": null,
            "order": "C",
        });
        fs::create_dir(folder).writing(folder)?;
        put_json(&folder.join(".zarray"), &head)?;
        Ok(Self {
            folder,
            chunk_bytes: in_chunk * row_bytes,
            tail: ".0".repeat(shape.len()),
            chunk: Vec::new(),
            chunks: 0,
        })
    }

    fn push(&mut self, mut rows: &[u8]) -> Result<()> {
        while !rows.is_empty() {
            let room = self.chunk_bytes - self.chunk.len();
            let (head, rest) = rows.split_at(room.min(rows.len()));
            self.chunk.extend_from_slice(head);
            rows = rest;
            if self.chunk.len() == self.chunk_bytes {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let path = self.folder.join(format!("{}{}", self.chunks, self.tail));
        fs::write(&path, &self.chunk).writing(&path)?;
        self.chunk.clear();
        self.chunks += 1;
        Ok(())
    }

    /// The last chunk is as long as the others.
    fn finish(mut self) -> Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        self.chunk.resize(self.chunk_bytes, 0);
        self.flush()
    }
}
