//! Memory of decoded pages, reused: fresh memory costs a page fault per 4 KiB, which is as slow as a copy.
//!
//! ```text
//! budget   | in use by decoded frames          | unused, kept | free |       in use and unused together stay within the limit
//! ```
//!
//! What frames give back is kept as long as it fits beside what is in use. If it went back to the allocator, the process would
//! grow beyond its budget: the allocator keeps memory apart for each thread, so what one decode thread has
//! taken and somebody has freed does not serve another.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use kino_sync::Mutex;

/// Unused buffers by length. A stream's pages have few distinct lengths, so there are few keys.
#[derive(Debug)]
pub(crate) struct PageShelf {
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    by_len: HashMap<usize, Vec<Vec<u8>>>,
    /// Bytes of unused buffers.
    bytes: usize,
    /// Bytes of buffers in use.
    used: usize,
    /// The most of both together; what is in use may exceed it.
    limit: usize,
}

/// The bytes of a decoded page; they return to their shelf when dropped.
#[derive(Debug)]
pub(crate) struct PageBuffer {
    bytes: Vec<u8>,
    shelf: Arc<PageShelf>,
}

impl PageShelf {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        let free = Free {
            limit,
            ..Free::default()
        };
        Arc::new(Self {
            free: Mutex::new(free),
        })
    }

    /// Keeps less from now on.
    pub(crate) fn lower_limit(&self, bytes: usize) {
        let mut free = self.free.lock();
        free.limit = free.limit.saturating_sub(bytes);
        let gone = free.shrink();
        drop(free);
        drop(gone);
    }

    /// A buffer of `len` bytes with arbitrary content.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> PageBuffer {
        let mut free = self.free.lock();
        let found = free.by_len.get_mut(&len).and_then(Vec::pop);
        free.used += len;
        let mut gone = Vec::new();
        if found.is_some() {
            free.bytes -= len;
        } else {
            gone = free.shrink();
        }
        drop(free);
        // Outside the lock, and before more is taken.
        drop(gone);
        PageBuffer {
            bytes: found.unwrap_or_else(|| vec![0; len]),
            shelf: Arc::clone(self),
        }
    }
}

impl Free {
    /// Takes out unused buffers, of whatever length, until the rest fits beside what is in use.
    fn shrink(&mut self) -> Vec<Vec<u8>> {
        let mut gone = Vec::new();
        if self.bytes == 0 || self.used + self.bytes <= self.limit {
            return gone;
        }
        let Self {
            by_len,
            bytes,
            used,
            limit,
        } = self;
        for buffers in by_len.values_mut() {
            while *used + *bytes > *limit {
                let Some(buffer) = buffers.pop() else { break };
                *bytes -= buffer.len();
                gone.push(buffer);
            }
        }
        self.by_len.retain(|_, buffers| !buffers.is_empty());
        gone
    }
}

impl Drop for PageBuffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut free = self.shelf.free.lock();
        free.used -= bytes.len();
        if free.used + free.bytes + bytes.len() <= free.limit {
            free.bytes += bytes.len();
            free.by_len.entry(bytes.len()).or_default().push(bytes);
        }
    }
}

impl Deref for PageBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for PageBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buffers_are_kept_for_reuse_up_to_the_limit() {
        let shelf = PageShelf::new(100);
        let (first, second) = (shelf.take(60), shelf.take(60));
        let address = first.as_ptr();
        drop(second);
        assert_eq!(shelf.free.lock().bytes, 0, "the first one is in use");
        drop(first);
        assert_eq!(shelf.free.lock().bytes, 60);
        let again = shelf.take(60);
        assert_eq!(again.as_ptr(), address);
        drop(again);
        assert_eq!(shelf.take(61).len(), 61);
        assert_eq!(
            shelf.free.lock().bytes,
            61,
            "the other length made room for it"
        );
    }

    proptest! {
        /// The twin counts everything anew after each step.
        #[test]
        fn what_is_in_use_and_what_is_not_stay_within_the_limit(
            steps in prop::collection::vec((any::<bool>(), 1..5_usize), 0..80),
        ) {
            let shelf = PageShelf::new(100);
            let mut used: Vec<PageBuffer> = Vec::new();
            for (takes, which) in steps {
                if takes {
                    used.push(shelf.take(which * 7));
                } else if !used.is_empty() {
                    used.swap_remove(which % used.len());
                }
                let free = shelf.free.lock();
                let in_use: usize = used.iter().map(|buffer| buffer.len()).sum();
                let unused: usize = free.by_len.values().flatten().map(Vec::len).sum();
                prop_assert_eq!((free.used, free.bytes), (in_use, unused));
                prop_assert!(unused == 0 || in_use + unused <= 100);
            }
        }
    }
}
