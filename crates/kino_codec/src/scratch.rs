//! Working memory that is reused from page to page, one per thread.

use crate::av1::{Index, Instance};
use crate::depth::Room;
use crate::general::Inflater;
use crate::jpeg::{Compressor, Decompressor};
use crate::vector::VectorScratch;
use crate::zstd_frame::ZstdContexts;

/// Buffers and library contexts that codecs keep between calls, so that decoding a frame allocates nothing.
///
/// Make one per thread and hand it to every call; it grows to the largest page it has seen.
#[derive(Debug, Default)]
pub struct Scratch {
    /// A general byte buffer; its contents mean nothing between calls.
    pub(crate) bytes: Vec<u8>,
    /// A second one, for codecs with two stages.
    pub(crate) more_bytes: Vec<u8>,
    /// A third one, for codecs that also need the frame before.
    pub(crate) content: Vec<u8>,
    /// A whole image of which a part is wanted; kept apart, because decoding it uses the buffers above.
    pub(crate) image: Vec<u8>,
    /// Rows of whole numbers; their contents mean nothing between calls.
    pub(crate) words: Vec<u64>,
    /// Rows of ranks; their contents mean nothing between calls.
    pub(crate) ranks: Vec<u16>,
    /// What restoring an image of depths works in.
    pub(crate) depth_room: Room,
    /// Positions inside a page; their contents mean nothing between calls.
    pub(crate) offsets: Vec<usize>,
    /// For vectors: the parts of a page.
    pub(crate) vector: VectorScratch,
    /// The zstd library's contexts.
    pub(crate) zstd: ZstdContexts,
    /// The state of decoding deflate.
    pub(crate) inflater: Inflater,
    /// The JPEG library's instance for encoding, once one was needed.
    pub(crate) jpeg_compressor: Option<Compressor>,
    /// The JPEG library's instance for decoding, once one was needed.
    pub(crate) jpeg_decompressor: Option<Decompressor>,
    /// The AV1 decoder, once one was needed.
    pub(crate) av1: Option<Instance>,
    /// Where the parts of an AV1 page lie.
    pub(crate) av1_index: Index,
}

impl Scratch {
    /// Empty working memory.
    pub fn new() -> Self {
        Self::default()
    }
}

/// The first `len` bytes of `buffer`, grown where needed; their values are whatever was there before.
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
    fn what_threads_hold_may_move_between_them() {
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
