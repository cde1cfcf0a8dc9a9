//! One stream of one episode: reading frames by index or by time.
//!
//! A range of frames takes one read per few megabytes of stored bytes; each page is verified and then decoded
//! straight into the caller's buffer.

use std::ops::Range;
use std::sync::OnceLock;

use kino_codec::{Dtype, FrameType, Page, Scratch};
use kino_format::{Clock, NONE, PageSlice, StreamSchema};

use crate::episode::Episode;
use crate::error::{Result, codec_at, corrupt, invalid};
use crate::stored_stream::StoredStream;

/// Pages are fetched in reads of at most this many bytes, so that a long stream is never held whole.
const READ_BYTES: u64 = 8 << 20;

/// One stream of one episode.
#[derive(Debug)]
pub struct Stream {
    /// The frames it stores itself.
    own: StoredStream,
    /// The stream whose frames it shares, opened when needed.
    base: OnceLock<StoredStream>,
    clock: OnceLock<Clock>,
}

impl Stream {
    pub(crate) fn open(episode: Episode, position: usize) -> Result<Self> {
        Ok(Self {
            own: StoredStream::open(episode, position)?,
            base: OnceLock::new(),
            clock: OnceLock::new(),
        })
    }

    /// Name, kind, frame type and codec.
    pub fn schema(&self) -> &StreamSchema {
        self.own.schema()
    }

    /// The type of its frames.
    pub fn frame_type(&self) -> &FrameType {
        self.own.frame_type()
    }

    /// The number of frames.
    pub fn len(&self) -> usize {
        self.own.record().frames as usize
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index of its clock among the episode's: streams with the same index have the same times.
    pub(crate) fn clock_number(&self) -> u32 {
        self.own.record().clock
    }

    /// The first frame that it stores itself.
    pub(crate) fn own_start(&self) -> usize {
        self.own.record().own_start as usize
    }

    /// Bytes of its decoded frames.
    pub(crate) fn raw_bytes(&self) -> u64 {
        self.own.record().raw_bytes
    }

    /// The times of its frames; explicit times are read once.
    pub fn clock(&self) -> Result<&Clock> {
        if let Some(clock) = self.clock.get() {
            return Ok(clock);
        }
        let record = self
            .episode()
            .index()
            .clock(self.own.record().clock as usize);
        let clock = match record.regular() {
            Some(regular) => Clock::Regular(regular),
            None => Clock::Explicit(self.read_times()?.into()),
        };
        Ok(self.clock.get_or_init(|| clock))
    }

    /// The frames with `seconds.start ≤ t < seconds.end`, relative to the start of the episode.
    pub fn frames_between(&self, seconds: Range<f64>) -> Result<Range<usize>> {
        if seconds.start.is_nan() || seconds.end.is_nan() {
            return Err(invalid("the ends of a time range must not be NaN"));
        }
        let start = self.episode().start_ns();
        Ok(self.clock()?.frames_in(
            start.saturating_add(to_ns(seconds.start))..start.saturating_add(to_ns(seconds.end)),
        ))
    }

    /// The times of `frames`.
    pub fn times_ns(&self, frames: Range<usize>) -> Result<Vec<i64>> {
        self.check_range(&frames)?;
        let clock = self.clock()?;
        Ok(frames.filter_map(|idx| clock.time_ns(idx)).collect())
    }

    /// Reads frames of values, packed.
    pub fn read(&self, frames: Range<usize>) -> Result<Vec<u8>> {
        self.check_range(&frames)?;
        let ty = self.own.value_type()?;
        let len = frames
            .len()
            .checked_mul(ty.frame_bytes())
            .ok_or_else(|| self.too_large(frames.len()))?;
        let mut out = Vec::new();
        // The number of frames comes from the file: do not abort if the allocation fails.
        out.try_reserve_exact(len)
            .map_err(|_| self.too_large(frames.len()))?;
        out.resize(len, 0);
        self.read_into(frames, &mut out, &mut Scratch::new())?;
        Ok(out)
    }

    /// Reads frames of values into a packed buffer of exactly their size.
    pub fn read_into(
        &self,
        frames: Range<usize>,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.check_range(&frames)?;
        let ty = self.own.value_type()?;
        if frames.len().checked_mul(ty.frame_bytes()) != Some(out.len()) {
            return Err(invalid(format!(
                "{}: the buffer has {} bytes, which do not match {} frames of {ty}",
                self.place(),
                out.len(),
                frames.len()
            )));
        }
        if ty.frame_bytes() == 0 {
            return Ok(());
        }
        let mut rest = out;
        self.each_page(&frames, |stored, slice, bytes| {
            let (head, tail) =
                std::mem::take(&mut rest).split_at_mut(slice.range.len() * ty.frame_bytes());
            rest = tail;
            stored.decode(slice, bytes, head, scratch)
        })
    }

    /// Reads frames of text.
    pub fn read_text(&self, frames: Range<usize>) -> Result<Vec<String>> {
        self.check_range(&frames)?;
        let mut texts = Vec::new();
        let mut scratch = Scratch::new();
        self.each_page(&frames, |stored, slice, bytes| {
            stored.decode_text(slice, bytes, &mut texts, &mut scratch)
        })?;
        Ok(texts)
    }

    /// The stored bitstream of one frame as a file (a JPEG file), if the codec keeps one.
    pub fn read_bitstream(&self, frame: usize) -> Result<Option<Vec<u8>>> {
        let frames = frame..frame.saturating_add(1);
        self.check_range(&frames)?;
        let mut found = None;
        self.each_page(&frames, |stored, slice, bytes| {
            let page = Page {
                bytes,
                frames: slice.frames,
            };
            let bitstream = stored.decoder()?.bitstream(page, slice.range.start);
            // Files that were linked without reading them may be padded with zeros; the last byte of a JPEG file is not 0.
            let is_padded = !stored.episode().index().has_checksum(&slice.record);
            let len = |file: &[u8]| file.iter().rposition(|&byte| byte != 0);
            found = bitstream.map(|file| match len(file).filter(|_| is_padded) {
                Some(last) => file[..=last].to_vec(),
                None => file.to_vec(),
            });
            Ok(())
        })?;
        Ok(found)
    }

    /// Passes the bytes of every page, as they are stored, to `take`, with the frames that it holds.
    pub fn each_stored_page(
        &self,
        mut take: impl FnMut(Range<usize>, &[u8]) -> Result<()>,
    ) -> Result<()> {
        self.each_page(&(0..self.len()), |_, slice, bytes| {
            let first = slice.record.first_frame as usize;
            take(first..first + slice.frames, bytes)
        })
    }

    /// The bytes of the page that holds a frame, as they are stored, and the frames that it holds.
    pub fn read_stored_page(&self, frame: usize) -> Result<(Range<usize>, Vec<u8>)> {
        let frames = frame..frame.saturating_add(1);
        self.check_range(&frames)?;
        let mut found = (0..0, Vec::new());
        self.each_page(&frames, |_, slice, bytes| {
            let first = slice.record.first_frame as usize;
            found = (first..first + slice.frames, bytes.to_vec());
            Ok(())
        })?;
        Ok(found)
    }

    /// The end of the page that holds a frame; frames up to it are cheapest to read together.
    pub fn page_end(&self, frame: usize) -> usize {
        let (position, stored) = self.place_of(u32::try_from(frame).unwrap_or(u32::MAX));
        let stored_at = stored..stored.saturating_add(1);
        let slice = self
            .stored(position)
            .ok()
            .and_then(|found| found.pages(stored_at).next());
        let left = slice.map_or(1, |slice| slice.frames - slice.range.start);
        frame.saturating_add(left).min(self.len())
    }

    /// Where a frame is stored: the index of the stream in the episode, and of the frame in that stream.
    pub fn place_of(&self, frame: u32) -> (usize, u32) {
        let record = self.own.record();
        if record.base != NONE && frame < record.own_start {
            // `check_base` of the index has verified that the shared frames exist in the base.
            (
                record.base as usize,
                frame.saturating_add(record.base_first),
            )
        } else {
            (self.own.position(), frame)
        }
    }

    /// The stored stream at an index returned by [`place_of`](Self::place_of): this one, or the one it shares frames
    /// with.
    pub fn stored(&self, position: usize) -> Result<&StoredStream> {
        if position == self.own.position() {
            return Ok(&self.own);
        }
        if let Some(base) = self.base.get() {
            return Ok(base);
        }
        let base = StoredStream::open(self.episode().clone(), self.own.record().base as usize)?;
        // Two threads may open it at once; the first one wins.
        Ok(self.base.get_or_init(|| base))
    }

    /// Calls `decode` for every page of `frames`, in order, with verified bytes.
    fn each_page(
        &self,
        frames: &Range<usize>,
        mut decode: impl FnMut(&StoredStream, &PageSlice, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let to_u32 = |idx: usize| u32::try_from(idx).unwrap_or(u32::MAX);
        let frames = to_u32(frames.start)..to_u32(frames.end);
        for segment in self.episode().index().segments(self.own.position(), frames) {
            let stored = self.stored(segment.stream)?;
            let mut pages = stored.pages(segment.frames).peekable();
            while let Some(first) = pages.next() {
                let mut group = vec![first];
                while let Some(next) = pages.next_if(|next| {
                    next.record.offset() + u64::from(next.record.len) - group[0].record.offset()
                        <= READ_BYTES
                }) {
                    group.push(next);
                }
                let bytes = stored.fetch(&group)?;
                for slice in &group {
                    let page = stored.page_bytes(&group, slice, &bytes)?;
                    decode(stored, slice, page)?;
                }
            }
        }
        Ok(())
    }

    /// Reads explicit times.
    fn read_times(&self) -> Result<Vec<i64>> {
        let index = self.episode().index();
        let (position, place) = (
            self.own.record().clock as usize,
            format!("{}, timestamps", self.place()),
        );
        let record = index.clock(position);
        if record.frames == 0 {
            return Ok(Vec::new());
        }
        let frame = FrameType::values(Dtype::I64, &[]).map_err(codec_at(&place))?;
        let codec =
            kino_codec::codec(&self.episode().schema().clock_codec).map_err(codec_at(&place))?;
        let decoder = self.own.make_decoder(&*codec, &frame, record.shared_page)?;
        let Some(ty) = frame.as_values() else {
            return Ok(Vec::new());
        };
        let mut times: Vec<i64> = Vec::new();
        let (mut buffer, mut scratch) = (Vec::new(), Scratch::new());
        for slice in index.pages_of_clock(position) {
            let bytes = self.episode().read_page(&slice.record, &place)?;
            buffer.resize(slice.frames * ty.frame_bytes(), 0);
            let page = Page {
                bytes: &bytes,
                frames: slice.frames,
            };
            decoder
                .decode(page, 0..slice.frames, &mut buffer, &mut scratch)
                .map_err(codec_at(&place))?;
            times.extend(
                buffer
                    .as_chunks()
                    .0
                    .iter()
                    .map(|time| i64::from_le_bytes(*time)),
            );
        }
        let bounds = (times.first().copied(), times.last().copied());
        let rising = times.is_sorted() && bounds == (Some(record.start_ns), Some(record.end_ns));
        if !rising {
            return Err(corrupt(
                place,
                "they decrease, or do not start and end at the times in the index",
            ));
        }
        Ok(times)
    }

    pub(crate) fn episode(&self) -> &Episode {
        self.own.episode()
    }

    fn check_range(&self, frames: &Range<usize>) -> Result<()> {
        if frames.start > frames.end || frames.end > self.len() {
            return Err(invalid(format!(
                "{} has {} frames, so frames {frames:?} are out of range",
                self.place(),
                self.len()
            )));
        }
        Ok(())
    }

    fn too_large(&self, frames: usize) -> crate::error::DatasetError {
        invalid(format!(
            "{}: {frames} frames do not fit in memory; read fewer at a time",
            self.place()
        ))
    }

    fn place(&self) -> String {
        self.own.place()
    }
}

/// Seconds as nanoseconds, rounded to the nearest; saturates.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` saturates, as intended"
)]
fn to_ns(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}
