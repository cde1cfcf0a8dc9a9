//! One stream of one episode: reading frames by number or by time.
//!
//! A range of frames is one read per few megabytes of stored bytes, each page is checked and then
//! decoded straight into the caller's buffer.

use std::ops::Range;
use std::sync::OnceLock;

use kino_codec::{
    Codec, CodecError, Decoder, Dtype, FrameType, FramesMut, Page, Scratch, ValueType,
};
use kino_format::{Clock, NONE, PageSlice, Segment, StreamRecord, StreamSchema};

use crate::episode::Episode;
use crate::error::{Result, codec_at, corrupt, format_at, invalid};

/// Pages are fetched in reads of at most this many bytes, so that a long stream is never held whole.
const READ_BYTES: u64 = 8 << 20;

/// One stream of one episode.
#[derive(Debug)]
pub struct Stream {
    episode: Episode,
    position: usize,
    record: StreamRecord,
    schema: StreamSchema,
    frame: FrameType,
    clock: OnceLock<Clock>,
    /// Decoders of the stream's own pages and of those it shares.
    decoders: [OnceLock<Box<dyn Decoder>>; 2],
}

impl Stream {
    pub(crate) fn open(episode: Episode, position: usize) -> Result<Self> {
        let record = episode.index().stream(position);
        let schema = episode
            .schema()
            .streams
            .get(record.stream as usize)
            .cloned();
        let schema = schema
            .ok_or_else(|| corrupt(episode.place("index"), "a stream is not in the schema"))?;
        let frame = schema
            .frame_type()
            .map_err(format_at(episode.place("schema")))?;
        Ok(Self {
            episode,
            position,
            record,
            schema,
            frame,
            clock: OnceLock::new(),
            decoders: Default::default(),
        })
    }

    /// Name, kind, frame type and codec.
    pub fn schema(&self) -> &StreamSchema {
        &self.schema
    }

    /// The type of its frames.
    pub fn frame_type(&self) -> &FrameType {
        &self.frame
    }

    /// How many frames it has.
    pub fn len(&self) -> usize {
        self.record.frames as usize
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When its frames were taken; explicit times are read once.
    pub fn clock(&self) -> Result<&Clock> {
        if let Some(clock) = self.clock.get() {
            return Ok(clock);
        }
        let record = self.episode.index().clock(self.record.clock as usize);
        let clock = match record.regular() {
            Some(regular) => Clock::Regular(regular),
            None => Clock::Explicit(self.read_times()?.into()),
        };
        Ok(self.clock.get_or_init(|| clock))
    }

    /// The frames with `seconds.start ≤ t < seconds.end`, counted from the episode's start.
    pub fn frames_between(&self, seconds: Range<f64>) -> Result<Range<usize>> {
        if seconds.start.is_nan() || seconds.end.is_nan() {
            return Err(invalid("a time range must not be NaN"));
        }
        let start = self.episode.start_ns();
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

    /// Reads frames of numbers, packed.
    pub fn read(&self, frames: Range<usize>) -> Result<Vec<u8>> {
        self.check_range(&frames)?;
        let ty = self.value_type()?;
        let len = frames
            .len()
            .checked_mul(ty.frame_bytes())
            .ok_or_else(|| self.too_large(frames.len()))?;
        let mut out = Vec::new();
        // The number of frames comes from the file: ask for memory politely.
        out.try_reserve_exact(len)
            .map_err(|_| self.too_large(frames.len()))?;
        out.resize(len, 0);
        self.read_into(frames, &mut out, &mut Scratch::new())?;
        Ok(out)
    }

    /// Reads frames of numbers into a packed buffer of exactly their size.
    pub fn read_into(
        &self,
        frames: Range<usize>,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.check_range(&frames)?;
        let ty = self.value_type()?;
        if frames.len().checked_mul(ty.frame_bytes()) != Some(out.len()) {
            return Err(invalid(format!(
                "{}: {} bytes for {} frames of {ty}",
                self.place(),
                out.len(),
                frames.len()
            )));
        }
        if ty.frame_bytes() == 0 {
            return Ok(());
        }
        let mut rest = out;
        self.each_page(&frames, |slice, decoder, bytes| {
            let (head, tail) =
                std::mem::take(&mut rest).split_at_mut(slice.range.len() * ty.frame_bytes());
            rest = tail;
            let mut dest = FramesMut::packed(ty, slice.range.len(), head)?;
            let page = Page {
                bytes,
                frames: slice.frames,
            };
            decoder.decode(page, slice.range.clone(), &mut dest, scratch)?;
            // A byte that is neither 0 nor 1 is undefined behaviour in whoever takes it for a truth value.
            if ty.dtype() == Dtype::Bool && head.iter().any(|&byte| byte > 1) {
                let what = "a truth value is neither 0 nor 1".to_owned();
                return Err(CodecError::Corrupt {
                    codec: "bool",
                    what,
                });
            }
            Ok(())
        })
    }

    /// Reads frames of text.
    pub fn read_text(&self, frames: Range<usize>) -> Result<Vec<String>> {
        self.check_range(&frames)?;
        let mut texts = Vec::new();
        let mut scratch = Scratch::new();
        self.each_page(&frames, |slice, decoder, bytes| {
            decoder.decode_text(
                Page {
                    bytes,
                    frames: slice.frames,
                },
                slice.range.clone(),
                &mut texts,
                &mut scratch,
            )
        })?;
        Ok(texts)
    }

    /// The stored bitstream of one frame as a file of its own (a JPEG file), where the codec keeps one.
    pub fn read_bitstream(&self, frame: usize) -> Result<Option<Vec<u8>>> {
        let frames = frame..frame.saturating_add(1);
        self.check_range(&frames)?;
        let mut found = None;
        self.each_page(&frames, |slice, decoder, bytes| {
            let page = Page {
                bytes,
                frames: slice.frames,
            };
            found = decoder
                .bitstream(page, slice.range.start)
                .map(<[u8]>::to_vec);
            Ok(())
        })?;
        Ok(found)
    }

    /// Calls `decode` for every page of `frames`, in order, with bytes whose checksum was right.
    fn each_page(
        &self,
        frames: &Range<usize>,
        mut decode: impl FnMut(&PageSlice, &dyn Decoder, &[u8]) -> Result<(), CodecError>,
    ) -> Result<()> {
        let to_u32 = |idx: usize| u32::try_from(idx).unwrap_or(u32::MAX);
        let index = self.episode.index();
        for segment in index.segments(self.position, to_u32(frames.start)..to_u32(frames.end)) {
            let decoder = self.decoder(&segment)?;
            let mut pages = index.pages_of(&segment).peekable();
            while let Some(first) = pages.next() {
                let mut group = vec![first];
                while let Some(next) = pages.next_if(|next| {
                    next.record.offset() + u64::from(next.record.len) - group[0].record.offset()
                        <= READ_BYTES
                }) {
                    group.push(next);
                }
                self.decode_group(&group, decoder, &mut decode)?;
            }
        }
        Ok(())
    }

    /// Reads pages that follow each other in one go, checks and decodes each.
    fn decode_group(
        &self,
        group: &[PageSlice],
        decoder: &dyn Decoder,
        decode: &mut impl FnMut(&PageSlice, &dyn Decoder, &[u8]) -> Result<(), CodecError>,
    ) -> Result<()> {
        let [first, ..] = group else { return Ok(()) };
        let last = group.last().unwrap_or(first);
        let bytes = self.episode.read_pages(&first.record, &last.record)?;
        for slice in group {
            let start = usize::try_from(slice.record.offset() - first.record.offset())
                .unwrap_or(usize::MAX);
            let page = bytes
                .get(start..)
                .and_then(|rest| rest.get(..slice.record.len as usize));
            let place = || format!("{}, frames from {}", self.place(), slice.record.first_frame);
            let page = page.ok_or_else(|| corrupt(place(), "the shard is truncated"))?;
            self.episode.check_page(&slice.record, page, &place())?;
            decode(slice, decoder, page).map_err(codec_at(place()))?;
        }
        Ok(())
    }

    fn decoder(&self, segment: &Segment) -> Result<&dyn Decoder> {
        let slot = &self.decoders[usize::from(segment.stream != self.position)];
        if let Some(decoder) = slot.get() {
            return Ok(&**decoder);
        }
        let record = self.episode.index().stream(segment.stream);
        let schema = self
            .episode
            .schema()
            .streams
            .get(record.stream as usize)
            .unwrap_or(&self.schema);
        let codec = kino_codec::codec(&schema.codec).map_err(codec_at(self.place()))?;
        let decoder = self.make_decoder(&*codec, &self.frame, record.shared_page)?;
        Ok(&**slot.get_or_init(|| decoder))
    }

    fn make_decoder(
        &self,
        codec: &dyn Codec,
        frame: &FrameType,
        shared_page: u32,
    ) -> Result<Box<dyn Decoder>> {
        let place = format!("{}, what its pages share", self.place());
        let shared = match shared_page {
            NONE => bytes::Bytes::new(),
            page => self
                .episode
                .read_page(&self.episode.index().page(page), &place)?,
        };
        codec.decoder(frame, &shared).map_err(codec_at(place))
    }

    /// Reads explicit times.
    fn read_times(&self) -> Result<Vec<i64>> {
        let index = self.episode.index();
        let (position, place) = (
            self.record.clock as usize,
            format!("{}, timestamps", self.place()),
        );
        let record = index.clock(position);
        if record.frames == 0 {
            return Ok(Vec::new());
        }
        let frame = FrameType::values(Dtype::I64, &[]).map_err(codec_at(&place))?;
        let codec =
            kino_codec::codec(&self.episode.schema().clock_codec).map_err(codec_at(&place))?;
        let decoder = self.make_decoder(&*codec, &frame, record.shared_page)?;
        let Some(ty) = frame.as_values() else {
            return Ok(Vec::new());
        };
        let mut times: Vec<i64> = Vec::new();
        let (mut buffer, mut scratch) = (Vec::new(), Scratch::new());
        for slice in index.pages_of_clock(position) {
            let bytes = self.episode.read_page(&slice.record, &place)?;
            buffer.resize(slice.frames * ty.frame_bytes(), 0);
            let mut dest =
                FramesMut::packed(ty, slice.frames, &mut buffer).map_err(codec_at(&place))?;
            let page = Page {
                bytes: &bytes,
                frames: slice.frames,
            };
            decoder
                .decode(page, 0..slice.frames, &mut dest, &mut scratch)
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
                "they go back, or do not start and end where the index says",
            ));
        }
        Ok(times)
    }

    fn value_type(&self) -> Result<&ValueType> {
        let text = || invalid(format!("{} holds text; read it as text", self.place()));
        self.frame.as_values().ok_or_else(text)
    }

    fn check_range(&self, frames: &Range<usize>) -> Result<()> {
        if frames.start > frames.end || frames.end > self.len() {
            return Err(invalid(format!(
                "{} has {} frames, not {frames:?}",
                self.place(),
                self.len()
            )));
        }
        Ok(())
    }

    fn too_large(&self, frames: usize) -> crate::error::DatasetError {
        invalid(format!(
            "{}: {frames} frames do not fit into memory; read fewer at a time",
            self.place()
        ))
    }

    fn place(&self) -> String {
        self.episode
            .place(&format!("stream `{}`", self.schema.name))
    }
}

/// Seconds as whole nanoseconds, rounded to the nearest; saturates at the ends of time.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` saturates, which is what is wanted at the ends"
)]
fn to_ns(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}
