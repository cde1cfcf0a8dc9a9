//! The decoded frames of one episode, page by page: a page that was decoded once serves every window that needs it.
//!
//! ```text
//! EpisodeFrames of an episode
//!   StoredPages of a stream    span 0 (one read)        span 1
//!                              [page][page][page][page] [page][page] …
//!                                 │
//!                                 └─ empty ─▶ wanted by jobs ─▶ decoded (or why not)
//! ```
//!
//! A *span* is pages that follow each other and are fetched in one read. A page tells the jobs that wait for it when
//! it is there; it never forgets its frames while the block lives.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use kino_dataset::{DatasetError, EpisodeSamples, StoredStream};

use super::collate::SampleJob;
use super::page_buffer::{PageBuffer, PageShelf};
use super::pages::{AHEAD, NOW, PageCell, Span, StoredPages, Wanted};
use super::resize::{DecodeScratch, Fit};

/// The requested streams of one episode, or the requested frames of them.
#[derive(Debug)]
pub(crate) struct EpisodeFrames {
    windows: Arc<EpisodeSamples>,
    /// What becomes of the frames of each window when they are decoded.
    fits: Arc<[Fit]>,
    stored: Vec<StoredPages>,
    bytes: u64,
    /// Pages that nothing came of yet.
    left: AtomicUsize,
}

/// Frames, or why there are none.
pub(crate) type Decoded = Result<Values, Arc<DatasetError>>;

/// Decoded frames.
#[derive(Debug)]
pub(crate) enum Values {
    /// Numbers, packed.
    Numbers(PageBuffer),
    /// Texts.
    Texts(Vec<String>),
}

/// A page of a block: which stored stream, which page of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageId {
    stored: usize,
    page: usize,
}

/// A span of a block: which stored stream, which span of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpanId {
    stored: usize,
    span: usize,
}

impl EpisodeFrames {
    /// An empty block of an episode for what is wanted; reads nothing.
    pub(crate) fn new(windows: Arc<EpisodeSamples>, wanted: Wanted) -> Result<Self, DatasetError> {
        let mut stored = Vec::with_capacity(wanted.streams.len());
        for ((position, fit), (window, frames)) in wanted.streams {
            if let Some(stream) = windows.stream(window) {
                let source = stream.stored(position)?;
                stored.push(StoredPages::new(source, (window, fit), frames)?);
            }
        }
        let bytes = stored.iter().map(StoredPages::decoded_bytes);
        let bytes = bytes.fold(0, u64::saturating_add);
        let pages = stored.iter().map(|one| one.pages.len()).sum();
        Ok(Self {
            windows,
            fits: wanted.fits,
            stored,
            bytes,
            left: AtomicUsize::new(pages),
        })
    }

    /// The episode.
    pub(crate) fn windows(&self) -> &Arc<EpisodeSamples> {
        &self.windows
    }

    /// Whether all pages are there: then nobody has to wait, and nothing has to be looked up.
    pub(crate) fn is_complete(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Bytes of all its decoded frames.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Every span that nobody was asked to fetch yet; from now on somebody was.
    pub(crate) fn ask_all(&self) -> Vec<SpanId> {
        let stored = self.stored.iter().enumerate();
        stored
            .flat_map(|(stored, one)| (0..one.spans.len()).map(move |span| SpanId { stored, span }))
            .filter(|&span| self.ask(span, AHEAD))
            .collect()
    }

    /// Whether nobody was asked to fetch a span as urgently yet; from now on somebody was.
    fn ask(&self, span: SpanId, urgency: u8) -> bool {
        let (_, span) = self.span(span);
        span.asked.fetch_max(urgency, Ordering::Relaxed) < urgency
    }

    /// The page that holds a frame of a window's stream, and the frame's place in it; `None` if the block lacks it.
    pub(crate) fn find(&self, window: usize, frame: u32) -> Option<(PageId, usize)> {
        let (position, frame) = self.windows.stream(window)?.place_of(frame);
        let fit = self.fits.get(window)?;
        let stored = self
            .stored
            .iter()
            .position(|one| one.position == position && one.fit == *fit)?;
        let pages = &self.stored[stored].pages;
        let page = pages
            .partition_point(|page| page.first() <= frame)
            .checked_sub(1)?;
        let place = (frame - pages[page].first()) as usize;
        (place < pages[page].slice.range.len()).then_some((PageId { stored, page }, place))
    }

    /// The frames of a page, once it was decoded.
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

    /// The stored bytes of a page: a measure of what it costs to decode.
    pub(crate) fn page_bytes(&self, page: PageId) -> u64 {
        u64::from(self.cell(page).slice.record.len)
    }

    /// How urgent a page is: as the first batch that needs it, or as what it was fetched for.
    pub(crate) fn urgency(&self, page: PageId, fetched_for: u64) -> u64 {
        let needed = self.cell(page).urgency.load(Ordering::Relaxed);
        needed.min(fetched_for)
    }

    /// Has `job` told when the page is there. If it is there already: `false`, and nothing is told.
    pub(crate) fn wait(&self, page: PageId, job: &Arc<SampleJob>) -> bool {
        let cell = self.cell(page);
        if cell.decoded.get().is_some() {
            return false;
        }
        let mut waiting = cell.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked at again under the lock: whoever decodes it tells those who wait under the same lock.
        if cell.decoded.get().is_some() {
            return false;
        }
        waiting.push(Arc::downgrade(job));
        let urgency = job.batch.number * 2;
        cell.urgency.fetch_min(urgency, Ordering::Relaxed);
        true
    }

    /// What a page still needs before its frames are there.
    pub(crate) fn next_step(&self, page: PageId) -> Option<NextStep> {
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
        self.ask(span, NOW).then_some(NextStep::Fetch(span))
    }

    /// The stored bytes of a span.
    pub(crate) fn stored_bytes(&self, id: SpanId) -> u64 {
        let (one, span) = self.span(id);
        match one.pages.get(span.pages.clone()) {
            Some([first, .., last]) => last.end().saturating_sub(first.slice.record.offset()),
            Some([only]) => u64::from(only.slice.record.len),
            _ => 0,
        }
    }

    /// Whether a span is still to be fetched; from now on somebody does. It may have been asked for ahead of time, and
    /// again when it was needed.
    pub(crate) fn begin(&self, span: SpanId) -> bool {
        let (_, span) = self.span(span);
        !span.begun.swap(true, Ordering::Relaxed)
    }

    /// Fetches a span: what it gave, and who has to be told if it failed.
    pub(crate) fn fetch(&self, id: SpanId) -> Fetched {
        let (one, span) = self.span(id);
        let slices: Vec<_> = one.pages[span.pages.clone()]
            .iter()
            .map(|page| page.slice.clone())
            .collect();
        let pages = span.pages.clone().map(|page| PageId {
            stored: id.stored,
            page,
        });
        match self.source(one).and_then(|source| source.fetch(&slices)) {
            Ok(bytes) => {
                let len = bytes.len() as u64;
                *span.bytes.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes);
                Fetched {
                    pages: pages.collect(),
                    bytes: len,
                    tell: Vec::new(),
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                Fetched {
                    tell: pages
                        .flat_map(|page| self.settle(page, Err(Arc::clone(&error))).0)
                        .collect(),
                    ..Fetched::default()
                }
            }
        }
    }

    /// Decodes a page whose span was fetched; nothing happens if a thread did or does it already.
    pub(crate) fn decode(
        &self,
        id: PageId,
        shelf: &Arc<PageShelf>,
        scratch: &mut DecodeScratch,
    ) -> DecodedPage {
        self.fill(id, || self.decode_cell(id, shelf, scratch))
    }

    /// Takes a page for decoded without looking at its bytes: its frames are whatever the memory held.
    pub(crate) fn leave_undecoded(&self, id: PageId, shelf: &Arc<PageShelf>) -> DecodedPage {
        let frame_bytes = self.frame_bytes(id);
        self.fill(id, || {
            let frames = self.cell(id).slice.range.len();
            Ok(match frame_bytes {
                0 => Values::Texts(vec![String::new(); frames]),
                _ => Values::Numbers(shelf.take(frames * frame_bytes)),
            })
        })
    }

    fn fill(
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
            Err(_) => (0, 0),
        };
        let (tell, stored_bytes) = self.settle(id, decoded.map_err(Arc::new));
        DecodedPage {
            tell,
            frames,
            bytes,
            stored_bytes,
        }
    }

    fn decode_cell(
        &self,
        id: PageId,
        shelf: &Arc<PageShelf>,
        scratch: &mut DecodeScratch,
    ) -> Result<Values, DatasetError> {
        let one = &self.stored[id.stored];
        let cell = &one.pages[id.page];
        let (_, span) = self.span(SpanId {
            stored: id.stored,
            span: cell.span,
        });
        let source = self.source(one)?;
        let fetched = span.fetched().unwrap_or_default();
        let first = &one.pages[span.pages.start].slice;
        let bytes = source.page_bytes(std::slice::from_ref(first), &cell.slice, &fetched)?;
        if one.frame_bytes == 0 {
            let mut texts = Vec::new();
            source.decode_text(&cell.slice, bytes, &mut texts, &mut scratch.codec)?;
            return Ok(Values::Texts(texts));
        }
        let frames = cell.slice.range.len();
        let mut values = shelf.take(frames * one.frame_bytes);
        match &one.reduce {
            None => source.decode(&cell.slice, bytes, &mut values, &mut scratch.codec)?,
            Some(reduce) => {
                let DecodeScratch {
                    codec,
                    whole,
                    resize,
                } = scratch;
                whole.resize(frames * reduce.stored_bytes(), 0);
                source.decode(&cell.slice, bytes, whole, codec)?;
                let done = reduce.put_all(whole, &mut values, resize);
                done.map_err(|what| DatasetError::Invalid { what })?;
            }
        }
        Ok(Values::Numbers(values))
    }

    /// Puts what came of a page: those who waited for it, and the stored bytes that nobody needs any more.
    fn settle(&self, id: PageId, decoded: Decoded) -> (Vec<Weak<SampleJob>>, u64) {
        let cell = self.cell(id);
        let mut freed = None;
        if cell.decoded.set(decoded).is_ok() {
            self.left.fetch_sub(1, Ordering::Release);
            let (_, span) = self.span(SpanId {
                stored: id.stored,
                span: cell.span,
            });
            if span.left.fetch_sub(1, Ordering::Relaxed) == 1 {
                let mut bytes = span.bytes.lock().unwrap_or_else(PoisonError::into_inner);
                freed = bytes.take();
            }
        }
        let mut waiting = cell.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let tell = std::mem::take(&mut *waiting);
        (tell, freed.map_or(0, |bytes| bytes.len() as u64))
    }

    fn source(&self, one: &StoredPages) -> Result<&StoredStream, DatasetError> {
        // A block is only made of windows that have a stream, which `new` has looked at.
        let stream = self.windows.stream(one.window);
        debug_assert!(stream.is_some(), "a window of the request");
        match stream {
            Some(stream) => stream.stored(one.position),
            None => Err(DatasetError::NotFound {
                what: "a block without its stream".to_owned(),
            }),
        }
    }

    fn cell(&self, page: PageId) -> &PageCell {
        &self.stored[page.stored].pages[page.page]
    }

    fn span(&self, id: SpanId) -> (&StoredPages, &Span) {
        let one = &self.stored[id.stored];
        (one, &one.spans[id.span])
    }
}

/// What fetching a span gave.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    /// The pages that can be decoded now.
    pub(crate) pages: Vec<PageId>,
    /// Bytes read.
    pub(crate) bytes: u64,
    /// Jobs that waited for pages which will never come.
    pub(crate) tell: Vec<Weak<SampleJob>>,
}

/// What decoding a page gave.
#[derive(Debug, Default)]
pub(crate) struct DecodedPage {
    /// Jobs that waited for it.
    pub(crate) tell: Vec<Weak<SampleJob>>,
    /// Frames that are new.
    pub(crate) frames: usize,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Stored bytes that were let go: those of a span whose last page this was.
    pub(crate) stored_bytes: u64,
}

/// What a page needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Its span has to be fetched.
    Fetch(SpanId),
    /// It has to be decoded.
    Decode(PageId),
}

#[cfg(test)]
pub(crate) mod tests {
    use kino_dataset::{Request, Samples, Selection};
    use tempfile::TempDir;

    use super::super::collate::frames_of;
    use super::super::recording;
    use super::*;

    const REQUEST: &str = r#"{"anchor": {"stream": "actions"}, "windows": [
        {"stream": "front", "at": {"steps": [-3, 0, 2]}, "after": "zero"},
        {"stream": "joints", "at": {"times_ns": [-12345678, 0]}, "resolve": "linear"},
        {"stream": "words", "at": {"steps": [0]}, "resolve": "hold"}]}"#;

    fn as_stored() -> Arc<[Fit]> {
        Arc::new([Fit::default(); 3])
    }

    fn windows(episodes: usize) -> (TempDir, Samples) {
        let (folder, dataset) = recording::open(episodes);
        let request: Request = serde_json::from_str(REQUEST).unwrap();
        let windows = Samples::bind(&dataset, request, &Selection::default()).unwrap();
        (folder, windows)
    }

    /// A block of each of so many episodes, empty.
    pub(crate) fn blocks(episodes: usize) -> (TempDir, Vec<Arc<EpisodeFrames>>) {
        let (folder, windows) = windows(episodes);
        let block = |episode| {
            let windows = Arc::new(windows.episode(episode).unwrap());
            let wanted = Wanted::all(&windows, &[0, 1, 2], &as_stored());
            Arc::new(EpisodeFrames::new(windows, wanted).unwrap())
        };
        (folder, (0..episodes).map(block).collect())
    }

    /// Fetches and decodes all; the frames that were decoded.
    fn fill(block: &EpisodeFrames) -> usize {
        let shelf = PageShelf::new(1 << 20);
        let mut scratch = DecodeScratch::default();
        let (mut frames, mut entered, mut left) = (0, 0, 0);
        for span in block.ask_all() {
            assert!(block.begin(span) && !block.begin(span), "read once");
            entered += block.stored_bytes(span);
            let fetched = block.fetch(span);
            assert_eq!(fetched.bytes, block.stored_bytes(span));
            for page in fetched.pages {
                let decoded = block.decode(page, &shelf, &mut scratch);
                frames += decoded.frames;
                left += decoded.stored_bytes;
                let again = block.decode(page, &shelf, &mut scratch);
                assert_eq!((again.frames, again.stored_bytes), (0, 0), "decoded once");
            }
        }
        assert_eq!(left, entered, "what was read is let go");
        assert!(block.is_complete() && block.ask_all().is_empty());
        frames
    }

    #[test]
    fn a_whole_block_has_every_frame_in_its_place() {
        let (_folder, blocks) = blocks(2);
        for block in blocks {
            assert!(!block.is_complete());
            let frames = fill(&block);
            let mut bytes = 0;
            let mut expected = 0;
            for window in 0..3 {
                let stream = block.windows().stream(window).unwrap();
                expected += stream.len();
                for frame in 0..u32::try_from(stream.len()).unwrap() {
                    let (page, place) = block.find(window, frame).unwrap();
                    match block.decoded(page).unwrap().as_ref().unwrap() {
                        Values::Numbers(values) => {
                            let size = block.frame_bytes(page);
                            let at = frame as usize;
                            let plain = stream.read(at..at + 1).unwrap();
                            assert_eq!(values[place * size..][..size], plain[..]);
                            bytes += size as u64;
                        }
                        Values::Texts(texts) => bytes += texts[place].len() as u64,
                    }
                }
                let end = u32::try_from(stream.len()).unwrap();
                assert!(block.find(window, end).is_none());
            }
            assert_eq!((frames, block.bytes()), (expected, bytes));
        }
    }

    #[test]
    fn a_block_of_some_frames_has_those_and_says_its_bytes() {
        let (_folder, windows) = windows(2);
        let episode = Arc::new(windows.episode(1).unwrap());
        let mut plan = kino_dataset::SampleFrames::default();
        for sample in 0..episode.len() {
            episode.plan(sample, &mut plan).unwrap();
            let mut wanted = Wanted::new(&as_stored());
            for window in 0..3 {
                let stream = episode.stream(window).unwrap();
                frames_of(&plan.windows[window])
                    .for_each(|frame| wanted.add(window, stream, frame));
            }
            let block = EpisodeFrames::new(Arc::clone(&episode), wanted).unwrap();
            let frames = fill(&block);
            assert!(
                frames <= 3 + 2 * 2 + 1 + 4,
                "no more than lies between them: {frames}"
            );
            for window in 0..3 {
                for frame in frames_of(&plan.windows[window]) {
                    let (page, _) = block.find(window, frame).unwrap();
                    assert!(block.decoded(page).unwrap().is_ok());
                }
            }
        }
    }

    #[test]
    fn a_failed_read_is_the_error_of_all_its_pages() {
        let (folder, blocks) = blocks(1);
        std::fs::remove_dir_all(folder.path().join("a.kino/shards")).unwrap();
        for span in blocks[0].ask_all() {
            let fetched = blocks[0].fetch(span);
            assert!(fetched.pages.is_empty() && fetched.bytes == 0);
        }
        assert!(blocks[0].is_complete());
        let (page, _) = blocks[0].find(0, 0).unwrap();
        assert!(blocks[0].decoded(page).unwrap().is_err());
    }
}
