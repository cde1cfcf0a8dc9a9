//! The pages of a block: which ones it takes, and which of them are read together.
//!
//! ```text
//! wanted frames 3, 4, 9 ─▶ page 0 (3..5) page 1 (9..10) ─▶ span 0: pages 0 and 1, one read
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use kino_dataset::{DatasetError, EpisodeSamples, PageSlice, StoredStream, Stream};

use super::collate::SampleJob;
use super::episode_frames::Decoded;
use super::resize::{Fit, Resize};

/// A span is about this many stored bytes: large enough that a read pays, small enough that the first page comes soon.
const SPAN_BYTES: u64 = 1 << 20;

/// How urgently a span was asked for.
const NOT_ASKED: u8 = 0;
pub(super) const AHEAD: u8 = 1;
pub(super) const NOW: u8 = 2;

/// Which frames of an episode are wanted.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// What becomes of the frames of each window when they are decoded.
    pub(super) fits: Arc<[Fit]>,
    /// By the position of the stream that stores them, and what becomes of them: a window that reads them, and the frames.
    /// One that is wanted in two sizes is decoded twice.
    pub(super) streams: BTreeMap<(usize, Fit), (usize, Frames)>,
}

#[derive(Debug)]
pub(super) enum Frames {
    All,
    Some(Vec<u32>),
}

impl Wanted {
    /// Nothing yet.
    pub(crate) fn new(fits: &Arc<[Fit]>) -> Self {
        Self {
            fits: Arc::clone(fits),
            streams: BTreeMap::new(),
        }
    }

    /// Every frame that the streams of these windows store or share.
    pub(crate) fn all(windows: &EpisodeSamples, requested: &[usize], fits: &Arc<[Fit]>) -> Self {
        let mut wanted = Self::new(fits);
        for &window in requested {
            let Some(stream) = windows.stream(window) else {
                continue;
            };
            let last = u32::try_from(stream.len())
                .unwrap_or(u32::MAX)
                .saturating_sub(1);
            // Shared frames come first: the first and the last frame name all who store some.
            for frame in [0, last] {
                let (position, _) = stream.place_of(frame);
                let key = (position, wanted.fit(window));
                wanted.streams.insert(key, (window, Frames::All));
            }
        }
        wanted
    }

    /// One more frame of a window's stream.
    pub(crate) fn add(&mut self, window: usize, stream: &Stream, frame: u32) {
        let (position, frame) = stream.place_of(frame);
        let entry = self.streams.entry((position, self.fit(window)));
        match entry.or_insert_with(|| (window, Frames::Some(Vec::new()))) {
            (_, Frames::Some(frames)) if frames.last() != Some(&frame) => frames.push(frame),
            _ => {}
        }
    }

    fn fit(&self, window: usize) -> Fit {
        self.fits.get(window).copied().unwrap_or_default()
    }
}

/// The pages of one stored stream.
#[derive(Debug)]
pub(super) struct StoredPages {
    /// A window whose stream stores them, or shares them.
    pub(super) window: usize,
    /// The position of the stream that stores them.
    pub(super) position: usize,
    /// What becomes of its frames, and how; nothing where `reduce` is `None`.
    pub(super) fit: Fit,
    pub(super) reduce: Option<Resize>,
    /// Shape of a decoded frame.
    pub(super) shape: Vec<usize>,
    /// Bytes of a decoded frame; 0 for text.
    pub(super) frame_bytes: usize,
    /// Bytes of all its texts together and how many they are; for numbers not looked at.
    pub(super) texts: (u64, u64),
    pub(super) pages: Vec<PageCell>,
    pub(super) spans: Vec<Span>,
}

/// Pages that are fetched together.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) pages: Range<usize>,
    /// Whether a thread was asked to fetch it, and how urgently.
    pub(super) asked: AtomicU8,
    /// Whether a thread has begun.
    pub(super) begun: AtomicBool,
    /// What was fetched, until the last of its pages is decoded.
    pub(super) bytes: Mutex<Option<Bytes>>,
    pub(super) left: AtomicUsize,
}

/// One page, or the wanted part of it.
#[derive(Debug)]
pub(super) struct PageCell {
    pub(super) slice: PageSlice,
    pub(super) span: usize,
    /// Whether a thread decodes it, or has.
    pub(super) claimed: AtomicBool,
    pub(super) decoded: OnceLock<Decoded>,
    /// Of the first batch that needs it.
    pub(super) urgency: AtomicU64,
    /// Jobs to be told; weak, because they hold this block.
    pub(super) waiting: Mutex<Vec<Weak<SampleJob>>>,
}

impl Span {
    pub(super) fn fetched(&self) -> Option<Bytes> {
        self.bytes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl StoredPages {
    pub(super) fn new(
        source: &StoredStream,
        (window, fit): (usize, Fit),
        frames: Frames,
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
        let reduce = ty.map_or(Ok(None), |ty| fit.reduce(ty));
        let reduce = reduce.map_err(|what| DatasetError::Invalid { what })?;
        let (shape, frame_bytes) = match (&reduce, ty) {
            (Some(reduce), _) => (reduce.shape(), reduce.frame_bytes()),
            (None, Some(ty)) => (ty.shape().to_vec(), ty.frame_bytes()),
            (None, None) => (Vec::new(), 0),
        };
        let mut one = Self {
            window,
            position: source.position(),
            fit,
            reduce,
            shape,
            frame_bytes,
            texts: (source.raw_bytes(), u64::from(source.frames().end)),
            pages: Vec::with_capacity(slices.len()),
            spans: Vec::new(),
        };
        slices.into_iter().for_each(|slice| one.push(slice));
        Ok(one)
    }

    /// Adds the next page to the last span, or to a new one.
    fn push(&mut self, slice: PageSlice) {
        let page = self.pages.len();
        let joins = self.spans.last().is_some_and(|span| {
            let (first, last) = (
                &self.pages[span.pages.start].slice,
                &self.pages[page - 1].slice,
            );
            let end = slice.record.offset() + u64::from(slice.record.len);
            slice.page == last.page + 1 && end.saturating_sub(first.record.offset()) <= SPAN_BYTES
        });
        if joins {
            if let Some(span) = self.spans.last_mut() {
                span.pages.end = page + 1;
                *span.left.get_mut() += 1;
            }
        } else {
            self.spans.push(Span {
                pages: page..page + 1,
                asked: AtomicU8::new(NOT_ASKED),
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
            urgency: AtomicU64::new(u64::MAX),
            waiting: Mutex::new(Vec::new()),
        });
    }

    pub(super) fn decoded_bytes(&self) -> u64 {
        let frames: usize = self.pages.iter().map(|page| page.slice.range.len()).sum();
        let frames = frames as u64;
        if self.frame_bytes > 0 {
            return frames.saturating_mul(self.frame_bytes as u64);
        }
        // A text is taken at its mean length, as `Samples::sizes` does.
        let (bytes, texts) = self.texts;
        let mean = bytes.div_ceil(texts.max(1));
        frames.saturating_mul(mean)
    }
}

impl PageCell {
    /// The first byte after it, from the start of the episode.
    pub(super) fn end(&self) -> u64 {
        let record = &self.slice.record;
        record.offset().saturating_add(u64::from(record.len))
    }

    /// The number of the first frame that it decodes.
    pub(super) fn first(&self) -> u32 {
        let skipped = u32::try_from(self.slice.range.start).unwrap_or(u32::MAX);
        self.slice.record.first_frame.saturating_add(skipped)
    }
}

/// Adds the page of a frame, or widens the last one if it is the same.
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
