//! What was read last, kept for whoever reads the next stream of the same episode.
//!
//! ```text
//! get(7) ─▶ | 7 | 3 | 4 | 9 |     the oldest leaves when a new one comes
//! ```
//!
//! As many are kept as threads may read at the same time, at least four: with fewer, threads that work on episodes
//! of their own would push out each other's.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A slot that is locked while its content is being read, so that nobody reads it a second time.
type Slot<T> = Arc<Mutex<Option<Arc<T>>>>;

/// The last few things that were read, by what they are known by.
pub(crate) struct Recent<K, T> {
    slots: Mutex<VecDeque<(K, Slot<T>)>>,
    limit: usize,
}

impl<K, T> Default for Recent<K, T> {
    fn default() -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Self {
            slots: Mutex::default(),
            limit: threads.max(4),
        }
    }
}

impl<K, T> fmt::Debug for Recent<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").finish_non_exhaustive()
    }
}

impl<K: PartialEq, T> Recent<K, T> {
    /// The thing of that key, which `load` reads if it is not here. What fails is not kept.
    pub(crate) fn get<E>(&self, key: K, load: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let slot = self.slot(key);
        let mut content = lock(&slot);
        if let Some(found) = &*content {
            return Ok(Arc::clone(found));
        }
        let loaded = Arc::new(load()?);
        *content = Some(Arc::clone(&loaded));
        Ok(loaded)
    }

    fn slot(&self, key: K) -> Slot<T> {
        let mut slots = lock(&self.slots);
        let known = slots.iter().position(|(known, _)| *known == key);
        let entry = known.and_then(|at| slots.remove(at));
        let entry = entry.unwrap_or_else(|| (key, Slot::default()));
        let slot = Arc::clone(&entry.1);
        slots.push_front(entry);
        slots.truncate(self.limit);
        slot
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_are_kept_and_the_oldest_leaves() {
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
    fn what_failed_is_read_again() {
        let recent = Recent::default();
        assert_eq!(recent.get(3, || Err("no")).unwrap_err(), "no");
        assert_eq!(*recent.get(3, || Ok::<_, ()>(1)).unwrap(), 1);
    }
}
