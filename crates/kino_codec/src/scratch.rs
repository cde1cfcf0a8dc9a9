//! Working memory that is reused from page to page, one per thread.

use crate::av1::{Index, Instance};
use crate::depth::Room;
use crate::general::Inflater;
use crate::jpeg::{Compressor, Decompressor};
use crate::vector::VectorScratch;
use crate::zstd_frame::ZstdContexts;

/// Buffers and library contexts that codecs keep between calls, so that decoding a frame allocates nothing.
///
/// Create one per thread and pass it to every call; it grows to the largest page it has seen.
#[derive(Debug, Default)]
pub struct Scratch {
    /// A general byte buffer; its contents are meaningless between calls.
    pub(crate) bytes: Vec<u8>,
    /// A second one, for codecs with two stages.
    pub(crate) more_bytes: Vec<u8>,
    /// A third one, for codecs that also need the previous frame.
    pub(crate) content: Vec<u8>,
    /// A whole image to be cropped; separate, because decoding it uses the buffers above.
    pub(crate) image: Vec<u8>,
    /// Rows of integers; their contents are meaningless between calls.
    pub(crate) words: Vec<u64>,
    /// Rows of ranks; their contents are meaningless between calls.
    pub(crate) ranks: Vec<u16>,
    /// Buffers for restoring depth images.
    pub(crate) depth_room: Room,
    /// Positions inside a page; their contents are meaningless between calls.
    pub(crate) offsets: Vec<usize>,
    /// For vectors: the parts of a page.
    pub(crate) vector: VectorScratch,
    /// The zstd library's contexts.
    pub(crate) zstd: ZstdContexts,
    /// The state of the deflate decoder.
    pub(crate) inflater: Inflater,
    /// The JPEG library's instance for encoding, once needed.
    pub(crate) jpeg_compressor: Option<Compressor>,
    /// The JPEG library's instance for decoding, once needed.
    pub(crate) jpeg_decompressor: Option<Decompressor>,
    /// The AV1 decoder, once needed.
    pub(crate) av1: Option<Instance>,
    /// Where the parts of an AV1 page are.
    pub(crate) av1_index: Index,
}

impl Scratch {
    /// Empty working memory.
    pub fn new() -> Self {
        Self::default()
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
    fn a_buffer_grows_and_never_shrinks() {
        let mut buffer = Vec::new();
        assert_eq!(at_least(&mut buffer, 5).len(), 5);
        assert_eq!(at_least(&mut buffer, 2).len(), 2);
        assert_eq!(buffer.len(), 5);
    }
}
