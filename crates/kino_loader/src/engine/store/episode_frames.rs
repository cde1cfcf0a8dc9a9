//! The decoded frames of one episode, page by page: a page is decoded once and serves every window that needs it.
//!
//! ```text
//! EpisodeFrames of an episode
//!   StoredPages of a stream    span 0 (one read)        span 1
//!                              [page][page][page][page] [page][page] …
//!                                 │
//!                                 └─ empty ─▶ wanted by slots ─▶ decoded (or an error)
//! ```
//!
//! A *span* is a run of consecutive pages that are fetched in one read. A decoded page notifies the slots that wait for
//! it, and keeps its frames as long as this value lives.

mod images;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use kino_dataset::{DatasetError, EpisodeSamples, FitScratch, Fitted, PageSlice, StoredStream};

use super::cache::EpisodeKey;
use super::device_image::DeviceImage;
use super::gpu_share::GpuShare;
use super::page_buffer::{PageBuffer, PageShelf};
use super::pages::{
    DecodedPage, Fetched, NextStep, PageCell, PageId, SlotId, Span, SpanId, StoredPages, Wanted,
    WindowFit,
};
use super::stored_tier::StoredTier;
use crate::engine::threads::Urgency;

/// The requested streams of one episode, or only the requested frames of them.
#[derive(Debug)]
pub(crate) struct EpisodeFrames {
    key: EpisodeKey,
    windows: Arc<EpisodeSamples>,
    /// How the frames of each window are resized and cropped when they are decoded.
    fits: Arc<[WindowFit]>,
    stored: Vec<StoredPages>,
    /// Whether only one sample will ever use it.
    is_for_one: bool,
    bytes: u64,
    /// Pages that are neither decoded nor failed.
    left: AtomicUsize,
}

/// Decoded frames, or the error that prevented decoding.
pub(crate) type Decoded = Result<Values, Arc<DatasetError>>;

/// Decoded frames.
#[derive(Debug)]
pub(crate) enum Values {
    /// Numeric values, packed.
    Numbers(PageBuffer),
    /// Texts.
    Texts(Vec<String>),
    /// Images that are put into the batch on a device.
    Images(Vec<Arc<DeviceImage>>),
    /// A frame that was decoded into its only place in a batch (`direct.rs`).
    InPlace,
}

impl EpisodeFrames {
    /// Has a cell for every wanted page and no frames yet; reads nothing.
    pub(crate) fn new(
        key: EpisodeKey,
        windows: Arc<EpisodeSamples>,
        mut wanted: Wanted,
    ) -> Result<Self, DatasetError> {
        let mut stored = Vec::with_capacity(wanted.streams.len());
        for ((position, fit), (window, frames)) in std::mem::take(&mut wanted.streams) {
            if let Some(stream) = windows.stream(window) {
                let source = stream.stored(position)?;
                let reading = wanted.reading(position, fit);
                stored.push(StoredPages::new(source, window, fit, frames, reading)?);
            }
        }
        let bytes = stored.iter().map(StoredPages::decoded_bytes);
        let bytes = bytes.fold(0, u64::saturating_add);
        let pages = stored.iter().map(|stream| stream.pages.len()).sum();
        Ok(Self {
            key,
            windows,
            fits: wanted.fits,
            stored,
            is_for_one: wanted.is_for_one,
            bytes,
            left: AtomicUsize::new(pages),
        })
    }

    /// The episode.
    pub(crate) fn windows(&self) -> &Arc<EpisodeSamples> {
        &self.windows
    }

    /// Whether all pages are decoded or failed: a sample then needs no lookup and never waits.
    pub(crate) fn is_complete(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Bytes of all its decoded frames.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Requests all spans that are fetched ahead; returns those that were not requested this urgently before.
    pub(crate) fn request_ahead(&self, urgency: Urgency) -> Vec<SpanId> {
        let stored = self.stored.iter().enumerate();
        stored
            .flat_map(|(stored, one)| (0..one.spans.len()).map(move |span| SpanId { stored, span }))
            .filter(|&span| self.span(span).1.is_ahead && self.request(span, urgency))
            .collect()
    }

    /// Requests a span; returns whether it was not requested this urgently before.
    fn request(&self, span: SpanId, urgency: Urgency) -> bool {
        self.span(span).1.requested.request(urgency)
    }

    /// The page that holds a frame of a window's stream, and the frame's position in it; `None` if it was not wanted.
    pub(crate) fn find(&self, window: usize, frame: u32) -> Option<(PageId, usize)> {
        let (position, frame) = self.windows.stream(window)?.place_of(frame);
        let fit = self.fits.get(window)?;
        let stored = self
            .stored
            .iter()
            .position(|stream| stream.position == position && stream.fit == *fit)?;
        let (page, place) = self.stored[stored].find(frame)?;
        Some((PageId { stored, page }, place))
    }

    /// The frames of a page, once it is decoded.
    pub(crate) fn decoded(&self, page: PageId) -> Option<&Decoded> {
        self.cell(page).decoded.get()
    }

    /// Bytes of a decoded frame of the stream that a page belongs to.
    pub(crate) fn frame_bytes(&self, page: PageId) -> usize {
        self.stored[page.stored].frame_bytes
    }

    /// The shape of a decoded frame of the stream that a page belongs to.
    pub(crate) fn frame_shape(&self, page: PageId) -> &[usize] {
        &self.stored[page.stored].shape
    }

    /// How many frames of a page are decoded.
    pub(crate) fn page_frames(&self, page: PageId) -> usize {
        self.cell(page).slice.range.len()
    }

    /// The stored size of a page: an estimate of what it costs to decode.
    pub(crate) fn page_bytes(&self, page: PageId) -> u64 {
        u64::from(self.cell(page).slice.record.len)
    }

    /// Urgency of a page: that of the first batch that needs it, or that of the read, whichever is more urgent.
    pub(crate) fn urgency(&self, page: PageId, fetched_for: Urgency) -> Urgency {
        self.cell(page).requested.get().min(fetched_for)
    }

    /// Registers a slot to be notified when the page is decoded. If it already is, returns `false` and does nothing.
    pub(crate) fn wait(&self, page: PageId, slot: SlotId) -> bool {
        let cell = self.cell(page);
        if cell.decoded.get().is_some() {
            return false;
        }
        let mut waiting = cell.waiting.lock();
        // Checked again under the lock, which the decoding thread takes to collect the waiting slots.
        if cell.decoded.get().is_some() {
            return false;
        }
        waiting.push(slot);
        cell.requested.request(Urgency::needed(slot.batch));
        true
    }

    /// The next step towards a decoded page; `None` if it is decoded, or another job has requested that step already.
    pub(crate) fn next_step(&self, page: PageId, urgency: Urgency) -> Option<NextStep> {
        let cell = self.cell(page);
        if cell.decoded.get().is_some() {
            return None;
        }
        let span = SpanId {
            stored: page.stored,
            span: cell.span,
        };
        if self.span(span).1.fetched().is_some() {
            return Some(NextStep::Decode(page));
        }
        self.request(span, urgency).then_some(NextStep::Fetch(span))
    }

    /// The stored bytes of a span.
    pub(crate) fn stored_bytes(&self, id: SpanId) -> u64 {
        let (stream, span) = self.span(id);
        match stream.pages.get(span.pages.clone()) {
            Some([first, .., last]) => last.end().saturating_sub(first.slice.record.offset()),
            Some([only]) => u64::from(only.slice.record.len),
            _ => 0,
        }
    }

    /// Whether a thread has begun to fetch a span.
    pub(crate) fn is_begun(&self, span: SpanId) -> bool {
        self.span(span).1.begun.load(Ordering::Relaxed)
    }

    /// Claims a span for fetching; `false` if another thread has. A span may be queued twice: ahead, and when needed.
    pub(crate) fn begin(&self, span: SpanId) -> bool {
        let (_, span) = self.span(span);
        !span.begun.swap(true, Ordering::Relaxed)
    }

    /// Fetches a span. If the read fails, its error becomes the result of every page of the span.
    pub(crate) fn fetch(&self, id: SpanId, tier: &StoredTier) -> Fetched {
        let (stream, span) = self.span(id);
        let slices: Vec<_> = stream.pages[span.pages.clone()]
            .iter()
            .map(|page| page.slice.clone())
            .collect();
        let pages = span.pages.clone().map(|page| PageId {
            stored: id.stored,
            page,
        });
        let source = self.source(stream);
        let fetched = source.and_then(|source| {
            let (bytes, read) = tier.read(self.key, source, &slices)?;
            // What is kept in memory is read whole, and used later.
            if read == bytes.len() as u64 {
                source.count_unused(read.saturating_sub(span.wanted));
            }
            Ok((bytes, read))
        });
        match fetched {
            Ok((bytes, read)) => {
                let len = bytes.len() as u64;
                *span.bytes.lock() = Some(bytes);
                Fetched {
                    pages: pages.collect(),
                    bytes: len,
                    read,
                    waiting: Vec::new(),
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                Fetched {
                    waiting: pages
                        .flat_map(|page| self.settle(page, Err(Arc::clone(&error))).0)
                        .collect(),
                    ..Fetched::default()
                }
            }
        }
    }

    /// Decodes a page whose span was fetched; does nothing if another thread has decoded it or is decoding it.
    pub(crate) fn decode(
        &self,
        id: PageId,
        shelf: &Arc<PageShelf>,
        share: &GpuShare,
        scratch: &mut FitScratch,
    ) -> DecodedPage {
        self.fill(id, || {
            if self.stored[id.stored].fit.is_for_device {
                return self.to_images(id, shelf, share, scratch);
            }
            self.decode_cell(id, shelf, scratch)
        })
    }

    /// The slot of the only sample that will ever use the only frame that is wanted of a page.
    pub(crate) fn only_slot(&self, id: PageId) -> Option<SlotId> {
        let cell = self.cell(id);
        if !self.is_for_one || cell.slice.range.len() != 1 {
            return None;
        }
        let waiting = cell.waiting.lock();
        waiting.first().copied()
    }

    /// Marks a page as decoded without decoding it: its frames are whatever the memory held, or missing.
    pub(crate) fn skip_decoding(&self, id: PageId, shelf: &Arc<PageShelf>) -> DecodedPage {
        let frame_bytes = self.frame_bytes(id);
        self.fill(id, || {
            let frames = self.cell(id).slice.range.len();
            if self.stored[id.stored].fit.is_for_device {
                return Ok(Values::Images(Vec::new()));
            }
            Ok(match frame_bytes {
                0 => Values::Texts(vec![String::new(); frames]),
                _ => Values::Numbers(shelf.take(frames * frame_bytes)),
            })
        })
    }

    /// Lets `decode` decode a page, unless another thread has decoded it or is decoding it.
    pub(crate) fn fill(
        &self,
        id: PageId,
        decode: impl FnOnce() -> Result<Values, DatasetError>,
    ) -> DecodedPage {
        let cell = self.cell(id);
        if cell.claimed.swap(true, Ordering::Relaxed) {
            return DecodedPage::default();
        }
        let decoded = decode();
        let (frames, bytes) = match &decoded {
            Ok(Values::Numbers(values)) => (cell.slice.range.len(), values.len() as u64),
            Ok(Values::Texts(texts)) => {
                let bytes = texts.iter().map(|text| text.len() as u64).sum();
                (texts.len(), bytes)
            }
            Ok(Values::InPlace) => (1, self.frame_bytes(id) as u64),
            Ok(Values::Images(images)) => {
                let bytes = images.len().saturating_mul(self.frame_bytes(id));
                (images.len(), bytes as u64)
            }
            Err(_) => (0, 0),
        };
        let (waiting, stored_bytes) = self.settle(id, decoded.map_err(Arc::new));
        DecodedPage {
            waiting,
            frames,
            bytes,
            stored_bytes,
        }
    }

    fn decode_cell(
        &self,
        id: PageId,
        shelf: &Arc<PageShelf>,
        scratch: &mut FitScratch,
    ) -> Result<Values, DatasetError> {
        let frame_bytes = self.frame_bytes(id);
        if frame_bytes == 0 {
            let mut texts = Vec::new();
            self.with_bytes(id, &self.fetched(id), |source, slice, bytes| {
                source.decode_text(slice, bytes, &mut texts, &mut scratch.codec)
            })?;
            return Ok(Values::Texts(texts));
        }
        let mut values = shelf.take(self.cell(id).slice.range.len() * frame_bytes);
        self.decode_into(id, &mut values, scratch)?;
        Ok(Values::Numbers(values))
    }

    /// Decodes the numbers of a page into a packed buffer of exactly their size.
    pub(crate) fn decode_into(
        &self,
        id: PageId,
        out: &mut [u8],
        scratch: &mut FitScratch,
    ) -> Result<(), DatasetError> {
        let resize = self.stored[id.stored].reduce.as_ref();
        self.with_bytes(id, &self.fetched(id), |source, slice, bytes| match resize {
            None => source.decode(slice, bytes, out, &mut scratch.codec),
            Some(resize) => source.decode_resized(slice, bytes, Fitted { resize, out }, scratch),
        })
    }

    /// What was read of the span of a page.
    fn fetched(&self, id: PageId) -> Bytes {
        let span = SpanId {
            stored: id.stored,
            span: self.cell(id).span,
        };
        self.span(span).1.fetched().unwrap_or_default()
    }

    /// Calls `decode` with the stream of a page, the page, and its bytes among those that were read.
    fn with_bytes(
        &self,
        id: PageId,
        fetched: &[u8],
        decode: impl FnOnce(&StoredStream, &PageSlice, &[u8]) -> Result<(), DatasetError>,
    ) -> Result<(), DatasetError> {
        let stream = &self.stored[id.stored];
        let cell = &stream.pages[id.page];
        let (_, span) = self.span(SpanId {
            stored: id.stored,
            span: cell.span,
        });
        let source = self.source(stream)?;
        let first = &stream.pages[span.pages.start].slice;
        let bytes = source.page_bytes(std::slice::from_ref(first), &cell.slice, fetched)?;
        decode(source, &cell.slice, bytes)
    }

    /// Stores the result of a page; returns the slots that waited for it, and the stored bytes that were freed.
    fn settle(&self, id: PageId, decoded: Decoded) -> (Vec<SlotId>, u64) {
        let cell = self.cell(id);
        let mut freed = None;
        if cell.decoded.set(decoded).is_ok() {
            self.left.fetch_sub(1, Ordering::Release);
            let (_, span) = self.span(SpanId {
                stored: id.stored,
                span: cell.span,
            });
            if span.left.fetch_sub(1, Ordering::Relaxed) == 1 {
                let mut bytes = span.bytes.lock();
                freed = bytes.take();
            }
        }
        let mut waiting = cell.waiting.lock();
        let slots = std::mem::take(&mut *waiting);
        (slots, freed.map_or(0, |bytes| bytes.len() as u64))
    }

    fn source(&self, pages: &StoredPages) -> Result<&StoredStream, DatasetError> {
        // `new` only adds windows that have a stream.
        let stream = self.windows.stream(pages.window);
        debug_assert!(stream.is_some(), "a window of the request");
        let stream = stream.ok_or_else(|| DatasetError::NotFound {
            what: format!("window {} has no stream", pages.window),
        })?;
        stream.stored(pages.position)
    }

    fn cell(&self, page: PageId) -> &PageCell {
        &self.stored[page.stored].pages[page.page]
    }

    fn span(&self, id: SpanId) -> (&StoredPages, &Span) {
        let stream = &self.stored[id.stored];
        (stream, &stream.spans[id.span])
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use kino_dataset::{Request, Samples, Selection};
    use tempfile::TempDir;

    use super::super::gpu_share::{Decode, GpuNeeds};
    use super::super::pages::frames_of;
    use super::*;
    use crate::engine::recording;

    const KEY: EpisodeKey = EpisodeKey {
        source: 0,
        variant: 0,
        episode: 0,
    };

    const REQUEST: &str = r#"{"anchor": {"stream": "actions"}, "windows": [
        {"stream": "front", "at": {"steps": [-3, 0, 2]}, "after": "zero"},
        {"stream": "joints", "at": {"times_ns": [-12345678, 0]}, "resolve": "linear"},
        {"stream": "words", "at": {"steps": [0]}, "resolve": "hold"}]}"#;

    fn as_stored() -> Arc<[WindowFit]> {
        Arc::new([WindowFit::default(); 3])
    }

    fn windows(episodes: usize) -> (TempDir, Samples) {
        let (folder, dataset) = recording::open(episodes);
        let request: Request = serde_json::from_str(REQUEST).unwrap();
        let windows = Samples::bind(&dataset, request, &Selection::default()).unwrap();
        (folder, windows)
    }

    /// The frames of each of the first `episodes` episodes, none decoded yet.
    pub(crate) fn blocks(episodes: usize) -> (TempDir, Vec<Arc<EpisodeFrames>>) {
        let (folder, windows) = windows(episodes);
        let all_frames = |episode| {
            let windows = Arc::new(windows.episode(episode).unwrap());
            let wanted = Wanted::all(&windows, &[0, 1, 2], &as_stored());
            Arc::new(EpisodeFrames::new(KEY, windows, wanted).unwrap())
        };
        (folder, (0..episodes).map(all_frames).collect())
    }

    /// Fetches and decodes all pages; returns the number of frames decoded.
    fn fill(episode: &EpisodeFrames) -> usize {
        let share = GpuShare::new(Decode::Cpu, 1, GpuNeeds::default());
        let shelf = PageShelf::new(1 << 20);
        let mut scratch = FitScratch::default();
        let (mut frames, mut entered, mut left) = (0, 0, 0);
        for span in episode.request_ahead(Urgency::ahead(0)) {
            assert!(episode.begin(span) && !episode.begin(span), "read once");
            entered += episode.stored_bytes(span);
            let fetched = episode.fetch(span, &StoredTier::default());
            assert_eq!(fetched.bytes, episode.stored_bytes(span));
            for page in fetched.pages {
                let decoded = episode.decode(page, &shelf, &share, &mut scratch);
                frames += decoded.frames;
                left += decoded.stored_bytes;
                let again = episode.decode(page, &shelf, &share, &mut scratch);
                assert_eq!((again.frames, again.stored_bytes), (0, 0), "decoded once");
            }
        }
        assert_eq!(left, entered, "all bytes that were read are freed");
        assert!(episode.is_complete() && episode.request_ahead(Urgency::ahead(0)).is_empty());
        frames
    }

    #[test]
    fn all_frames_of_an_episode_are_decoded_and_found() {
        let (_folder, episodes) = blocks(2);
        for episode in episodes {
            assert!(!episode.is_complete());
            let frames = fill(&episode);
            let mut bytes = 0;
            let mut expected = 0;
            for window in 0..3 {
                let stream = episode.windows().stream(window).unwrap();
                expected += stream.len();
                for frame in 0..u32::try_from(stream.len()).unwrap() {
                    let (page, place) = episode.find(window, frame).unwrap();
                    match episode.decoded(page).unwrap().as_ref().unwrap() {
                        Values::Numbers(values) => {
                            let size = episode.frame_bytes(page);
                            let at = frame as usize;
                            let plain = stream.read(at..at + 1).unwrap();
                            assert_eq!(values[place * size..][..size], plain[..]);
                            bytes += size as u64;
                        }
                        Values::Texts(texts) => bytes += texts[place].len() as u64,
                        Values::Images(_) | Values::InPlace => panic!("no sample waits for it"),
                    }
                }
                let end = u32::try_from(stream.len()).unwrap();
                assert!(episode.find(window, end).is_none());
            }
            assert_eq!((frames, episode.bytes()), (expected, bytes));
        }
    }

    #[test]
    fn a_frame_is_where_a_search_finds_it_in_whole_episodes_and_in_parts() {
        let (_folder, windows) = windows(2);
        let episode = Arc::new(windows.episode(1).unwrap());
        let mut parts = vec![Wanted::all(&episode, &[0, 1, 2], &as_stored())];
        for frames in [&[2_u32, 3, 4, 5][..], &[1, 2, 9], &[7], &[0, 4, 8, 12]] {
            let mut wanted = Wanted::new(&as_stored());
            for window in 0..3 {
                let stream = episode.stream(window).unwrap();
                let there = frames.iter().filter(|at| (**at as usize) < stream.len());
                there.for_each(|&frame| wanted.add(window, stream, frame));
            }
            parts.push(wanted);
        }
        for wanted in parts {
            let frames = EpisodeFrames::new(KEY, Arc::clone(&episode), wanted).unwrap();
            for (stored, frame) in frames
                .stored
                .iter()
                .flat_map(|one| (0..70).map(move |at| (one, at)))
            {
                assert_eq!(
                    stored.find(frame),
                    stored.search(frame),
                    "{frame} of {stored:?}"
                );
            }
        }
    }

    #[test]
    fn the_frames_of_one_sample_are_decoded_and_little_else() {
        let (_folder, windows) = windows(2);
        let episode = Arc::new(windows.episode(1).unwrap());
        let mut sample_frames = kino_dataset::SampleFrames::default();
        for sample in 0..episode.len() {
            episode.plan(sample, &mut sample_frames).unwrap();
            let mut wanted = Wanted::new(&as_stored());
            for window in 0..3 {
                let stream = episode.stream(window).unwrap();
                frames_of(&sample_frames.windows[window])
                    .for_each(|frame| wanted.add(window, stream, frame));
            }
            let episode_frames = EpisodeFrames::new(KEY, Arc::clone(&episode), wanted).unwrap();
            let frames = fill(&episode_frames);
            assert!(
                frames <= 3 + 2 * 2 + 1 + 4,
                "only the wanted frames and those between them: {frames}"
            );
            for window in 0..3 {
                for frame in frames_of(&sample_frames.windows[window]) {
                    let (page, _) = episode_frames.find(window, frame).unwrap();
                    assert!(episode_frames.decoded(page).unwrap().is_ok());
                }
            }
        }
    }

    #[test]
    fn pages_of_the_next_batches_are_read_without_others_and_no_page_is_read_twice() {
        let (_folder, windows) = windows(1);
        let episode = Arc::new(windows.episode(0).unwrap());
        let needed = [3, 11];
        let mut wanted = Wanted::all(&episode, &[0, 1, 2], &as_stored());
        for frame in needed {
            wanted.add_needed(0, episode.stream(0).unwrap(), frame);
        }
        let plain = Wanted::all(&episode, &[0, 1, 2], &as_stored());
        let plain = EpisodeFrames::new(KEY, Arc::clone(&episode), plain).unwrap();
        let frames = EpisodeFrames::new(KEY, episode, wanted).unwrap();
        let spans = |frames: &EpisodeFrames| frames.stored[0].spans.len();
        assert!(spans(&frames) > spans(&plain));
        for frame in needed {
            let (page, _) = frames.find(0, frame).unwrap();
            let span = frames.cell(page).span;
            let stored = page.stored;
            let (stream, span) = frames.span(SpanId { stored, span });
            for page in &stream.pages[span.pages.clone()] {
                let first = page.first();
                let end = first + u32::try_from(page.slice.range.len()).unwrap();
                assert!(needed.iter().any(|frame| (first..end).contains(frame)));
            }
        }
        assert_eq!(fill(&frames), fill(&plain), "`fill` decodes each page once");
    }

    #[test]
    fn a_failed_read_is_the_error_of_all_its_pages() {
        let (folder, episodes) = blocks(1);
        let episode = &episodes[0];
        std::fs::remove_dir_all(folder.path().join("a.kino/shards")).unwrap();
        for span in episode.request_ahead(Urgency::ahead(0)) {
            let fetched = episode.fetch(span, &StoredTier::default());
            assert!(fetched.pages.is_empty() && fetched.bytes == 0);
        }
        assert!(episode.is_complete());
        let (page, _) = episode.find(0, 0).unwrap();
        assert!(episode.decoded(page).unwrap().is_err());
    }
}
