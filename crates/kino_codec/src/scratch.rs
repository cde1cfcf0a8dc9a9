//! Working memory that is reused from page to page, one per thread.

/// Buffers and library contexts that codecs keep between calls, so that decoding a frame allocates nothing.
///
/// Make one per thread and hand it to every call; it grows to the largest page it has seen.
#[derive(Debug, Default)]
pub struct Scratch {
    /// A general byte buffer; its contents mean nothing between calls.
    pub(crate) bytes: Vec<u8>,
}

impl Scratch {
    /// Empty working memory.
    pub fn new() -> Self {
        Self::default()
    }
}
