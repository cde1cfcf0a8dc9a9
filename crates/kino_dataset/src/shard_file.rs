//! One shard file while it is being written: in `staging/` until it is complete.
//!
//! Pages are appended as they arrive. An abandoned episode is truncated away, so the file always ends with a complete
//! episode or with one that can still be completed.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Duration;

use kino_codec::CLOCK_CODEC;
use kino_format::{EpisodeRecords, MAX_STREAMS, NONE, Schema, ShardWriter, StreamSchema};

use crate::attributes;
use crate::compare::Distortion;
use crate::draft::{EpisodeDraft, StreamDraft};
use crate::encode_queue::Run;
use crate::episode_records::{clock_record, seconds, stream_record};
use crate::error::{Result, codec_at, format_at, io_at};
use crate::hash::Hash;
use crate::links::LinkedFile;
use crate::manifest::ShardRef;
use crate::pages::LinkedPage;
use crate::staging::Area;
use crate::stats::StatsPart;
use crate::store::Store;
use crate::table::EpisodeRow;
use crate::usage::Usage;

/// Bytes are written to the file in chunks of at least this size.
const FLUSH_BYTES: usize = 1 << 20;

/// Whether pages of a shard may be linked, which only newer readers understand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShardKind {
    Packed,
    Linked,
}

/// One shard in `staging/`.
#[derive(Debug)]
pub(crate) struct ShardFile {
    kind: ShardKind,
    pub(crate) writer: ShardWriter,
    file: tempfile::NamedTempFile,
    pub(crate) buffer: Vec<u8>,
    hasher: blake3::Hasher,
    pub(crate) schema: Schema,
    /// Length and hash at the start of the current episode, for rolling back.
    episode_start: (u64, Box<blake3::Hasher>),
    pub(crate) contents: Contents,
}

/// What the complete episodes of a shard hold.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) rows: Vec<(u64, EpisodeRow)>,
    pub(crate) usage: Usage,
    pub(crate) parts: BTreeMap<String, StatsPart>,
    /// The files that pages are linked to, in the order of the schema.
    pub(crate) files: Vec<LinkedFile>,
}

/// The pages of one stream or clock of the current episode.
#[derive(Debug)]
pub(crate) struct RunPages {
    pub(crate) first_page: u32,
    pub(crate) page_count: u32,
    pub(crate) shared_page: u32,
    pub(crate) bytes: u64,
    /// Of these, bytes that are not in the shard.
    pub(crate) linked_bytes: u64,
    /// The first frame of the first block.
    pub(crate) first_frame: Option<u32>,
    /// Pages that are linked: they follow all others of the episode.
    pub(crate) linked: Vec<LinkedPage>,
    pub(crate) error: Distortion,
    pub(crate) stats: Option<StatsPart>,
    pub(crate) encoder: Option<String>,
    pub(crate) encode_time: Duration,
    pub(crate) decode_time: Duration,
}

impl Default for RunPages {
    fn default() -> Self {
        Self {
            first_page: 0,
            page_count: 0,
            shared_page: NONE,
            bytes: 0,
            linked_bytes: 0,
            first_frame: None,
            linked: Vec::new(),
            error: Distortion::default(),
            stats: None,
            encoder: None,
            encode_time: Duration::ZERO,
            decode_time: Duration::ZERO,
        }
    }
}

impl ShardFile {
    pub(crate) fn new(area: &Area, kind: ShardKind) -> Result<Self> {
        let mut buffer = Vec::new();
        let writer = match kind {
            ShardKind::Packed => ShardWriter::new(&mut buffer),
            ShardKind::Linked => ShardWriter::linked(&mut buffer),
        };
        let mut file = Self {
            kind,
            writer,
            file: area.shard_file()?,
            buffer,
            hasher: blake3::Hasher::new(),
            schema: Schema {
                clock_codec: CLOCK_CODEC.to_owned(),
                ..Schema::default()
            },
            episode_start: (0, Box::new(blake3::Hasher::new())),
            contents: Contents::default(),
        };
        file.begin_episode()?;
        Ok(file)
    }

    /// Bytes written so far.
    pub(crate) fn position(&self) -> u64 {
        self.writer.position()
    }

    /// Whether it holds no complete episode.
    pub(crate) fn is_empty(&self) -> bool {
        self.contents.rows.is_empty()
    }

    /// Records where the next episode starts.
    fn begin_episode(&mut self) -> Result<()> {
        self.flush()?;
        self.episode_start = (self.writer.position(), Box::new(self.hasher.clone()));
        Ok(())
    }

    pub(crate) fn page(&mut self, bytes: &[u8], first_frame: u32) -> Result<u32> {
        let number = self
            .writer
            .page(bytes, first_frame, &mut self.buffer)
            .map_err(format_at("new shard"))?;
        if self.buffer.len() >= FLUSH_BYTES {
            self.flush()?;
        }
        Ok(number)
    }

    fn flush(&mut self) -> Result<()> {
        self.hasher.update(&self.buffer);
        let path = self.file.path().display().to_string();
        self.file
            .write_all(&self.buffer)
            .map_err(io_at("write", path))?;
        self.buffer.clear();
        Ok(())
    }

    pub(crate) fn abandon_episode(&mut self) -> Result<()> {
        let (len, hasher) = &self.episode_start;
        let error = io_at("write", self.file.path().display().to_string());
        self.buffer.clear();
        self.hasher = (**hasher).clone();
        self.writer.abandon_episode();
        let file = self.file.as_file_mut();
        file.set_len(*len)
            .and_then(|()| file.seek(SeekFrom::Start(*len)))
            .map(|_| ())
            .map_err(error)
    }

    /// Whether the schema has room for the streams of an episode: a name has one codec in it.
    pub(crate) fn has_room_for(&self, draft: &EpisodeDraft) -> bool {
        let is_other = |stream: &StreamDraft| {
            let mut known = self.schema.streams.iter();
            let known = known.find(|known| known.name == stream.schema.name);
            known.is_some_and(|known| *known != stream.schema)
        };
        if self.kind == ShardKind::Linked && draft.streams.iter().any(is_other) {
            return false;
        }
        if self.schema.streams.len() + draft.streams.len() <= MAX_STREAMS {
            return true;
        }
        let mut known: HashMap<&str, Vec<&StreamSchema>> = HashMap::new();
        for stream in &self.schema.streams {
            known.entry(&stream.name).or_default().push(stream);
        }
        let is_new = |stream: &&StreamDraft| {
            let alike = known.get(stream.schema.name.as_str());
            alike.is_none_or(|alike| !alike.contains(&&stream.schema))
        };
        let new = draft.streams.iter().filter(is_new).count();
        self.schema.streams.len() + new <= MAX_STREAMS
    }

    /// Moves the unfinished episode to a new shard.
    pub(crate) fn move_episode(&mut self, area: &Area) -> Result<Self> {
        self.flush()?;
        let mut next = Self::new(area, self.kind)?;
        let error =
            |path: &std::path::Path| io_at("copy an episode to", path.display().to_string());
        let mut left = self.writer.position() - self.episode_start.0;
        let mut file = self.file.as_file();
        file.seek(SeekFrom::Start(self.episode_start.0))
            .map_err(error(next.file.path()))?;
        while left > 0 {
            let len = usize::try_from(left)
                .unwrap_or(FLUSH_BYTES)
                .min(FLUSH_BYTES);
            next.buffer.resize(len, 0);
            file.read_exact(&mut next.buffer)
                .map_err(error(next.file.path()))?;
            next.flush()?;
            left -= len as u64;
        }
        next.writer.take_episode(&mut self.writer);
        self.abandon_episode()?;
        Ok(next)
    }

    pub(crate) fn end_episode(
        &mut self,
        draft: EpisodeDraft,
        mut runs: Vec<(Run, RunPages)>,
    ) -> Result<()> {
        let place = draft.info.label();
        let mut take = |run: Run| {
            let found = runs.iter().position(|(known, _)| *known == run);
            found.map(|idx| runs.swap_remove(idx).1).unwrap_or_default()
        };
        let clocks: Vec<_> = draft
            .clocks
            .iter()
            .enumerate()
            .map(|(idx, clock)| clock_record(clock, &take(Run::Clock(idx))))
            .collect();
        let text = attributes::encode(&draft).map_err(codec_at(place.clone()))?;
        let attributes_page = self.page(&text, 0)?;
        let mut streams = Vec::with_capacity(draft.streams.len());
        for (idx, stream) in draft.streams.iter().enumerate() {
            let mut pages = take(Run::Stream(idx));
            self.link(&mut pages)?;
            streams.push(stream_record(
                stream,
                self.schema_position(&stream.schema),
                &pages,
            ));
            self.count(stream, pages);
        }
        let summary = self
            .writer
            .end_episode(
                &EpisodeRecords {
                    clocks: &clocks,
                    streams: &streams,
                    attributes_page,
                },
                &self.schema,
                &mut self.buffer,
            )
            .map_err(format_at(place))?;
        let raw_bytes = streams.iter().map(|stream| stream.raw_bytes).sum();
        let timed = clocks.iter().filter(|clock| clock.frames > 0);
        let start_ns = timed.clone().map(|clock| clock.start_ns).min().unwrap_or(0);
        let end_ns = timed.map(|clock| clock.end_ns).max().unwrap_or(start_ns);
        let position = draft.info.position.unwrap_or(u64::MAX);
        let row = EpisodeRow {
            frames: draft
                .streams
                .iter()
                .map(|stream| u64::from(stream.frames))
                .max()
                .unwrap_or(0),
            start_ns,
            duration_s: seconds(end_ns.saturating_sub(start_ns)),
            bytes: summary.bytes,
            raw_bytes,
            shard: [0; 32],
            slot: u32::try_from(summary.slot).unwrap_or(u32::MAX),
            hash: summary.hash,
            ..draft.info.into_row()
        };
        self.contents.rows.push((position, row));
        self.begin_episode()
    }

    fn count(&mut self, stream: &StreamDraft, pages: RunPages) {
        let elements = stream.schema.shape.iter().product::<usize>() as u64;
        self.contents.usage.add(&stream.schema, |used| {
            used.episodes += 1;
            used.frames += u64::from(stream.frames);
            used.raw_bytes += stream.raw_bytes;
            used.bytes += pages.bytes;
            used.linked_bytes += pages.linked_bytes;
            used.max_abs_error = used.max_abs_error.max(pages.error.max_abs);
            used.sum_squared_error += pages.error.sum_squared;
            used.stored_values += u64::from(stream.frames - stream.shared.count) * elements;
            used.encode_time += pages.encode_time;
            used.decode_time += pages.decode_time;
            used.protected_frames += stream.protected_frames;
            used.add_encoders(pages.encoder);
            used.add_resized_from(stream.resized_from);
            used.trial = used.trial.take().or_else(|| stream.trial.clone());
        });
        if let Some(stats) = pages.stats {
            match self.contents.parts.get_mut(&stream.schema.name) {
                Some(known) => known.merge(stats),
                None => drop(
                    self.contents
                        .parts
                        .insert(stream.schema.name.clone(), stats),
                ),
            }
        }
    }

    /// The stream's index in the shard's schema; a new stream is added.
    fn schema_position(&mut self, stream: &StreamSchema) -> u32 {
        let known = self.schema.streams.iter().position(|known| known == stream);
        let position = known.unwrap_or_else(|| {
            self.schema.streams.push(stream.clone());
            self.schema.streams.len() - 1
        });
        u32::try_from(position).unwrap_or(NONE)
    }

    /// Writes the tail and moves the file to its final place.
    pub(crate) fn publish(mut self, store: &Store) -> Result<(ShardRef, Contents)> {
        self.flush()?;
        let mut tail = Vec::new();
        let bytes = self
            .writer
            .finish(&self.schema, &mut tail)
            .map_err(format_at("new shard"))?;
        self.hasher.update(&tail);
        let path = self.file.path().display().to_string();
        self.file.write_all(&tail).map_err(io_at("write", path))?;
        let hash = Hash::from(*self.hasher.finalize().as_bytes());
        store.publish_shard(self.file, &hash)?;
        let shard = ShardRef {
            blake3: hash,
            bytes,
            episodes: self.contents.rows.len() as u64,
        };
        Ok((shard, self.contents))
    }
}
