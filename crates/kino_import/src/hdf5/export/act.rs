//! Export to the layout of ACT and ALOHA: a folder with one file per episode; `hdf5/aloha.rs` shows the layout.
//!
//! | here | there |
//! |---|---|
//! | episode | `<id>.hdf5` |
//! | stream `action`, `observations/…` | dataset of the same path |
//! | stream `actions`, `obs/x`, `observation.x` | `action`, `observations/x`, images in `observations/images/x` |
//! | JPEG files, if all cameras have them | rows of bytes, padded with zeros; `compress` and `compress_len` |
//! | rate | `fps`, unless it is ALOHA's 50 Hz |

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use kino_codec::Dtype;
use kino_dataset::{Episode, Kind};
use serde_json::{Map, Value, json};

use crate::error::{Result, invalid};
use crate::export::{EpisodeOutline, FrameReader, Outline, StreamOutline, after, unwritable};
use crate::hdf5::aloha::{DEFAULT_RATE_HZ, TASK_KEYS};
use crate::hdf5::export::file::{Content, Leaf, OutFile};
use crate::hdf5::export::{Said, read_content};
use crate::hdf5::spec::text_of;

/// Assigns each stream its dataset.
pub(crate) fn prepare(outline: &mut Outline) -> Result<()> {
    outline.restore_dtypes()?;
    outline.rename(stream_name);
    outline.one_clock("action")?;
    outline.rename_episodes(|id, _| id.replace(['/', '\\'], "_"))?;
    let splits = outline.episodes.iter().flat_map(|episode| &episode.splits);
    let splits: BTreeSet<_> = splits.map(|split| format!("split `{split}`")).collect();
    let names = outline.attributes.keys();
    let names = names.map(|name| format!("attribute `{name}` of the dataset"));
    for place in splits.into_iter().chain(names) {
        let what = "cannot be stored: each file is one episode";
        outline.losses.lose(place, what);
    }
    Ok(())
}

fn stream_name(stream: &StreamOutline) -> String {
    let name = stream.source.as_str();
    if name == "actions" {
        return "action".to_owned();
    }
    let Some(rest) = after(name, &["obs/", "observation/", "observation."]) else {
        return name.to_owned();
    };
    match (stream.kind, rest.as_str()) {
        (Kind::Image, rest) => {
            let rest = rest.strip_prefix("images_").unwrap_or(rest);
            format!("observations/images/{rest}")
        }
        // LeRobot's state is ACT's joint positions.
        (_, "state") => "observations/qpos".to_owned(),
        (_, rest) => format!("observations/{rest}"),
    }
}

pub(crate) fn write(outline: &Outline, reader: &mut FrameReader<'_>, path: &Path) -> Result<()> {
    fs::create_dir(path).map_err(|error| unwritable(path, error))?;
    for (_, episode) in outline.mine() {
        if episode.name.starts_with('.') {
            let id = &episode.id;
            return Err(invalid(format!(
                "episode `{id}` cannot be used as a file name"
            )));
        }
        let source = outline.dataset.find(&episode.id)?;
        let out = OutFile::create(&path.join(format!("{}.hdf5", episode.name)))?;
        write_episode(out, reader, episode, &source)?;
        reader.next_episode()?;
    }
    Ok(())
}

fn write_episode(
    mut out: OutFile,
    reader: &mut FrameReader<'_>,
    episode: &EpisodeOutline,
    source: &Episode,
) -> Result<()> {
    let mut said = Said::read(episode, source)?;
    let task = text_of(&said.attributes, TASK_KEYS);
    said.complete(episode, task);
    let rate_hz = episode.rate_hz;
    let known = said.attributes.get("fps").and_then(Value::as_f64);
    if rate_hz > 0.0 && known.unwrap_or(DEFAULT_RATE_HZ) != rate_hz {
        said.attributes.insert("fps".to_owned(), json!(rate_hz));
    }
    let lengths = said.attributes.remove("compress_len");
    let is_camera = |stream: &&StreamOutline| stream.name.starts_with("observations/images/");
    let mut cameras = episode.streams.iter().filter(is_camera).peekable();
    // ACT's reader expects JPEG files for all cameras, or for none.
    let is_jpeg = cameras.peek().is_some() && cameras.all(|stream| stream.is_jpeg);
    let mut rows = Vec::new();
    for stream in &episode.streams {
        let attributes = said.of_stream(stream);
        if is_jpeg && is_camera(&stream) {
            rows.push(stage_jpegs(&mut out, reader, source, stream, attributes)?);
        } else {
            out.dataset(Leaf {
                path: stream.name.clone(),
                content: read_content(reader, source, stream)?,
                attributes,
            })?;
        }
    }
    if is_jpeg || said.attributes.contains_key("compress") {
        let compress = "compress".to_owned();
        said.attributes.insert(compress, json!(is_jpeg));
    }
    if is_jpeg {
        stage_lengths(&mut out, &rows, lengths)?;
    }
    out.attributes("", &said.attributes)?;
    out.group("observations")?;
    out.finish()
}

/// Stages JPEG files as rows of bytes and returns their lengths.
fn stage_jpegs(
    out: &mut OutFile,
    reader: &mut FrameReader<'_>,
    episode: &Episode,
    stream: &StreamOutline,
    attributes: Map<String, Value>,
) -> Result<Vec<i64>> {
    let source = episode.stream(&stream.source)?;
    let Some(files) = reader.jpegs(stream, &source)? else {
        let name = &stream.source;
        return Err(invalid(format!(
            "stream `{name}` does not store a JPEG file per frame"
        )));
    };
    let width = files.iter().map(Vec::len).max().unwrap_or(0);
    let mut rows = Vec::with_capacity(width * files.len());
    for file in &files {
        rows.extend_from_slice(file);
        rows.resize(rows.len() + width - file.len(), 0);
    }
    out.dataset(Leaf {
        path: stream.name.clone(),
        content: Content::Values(Dtype::U8, vec![files.len() as u64, width as u64], rows),
        attributes,
    })?;
    let lengths = files
        .iter()
        .map(|file| i64::try_from(file.len()).unwrap_or(0));
    Ok(lengths.collect())
}

/// Stages `compress_len`: as in the recording, if its lengths match the files.
fn stage_lengths(out: &mut OutFile, rows: &[Vec<i64>], known: Option<Value>) -> Result<()> {
    let known = known.and_then(|known| serde_json::from_value::<Vec<Vec<i64>>>(known).ok());
    let rows = match known {
        Some(known) if known.iter().all(|row| rows.contains(row)) => known,
        _ => rows.to_vec(),
    };
    let shape = vec![rows.len() as u64, rows.first().map_or(0, Vec::len) as u64];
    let values = rows
        .iter()
        .flatten()
        .flat_map(|len| len.to_le_bytes())
        .collect();
    out.dataset(Leaf {
        path: "compress_len".to_owned(),
        content: Content::Values(Dtype::I64, shape, values),
        attributes: Map::new(),
    })
}
