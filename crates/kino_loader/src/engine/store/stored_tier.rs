//! Stored pages kept in memory, where reading them takes longer than decoding them.
//!
//! ```text
//! memory   | decoded frames | stored streams of episodes 4, 11, … |       a fixed set: those that were read first
//! read     of 4: from memory      of 5: from storage
//! ```
//!
//! A byte of memory holds more frames stored than decoded, but then only spares reading them. The planner decides how much
//! memory the tier has (`planner/tier.rs`); until then it has none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use kino_dataset::{DatasetError, PageSlice, StoredStream};
use kino_sync::Mutex;

use super::cache::EpisodeKey;

/// Stored streams in memory.
#[derive(Debug, Default)]
pub(crate) struct StoredTier {
    limit: AtomicU64,
    kept: Mutex<Kept>,
    hits: AtomicU64,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: u64,
    is_full: bool,
    /// By episode and position of the stream; `None` if its pages do not lie side by side.
    streams: HashMap<(EpisodeKey, usize), Option<Arc<KeptStream>>>,
}

/// All pages of a stream.
#[derive(Debug)]
struct KeptStream {
    first: PageSlice,
    last: PageSlice,
    /// Their bytes, once they were read.
    bytes: Mutex<Option<Bytes>>,
}

impl StoredTier {
    /// Keeps up to this many bytes from now on.
    pub(crate) fn allow(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// The bytes of consecutive pages of an episode, and how many bytes were read from storage for them.
    pub(crate) fn read(
        &self,
        key: EpisodeKey,
        source: &StoredStream,
        pages: &[PageSlice],
    ) -> Result<(Bytes, u64), DatasetError> {
        if let Some(found) = self.find(key, source).and_then(|kept| {
            let mut bytes = kept.bytes.lock();
            let mut read = 0;
            if bytes.is_none() {
                // An error is reported by the read of the pages that are wanted.
                let all = source.fetch(&[kept.first.clone(), kept.last.clone()]);
                *bytes = Some(all.ok()?);
                read = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
            }
            let start = pages.first()?.record.offset();
            let start = to_usize(start.checked_sub(kept.first.record.offset())?);
            let end = to_usize(end_of(pages.last()?).checked_sub(kept.first.record.offset())?);
            let all = bytes.as_ref()?;
            (start <= end && end <= all.len()).then(|| (all.slice(start..end), read))
        }) {
            self.hits
                .fetch_add(u64::from(found.1 == 0), Ordering::Relaxed);
            return Ok(found);
        }
        let bytes = source.fetch(pages)?;
        let read = bytes.len() as u64;
        Ok((bytes, read))
    }

    /// The stream of an episode if it is kept, or is from now on.
    fn find(&self, key: EpisodeKey, source: &StoredStream) -> Option<Arc<KeptStream>> {
        let limit = self.limit.load(Ordering::Relaxed);
        if limit == 0 {
            return None;
        }
        let place = (key, source.position());
        let mut kept = self.kept.lock();
        if let Some(found) = kept.streams.get(&place) {
            return found.clone();
        }
        if kept.is_full {
            return None;
        }
        let mut pages = source.pages(source.frames());
        let first = pages.next()?;
        let (mut last, mut stored) = (first.clone(), u64::from(first.record.len));
        for page in pages {
            stored += u64::from(page.record.len);
            last = page;
        }
        let bytes = end_of(&last).saturating_sub(first.record.offset());
        if kept.bytes.saturating_add(bytes) > limit {
            kept.is_full = true;
            return None;
        }
        // Padding between pages is fine, another stream is not.
        let is_dense = bytes <= stored.saturating_add(stored / 8);
        let stream = is_dense.then(|| {
            Arc::new(KeptStream {
                first,
                last,
                bytes: Mutex::new(None),
            })
        });
        kept.bytes += if is_dense { bytes } else { 0 };
        kept.streams.insert(place, stream.clone());
        stream
    }

    /// Bytes held, or about to be read; and reads that were served from memory.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.kept.lock().bytes, self.hits.load(Ordering::Relaxed))
    }
}

fn end_of(page: &PageSlice) -> u64 {
    page.record
        .offset()
        .saturating_add(u64::from(page.record.len))
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
