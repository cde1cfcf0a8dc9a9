//! Writes one episode: its streams one after the other, frames in time order.

use kino_codec::{JPEG_FILES, MAX_TEXT_BYTES, decode_jpeg_files};

use kino_format::{Clock, MAX_STREAMS, StreamSchema};

use crate::draft::{EpisodeDraft, StreamDraft};
use crate::encode::Block;
use crate::encode_queue::{Job, Run};
use crate::episode_info::EpisodeInfo;
use crate::error::{Result, codec_at, invalid};
use crate::generation::Generation;
use crate::open_stream::{BLOCK_BYTES, OpenStream};
use crate::plan::{Arrival, Choice};
use crate::protection::{self, Held, Protection};
use crate::settled::Settled;
use crate::spill::Spill;
use crate::stream_info::{StreamInfo, to_frame_count};
use crate::writer::DatasetWriter;

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
        let choice = self.choice(info, None)?;
        if choice.resize.is_some() && info.arrival == Arrival::Jpeg {
            let files = vec![Generation::of_files(JPEG_FILES)];
            self.writer.add_generations(&info.name, files);
        }
        self.begin(info, choice, None)
    }

    /// The variants that the plan makes of a stream.
    pub fn variants(&self, info: &StreamInfo) -> Vec<String> {
        let plan = &self.writer.options.plan;
        let variants = plan.variants(&info.name, info.kind);
        variants.into_iter().map(str::to_owned).collect()
    }

    /// Starts the next stream, a variant of the stream `base`: the same frames, encoded as the plan's rule says. Its name
    /// is [`variant_stream`](kino_format::variant_stream), and its frames are pushed as values.
    pub fn variant(&mut self, info: &StreamInfo, base: &str) -> Result<()> {
        self.close_stream()?;
        let choice = self.choice(info, Some(base))?;
        self.begin(info, choice, Some(base))
    }

    /// Starts the next stream with this codec; it may be a variant of another.
    pub(crate) fn begin(
        &mut self,
        info: &StreamInfo,
        choice: Choice,
        variant_of: Option<&str>,
    ) -> Result<()> {
        self.close_stream()?;
        let place = self.place(&info.name);
        if self.draft()?.streams.len() >= MAX_STREAMS {
            return Err(invalid(format!(
                "{place}: an episode can have at most {MAX_STREAMS} streams; combine scalars into vectors, or split the episode"
            )));
        }
        let frames = to_frame_count(&place, info.frames)?;
        let stored = choice.stored_frame(&info.frame);
        let mut schema = StreamSchema::new(&info.name, info.kind, &stored, choice.codec.spec());
        schema.variant_of = variant_of.map(str::to_owned);
        // An invalid schema in a file is damage; here it is an invalid argument.
        schema
            .check()
            .map_err(|error| invalid(format!("{place}: {error}")))?;
        if self.draft()?.position(&info.name).is_some() {
            return Err(invalid(format!(
                "{place} already exists; stream names must be unique"
            )));
        }
        let settled = &self.writer.settled;
        settled.check_type(&info.name, info.kind, &stored)?;
        settled.check_variant(&info.name, variant_of)?;
        let clock = self.clock(&place, info, frames)?;
        let shared = self.draft()?.shared(&place, info, &stored, frames)?;
        // The events of a variant are those of its stream.
        let events = match variant_of {
            None => self.writer.options.plan.events.as_slice(),
            Some(_) => &[],
        };
        let recorders = self.protection.begin(events, info, &choice, &place)?;
        let stream = StreamDraft {
            schema,
            clock,
            frames,
            shared,
            raw_bytes: 0,
            protected_frames: 0,
            resized_from: choice.resize().map(|resize| resize.source().size),
            trial: self.writer.trial(&info.name, &choice),
        };
        let mut open = OpenStream::new(info, choice, &stream, recorders);
        if open.is_long() {
            open.file = Some(Spill::new(&self.writer.pipeline.area().path())?);
        }
        self.open = Some(open);
        self.draft_mut()?.streams.push(stream);
        Ok(())
    }

    /// Appends frames of values: packed, little-endian, whole frames.
    pub fn push(&mut self, packed: &[u8]) -> Result<()> {
        let (place, open) = self.open_stream()?;
        open.check_values(&place, packed)?;
        let rest = open.hold(packed);
        if open.is_trial_due() {
            self.settle_codec()?;
        }
        self.add_values(rest)
    }

    /// Chooses the codec of the open stream by the frames that were held back for it, and goes on with these.
    fn settle_codec(&mut self) -> Result<()> {
        let (place, open) = self.open_stream()?;
        let Some((first, trial)) = open.settle().map_err(codec_at(place))? else {
            return Ok(());
        };
        let codec = open.choice.codec.spec().to_string();
        if let Some(stream) = self.draft_mut()?.streams.last_mut() {
            stream.schema.codec = codec;
            stream.trial = trial;
        }
        self.add_values(&first)
    }

    /// Passes packed frames on, in blocks.
    fn add_values(&mut self, packed: &[u8]) -> Result<()> {
        let (_, open) = self.open_stream()?;
        let frame_bytes = open.frame_bytes();
        let block_frames = open.block_frames(frame_bytes);
        open.count_raw(packed.len() / frame_bytes.max(1));
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

    /// Appends frames that are byte strings: UTF-8 text, or JPEG files or packets of video to store as they are.
    pub fn push_bytes(&mut self, frames: &[&[u8]]) -> Result<()> {
        let (place, open) = self.open_stream()?;
        if open.decodes_files() {
            return self.push_decoded(frames);
        }
        open.check_bytes(&place, frames)?;
        let decoded = open.frame_bytes();
        let has_own_pages = open.choice.codec.has_own_pages();
        let block_frames = open.block_frames(decoded.max(1));
        let block_frames = block_frames.filter(|_| !has_own_pages);
        for frame in frames {
            let (place, open) = self.open_stream()?;
            if decoded == 0 && frame.len() > MAX_TEXT_BYTES {
                return Err(invalid(format!(
                    "{place}: the text of frame {} has {} bytes, but at most {MAX_TEXT_BYTES} are allowed; store long documents outside the dataset",
                    open.next,
                    frame.len()
                )));
            }
            let begins_page = has_own_pages && !frame.is_empty();
            if begins_page && open.waiting_frames as usize * decoded >= BLOCK_BYTES {
                self.submit()?;
            }
            let (_, open) = self.open_stream()?;
            open.raw_bytes += if decoded > 0 { decoded } else { frame.len() } as u64;
            open.add_bytes(frame);
            if block_frames == Some(open.waiting_frames as usize) || open.is_full_of_text() {
                self.submit()?;
            }
        }
        Ok(())
    }

    /// Appends JPEG files as values, because they are resized.
    fn push_decoded(&mut self, files: &[&[u8]]) -> Result<()> {
        for file in files {
            let (place, open) = self.open_stream()?;
            let values = decode_jpeg_files(&open.frame, &[file]).map_err(codec_at(place))?;
            self.push(&values)?;
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
        self.close_streams()?;
        self.writer.pipeline.write_all()
    }

    /// Ends the episode.
    pub fn finish(mut self) -> Result<()> {
        self.close_streams()?;
        let Some(draft) = self.draft.take() else {
            return Ok(());
        };
        if draft.streams.is_empty() {
            return Err(invalid(format!(
                "{} has no streams; write at least one",
                draft.info.label()
            )));
        }
        let settled = Settled::by_episode(&draft)?;
        self.writer.pipeline.end_episode(draft)?;
        self.writer.settled.add(settled);
        Ok(())
    }

    /// Closes the last stream, and submits the blocks that waited for the events of the whole episode.
    fn close_streams(&mut self) -> Result<()> {
        self.close_stream()?;
        let mut waiting = self.protection.take_waiting().into_iter();
        waiting.try_for_each(|held| self.hand_over(held))
    }

    /// Submits the waiting frames and checks that the open stream is complete.
    fn close_stream(&mut self) -> Result<()> {
        if self.open.is_none() {
            return Ok(());
        }
        self.settle_codec()?;
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
            let found = protection::find(&recorders, clock, stream.shared.count as usize);
            draft.protected.extend(found);
        }
        Ok(())
    }

    /// Submits the waiting frames to the workers.
    fn submit(&mut self) -> Result<()> {
        let position = self.draft()?.streams.len() - 1;
        let (place, open) = self.open_stream()?;
        if open.waiting_frames == 0 {
            return Ok(());
        }
        let choice = open.choice.clone();
        let job = Job {
            run: Run::Stream(position),
            first_frame: open.next - open.waiting_frames,
            place,
            block: open.take_block()?,
        };
        let staging = self.writer.pipeline.area().path();
        let held = self.protection.hold_back(job, choice, &staging)?;
        held.map_or(Ok(()), |held| self.hand_over(held))
    }

    /// Submits a block to the workers, with its bit-exact frames.
    fn hand_over(&mut self, held: Held) -> Result<()> {
        let Held { mut job, choice } = held;
        if let Run::Stream(position) = job.run
            && !choice.protect.is_empty()
        {
            let draft = self.draft_mut()?;
            let ranges = draft.clock_of(position).map_or_else(Vec::new, |clock| {
                protection::frames_of(&job, clock, &draft.protected, &choice)
            });
            let frames: usize = ranges.iter().map(ExactSizeIterator::len).sum();
            if let Some(stream) = draft.streams.get_mut(position) {
                stream.protected_frames += frames as u64;
            }
            job.block.protected = ranges;
        }
        self.writer.pipeline.submit(job)
    }

    /// The plan's choice for a stream, decided by the episodes before, or by the stream that it shares frames with.
    fn choice(&self, info: &StreamInfo, variant_of: Option<&str>) -> Result<Choice> {
        let mut choice = self.writer.choice(info, variant_of)?;
        let draft = self.draft()?;
        let base = info.shared.as_ref().map(|shared| &shared.base);
        if let Some(base) = base.and_then(|base| draft.position(base)) {
            choice.keep(&draft.streams[base].schema.codec);
        }
        Ok(choice)
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
            self.writer.pipeline.submit(Job {
                run: Run::Clock(position),
                first_frame: 0,
                block: Block::of_times(&times).map_err(codec_at(place))?,
                place: format!("{place}, timestamps"),
            })?;
        }
        Ok(position)
    }

    /// The stream that pages are pushed to: its name for messages, and its position in the episode.
    pub(crate) fn open_pages(&mut self) -> Result<(String, usize, &mut OpenStream)> {
        let position = self.draft()?.streams.len().saturating_sub(1);
        let (place, open) = self.open_stream()?;
        Ok((place, position, open))
    }

    /// Passes on pages that exist already.
    pub(crate) fn submit_pages(&mut self, job: Job) -> Result<()> {
        self.writer.pipeline.submit_block(job)
    }

    fn draft(&self) -> Result<&EpisodeDraft> {
        let finished = || invalid("the episode is already finished");
        self.draft.as_ref().ok_or_else(finished)
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
