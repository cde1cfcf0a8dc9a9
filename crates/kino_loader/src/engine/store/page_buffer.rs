//! Memory of decoded pages, reused: fresh memory costs a page fault per 4 KiB, which is as slow as a copy.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use kino_sync::Mutex;

/// Unused buffers by length. A stream's pages have few distinct lengths, so there are few keys.
#[derive(Debug)]
pub(crate) struct PageShelf {
    free: Mutex<Free>,
    /// Unused buffers are kept up to this many bytes.
    limit: usize,
}

#[derive(Debug, Default)]
struct Free {
    by_len: HashMap<usize, Vec<Vec<u8>>>,
    bytes: usize,
}

/// The bytes of a decoded page; they return to their shelf when dropped.
#[derive(Debug)]
pub(crate) struct PageBuffer {
    bytes: Vec<u8>,
    shelf: Arc<PageShelf>,
}

impl PageShelf {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Mutex::default(),
            limit,
        })
    }

    /// A buffer of `len` bytes with arbitrary content.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> PageBuffer {
        let mut free = self.free.lock();
        let found = free.by_len.get_mut(&len).and_then(Vec::pop);
        if found.is_some() {
            free.bytes -= len;
        }
        drop(free);
        PageBuffer {
            bytes: found.unwrap_or_else(|| vec![0; len]),
            shelf: Arc::clone(self),
        }
    }
}

impl Drop for PageBuffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut free = self.shelf.free.lock();
        if free.bytes + bytes.len() <= self.shelf.limit {
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
    use super::*;

    #[test]
    fn buffers_are_kept_for_reuse_up_to_the_limit() {
        let shelf = PageShelf::new(100);
        let (first, second) = (shelf.take(60), shelf.take(60));
        let address = first.as_ptr();
        drop(first);
        drop(second);
        assert_eq!(shelf.free.lock().bytes, 60);
        assert_eq!(shelf.take(60).as_ptr(), address);
        assert_eq!(shelf.take(61).len(), 61);
    }
}
