//! Writes one episode: its streams one after the other, frames in time order.

use std::sync::Arc;

use kino_codec::{CodecError, FrameType, MAX_TEXT_BYTES};
use kino_format::{Clock, Kind, MAX_FRAMES, MAX_STREAMS, StreamSchema};

use crate::encode::{Block, BlockData};
use crate::encode_queue::{EpisodeDraft, Job, Run, StreamDraft};
use crate::error::{Result, codec_at, format_at, invalid};
use crate::long_run;
use crate::open_stream::OpenStream;
use crate::plan::Arrival;
use crate::protection::{self, Held, Protection};
use crate::spill::Spill;
use crate::stats::channels_of;
use crate::stored_stream::check_bools;
use crate::stream_info::{SharedFrames, StreamInfo};
use crate::writer::{DatasetWriter, EpisodeInfo, Settled};

/// Writes one episode. Dropped before [`finish`](Self::finish), it leaves no trace.
#[derive(Debug)]
pub struct EpisodeWriter<'w> {
    writer: &'w mut DatasetWriter,
    draft: Option<EpisodeDraft>,
    open: Option<OpenStream>,
    protection: Protection,
}

impl<'w> EpisodeWriter<'w> {
    pub(crate) fn new(writer: &'w mut DatasetWriter, info: EpisodeInfo) -> Self {
        let name = writer.draft_name(&info);
        let draft = EpisodeDraft::new(info, name, &writer.options.plan.events);
        Self {
            writer,
            draft: Some(draft),
            open: None,
            protection: Protection::default(),
        }
    }

    /// Starts the next stream; the previous one must have all its frames.
    ///
    /// Streams are stored in this order: write small ones first and cameras last, so that a reader that uses one
    /// camera reads one run of bytes.
    pub fn stream(&mut self, info: &StreamInfo) -> Result<()> {
        self.close_stream()?;
        let place = self.place(&info.name);
        if self.draft_mut()?.streams.len() >= MAX_STREAMS {
            return Err(invalid(format!(
                "{place}: an episode can have at most {MAX_STREAMS} streams; combine scalars into vectors, or split the episode"
            )));
        }
        let frames = to_frame_count(&place, info.frames)?;
        let choice =
            self.writer
                .options
                .plan
                .choose(&info.name, info.kind, &info.frame, info.arrival)?;
        let schema = StreamSchema::new(&info.name, info.kind, &info.frame, choice.codec.spec());
        // An invalid schema in a file is damage; here it is an invalid argument.
        schema
            .check()
            .map_err(|error| invalid(format!("{place}: {error}")))?;
        if self
            .draft_mut()?
            .streams
            .iter()
            .any(|stream| stream.schema.name == info.name)
        {
            return Err(invalid(format!(
                "{place} already exists; stream names must be unique"
            )));
        }
        self.writer.check_type(&info.name, info.kind, &info.frame)?;
        let clock = self.clock(&place, info, frames)?;
        let (base, base_first, own_start) = self.shared(&place, info, frames)?;
        let events = &self.writer.options.plan.events;
        let recorders = self.protection.begin(events, info, &choice, &place)?;
        let ty = info.frame.as_values();
        let channels = ty.map(|ty| channels_of(matches!(info.kind, Kind::Image | Kind::Depth), ty));
        let shared_bytes = ty.map_or(0, |ty| ty.frame_bytes() as u64) * u64::from(own_start);
        let waiting = match (&info.frame, info.arrival) {
            (FrameType::Values(_), Arrival::Values) => BlockData::Values(Vec::new()),
            _ => BlockData::Bytes(Vec::new()),
        };
        let own_numbers = ty.map_or(0, |ty| ty.elements()) * (frames - own_start) as usize;
        let file = match long_run::is_long(choice.codec.scope(), own_numbers) {
            true => Some(Spill::new(&self.writer.staging())?),
            false => None,
        };
        // Frames without bytes cannot be pushed: they are complete already.
        let next = if ty.is_some_and(|ty| ty.frame_bytes() == 0) {
            frames
        } else {
            own_start
        };
        self.open = Some(OpenStream {
            frame: Arc::new(info.frame.clone()),
            choice,
            channels: channels.filter(|_| ty.is_some_and(|ty| ty.frame_bytes() > 0)),
            frames,
            next,
            raw_bytes: shared_bytes,
            waiting,
            waiting_frames: 0,
            waiting_text: 0,
            file,
            recorders,
        });
        let draft = self.draft_mut()?;
        draft.streams.push(StreamDraft {
            schema,
            clock,
            frames,
            own_start,
            base,
            base_first,
            raw_bytes: 0,
            protected_frames: 0,
        });
        Ok(())
    }

    /// Appends frames of values: packed, little-endian, whole frames.
    pub fn push(&mut self, packed: &[u8]) -> Result<()> {
        let (place, open) = self.open_stream()?;
        let frame_bytes = open.frame.as_values().map_or(0, |ty| ty.frame_bytes());
        if !matches!(open.waiting, BlockData::Values(_)) {
            return Err(invalid(format!(
                "{place} holds byte strings, but packed values were pushed"
            )));
        }
        if frame_bytes == 0 || !packed.len().is_multiple_of(frame_bytes) {
            return Err(invalid(format!(
                "{place}: {} bytes are not a multiple of the frame size of {frame_bytes} bytes",
                packed.len()
            )));
        }
        if let Some(ty) = open.frame.as_values()
            && check_bools(ty, packed).is_err()
        {
            let byte = packed.iter().position(|&byte| byte > 1).unwrap_or_default();
            return Err(invalid(format!(
                "{place}: frame {} has a bool stored as {}, but a bool must be 0 or 1; store it as uint8, or pass `values != 0`",
                open.next as usize + byte / frame_bytes,
                packed[byte]
            )));
        }
        let block_frames = open.block_frames(frame_bytes);
        open.expect(&place, packed.len() / frame_bytes)?;
        open.raw_bytes += packed.len() as u64;
        let mut rest = packed;
        while !rest.is_empty() {
            let (_, open) = self.open_stream()?;
            let room =
                block_frames.map_or(usize::MAX, |frames| frames - open.waiting_frames as usize);
            let take = room.saturating_mul(frame_bytes).min(rest.len());
            let (head, tail) = rest.split_at(take);
            open.add_values(head, head.len() / frame_bytes)?;
            rest = tail;
            if block_frames == Some(open.waiting_frames as usize) {
                self.submit()?;
            }
        }
        Ok(())
    }

    /// Appends frames that are byte strings: UTF-8 text, or JPEG files to store as they are.
    pub fn push_bytes(&mut self, frames: &[&[u8]]) -> Result<()> {
        let (place, open) = self.open_stream()?;
        if !matches!(open.waiting, BlockData::Bytes(_)) {
            return Err(invalid(format!(
                "{place} holds packed values, but byte strings were pushed"
            )));
        }
        open.expect(&place, frames.len())?;
        if *open.frame == FrameType::Text
            && let Some(frame) = frames
                .iter()
                .position(|frame| std::str::from_utf8(frame).is_err())
        {
            let frame = open.next as usize + frame;
            return Err(invalid(format!("{place}: frame {frame} is not UTF-8 text")));
        }
        let decoded = open.frame.as_values().map_or(0, |ty| ty.frame_bytes());
        let block_frames = open.block_frames(decoded.max(1));
        for frame in frames {
            let (place, open) = self.open_stream()?;
            if decoded == 0 && frame.len() > MAX_TEXT_BYTES {
                return Err(invalid(format!(
                    "{place}: the text of frame {} has {} bytes, but at most {MAX_TEXT_BYTES} are allowed; store long documents outside the dataset",
                    open.next,
                    frame.len()
                )));
            }
            open.raw_bytes += if decoded > 0 {
                decoded as u64
            } else {
                frame.len() as u64
            };
            open.add_bytes(frame);
            if block_frames == Some(open.waiting_frames as usize) || open.is_full_of_text() {
                self.submit()?;
            }
        }
        Ok(())
    }

    /// Bytes of decoded frames that the whole writer has encoded, checked and written so far; text does not count.
    pub fn written_bytes(&self) -> u64 {
        self.writer.written_bytes()
    }

    /// Waits until all that was pushed is encoded and checked. After the last stream, an error that an ended episode
    /// would leave to the whole commit comes here, and the episode can be dropped without a trace.
    pub fn settle(&mut self) -> Result<()> {
        self.close_stream()?;
        for job in self.protection.take_waiting() {
            self.hand_over(job)?;
        }
        let (queue, assembler, receipts) = self.writer.parts();
        queue.drain_all(assembler, receipts)
    }

    /// Ends the episode.
    pub fn finish(mut self) -> Result<()> {
        self.close_stream()?;
        for job in self.protection.take_waiting() {
            self.hand_over(job)?;
        }
        let Some(draft) = self.draft.take() else {
            return Ok(());
        };
        if draft.streams.is_empty() {
            return Err(invalid(format!(
                "{} has no streams; write at least one",
                draft.info.label()
            )));
        }
        let settled = settled(&draft)?;
        let (queue, assembler, receipts) = self.writer.parts();
        queue.end_episode(draft, assembler, receipts)?;
        self.writer.end_episode(settled);
        Ok(())
    }

    /// Submits the waiting frames and checks that the open stream is complete.
    fn close_stream(&mut self) -> Result<()> {
        if self.open.is_none() {
            return Ok(());
        }
        self.submit()?;
        let (place, open) = self.open_stream()?;
        if open.next != open.frames {
            return Err(invalid(format!(
                "{place} got {} frames, but {} were announced",
                open.next, open.frames
            )));
        }
        let raw_bytes = open.raw_bytes;
        let recorders = std::mem::take(&mut open.recorders);
        self.open = None;
        let draft = self.draft_mut()?;
        let Some(stream) = draft.streams.last_mut() else {
            return Ok(());
        };
        stream.raw_bytes = raw_bytes;
        if let Some(clock) = draft.clocks.get(stream.clock) {
            let found = protection::find(&recorders, clock, stream.own_start as usize);
            draft.protected.extend(found);
        }
        Ok(())
    }

    /// Submits the waiting frames to the workers.
    fn submit(&mut self) -> Result<()> {
        let position = self.draft_mut()?.streams.len() - 1;
        let (place, open) = self.open_stream()?;
        if open.waiting_frames == 0 {
            return Ok(());
        }
        let first_frame = open.next - open.waiting_frames;
        let block = Block {
            codec: Arc::clone(&open.choice.codec),
            frame: Arc::clone(&open.frame),
            page_frames: open.choice.page_frames,
            data: open.take_waiting()?,
            channels: open.channels,
            protected: Vec::new(),
            learnt: None,
        };
        let choice = open.choice.clone();
        let job = Job {
            run: Run::Stream(position),
            first_frame,
            place,
            block,
        };
        let staging = self.writer.staging();
        let held = self.protection.hold_back(job, choice, &staging)?;
        match held {
            Some(job) => self.hand_over(job),
            None => Ok(()),
        }
    }

    /// Submits a block to the workers, with its bit-exact frames.
    fn hand_over(&mut self, held: Held) -> Result<()> {
        let Held { mut job, choice } = held;
        if let (Run::Stream(position), false) = (job.run, choice.protect.is_empty()) {
            let draft = self.draft_mut()?;
            let clock = draft
                .streams
                .get(position)
                .and_then(|stream| draft.clocks.get(stream.clock));
            let ranges = clock.map_or_else(Vec::new, |clock| {
                protection::frames_of(&job, clock, &draft.protected, &choice)
            });
            let frames: usize = ranges.iter().map(ExactSizeIterator::len).sum();
            if let Some(stream) = draft.streams.get_mut(position) {
                stream.protected_frames += frames as u64;
            }
            job.block.protected = ranges;
        }
        let (queue, assembler, receipts) = self.writer.parts();
        long_run::submit(job, queue, assembler, receipts)
    }

    /// The index of the stream's clock among the episode's; a new clock is added.
    fn clock(&mut self, place: &str, info: &StreamInfo, frames: u32) -> Result<usize> {
        let clock = info.times.to_clock(place, frames)?;
        let draft = self.draft_mut()?;
        if let Some(position) = draft.clocks.iter().position(|known| *known == clock) {
            return Ok(position);
        }
        let position = draft.clocks.len();
        draft.clocks.push(clock.clone());
        if let Clock::Explicit(times) = clock
            && !times.is_empty()
        {
            let block = clock_block(&times).map_err(codec_at(place))?;
            let place = format!("{place}, timestamps");
            let job = Job {
                run: Run::Clock(position),
                first_frame: 0,
                place,
                block,
            };
            let (queue, assembler, receipts) = self.writer.parts();
            long_run::submit(job, queue, assembler, receipts)?;
        }
        Ok(position)
    }

    /// The index of the base stream, its first shared frame, and the number of shared frames.
    fn shared(
        &mut self,
        place: &str,
        info: &StreamInfo,
        frames: u32,
    ) -> Result<(Option<usize>, u32, u32)> {
        let Some(shared) = &info.shared else {
            return Ok((None, 0, 0));
        };
        let draft = self.draft_mut()?;
        let base = draft
            .streams
            .iter()
            .position(|stream| stream.schema.name == shared.base);
        let found = base.and_then(|position| {
            let base = &draft.streams[position];
            let first = u32::try_from(shared.first).ok()?;
            let count = u32::try_from(shared.count)
                .ok()
                .filter(|&count| count <= frames)?;
            let fits = first.checked_add(count)? <= base.frames && base.base.is_none();
            let same =
                base.schema.frame_type().ok()? == info.frame && info.frame != FrameType::Text;
            (fits && same).then_some((Some(position), first, count))
        });
        found.ok_or_else(|| {
            let SharedFrames { base, first, count } = shared;
            invalid(format!("{place} cannot share {count} frames from frame {first} of `{base}`: the base stream does not have them"))
        })
    }

    fn draft_mut(&mut self) -> Result<&mut EpisodeDraft> {
        self.draft
            .as_mut()
            .ok_or_else(|| invalid("the episode is already finished"))
    }

    fn open_stream(&mut self) -> Result<(String, &mut OpenStream)> {
        let name = self
            .draft
            .as_ref()
            .and_then(|draft| draft.streams.last())
            .map(|stream| stream.schema.name.clone());
        let place = self.place(&name.unwrap_or_default());
        match &mut self.open {
            Some(open) => Ok((place, open)),
            None => Err(invalid(
                "no stream was started; call `stream` before `push`",
            )),
        }
    }

    fn place(&self, stream: &str) -> String {
        let label = self.draft.as_ref().map(|draft| draft.info.label());
        format!("{}, stream `{stream}`", label.unwrap_or_default())
    }
}

impl Drop for EpisodeWriter<'_> {
    fn drop(&mut self) {
        if self.draft.is_some() {
            self.writer.abandon_episode();
        }
    }
}

/// The number of frames of a stream, if a stream can have that many.
fn to_frame_count(place: &str, frames: u64) -> Result<u32> {
    let count = u32::try_from(frames).ok();
    count.filter(|&count| count <= MAX_FRAMES).ok_or_else(|| {
        invalid(format!(
            "{place}: {frames} frames are too many; a stream can have at most {MAX_FRAMES}, so split the episode"
        ))
    })
}

/// What the episode fixes for those after it.
fn settled(draft: &EpisodeDraft) -> Result<Settled> {
    let ty = |stream: &StreamDraft| {
        let frame = stream
            .schema
            .frame_type()
            .map_err(format_at("new episode"))?;
        Ok((stream.schema.name.clone(), (stream.schema.kind, frame)))
    };
    let labels = draft.info.labels.iter();
    Ok(Settled {
        id: draft.info.id.clone(),
        types: draft.streams.iter().map(ty).collect::<Result<_>>()?,
        label_types: labels
            .map(|(name, label)| (name.clone(), label.column_type()))
            .collect(),
    })
}

/// Explicit timestamps as a block of int64 scalars.
fn clock_block(times: &[i64]) -> Result<Block, CodecError> {
    let frame = FrameType::values(kino_codec::Dtype::I64, &[])?;
    let codec = kino_codec::codec(kino_codec::CLOCK_CODEC)?;
    let page_frames = codec.page_frames(&frame);
    let data = BlockData::Values(times.iter().flat_map(|time| time.to_le_bytes()).collect());
    Ok(Block {
        codec,
        frame: Arc::new(frame),
        page_frames,
        data,
        channels: None,
        protected: Vec::new(),
        learnt: None,
    })
}
