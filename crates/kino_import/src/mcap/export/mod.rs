//! Export to MCAP: a folder with one file per episode, of messages that every ROS 2 tool can show.
//!
//! ```text
//! kinograph.json     attributes of the dataset
//! demo_0.mcap        a topic per stream, messages in time order; metadata `kinograph` (about.rs)
//! ```
//!
//! | here | there |
//! |---|---|
//! | stream `obs/front` | topic `/obs/front`: letters, digits and `_` |
//! | frame and its timestamp | message (`messages.rs`), its log and publish time, and `header.stamp` if it has one |
//!
//! Streams keep their own rates: nothing is resampled. One block of frames per stream is in memory.

mod file;
mod messages;
mod video;

use std::fs;
use std::path::Path;

use kino_dataset::{Episode, Stream};

use crate::about::{self, About, Clocks};
use crate::error::{Result, invalid};
use crate::export::{EpisodeOutline, FrameReader, ImageForm, Outline, StreamOutline, WritingPath};
use crate::png;
use file::McapFile;
use messages::Message;

/// The name of the metadata record for what messages cannot hold, and the key in it.
pub(super) const ABOUT: (&str, &str) = ("kinograph", "about");

/// Assigns each stream its topic.
pub(crate) fn prepare(outline: &mut Outline) -> Result<()> {
    outline.rename(topic);
    outline.rename_episodes(|id, _| file_name(id))?;
    let losses = &mut outline.losses;
    for episode in &mut outline.episodes {
        let source = outline.dataset.find(&episode.id)?;
        let mut kept = Vec::new();
        for mut stream in std::mem::take(&mut episode.streams) {
            let frames = source.stream(&stream.source)?;
            video::settle(&mut stream, &frames, &outline.cameras, losses)?;
            let first = frames.clock()?.time_ns(0);
            let what = match (first, Message::of(&stream)) {
                (None, _) => "has no frames",
                (Some(..0), _) => "has timestamps before zero, which messages cannot hold",
                (_, Err(what)) => what,
                (_, Ok(_)) => {
                    kept.push(stream);
                    continue;
                }
            };
            losses.lose(stream.place(), what);
        }
        if kept.is_empty() {
            let id = &episode.id;
            return Err(invalid(format!(
                "episode `{id}` has no stream that messages can hold; select other episodes"
            )));
        }
        episode.streams = kept;
    }
    Ok(())
}

/// A valid ROS 2 topic name, without its leading slash.
fn topic(stream: &StreamOutline) -> String {
    let part = |part: &str| {
        let part = part.replace(|c: char| !c.is_ascii_alphanumeric() && c != '_', "_");
        if part.starts_with(|c: char| c.is_ascii_digit()) {
            format!("_{part}")
        } else {
            part
        }
    };
    let parts: Vec<_> = stream.source.split('/').map(part).collect();
    parts.join("/")
}

fn file_name(id: &str) -> String {
    let name = id.replace(|c: char| matches!(c, '/' | '\\') || c.is_control(), "_");
    if name.starts_with('.') {
        format!("_{name}")
    } else {
        name
    }
}

pub(crate) fn write(outline: &Outline, reader: &mut FrameReader<'_>, path: &Path) -> Result<()> {
    fs::create_dir(path).writing(path)?;
    about::write_dataset(path, &outline.attributes)?;
    for (_, episode) in outline.mine() {
        let source = outline.dataset.find(&episode.id)?;
        let file = path.join(format!("{}.mcap", episode.name));
        write_episode(&file, reader, episode, &source)?;
        reader.next_episode()?;
    }
    Ok(())
}

fn write_episode(
    path: &Path,
    reader: &mut FrameReader<'_>,
    episode: &EpisodeOutline,
    source: &Episode,
) -> Result<()> {
    let mut out = McapFile::create(path).writing(path)?;
    let mut schemas: Vec<(String, u16)> = Vec::new();
    let mut cursors = Vec::new();
    for stream in &episode.streams {
        let Ok(message) = Message::of(stream) else {
            continue;
        };
        let (name, definition) = message.schema();
        let known = schemas.iter().find(|(known, _)| *known == name);
        let schema = known.map(|(_, schema)| *schema).unwrap_or_else(|| {
            let schema = out.schema(&name, &definition);
            schemas.push((name, schema));
            schema
        });
        let channel = out.channel(schema, &format!("/{}", stream.name));
        let channel = channel.ok_or_else(|| {
            let id = &episode.id;
            invalid(format!(
                "episode `{id}` has more streams than MCAP has channels"
            ))
        })?;
        let source = source.stream(&stream.source)?;
        cursors.push(Cursor::new(stream, message, channel, source)?);
    }
    // The stream with the earliest next frame goes first: players read a file sequentially.
    while let Some((time_ns, cursor)) = earliest(&mut cursors) {
        let data = cursor.take(time_ns, reader)?;
        out.message(cursor.channel, time_ns, &data).writing(path)?;
    }
    let about = About::read(episode, source, Clocks::Rates)?;
    out.metadata(ABOUT.0, ABOUT.1, &about.to_json())
        .writing(path)?;
    out.finish().writing(path)
}

/// The stream with the earliest frame, and its time; the first of two.
fn earliest<'c, 'a>(cursors: &'c mut [Cursor<'a>]) -> Option<(u64, &'c mut Cursor<'a>)> {
    let next = cursors.iter_mut();
    let next = next.filter_map(|cursor| Some((cursor.time_ns()?, cursor)));
    next.min_by_key(|(time_ns, _)| *time_ns)
}

/// A stream that is read forward.
struct Cursor<'a> {
    stream: &'a StreamOutline,
    message: Message,
    channel: u16,
    source: Stream,
    times: Vec<i64>,
    next: usize,
    /// Frames that are read and not yet written, and the number of the first of them.
    block: (usize, Vec<Vec<u8>>),
}

impl<'a> Cursor<'a> {
    fn new(
        stream: &'a StreamOutline,
        message: Message,
        channel: u16,
        source: Stream,
    ) -> Result<Self> {
        let times = source.times_ns(0..source.len())?;
        Ok(Self {
            stream,
            message,
            channel,
            source,
            times,
            next: 0,
            block: (0, Vec::new()),
        })
    }

    /// The time of the next frame; `prepare` has excluded times before zero.
    fn time_ns(&self) -> Option<u64> {
        let time_ns = self.times.get(self.next)?;
        Some(u64::try_from(*time_ns).unwrap_or(0))
    }

    /// The next frame as a message.
    fn take(&mut self, time_ns: u64, reader: &mut FrameReader<'_>) -> Result<Vec<u8>> {
        let (first, frames) = &self.block;
        if self.next >= first + frames.len() {
            self.block = (self.next, self.read(reader)?);
        }
        let frame = self.block.1.get_mut(self.next - self.block.0);
        let mut frame = frame.map(std::mem::take).unwrap_or_default();
        if let Message::Files(ImageForm::Png(ty)) = &self.message {
            frame = png::encode(ty, &frame).map_err(|what| {
                let (name, frame) = (&self.stream.source, self.next);
                invalid(format!("frame {frame} of stream `{name}` {what}"))
            })?;
        }
        self.next += 1;
        Ok(self.message.encode(&self.stream.name, time_ns, &frame))
    }

    /// Reads frames from the next one on.
    fn read(&self, reader: &mut FrameReader<'_>) -> Result<Vec<Vec<u8>>> {
        Ok(match &self.message {
            Message::Video(coding) => {
                let frames = video::messages(&self.source, *coding, self.next)?;
                let bytes = self.stream.raw_bytes() / self.times.len().max(1) as u64;
                reader.add_bytes(bytes * frames.len() as u64)?;
                frames
            }
            Message::Text => {
                let texts = reader.texts(&self.source)?.into_iter();
                texts.map(String::into_bytes).collect()
            }
            Message::Files(ImageForm::Jpeg(ty)) => {
                vec![reader.jpeg(&self.source, ty, self.next)?]
            }
            _ => {
                let (_, block) = reader.block(&self.source, self.next)?;
                let size = self
                    .source
                    .frame_type()
                    .as_values()
                    .map_or(1, |ty| ty.frame_bytes());
                block
                    .chunks_exact(size.max(1))
                    .map(<[u8]>::to_vec)
                    .collect()
            }
        })
    }
}
