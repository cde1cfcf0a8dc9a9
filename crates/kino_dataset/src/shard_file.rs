//! The shard file that is being written, and what the finished ones hold.

use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::time::Duration;

use kino_codec::Scratch;
use kino_format::{Clock, ClockRecord, NONE, Schema, ShardWriter, StreamRecord, StreamSchema};

use crate::assembly::{CLOCK_CODEC, EpisodeDraft, Run, StreamDraft};
use crate::attributes;
use crate::encode::{Deviation, Packed};
use crate::error::{Result, codec_at, format_at, io_at};
use crate::hash::Hash;
use crate::manifest::ShardRef;
use crate::receipts::{Receipt, Receipts};
use crate::stats::{StatsPart, StreamStats};
use crate::store::Store;
use crate::table::EpisodeRow;
use crate::usage::Usage;

/// Bytes are written to the file in pieces of at least this size.
const FLUSH_BYTES: usize = 1 << 20;

/// Lays pages down into shards, in the order they come.
#[derive(Debug)]
pub(crate) struct Assembler {
    store: Store,
    shard_bytes: u64,
    file: Option<ShardFile>,
    runs: Vec<(Run, RunPages)>,
    finished: Finished,
}

/// Everything that was written: what a commit makes visible.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    pub(crate) shards: Vec<ShardRef>,
    /// Rows with their position in the source's order.
    pub(crate) rows: Vec<(u64, EpisodeRow)>,
    pub(crate) usage: Usage,
    /// Statistics of what was written now, mergeable without loss.
    pub(crate) parts: BTreeMap<String, StatsPart>,
    /// Statistics that were taken up from an interrupted pack.
    pub(crate) taken_up: BTreeMap<String, StreamStats>,
}

/// One shard in `staging/`.
#[derive(Debug)]
struct ShardFile {
    writer: ShardWriter,
    file: tempfile::NamedTempFile,
    buffer: Vec<u8>,
    hasher: blake3::Hasher,
    schema: Schema,
    /// Length and hash when the current episode began, to go back to.
    episode_start: (u64, Box<blake3::Hasher>),
    contents: Contents,
}

/// What the whole episodes of a shard hold.
#[derive(Debug, Default)]
struct Contents {
    rows: Vec<(u64, EpisodeRow)>,
    usage: Usage,
    parts: BTreeMap<String, StatsPart>,
}

/// The pages of one stream or clock of the current episode.
#[derive(Debug)]
struct RunPages {
    first_page: u32,
    page_count: u32,
    shared_page: u32,
    bytes: u64,
    error: Deviation,
    stats: Option<StatsPart>,
    encode_time: Duration,
    decode_time: Duration,
}

impl Default for RunPages {
    fn default() -> Self {
        Self {
            first_page: 0,
            page_count: 0,
            shared_page: NONE,
            bytes: 0,
            error: Deviation::default(),
            stats: None,
            encode_time: Duration::ZERO,
            decode_time: Duration::ZERO,
        }
    }
}

impl Assembler {
    pub(crate) fn new(store: Store, shard_bytes: u64) -> Self {
        Self {
            store,
            shard_bytes,
            file: None,
            runs: Vec::new(),
            finished: Finished::default(),
        }
    }

    /// Counts a shard that an interrupted pack had finished.
    pub(crate) fn take_up(&mut self, receipt: Receipt) {
        self.finished.shards.push(receipt.shard);
        self.finished.rows.extend(receipt.rows);
        self.finished.usage.merge(receipt.usage);
        merge_stats(&mut self.finished.taken_up, receipt.stats);
    }

    /// Lays down the pages of a block.
    pub(crate) fn pages(&mut self, run: Run, first_frame: u32, packed: Packed) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(ShardFile::new(&self.store)?),
        };
        if self.runs.last().is_none_or(|(last, _)| *last != run) {
            self.runs.push((run, RunPages::default()));
        }
        let Some((_, pages)) = self.runs.last_mut() else {
            return Ok(());
        };
        if !packed.encoded.shared.is_empty() {
            pages.shared_page = file.page(&packed.encoded.shared, 0)?;
            pages.bytes += packed.encoded.shared.len() as u64;
        }
        let mut first_frame = first_frame;
        for page in &packed.encoded.pages {
            let number = file.page(&page.bytes, first_frame)?;
            if pages.page_count == 0 {
                pages.first_page = number;
            }
            pages.page_count += 1;
            pages.bytes += page.bytes.len() as u64;
            first_frame += u32::try_from(page.frames).unwrap_or(u32::MAX);
        }
        pages.error.merge(packed.error);
        pages.encode_time += packed.encode_time;
        pages.decode_time += packed.decode_time;
        match (&mut pages.stats, packed.stats) {
            (Some(stats), Some(more)) => stats.merge(more),
            (stats, more) => *stats = stats.take().or(more),
        }
        Ok(())
    }

    /// Ends the episode: its index goes after its pages, and a full shard is closed.
    pub(crate) fn end_episode(
        &mut self,
        draft: EpisodeDraft,
        receipts: &mut Receipts,
    ) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(ShardFile::new(&self.store)?),
        };
        file.end_episode(draft, std::mem::take(&mut self.runs))?;
        if file.writer.position() >= self.shard_bytes {
            self.finish_shard(receipts)?;
        }
        Ok(())
    }

    /// Goes back to the end of the last whole episode.
    pub(crate) fn abandon_episode(&mut self) -> Result<()> {
        self.runs.clear();
        self.file
            .as_mut()
            .map_or(Ok(()), ShardFile::abandon_episode)
    }

    /// Closes the last shard and returns everything that was written.
    pub(crate) fn finish(mut self, receipts: &mut Receipts) -> Result<Finished> {
        self.finish_shard(receipts)?;
        Ok(self.finished)
    }

    fn finish_shard(&mut self, receipts: &mut Receipts) -> Result<()> {
        let Some(file) = self
            .file
            .take()
            .filter(|file| !file.contents.rows.is_empty())
        else {
            return Ok(());
        };
        let (shard, contents) = file.publish(&self.store)?;
        let Contents {
            mut rows,
            usage,
            parts,
        } = contents;
        for (_, row) in &mut rows {
            row.shard = *shard.blake3.as_bytes();
        }
        let stats = parts
            .iter()
            .map(|(name, part)| (name.clone(), part.finish()))
            .collect();
        let receipt = Receipt {
            shard: shard.clone(),
            rows,
            usage: usage.clone(),
            stats,
        };
        receipts.write(&receipt)?;
        self.finished.shards.push(shard);
        self.finished.rows.extend(receipt.rows);
        self.finished.usage.merge(usage);
        for (name, part) in parts {
            match self.finished.parts.get_mut(&name) {
                Some(known) => known.merge(part),
                None => drop(self.finished.parts.insert(name, part)),
            }
        }
        Ok(())
    }
}

/// Merges the statistics of streams by name.
pub(crate) fn merge_stats(
    into: &mut BTreeMap<String, StreamStats>,
    from: BTreeMap<String, StreamStats>,
) {
    for (name, stats) in from {
        let merged = into
            .get(&name)
            .and_then(|known| known.merge(&stats))
            .unwrap_or(stats);
        into.insert(name, merged);
    }
}

impl ShardFile {
    fn new(store: &Store) -> Result<Self> {
        let mut buffer = Vec::new();
        let writer = ShardWriter::new(&mut buffer);
        let mut file = Self {
            writer,
            file: store.staging_file()?,
            buffer,
            hasher: blake3::Hasher::new(),
            schema: Schema {
                clock_codec: CLOCK_CODEC.to_owned(),
                streams: Vec::new(),
            },
            episode_start: (0, Box::new(blake3::Hasher::new())),
            contents: Contents::default(),
        };
        file.begin_episode()?;
        Ok(file)
    }

    /// Remembers where the next episode begins.
    fn begin_episode(&mut self) -> Result<()> {
        self.flush()?;
        self.episode_start = (self.writer.position(), Box::new(self.hasher.clone()));
        Ok(())
    }

    fn page(&mut self, bytes: &[u8], first_frame: u32) -> Result<u32> {
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

    fn abandon_episode(&mut self) -> Result<()> {
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

    fn end_episode(&mut self, draft: EpisodeDraft, mut runs: Vec<(Run, RunPages)>) -> Result<()> {
        let place = format!("episode `{}`", draft.info.id);
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
        let mut streams = Vec::with_capacity(draft.streams.len());
        for (idx, stream) in draft.streams.iter().enumerate() {
            let pages = take(Run::Stream(idx));
            streams.push(stream_record(
                stream,
                self.schema_position(&stream.schema),
                &pages,
            ));
            self.count(stream, pages);
        }
        let text = attributes::encode(&draft.info, &mut Scratch::new())
            .map_err(codec_at(place.clone()))?;
        let attributes_page = self.page(&text, 0)?;
        let summary = self
            .writer
            .end_episode(
                (&clocks, &streams),
                attributes_page,
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
            id: draft.info.id,
            splits: draft.info.splits,
            task: draft.info.task,
            success: draft.info.success,
            licence: draft.info.licence,
            consent: draft.info.consent,
            source: draft.info.source,
            source_hash: draft.info.source_hash,
            labels: draft.info.labels,
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
            used.max_abs_error = used.max_abs_error.max(pages.error.max_abs);
            used.sum_squared_error += pages.error.sum_squared;
            used.stored_values += u64::from(stream.frames - stream.own_start) * elements;
            used.encode_time += pages.encode_time;
            used.decode_time += pages.decode_time;
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

    /// The stream's position in the shard's schema, where it is added if it is new.
    fn schema_position(&mut self, stream: &StreamSchema) -> u32 {
        let known = self.schema.streams.iter().position(|known| known == stream);
        let position = known.unwrap_or_else(|| {
            self.schema.streams.push(stream.clone());
            self.schema.streams.len() - 1
        });
        u32::try_from(position).unwrap_or(NONE)
    }

    /// Writes the tail and moves the file to its place.
    fn publish(mut self, store: &Store) -> Result<(ShardRef, Contents)> {
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

fn clock_record(clock: &Clock, pages: &RunPages) -> ClockRecord {
    let (period_num, period_den) = match clock {
        Clock::Regular(regular) => (regular.period_num, regular.period_den),
        Clock::Explicit(_) => (0, 0),
    };
    let start_ns = match clock {
        Clock::Regular(regular) => regular.start_ns,
        Clock::Explicit(times) => times.first().copied().unwrap_or(0),
    };
    ClockRecord {
        start_ns,
        end_ns: clock
            .len()
            .checked_sub(1)
            .and_then(|last| clock.time_ns(last))
            .unwrap_or(start_ns),
        period_num,
        period_den,
        frames: u32::try_from(clock.len()).unwrap_or(u32::MAX),
        first_page: pages.first_page,
        page_count: pages.page_count,
        shared_page: pages.shared_page,
    }
}

fn stream_record(stream: &StreamDraft, position: u32, pages: &RunPages) -> StreamRecord {
    StreamRecord {
        stream: position,
        clock: u32::try_from(stream.clock).unwrap_or(NONE),
        frames: stream.frames,
        own_start: stream.own_start,
        base: stream
            .base
            .and_then(|base| u32::try_from(base).ok())
            .unwrap_or(NONE),
        base_first: stream.base_first,
        first_page: pages.first_page,
        page_count: pages.page_count,
        shared_page: pages.shared_page,
        max_abs_error: pages.error.max_abs,
        sum_squared_error: pages.error.sum_squared,
        raw_bytes: stream.raw_bytes,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a duration for people")]
fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}
