//! The pages of an episode's frames: which pages are needed, and which of them are read together.
//!
//! ```text
//! wanted frames 3, 4, 9 ─▶ page 0 (3..5) page 1 (9..10) ─▶ span 0: pages 0 and 1, one read
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use kino_dataset::{
    DatasetError, EpisodeSamples, Fit, NO_FRAME, PageSlice, ReadSize, Resize, StoredStream, Stream,
    WindowFrames,
};
use kino_sync::Mutex;

use super::episode_frames::Decoded;
use super::reading::{Ahead, Reading};
use super::regular::{Regular, first_frame};
use crate::engine::threads::MostUrgent;

/// What becomes of the frames of a window when they are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct WindowFit {
    /// How they are resized and cropped.
    pub(crate) fit: Fit,
    /// Whether they are put together on a device, which may decode them.
    pub(crate) is_for_device: bool,
}

/// The frames of an episode that are wanted.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// How the frames of each window are resized and cropped when they are decoded.
    pub(crate) fits: Arc<[WindowFit]>,
    /// By position of the stream that stores the frames, and fit: a window that reads them, and the frames. A stream
    /// wanted in two sizes is decoded twice.
    pub(crate) streams: BTreeMap<(usize, WindowFit), (usize, Frames)>,
    /// Which of the frames are decoded before a sample needs them.
    pub(crate) ahead: Ahead,
    /// Frames of the next batches, by position of the stream that stores them, and fit: their pages are read by themselves.
    pub(crate) needed: BTreeMap<(usize, WindowFit), BTreeSet<u32>>,
    /// Whether one sample wants them, and no other ever will.
    pub(crate) is_for_one: bool,
}

#[derive(Debug)]
pub(crate) enum Frames {
    All,
    Some(Vec<u32>),
}

impl Wanted {
    /// Frames of one sample; none yet.
    pub(crate) fn new(fits: &Arc<[WindowFit]>) -> Self {
        Self {
            fits: Arc::clone(fits),
            streams: BTreeMap::new(),
            ahead: Ahead::All,
            needed: BTreeMap::new(),
            is_for_one: true,
        }
    }

    /// All frames of the streams of these windows, including frames that a stream shares with another.
    pub(crate) fn all(
        windows: &EpisodeSamples,
        requested: &[usize],
        fits: &Arc<[WindowFit]>,
    ) -> Self {
        let mut wanted = Self {
            is_for_one: false,
            ..Self::new(fits)
        };
        for &window in requested {
            let Some(stream) = windows.stream(window) else {
                continue;
            };
            let last = u32::try_from(stream.len())
                .unwrap_or(u32::MAX)
                .saturating_sub(1);
            // Shared frames come first, so the first and the last frame identify every stream that stores some.
            for frame in [0, last] {
                let (position, _) = stream.place_of(frame);
                let key = (position, wanted.fit(window));
                wanted.streams.insert(key, (window, Frames::All));
            }
        }
        wanted
    }

    /// Adds a frame of a window's stream.
    pub(crate) fn add(&mut self, window: usize, stream: &Stream, frame: u32) {
        let (position, frame) = stream.place_of(frame);
        let entry = self.streams.entry((position, self.fit(window)));
        match entry.or_insert_with(|| (window, Frames::Some(Vec::new()))) {
            (_, Frames::Some(frames)) if frames.last() != Some(&frame) => frames.push(frame),
            _ => {}
        }
    }

    /// Notes that one of the next batches needs a frame of a window's stream.
    pub(crate) fn add_needed(&mut self, window: usize, stream: &Stream, frame: u32) {
        let (position, frame) = stream.place_of(frame);
        let frames = self.needed.entry((position, self.fit(window))).or_default();
        frames.insert(frame);
    }

    /// How the pages of a stored stream are read.
    pub(crate) fn reading(&self, position: usize, fit: WindowFit) -> Reading<'_> {
        Reading {
            ahead: &self.ahead,
            needed: self.needed.get(&(position, fit)),
        }
    }

    fn fit(&self, window: usize) -> WindowFit {
        self.fits.get(window).copied().unwrap_or_default()
    }
}

/// The pages of one stored stream.
#[derive(Debug)]
pub(crate) struct StoredPages {
    /// A window whose stream stores or shares them.
    pub(crate) window: usize,
    /// The position of the stream that stores them.
    pub(crate) position: usize,
    /// How its frames are resized and cropped.
    pub(crate) fit: WindowFit,
    /// Does that; `None` if the frames are used as stored.
    pub(crate) reduce: Option<Resize>,
    /// Shape of a decoded frame.
    pub(crate) shape: Vec<usize>,
    /// Bytes of a decoded frame; 0 for text.
    pub(crate) frame_bytes: usize,
    /// Total bytes and number of its texts; unused for numeric streams.
    pub(crate) texts: (u64, u64),
    pub(crate) pages: Vec<PageCell>,
    /// Where frames are, if all pages but the last have equally many and none is left out.
    regular: Option<Regular>,
    read_size: ReadSize,
    pub(crate) spans: Vec<Span>,
}

/// Pages that are fetched together.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) pages: Range<usize>,
    /// Bytes of these pages, without the gaps between them.
    pub(crate) wanted: u64,
    /// Whether it is fetched before a sample needs it; then it may have several pages.
    pub(crate) is_ahead: bool,
    /// Whether one of the next batches needs it: then it has no page that none of them needs.
    is_needed: bool,
    pub(crate) requested: MostUrgent,
    /// Whether a thread has started to fetch it.
    pub(crate) begun: AtomicBool,
    /// The fetched bytes, until the last of its pages is decoded.
    pub(crate) bytes: Mutex<Option<Bytes>>,
    pub(crate) left: AtomicUsize,
}

/// One page, or the wanted range of its frames.
#[derive(Debug)]
pub(crate) struct PageCell {
    pub(crate) slice: PageSlice,
    pub(crate) span: usize,
    /// Whether a thread is decoding it or has decoded it.
    pub(crate) claimed: AtomicBool,
    pub(crate) decoded: OnceLock<Decoded>,
    /// By the samples that wait for it.
    pub(crate) requested: MostUrgent,
    /// Slots to notify.
    pub(crate) waiting: Mutex<Vec<SlotId>>,
}

/// Identifies a page by stored stream and page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageId {
    pub(crate) stored: usize,
    pub(crate) page: usize,
}

/// Identifies a span by stored stream and span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpanId {
    pub(crate) stored: usize,
    pub(crate) span: usize,
}

/// Who waits for a page: a slot of a batch. The store says when the page is there, and knows no more of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotId {
    /// The number of the batch.
    pub(crate) batch: u64,
    /// The position in it.
    pub(crate) slot: usize,
}

/// The result of fetching a span.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    /// The pages that can be decoded now.
    pub(crate) pages: Vec<PageId>,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Bytes read from storage.
    pub(crate) read: u64,
    /// Slots to notify: they waited for pages whose read failed.
    pub(crate) waiting: Vec<SlotId>,
}

/// The result of decoding a page.
#[derive(Debug, Default)]
pub(crate) struct DecodedPage {
    /// Slots to notify: they waited for the page.
    pub(crate) waiting: Vec<SlotId>,
    /// Frames decoded.
    pub(crate) frames: usize,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Stored bytes freed: those of the span, if this was its last page.
    pub(crate) stored_bytes: u64,
}

/// The next step towards a decoded page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Fetch its span.
    Fetch(SpanId),
    /// Decode it.
    Decode(PageId),
}

impl Span {
    pub(crate) fn fetched(&self) -> Option<Bytes> {
        self.bytes.lock().clone()
    }
}

impl StoredPages {
    pub(crate) fn new(
        source: &StoredStream,
        window: usize,
        fit: WindowFit,
        frames: Frames,
        reading: Reading<'_>,
    ) -> Result<Self, DatasetError> {
        let mut slices: Vec<PageSlice> = Vec::new();
        match frames {
            Frames::All => slices.extend(source.pages(source.frames())),
            Frames::Some(mut frames) => {
                frames.sort_unstable();
                for frame in frames {
                    add_frame(source, frame, &mut slices);
                }
            }
        }
        let ty = source.frame_type().as_values();
        let reduce = ty.map_or(Ok(None), |ty| fit.fit.reduce(ty));
        let reduce = reduce.map_err(|what| DatasetError::Invalid { what })?;
        let (shape, frame_bytes) = match (&reduce, ty) {
            (Some(reduce), _) => (reduce.shape(), reduce.frame_bytes()),
            (None, Some(ty)) => (ty.shape().to_vec(), ty.frame_bytes()),
            (None, None) => (Vec::new(), 0),
        };
        let mut stored = Self {
            window,
            position: source.position(),
            fit,
            reduce,
            shape,
            frame_bytes,
            texts: (source.raw_bytes(), u64::from(source.frames().end)),
            pages: Vec::with_capacity(slices.len()),
            regular: Regular::of(&slices),
            read_size: source.read_size(),
            spans: Vec::new(),
        };
        slices
            .into_iter()
            .for_each(|slice| stored.push(slice, reading));
        Ok(stored)
    }

    /// Adds the next page to the last span, or to a new one.
    fn push(&mut self, slice: PageSlice, reading: Reading<'_>) {
        let page = self.pages.len();
        let first = first_frame(&slice);
        let frames = u32::try_from(slice.range.len()).unwrap_or(u32::MAX);
        let frames = first..first.saturating_add(frames);
        let is_ahead = reading.ahead.has((self.position, self.fit), &frames);
        let is_needed = reading.is_needed(&frames);
        let start = slice.record.offset();
        let stored = start..start.saturating_add(u64::from(slice.record.len));
        // A page that is decoded only when it is needed is also read alone.
        let joins = self.spans.last().is_some_and(|span| {
            if !(span.is_ahead && is_ahead) || span.is_needed != is_needed {
                return false;
            }
            let (first, last) = (&self.pages[span.pages.start], &self.pages[page - 1]);
            let read = first.slice.record.offset()..last.end();
            self.read_size.joins(&read, span.wanted, &stored)
        });
        if joins {
            if let Some(span) = self.spans.last_mut() {
                span.pages.end = page + 1;
                span.wanted += u64::from(slice.record.len);
                *span.left.get_mut() += 1;
            }
        } else {
            self.spans.push(Span {
                pages: page..page + 1,
                wanted: u64::from(slice.record.len),
                is_ahead,
                is_needed,
                requested: MostUrgent::new(),
                begun: AtomicBool::new(false),
                bytes: Mutex::new(None),
                left: AtomicUsize::new(1),
            });
        }
        self.pages.push(PageCell {
            slice,
            span: self.spans.len() - 1,
            claimed: AtomicBool::new(false),
            decoded: OnceLock::new(),
            requested: MostUrgent::new(),
            waiting: Mutex::new(Vec::new()),
        });
    }

    /// The page that holds a frame, and the frame's position in it; `None` if it was not wanted.
    pub(crate) fn find(&self, frame: u32) -> Option<(usize, usize)> {
        match self.regular {
            Some(regular) => regular.find(frame),
            None => self.search(frame),
        }
    }

    /// The same, of any pages.
    pub(super) fn search(&self, frame: u32) -> Option<(usize, usize)> {
        let pages = &self.pages;
        let page = pages
            .partition_point(|page| page.first() <= frame)
            .checked_sub(1)?;
        let place = (frame - pages[page].first()) as usize;
        (place < pages[page].slice.range.len()).then_some((page, place))
    }

    pub(crate) fn decoded_bytes(&self) -> u64 {
        let frames: usize = self.pages.iter().map(|page| page.slice.range.len()).sum();
        let frames = frames as u64;
        if self.frame_bytes > 0 {
            return frames.saturating_mul(self.frame_bytes as u64);
        }
        // Every text counts with the mean length, as in `Samples::sizes`.
        let (bytes, texts) = self.texts;
        let mean = bytes.div_ceil(texts.max(1));
        frames.saturating_mul(mean)
    }
}

impl PageCell {
    /// Offset of its end, in bytes from the start of the episode.
    pub(crate) fn end(&self) -> u64 {
        let record = &self.slice.record;
        record.offset().saturating_add(u64::from(record.len))
    }

    /// The index of the first frame that it decodes.
    pub(crate) fn first(&self) -> u32 {
        first_frame(&self.slice)
    }
}

/// Adds the page of a frame, or extends the last slice if it is the same page.
fn add_frame(source: &StoredStream, frame: u32, slices: &mut Vec<PageSlice>) {
    let Some(slice) = source.pages(frame..frame.saturating_add(1)).next() else {
        return;
    };
    match slices.last_mut() {
        Some(last) if last.page == slice.page => {
            last.range.end = last.range.end.max(slice.range.end)
        }
        _ => slices.push(slice),
    }
}

/// The frames of a window that have to be there.
pub(crate) fn frames_of(plan: &WindowFrames) -> impl Iterator<Item = u32> {
    let others = plan.other.iter().filter(|(_, weight)| *weight > 0.0);
    let frames = plan.frames.iter().copied();
    frames
        .chain(others.map(|(frame, _)| *frame))
        .filter(|&frame| frame != NO_FRAME)
}
