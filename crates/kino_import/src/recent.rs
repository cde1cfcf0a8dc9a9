//! A small cache of what was read last, for the next stream of the same episode.
//!
//! ```text
//! get(7) ─▶ | 7 | 3 | 4 | 9 |     the oldest is evicted by a new one
//! ```
//!
//! It keeps as many items as threads may read at the same time, at least four: with fewer, threads working on different
//! episodes would evict each other's. Or as many bytes as fit: a reader goes through a stream a block at a time, a
//! block ends inside a piece, and without this cache the piece would be decoded again for the next block.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use kino_sync::Mutex;

use crate::survey::cores;

/// With a weight function, at most this many bytes are kept, except for the newest two items, ...
const KEPT_BYTES: usize = 96 << 20;

/// ... and for one item per thread and one more, up to this many bytes.
const MOST_BYTES: usize = 1 << 30;

/// With a weight function, at most this many items are kept.
const KEPT_THINGS: usize = 64;

/// A slot that is locked while its content is being read, so that it is read only once.
type Slot<T> = Arc<Mutex<Option<Arc<T>>>>;

/// The last few items that were read, by key.
pub(crate) struct Recent<K, T> {
    slots: Mutex<VecDeque<Entry<K, T>>>,
    limit: usize,
    /// How many items threads may be reading from at the same time.
    in_use: usize,
    bytes_of: fn(&T) -> usize,
}

struct Entry<K, T> {
    key: K,
    slot: Slot<T>,
    /// Zero until it is read.
    bytes: usize,
}

impl<K, T> Default for Recent<K, T> {
    fn default() -> Self {
        let threads = cores(0);
        Self {
            slots: Mutex::default(),
            limit: threads.max(4),
            in_use: 0,
            bytes_of: |_| 0,
        }
    }
}

impl<K, T> fmt::Debug for Recent<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").finish_non_exhaustive()
    }
}

impl<K: PartialEq + Clone, T> Recent<K, T> {
    /// Limits by weight, not by count: for items of which one may be tiny and the next a gibibyte.
    pub(crate) fn by_bytes(bytes_of: fn(&T) -> usize) -> Self {
        Self::by_bytes_for(cores(0), bytes_of)
    }

    /// The same for as many threads.
    fn by_bytes_for(threads: usize, bytes_of: fn(&T) -> usize) -> Self {
        Self {
            slots: Mutex::default(),
            limit: KEPT_THINGS.max(2 * threads),
            in_use: threads + 1,
            bytes_of,
        }
    }

    /// The item of that key; `load` reads it if it is not cached. Errors are not cached.
    pub(crate) fn get<E>(&self, key: K, load: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let slot = self.slot(key.clone());
        let mut content = slot.lock();
        if let Some(found) = &*content {
            return Ok(Arc::clone(found));
        }
        let loaded = Arc::new(load()?);
        *content = Some(Arc::clone(&loaded));
        self.weigh(&key, (self.bytes_of)(&loaded));
        Ok(loaded)
    }

    fn slot(&self, key: K) -> Slot<T> {
        let mut slots = self.slots.lock();
        let known = slots.iter().position(|entry| entry.key == key);
        let entry = known.and_then(|at| slots.remove(at));
        let entry = entry.unwrap_or_else(|| Entry {
            key,
            slot: Slot::default(),
            bytes: 0,
        });
        let slot = Arc::clone(&entry.slot);
        slots.push_front(entry);
        slots.truncate(self.limit);
        slot
    }

    /// Records an item's weight, and evicts the oldest beyond the limit.
    fn weigh(&self, key: &K, bytes: usize) {
        let mut slots = self.slots.lock();
        if let Some(entry) = slots.iter_mut().find(|entry| entry.key == *key) {
            entry.bytes = bytes;
        }
        let light = |slots: &VecDeque<Entry<K, T>>, most: usize| {
            let mut sum = 0usize;
            let fits = |entry: &&Entry<K, T>| {
                sum = sum.saturating_add(entry.bytes);
                sum <= most
            };
            slots.iter().take_while(fits).count()
        };
        let in_use = light(&slots, MOST_BYTES).min(self.in_use);
        let kept = light(&slots, KEPT_BYTES).max(in_use).max(2);
        slots.truncate(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_the_oldest_is_evicted() {
        let recent = Recent::default();
        let loads = std::cell::RefCell::new(Vec::new());
        let get = |number: usize| {
            let load = || {
                loads.borrow_mut().push(number);
                Ok::<_, ()>(number * 10)
            };
            assert_eq!(*recent.get(number, load).unwrap(), number * 10);
        };
        (0..recent.limit).for_each(get);
        get(0);
        get(recent.limit);
        get(0);
        get(1);
        let mut expected: Vec<_> = (0..=recent.limit).collect();
        expected.push(1);
        assert_eq!(*loads.borrow(), expected);
    }

    #[test]
    fn a_failed_load_is_retried() {
        let recent = Recent::default();
        assert_eq!(recent.get(3, || Err("no")).unwrap_err(), "no");
        assert_eq!(*recent.get(3, || Ok::<_, ()>(1)).unwrap(), 1);
    }

    #[test]
    fn threads_that_read_heavy_items_side_by_side_load_each_once() {
        const THREADS: usize = 16;
        for (bytes, expected) in [
            (KEPT_BYTES / 5, THREADS),
            // A gibibyte holds five of these: memory comes first.
            (MOST_BYTES / 5, 8 * THREADS),
        ] {
            let recent = Recent::by_bytes_for(THREADS, |bytes: &usize| *bytes);
            let loads = std::cell::Cell::new(0);
            // Each reads its own item a block at a time, and the others read in between.
            for _block in 0..8 {
                for key in 0..THREADS {
                    let load = || {
                        loads.set(loads.get() + 1);
                        Ok::<_, ()>(bytes)
                    };
                    recent.get(key, load).unwrap();
                }
            }
            assert_eq!(loads.get(), expected);
        }
    }

    #[test]
    fn heavy_items_are_evicted_early_except_for_the_newest_two() {
        let recent = Recent::by_bytes_for(1, |bytes: &usize| *bytes);
        let loads = std::cell::Cell::new(0);
        let get = |key: usize, bytes: usize| {
            let load = || {
                loads.set(loads.get() + 1);
                Ok::<_, ()>(bytes)
            };
            recent.get(key, load).unwrap();
        };
        (0..8).for_each(|key| get(key, KEPT_BYTES / 8));
        (0..8).for_each(|key| get(key, 0));
        assert_eq!(loads.get(), 8, "all fit");
        get(8, KEPT_BYTES * 2);
        get(9, KEPT_BYTES * 2);
        get(8, 0);
        get(9, 0);
        assert_eq!(loads.get(), 10, "the newest two stay");
        get(7, 1);
        assert_eq!(loads.get(), 11, "the others were evicted");
    }
}
