//! MCAP recordings: ROS 2, protobuf and JSON messages of many rates.
//!
//! ```text
//! scan.rs     walk.rs topic.rs leaf.rs   streams.rs picks.rs    spec.rs split.rs      here
//! records ─▶  topics: times and types ─▶ fields → streams   ─▶  times → episodes ─▶   frames, a chunk at a time
//! chunks.rs   decoder.rs: cdr.rs (ros2.rs), protobuf.rs, json.rs → message.rs
//!             pixels.rs: images; track.rs: video ─────────────────────────────────▶   video.rs
//! ```
//!
//! The walk reads a file once and keeps where its messages are, not their content. A stream is a field of a topic; its
//! clock is the header stamps of the messages or, if there are none, their log times. Streams keep their own rates.
//!
//! The terms are MCAP's: a file is a sequence of records, some of them inside chunks; a channel publishes messages with
//! one schema to a topic.

mod base64;
mod bytes;
mod cdr;
mod chunks;
mod decoder;
pub(crate) mod export;
mod json;
mod leaf;
mod mapping;
mod message;
mod picks;
mod pixels;
mod protobuf;
mod records;
mod ros2;
mod scan;
mod spec;
mod split;
mod streams;
mod summary;
mod topic;
mod track;
mod video;
mod walk;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kino_codec::{Dtype, FrameType};
use serde_json::Value as Json;

use crate::about::{self, About};
use crate::defect::Defect;
use crate::error::{ImportError, Result};
use crate::files::ReadingPath;
use crate::image::Encoded;
use crate::open::ImportOptions;
use crate::packets::PixelReaders;
use crate::recent::Recent;
use crate::source::{FrameBuf, ReadFrames, Source, SourceInfo, Wanted};
use crate::source_file::SourceFile;
use crate::specs;
use chunks::Chunk;
use decoder::Decoder;
use mapping::Mapping;
use message::Value;
use picks::Pick;
use records::Place;
use spec::{SpecBuilder, When};
use walk::Contents;

/// How a file starts.
pub(crate) const MAGIC: &[u8] = scan::MAGIC;

/// An open file: where its chunks are, and those of all files that were read last.
#[derive(Debug)]
struct McapFile {
    path: PathBuf,
    /// Its number among the files of the source.
    number: usize,
    chunks: Vec<Chunk>,
    recent: Arc<Recent<(usize, u32), Vec<u8>>>,
    /// Decoders of video, of all files.
    pixels: Arc<PixelReaders>,
}

/// A stream: messages of a topic, and what of them is a frame.
#[derive(Debug)]
struct McapStream {
    file: Arc<McapFile>,
    decoder: Arc<Decoder>,
    pick: Pick,
    look: Option<Encoded>,
    /// The messages, in time order.
    places: Arc<[Place]>,
}

struct Walk<'a> {
    source: Source,
    mapping: &'a Mapping,
    files: usize,
    recent: Arc<Recent<(usize, u32), Vec<u8>>>,
    pixels: Arc<PixelReaders>,
}

/// Walks the files and builds their specs.
pub(crate) fn open(paths: &[PathBuf], options: &ImportOptions) -> Result<Source> {
    let mapping = Mapping::read(options.mapping.as_deref())?;
    let mut walk = Walk {
        source: Source::new(SourceInfo::new("mcap"), Vec::new()),
        mapping: &mapping,
        files: paths.len(),
        recent: Arc::new(Recent::by_bytes(Vec::len)),
        pixels: Arc::default(),
    };
    let mut found = HashSet::new();
    for (path, contents) in paths.iter().zip(walk::walk_all(paths, &mapping)) {
        let contents = contents?;
        found.extend(contents.topics.iter().map(|topic| topic.name.clone()));
        walk.add(path, contents)?;
    }
    let mut source = walk.source;
    if let Some(folder) = paths.first().and_then(|path| path.parent())
        && let Some(said) = about::read_dataset(folder, options, &mut source.info.defects)?
    {
        source.info.attributes = said;
    }
    let streams = mapping.streams.iter();
    for stream in streams.filter(|stream| !found.contains(&stream.topic)) {
        let what = format!(
            "stream `{}` of the mapping: no file has the topic `{}`",
            stream.name, stream.topic
        );
        source.info.defects.push(Defect::lost("mapping", what));
    }
    if source.episodes.is_empty() {
        let path = paths.first().map(PathBuf::as_path).unwrap_or(Path::new(""));
        let next =
            "check that this is the right recording, and that the mapping names topics in it";
        return Err(specs::nothing_left(path, &source.info.defects, next));
    }
    Ok(source)
}

impl Walk<'_> {
    fn add(&mut self, path: &Path, mut contents: Contents) -> Result<()> {
        let metadata = path.metadata().reading(path)?;
        let text = |name: Option<&OsStr>| name.unwrap_or_default().to_string_lossy().into_owned();
        let (file, stem) = (text(path.file_name()), text(path.file_stem()));
        let mapping = self.mapping;
        let marks = contents.marks.last().map_or(&[][..], Vec::as_slice);
        let spans = split::split(&mapping.episodes, &contents.topics, marks);
        // A file that a mapping splits or filters is not what was exported.
        let is_whole = spans.len() == 1 && mapping.streams.is_empty();
        let about = is_whole.then(|| self.about(&mut contents, &file)).flatten();
        let id = |idx: usize| match (&about, spans.len()) {
            (Some(about), _) => about.id().to_owned(),
            (None, 1) => stem.clone(),
            (None, _) => format!("{stem}/{idx}"),
        };
        let draft = spec::topic_streams(&contents.topics, mapping);
        let entries: Vec<_> = contents
            .topics
            .iter()
            .map(|topic| split::sort_in(&spans, &topic.entries))
            .collect();
        let opened = Arc::new(McapFile {
            path: path.to_owned(),
            number: self.source.info.files.len(),
            chunks: std::mem::take(&mut contents.chunks),
            recent: Arc::clone(&self.recent),
            pixels: Arc::clone(&self.pixels),
        });
        let Source { info, episodes, .. } = &mut self.source;
        let first = episodes.len();
        for (idx, span) in spans.iter().enumerate() {
            let builder = SpecBuilder {
                name: &file,
                file: &opened,
                id: id(idx),
                span,
            };
            let topics = contents.topics.iter().zip(&draft).zip(&entries);
            let topics = topics.map(|((topic, draft), entries)| (topic, draft, &*entries[idx]));
            let (mut episode, defects) = builder.episode(topics);
            info.defects.extend(defects);
            if episode.streams.is_empty() {
                continue;
            }
            episode.file = info.files.len();
            episode.task = spec::task(mapping, &contents, span);
            if let Some(about) = &about {
                let place = about_place(&file);
                about
                    .clone()
                    .restore(&mut episode, &place, &mut info.defects);
            }
            episodes.push(episode);
        }
        let here = &episodes[first..];
        let blame = |when: When| match when {
            When::At(time) => split::find(&spans, time).map(id),
            When::AtTheEnd => here.last().map(|episode| episode.id.clone()),
            // A defect of all episodes is attributed to none in particular.
            When::Always => here
                .first()
                .filter(|_| here.len() == 1)
                .map(|episode| episode.id.clone()),
        };
        info.defects
            .extend(spec::faults(&file, &contents, &draft, blame));
        if let Some(outside) = spec::outside(&contents.topics, &entries) {
            info.defects.push(Defect::noted(&file, outside));
        }
        if self.files == 1 {
            info.attributes = contents.attributes;
        } else if !contents.attributes.is_empty() {
            let attributes = Json::Object(contents.attributes);
            info.attributes.insert(stem.clone(), attributes);
        }
        let file = SourceFile::new(path.to_owned(), metadata.len());
        info.files.push(file);
        Ok(())
    }

    /// What an export wrote about the episode of a file.
    fn about(&mut self, contents: &mut Contents, file: &str) -> Option<About> {
        let said = contents.attributes.remove(export::ABOUT.0)?;
        let Some(text) = said[export::ABOUT.1].as_str() else {
            // Metadata of another program.
            contents.attributes.insert(export::ABOUT.0.to_owned(), said);
            return None;
        };
        match About::parse(text).map(About::with_bytes_as_bools) {
            Ok(about) => Some(about),
            Err(what) => {
                let defect = Defect::lost(about_place(file), what);
                self.source.info.defects.push(defect);
                None
            }
        }
    }
}

fn about_place(file: &str) -> String {
    format!("{file}, metadata `{}`", export::ABOUT.0)
}

impl McapFile {
    /// A chunk, decompressed.
    fn chunk(&self, chunk: u32) -> Result<Arc<Vec<u8>>> {
        let path = &self.path;
        self.recent.get((self.number, chunk), || {
            let place = usize::try_from(chunk).unwrap_or(usize::MAX);
            let read = self.chunks.get(place).map(|chunk| chunk.read(path));
            let read = read.unwrap_or_else(|| Ok(Err("does not exist".to_owned())));
            let read = read.reading(path)?;
            read.map_err(|what| ImportError::corrupt(path, &format!("chunk {chunk}"), what))
        })
    }
}

impl ReadFrames for McapStream {
    fn read(&self, wanted: Wanted<'_>) -> Result<FrameBuf> {
        let Wanted { stream, frames, .. } = wanted;
        let mut out = if stream.carried || stream.frame == FrameType::Text {
            FrameBuf::Bytes(Vec::new())
        } else {
            FrameBuf::Values(Vec::new())
        };
        let mut last: Option<(u32, Arc<Vec<u8>>)> = None;
        for place in &self.places[specs::places(&frames)] {
            let chunk = match last.take() {
                Some((known, chunk)) if known == place.chunk => chunk,
                _ => self.file.chunk(place.chunk)?,
            };
            let read = self.read_message(&chunk, *place, &stream.frame, &mut out);
            read.map_err(|what| {
                let what = format!("has a message that {what}");
                ImportError::corrupt(&self.file.path, &stream.name, what)
            })?;
            last = Some((place.chunk, chunk));
        }
        Ok(out)
    }
}

/// The bytes of a message.
fn payload(chunk: &[u8], place: Place) -> Result<&[u8], String> {
    let usize = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
    let data = chunk
        .get(usize(place.offset)..)
        .and_then(|rest| rest.get(..usize(place.len)));
    data.ok_or_else(|| "extends beyond its chunk".to_owned())
}

impl McapStream {
    /// Adds the frame in a message.
    fn read_message(
        &self,
        chunk: &[u8],
        place: Place,
        frame: &FrameType,
        out: &mut FrameBuf,
    ) -> Result<(), String> {
        let message = self.decoder.decode(payload(chunk, place)?)?;
        let paths = match (&self.pick, &self.look) {
            (Pick::Image(inside), Some(look)) => {
                let inside = message.get(inside).ok_or("has no image")?;
                return pixels::read(inside, look, out);
            }
            (Pick::Image(_), None) => return Err("has no image".to_owned()),
            (Pick::Fields(paths), _) => paths,
        };
        match out {
            FrameBuf::Bytes(texts) => match message.get(&paths[0]) {
                Some(Value::Text(text)) => texts.push(text.as_bytes().to_vec()),
                _ => return Err("has no text".to_owned()),
            },
            FrameBuf::Values(values) => {
                let before = values.len();
                for path in paths {
                    match message.get(path) {
                        Some(Value::Number(_, bytes) | Value::Numbers(_, bytes)) => {
                            values.extend(&**bytes)
                        }
                        _ => return Err(format!("has no numeric values in `{path}`")),
                    }
                }
                let wanted = frame.as_values().map_or(0, |ty| ty.frame_bytes());
                if values.len() - before != wanted {
                    return Err(format!(
                        "has {} bytes, expected {wanted}",
                        values.len() - before
                    ));
                }
                let is_bool = frame
                    .as_values()
                    .is_some_and(|ty| ty.dtype() == Dtype::Bool);
                if is_bool && values[before..].iter().any(|&byte| byte > 1) {
                    return Err("has a bool that is neither 0 nor 1".to_owned());
                }
            }
        }
        Ok(())
    }
}
