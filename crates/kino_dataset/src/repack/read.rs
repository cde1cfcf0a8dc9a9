//! What the threads of [`ReadAhead`](crate::ReadAhead) read of a dataset: pages as they are, or decoded frames.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};

use kino_codec::{FrameType, Scratch};
use kino_format::{NONE, PageSlice};
use kino_sync::Mutex;

use crate::dataset::Dataset;
use crate::episode::Episode;
use crate::error::{Result, corrupt};
use crate::pages::{NewPage, PageCheck, Pages};
use crate::plan::Arrival;
use crate::read_ahead::{Pieces, Share, Task};
use crate::stored_stream::StoredStream;
use crate::stream::Stream;
use crate::stream_info::{SharedFrames, StreamInfo, Times};

use super::changes::{Action, StreamChange};

/// Pages are read in runs of about this many bytes.
const RUN_BYTES: u64 = 8 << 20;

/// Decoded frames are passed on in pieces of about this many bytes.
const PIECE_BYTES: usize = 1 << 20;

/// Episodes that stay open: those whose streams are being read.
const OPEN_EPISODES: usize = 64;

/// A piece of a stream, in the order in which they come.
#[derive(Debug)]
pub(super) enum Piece {
    /// What the stream is, and how it is written.
    Begin(Box<Begin>),
    /// Its next pages, and their share of the memory, which is held until they are passed on.
    Pages(Pages, Share),
    /// Its next frames, and their share.
    Values(Vec<u8>, Share),
    /// Its next texts.
    Texts(Vec<String>),
}

/// A stream before its frames.
#[derive(Debug)]
pub(super) struct Begin {
    pub(super) info: StreamInfo,
    /// The stream that it is a variant of.
    pub(super) variant_of: Option<String>,
    pub(super) written: Written,
}

/// How a stream of an episode is written.
#[derive(Debug)]
pub(super) enum Written {
    /// Page by page, in this codec.
    Copied(String),
    /// Encoded again, as the change at this position says.
    Encoded(usize),
}

/// A dataset whose streams are read, and what happens to them.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    pub(super) dataset: &'a Dataset,
    pub(super) changes: &'a [StreamChange],
    /// Whether the statistics of copied streams are known: then their pages need not be decoded.
    pub(super) has_stats: Vec<bool>,
    open: Mutex<VecDeque<Episode>>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(
        dataset: &'a Dataset,
        changes: &'a [StreamChange],
        has_stats: Vec<bool>,
    ) -> Self {
        Self {
            dataset,
            changes,
            has_stats,
            open: Mutex::default(),
        }
    }

    /// The episode in a row; the last few stay open.
    pub(super) fn episode(&self, row: usize) -> Result<Episode> {
        let known = |open: &VecDeque<Episode>| open.iter().find(|one| one.row() == row).cloned();
        if let Some(episode) = known(&self.open.lock()) {
            return Ok(episode);
        }
        let episode = self.dataset.episode(row)?;
        let mut open = self.open.lock();
        if open.len() >= OPEN_EPISODES {
            open.pop_front();
        }
        open.push_back(episode.clone());
        Ok(episode)
    }

    /// The positions of the streams of an episode that are written, in the order in which they are: as they are stored,
    /// and after the one that they share frames with. Variants that are added come last; their positions count on
    /// through `changes`.
    pub(super) fn order(&self, episode: &Episode) -> Vec<usize> {
        let is_taken = |name: &str| {
            let change = self.change(name);
            change.is_some_and(|idx| self.changes[idx].action != Action::Drop)
        };
        let streams = episode.streams().enumerate();
        let taken = streams.filter(|(_, stream)| is_taken(&stream.name));
        let mut order: Vec<_> = taken.map(|(idx, _)| idx).collect();
        order.sort_by_key(|&idx| match episode.index().stream(idx).base {
            NONE => (idx, 0),
            base => (idx.max(base as usize), 1),
        });
        let has = |name: &str| episode.streams().any(|stream| stream.name == name);
        let is_missing = |change: &StreamChange| {
            let source = change.source.as_ref();
            let is_wanted = source.is_some_and(|(base, _)| has(base));
            change.action.encodes() && is_wanted && !has(&change.stored.name)
        };
        let changes = self.changes.iter().enumerate();
        let added = changes.filter(|(_, change)| is_missing(change));
        order.extend(added.map(|(idx, _)| episode.streams().count() + idx));
        order
    }

    fn change(&self, name: &str) -> Option<usize> {
        let mut changes = self.changes.iter();
        changes.position(|change| change.stored.name == name)
    }

    /// Reads a stream to its end, or until the consumer is gone.
    pub(super) fn read(&self, task: Task, out: &Pieces<Result<Piece>>) {
        if let Err(error) = self.read_stream(task, out) {
            // If the consumer is gone, its error does not matter either.
            out.send(Err(error));
        }
    }

    fn read_stream(&self, (row, position): Task, out: &Pieces<Result<Piece>>) -> Result<()> {
        let episode = self.episode(row)?;
        let idx = match position.checked_sub(episode.streams().count()) {
            Some(added) => added,
            None => {
                let stored = StoredStream::open(episode.clone(), position)?;
                let unknown = || corrupt(stored.place(), "the manifest does not list the stream");
                let idx = self.change(&stored.schema().name).ok_or_else(unknown)?;
                let change = &self.changes[idx];
                let codec = &stored.schema().codec;
                if !change.action.encodes() || change.kept.contains(codec) {
                    return self.copy_stream(&episode, &stored, idx, out);
                }
                idx
            }
        };
        let change = &self.changes[idx];
        // A variant is made from all frames of its stream.
        let is_unshared = change.is_unshared || change.source.is_some();
        let name = change.source.as_ref().map(|(base, _)| base);
        let name = name.unwrap_or(&change.stored.name);
        let position = episode.streams().position(|stream| stream.name == *name);
        let missing = || corrupt(episode.place("streams"), format!("there is no `{name}`"));
        let stored = StoredStream::open(episode.clone(), position.ok_or_else(missing)?)?;
        let info = StreamInfo {
            name: change.stored.name.clone(),
            ..stream_info(&episode, &stored, is_unshared)?
        };
        if !self.begin(info, idx, Written::Encoded(idx), out) {
            return Ok(());
        }
        read_frames(&episode, &stored, is_unshared, out)
    }

    /// Reads the pages of a stream as they are.
    fn copy_stream(
        &self,
        episode: &Episode,
        stored: &StoredStream,
        idx: usize,
        out: &Pieces<Result<Piece>>,
    ) -> Result<()> {
        let info = stream_info(episode, stored, self.changes[idx].is_unshared)?;
        let written = Written::Copied(stored.schema().codec.clone());
        if !self.begin(info, idx, written, out) {
            return Ok(());
        }
        let check = if self.has_stats[idx] {
            PageCheck::Checksum
        } else {
            PageCheck::Decode
        };
        read_pages(stored, check, out)
    }

    /// Tells what comes; whether the consumer wants it.
    fn begin(
        &self,
        info: StreamInfo,
        idx: usize,
        written: Written,
        out: &Pieces<Result<Piece>>,
    ) -> bool {
        let variant_of = self.changes[idx].variant_of.clone();
        out.send(Ok(Piece::Begin(Box::new(Begin {
            info,
            variant_of,
            written,
        }))))
    }
}

fn stream_info(episode: &Episode, stored: &StoredStream, is_unshared: bool) -> Result<StreamInfo> {
    let (record, schema) = (stored.record(), stored.schema());
    let stream = Stream::open(episode.clone(), stored.position())?;
    let is_shared = record.base != NONE && !is_unshared;
    let base = episode.streams().nth(record.base as usize);
    Ok(StreamInfo {
        name: schema.name.clone(),
        kind: schema.kind,
        frame: stored.frame_type().clone(),
        frames: u64::from(record.frames),
        times: Times::Clock(stream.clock()?.clone()),
        arrival: Arrival::Values,
        shared: base.filter(|_| is_shared).map(|base| SharedFrames {
            base: base.name.clone(),
            first: u64::from(record.base_first),
            count: u64::from(record.own_start),
        }),
    })
}

/// The pages that hold these frames, in runs that are read in one request.
fn runs(stored: &StoredStream, frames: Range<u32>) -> Vec<Vec<PageSlice>> {
    let mut runs: Vec<Vec<PageSlice>> = Vec::new();
    let mut bytes = 0;
    for page in stored.pages(frames) {
        bytes += u64::from(page.record.len);
        match runs.last_mut() {
            Some(run) if bytes <= RUN_BYTES => run.push(page),
            _ => {
                bytes = u64::from(page.record.len);
                runs.push(vec![page]);
            }
        }
    }
    runs
}

/// Reads the pages of a stream as they are.
fn read_pages(stored: &StoredStream, check: PageCheck, out: &Pieces<Result<Piece>>) -> Result<()> {
    let record = stored.record();
    for run in runs(stored, stored.frames()) {
        let len: usize = run.iter().map(|page| page.record.len as usize).sum();
        let share = out.share(len);
        let bytes = stored.fetch(&run)?;
        let is_first = run.first().map(|page| page.record.first_frame) == Some(record.own_start);
        let mut pages = Pages {
            shared: stored.read_shared()?,
            error: (record.max_abs_error, record.sum_squared_error),
            check,
            ..Pages::default()
        };
        if is_first && *stored.frame_type() == FrameType::Text {
            pages.text_bytes = record.raw_bytes;
        }
        for page in &run {
            pages.pages.push(NewPage {
                frames: u32::try_from(page.frames).unwrap_or(u32::MAX),
                bytes: Some(stored.page_bytes(&run, page, &bytes)?.to_vec()),
                pieces: Vec::new(),
            });
        }
        if !out.send(Ok(Piece::Pages(pages, share))) {
            return Ok(());
        }
    }
    Ok(())
}

/// Decodes the frames of a stream: its own, and if `is_unshared` those that it shares with another before them.
fn read_frames(
    episode: &Episode,
    stored: &StoredStream,
    is_unshared: bool,
    out: &Pieces<Result<Piece>>,
) -> Result<()> {
    let record = stored.record();
    let mut frames = DecodedFrames::new(out);
    if is_unshared && record.base != NONE {
        let base = StoredStream::open(episode.clone(), record.base as usize)?;
        let first = record.base_first;
        let shared = first..first.saturating_add(record.own_start);
        if frames.decode(&base, shared)?.is_break() {
            return Ok(());
        }
    }
    if frames.decode(stored, stored.frames())?.is_continue() {
        // Whether the consumer wants more does not matter at the end.
        let _ = frames.flush();
    }
    Ok(())
}

/// Decoded frames on their way to the consumer, gathered into pieces.
struct DecodedFrames<'a> {
    out: &'a Pieces<Result<Piece>>,
    scratch: Scratch,
    waiting: Option<(Vec<u8>, Share)>,
}

impl<'a> DecodedFrames<'a> {
    fn new(out: &'a Pieces<Result<Piece>>) -> Self {
        Self {
            out,
            scratch: Scratch::new(),
            waiting: None,
        }
    }

    /// Decodes frames of a stored stream; whether the consumer wants more.
    fn decode(&mut self, stored: &StoredStream, frames: Range<u32>) -> Result<ControlFlow<()>> {
        for run in runs(stored, frames) {
            let fetched = stored.fetch(&run)?;
            for page in &run {
                let bytes = stored.page_bytes(&run, page, &fetched)?;
                let done = match stored.frame_type().as_values() {
                    Some(ty) => self.values(stored, page, bytes, ty.frame_bytes())?,
                    None => self.texts(stored, page, bytes)?,
                };
                if done.is_break() {
                    return Ok(done);
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn texts(
        &mut self,
        stored: &StoredStream,
        page: &PageSlice,
        bytes: &[u8],
    ) -> Result<ControlFlow<()>> {
        let mut texts = Vec::new();
        stored.decode_text(page, bytes, &mut texts, &mut self.scratch)?;
        Ok(to_flow(self.out.send(Ok(Piece::Texts(texts)))))
    }

    /// Decodes a page, a long one of video in parts.
    fn values(
        &mut self,
        stored: &StoredStream,
        page: &PageSlice,
        bytes: &[u8],
        frame_bytes: usize,
    ) -> Result<ControlFlow<()>> {
        let mut part = page.clone();
        let mut start = page.range.start;
        while start < page.range.end {
            let end = start.saturating_add(stored.frames_at_a_time());
            part.range = start..end.min(page.range.end);
            start = part.range.end;
            let more = part.range.len() * frame_bytes;
            let (mut values, share) = match self.waiting.take() {
                Some(waiting) => waiting,
                None => (Vec::new(), self.out.share(more.max(PIECE_BYTES))),
            };
            let len = values.len();
            values.resize(len + more, 0);
            let room = values.get_mut(len..).unwrap_or_default();
            stored.decode(&part, bytes, room, &mut self.scratch)?;
            let is_full = values.len() >= PIECE_BYTES;
            self.waiting = Some((values, share));
            if is_full && self.flush().is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Passes on what waits.
    fn flush(&mut self) -> ControlFlow<()> {
        let waiting = self.waiting.take();
        to_flow(
            waiting.is_none_or(|(values, share)| self.out.send(Ok(Piece::Values(values, share)))),
        )
    }
}

fn to_flow(is_wanted: bool) -> ControlFlow<()> {
    if is_wanted {
        ControlFlow::Continue(())
    } else {
        ControlFlow::Break(())
    }
}
