//! Working memory that is reused from page to page, one per thread.

use std::any::Any;
use std::fmt;

use crate::zstd_frame::ZstdContexts;

/// Buffers and library contexts that codecs keep between calls, so that decoding a frame allocates nothing.
///
/// Create one per thread and pass it to every call; it grows to the largest page it has seen.
#[derive(Default)]
pub struct Scratch {
    /// A general byte buffer; its contents are meaningless between calls.
    pub(crate) bytes: Vec<u8>,
    /// A second one, for codecs with two stages.
    pub(crate) more_bytes: Vec<u8>,
    /// A third one, for codecs that also need the previous frame.
    pub(crate) content: Vec<u8>,
    /// Positions inside a page; their contents are meaningless between calls.
    pub(crate) offsets: Vec<usize>,
    /// The zstd library's contexts.
    pub(crate) zstd: ZstdContexts,
    /// What becomes of pages that are encoded with it.
    pub(crate) purpose: Purpose,
    /// What single codecs keep, each in a type of its own.
    states: Vec<Box<dyn Any + Send>>,
}

/// What becomes of encoded pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// They are kept, so they should be small.
    #[default]
    Stored,
    /// They are decoded at once, so encoding should be fast.
    Dropped,
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scratch")
    }
}

impl Scratch {
    /// Empty working memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empty working memory for pages that are decoded at once and dropped: a codec may make them larger, if that is faster.
    pub fn for_dropped_pages() -> Self {
        Self {
            purpose: Purpose::Dropped,
            ..Self::default()
        }
    }

    /// Takes out what was last [kept](Self::keep) of this type, or makes it.
    ///
    /// Taken and not lent, so that the rest of the scratch can be used beside it; and what an error leaves in an
    /// unknown state is not kept.
    pub(crate) fn take<T: Any + Send + Default>(&mut self) -> Box<T> {
        let found = self.states.iter().position(|state| state.is::<T>());
        let state = found.map(|idx| self.states.swap_remove(idx));
        let state = state.and_then(|state| state.downcast().ok());
        state.unwrap_or_default()
    }

    /// Keeps a codec's own working memory for its next call.
    pub(crate) fn keep<T: Any + Send>(&mut self, state: Box<T>) {
        self.states.push(state);
    }
}

/// The first `len` bytes of `buffer`, grown if needed; their values are unspecified.
pub(crate) fn at_least(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    &mut buffer[..len]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Codec, Decoder};

    #[test]
    fn scratch_may_move_between_threads() {
        fn moves<T: Send + ?Sized>() {}
        fn is_shared<T: Sync + ?Sized>() {}
        moves::<Scratch>();
        is_shared::<dyn Codec>();
        is_shared::<dyn Decoder>();
    }

    #[test]
    fn what_a_codec_keeps_is_found_by_its_type() {
        let mut scratch = Scratch::new();
        let mut numbers: Box<Vec<u8>> = scratch.take();
        numbers.push(7);
        scratch.keep(numbers);
        scratch.keep(Box::new("text".to_owned()));
        assert_eq!(*scratch.take::<Vec<u8>>(), [7]);
        assert_eq!(*scratch.take::<Vec<u8>>(), [0; 0]);
        assert_eq!(*scratch.take::<String>(), "text");
    }

    #[test]
    fn a_buffer_grows_and_never_shrinks() {
        let mut buffer = Vec::new();
        assert_eq!(at_least(&mut buffer, 5).len(), 5);
        assert_eq!(at_least(&mut buffer, 2).len(), 2);
        assert_eq!(buffer.len(), 5);
    }
}
