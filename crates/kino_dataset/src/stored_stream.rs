//! The pages of one stream of one episode: finding, fetching and decoding them as separate steps.
//!
//! ```text
//! pages(10..30)  ─▶ [page 4: frames 2.. of 8] [page 5: all of 8] [page 6: ..6 of 8]       the index, no bytes
//! fetch(pages)   ─▶ one read                                                              an I/O thread
//! page_bytes, decode  ─▶ checksum verified, decoded into the caller's buffer              a decode thread
//! ```
//!
//! [`Stream`](crate::Stream) does the three in sequence. A training loader does them on different threads, many pages
//! at once. A stream that shares frames with another stores only the rest itself: [`Stream::place_of`] tells which
//! stored stream holds a frame.
//!
//! [`Stream::place_of`]: crate::Stream::place_of

use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;
use kino_codec::{
    Codec, CodecError, Decoder, Dtype, FrameType, Page, Scratch, ValueType, VideoCoding,
    VideoStream,
};
use kino_format::{NONE, PageRecord, PageSlice, Segment, StreamRecord, StreamSchema};

use crate::episode::Episode;
use crate::error::{DatasetError, Result, codec_at, corrupt, format_at, invalid};
use crate::read_size::ReadSize;
use crate::resize::{FitScratch, Fitted, first};
use kino_storage::at_once;

/// The frames that a stream of an episode stores itself.
#[derive(Debug)]
pub struct StoredStream {
    episode: Episode,
    position: usize,
    record: StreamRecord,
    schema: StreamSchema,
    frame: FrameType,
    decoder: OnceLock<Box<dyn Decoder>>,
}

impl StoredStream {
    pub(crate) fn open(episode: Episode, position: usize) -> Result<Self> {
        let record = episode.index().stream(position);
        let schema = episode
            .schema()
            .streams
            .get(record.stream as usize)
            .cloned();
        let schema = schema
            .ok_or_else(|| corrupt(episode.place("index"), "a stream is missing in the schema"))?;
        let frame = schema
            .frame_type()
            .map_err(format_at(episode.place("schema")))?;
        Ok(Self {
            episode,
            position,
            record,
            schema,
            frame,
            decoder: OnceLock::new(),
        })
    }

    /// Its index among the episode's streams.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Name, kind, frame type and codec.
    pub fn schema(&self) -> &StreamSchema {
        &self.schema
    }

    /// The type of its frames.
    pub fn frame_type(&self) -> &FrameType {
        &self.frame
    }

    /// Which of the stream's frames are stored here; those before belong to another stream.
    pub fn frames(&self) -> Range<u32> {
        self.record.own_start..self.record.frames
    }

    /// The decoded bytes of all frames of the stream.
    pub fn raw_bytes(&self) -> u64 {
        self.record.raw_bytes
    }

    pub(crate) fn record(&self) -> &StreamRecord {
        &self.record
    }

    pub(crate) fn episode(&self) -> &Episode {
        &self.episode
    }

    /// The pages that hold `frames`, in time order; frames that are not stored here are skipped.
    pub fn pages(&self, frames: Range<u32>) -> impl Iterator<Item = PageSlice> {
        let segment = Segment {
            stream: self.position,
            frames,
        };
        self.episode.index().pages_of(&segment)
    }

    /// Reads pages, and the gaps between them, in one request; of a remote dataset also what is needed to decode them.
    pub fn fetch(&self, pages: &[PageSlice]) -> Result<Bytes> {
        match (pages.first(), pages.last()) {
            (Some(first), Some(last)) => {
                let (first, last) = (&first.record, &last.record);
                let bytes = match self.missing_shared() {
                    Some(shared) => self.fetch_with_shared(&shared, first, last)?,
                    None => self.episode.read_pages(first, last)?,
                };
                if self.are_right(pages, &bytes) {
                    return Ok(bytes);
                }
                // Damaged on the way, or in the cache; if it is so at its source, decoding will say it.
                self.episode.distrust(first, last);
                self.episode.read_pages(first, last)
            }
            _ => Ok(Bytes::new()),
        }
    }

    /// The data that its pages share, if it would take a round trip to get it when the first page is decoded.
    fn missing_shared(&self) -> Option<PageRecord> {
        let page = self.record.shared_page;
        let is_missing = page != NONE && self.decoder.get().is_none() && self.episode.is_remote();
        is_missing.then(|| self.episode.index().page(page))
    }

    /// Reads pages together with the data that they share, which lies before the first page of the stream.
    fn fetch_with_shared(
        &self,
        shared: &PageRecord,
        first: &PageRecord,
        last: &PageRecord,
    ) -> Result<Bytes> {
        // The first page follows it, after padding.
        const NEAR: u64 = 8;
        let end = shared.offset() + u64::from(shared.len);
        let is_linked = last.offset() >= self.episode.index().linked_start();
        let pages = match first.offset().checked_sub(end) {
            Some(gap) if gap < NEAR && !is_linked => {
                let bytes = self.episode.read_pages(shared, last)?;
                let start = usize::try_from(first.offset() - shared.offset()).unwrap_or(usize::MAX);
                let len = bytes.len().min(shared.len as usize);
                self.prepare(shared, &bytes.slice(..len));
                bytes.slice(start.min(bytes.len())..)
            }
            _ => {
                let mut read = at_once(&[(shared, shared), (first, last)], |(first, last)| {
                    self.episode.read_pages(first, last)
                });
                let pages = read.pop().unwrap_or_else(|| Ok(Bytes::new()))?;
                if let Some(Ok(bytes)) = read.pop() {
                    self.prepare(shared, &bytes);
                }
                pages
            }
        };
        Ok(pages)
    }

    /// Makes the decoder; what is wrong is reported when a page is decoded.
    fn prepare(&self, page: &PageRecord, shared: &Bytes) {
        let place = || format!("{}, shared data of its pages", self.place());
        let is_right = self.episode.check_page(page, shared, place).is_ok();
        let codec = kino_codec::codec(&self.schema.codec).ok();
        let decoder = codec
            .filter(|_| is_right)
            .and_then(|codec| codec.decoder(&self.frame, shared).ok());
        if let Some(decoder) = decoder {
            self.decoder.get_or_init(|| decoder);
        }
    }

    /// How much is best read at once.
    ///
    /// Less at the beginning if the dataset is remote: the first batch has frames of many episodes, and would wait for all of
    /// these reads.
    pub fn read_size(&self) -> ReadSize {
        self.episode.read_size()
    }

    /// Says that bytes of a read were not wanted: gaps between pages.
    pub fn count_unused(&self, bytes: u64) {
        self.episode.count_unused(bytes);
    }

    /// Whether pages that came over a network have their checksums.
    fn are_right(&self, pages: &[PageSlice], bytes: &[u8]) -> bool {
        let is_right = |page| self.page_bytes(pages, page, bytes).is_ok();
        !self.episode.is_remote() || pages.iter().all(is_right)
    }

    /// The bytes of one of several pages fetched together, with its checksum verified: damage to one page does not
    /// affect its neighbours.
    pub fn page_bytes<'b>(
        &self,
        pages: &[PageSlice],
        page: &PageSlice,
        bytes: &'b [u8],
    ) -> Result<&'b [u8]> {
        let first = pages.first().unwrap_or(page);
        let start = page.record.offset().checked_sub(first.record.offset());
        let stored = start
            .and_then(|start| usize::try_from(start).ok())
            .and_then(|start| bytes.get(start..)?.get(..page.record.len as usize))
            .ok_or_else(|| corrupt(self.page_place(page), "the shard is truncated"))?;
        self.episode
            .check_page(&page.record, stored, || self.page_place(page))?;
        Ok(stored)
    }

    /// Decodes the requested frames of a page into a packed buffer of exactly their size.
    pub fn decode(
        &self,
        page: &PageSlice,
        bytes: &[u8],
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let decoder = self.decoder()?;
        let ty = self.value_type()?;
        let stored = Page {
            bytes,
            frames: page.frames,
        };
        decoder
            .decode(stored, page.range.clone(), out, scratch)
            .and_then(|()| check_bools(ty, out))
            .map_err(|error| self.at_page(page, error))
    }

    /// The file of the only frame that is requested of a page, if its codec stores one as it is: JPEG.
    pub fn file<'b>(&self, page: &PageSlice, bytes: &'b [u8]) -> Result<Option<&'b [u8]>> {
        let stored = Page {
            bytes,
            frames: page.frames,
        };
        let file = self.decoder()?.bitstream(stored, page.range.start);
        Ok(file.filter(|_| page.range.len() == 1))
    }

    /// How its packets are coded, if it is video.
    pub fn coding(&self) -> Option<VideoCoding> {
        VideoCoding::of_codec(&self.schema.codec)
    }

    /// What a decoder in hardware needs for the requested frames of a page; `None` if it is not video that one could decode.
    pub fn video(&self, page: &PageSlice, bytes: &[u8]) -> Result<Option<VideoStream>> {
        let Some(coding) = self.coding() else {
            return Ok(None);
        };
        let stream = VideoStream::of_page(coding, bytes, page.frames, &page.range);
        stream.map_err(|error| self.at_page(page, error))
    }

    /// Decodes the requested frames of a page and makes them fit.
    pub fn decode_resized(
        &self,
        page: &PageSlice,
        bytes: &[u8],
        Fitted { resize, out }: Fitted<'_>,
        scratch: &mut FitScratch,
    ) -> Result<()> {
        let stored = Page {
            bytes,
            frames: page.frames,
        };
        let reduced = resize.decode_reduced(self.decoder()?, stored, out, scratch);
        if reduced.map_err(|error| self.at_page(page, error))? {
            return Ok(());
        }
        let step = self.frames_at_a_time().min(page.range.len().max(1));
        let parts = out.chunks_mut((step * resize.frame_bytes()).max(1));
        for (part, out) in parts.enumerate() {
            let mut slice = page.clone();
            slice.range.start += part * step;
            slice.range.end = slice.range.end.min(slice.range.start + step);
            let whole = first(
                &mut scratch.whole,
                slice.range.len() * resize.source_bytes(),
            );
            self.decode(&slice, bytes, whole, &mut scratch.codec)?;
            resize
                .put_all(whole, out, &mut scratch.resize)
                .map_err(invalid)?;
        }
        Ok(())
    }

    /// How many frames of a page a reader that does not keep them should decode at a time; decoding goes on where it
    /// stopped. All of them, except of video.
    pub fn frames_at_a_time(&self) -> usize {
        const BYTES: usize = 32 << 20;
        let size = self.frame.as_values().map_or(1, |ty| ty.frame_bytes());
        match self.coding() {
            Some(_) => (BYTES / size.max(1)).max(1),
            None => usize::MAX,
        }
    }

    /// How many frames are decoded to get each frame of a page alone; reads the page if only its bytes can tell.
    pub fn decode_costs(&self, page: &PageSlice) -> Result<Vec<usize>> {
        let codec = kino_codec::codec(&self.schema.codec).map_err(codec_at(self.place()))?;
        if !codec.has_own_pages() {
            return Ok((1..=page.frames).collect());
        }
        let pages = std::slice::from_ref(page);
        let fetched = self.fetch(pages)?;
        let stored = Page {
            bytes: self.page_bytes(pages, page, &fetched)?,
            frames: page.frames,
        };
        let costs = self.decoder()?.costs(stored);
        costs.map_err(|error| self.at_page(page, error))
    }

    /// Appends the requested texts of a page.
    pub fn decode_text(
        &self,
        page: &PageSlice,
        bytes: &[u8],
        out: &mut Vec<String>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let stored = Page {
            bytes,
            frames: page.frames,
        };
        self.decoder()?
            .decode_text(stored, page.range.clone(), out, scratch)
            .map_err(|error| self.at_page(page, error))
    }

    /// The type of its values; an error for text.
    pub(crate) fn value_type(&self) -> Result<&ValueType> {
        let text = || invalid(format!("{} holds text; read it as text", self.place()));
        self.frame.as_values().ok_or_else(text)
    }

    pub(crate) fn decoder(&self) -> Result<&dyn Decoder> {
        if let Some(decoder) = self.decoder.get() {
            return Ok(&**decoder);
        }
        let codec = kino_codec::codec(&self.schema.codec).map_err(codec_at(self.place()))?;
        let decoder = self.make_decoder(&*codec, &self.frame, self.record.shared_page)?;
        Ok(&**self.decoder.get_or_init(|| decoder))
    }

    /// A decoder for pages of the episode that share `shared_page`.
    pub(crate) fn make_decoder(
        &self,
        codec: &dyn Codec,
        frame: &FrameType,
        shared_page: u32,
    ) -> Result<Box<dyn Decoder>> {
        let place = format!("{}, shared data of its pages", self.place());
        let shared = self.shared(shared_page, &place)?;
        codec.decoder(frame, &shared).map_err(codec_at(place))
    }

    /// The data that its pages share; empty if they share none.
    pub(crate) fn read_shared(&self) -> Result<Vec<u8>> {
        let shared = self.shared(self.record.shared_page, &self.place())?;
        Ok(shared.to_vec())
    }

    fn shared(&self, page: u32, place: &str) -> Result<Bytes> {
        match page {
            NONE => Ok(Bytes::new()),
            page => self
                .episode
                .read_page(&self.episode.index().page(page), place),
        }
    }

    /// Shard, episode and stream, for messages.
    pub(crate) fn place(&self) -> String {
        self.episode
            .place(&format!("stream `{}`", self.schema.name))
    }

    fn at_page(&self, page: &PageSlice, source: CodecError) -> DatasetError {
        codec_at(self.page_place(page))(source)
    }

    fn page_place(&self, page: &PageSlice) -> String {
        format!("{}, frames from {}", self.place(), page.record.first_frame)
    }
}

/// A byte other than 0 or 1 is undefined behaviour in code that treats it as a bool.
pub(crate) fn check_bools(ty: &ValueType, values: &[u8]) -> Result<(), CodecError> {
    if ty.dtype() == Dtype::Bool && values.iter().any(|&byte| byte > 1) {
        let what = "a bool is stored as neither 0 nor 1".to_owned();
        return Err(CodecError::Corrupt {
            codec: "bool",
            what,
        });
    }
    Ok(())
}
