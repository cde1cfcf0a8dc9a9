//! JPEG files of a recording that are not stored as they are: decoded to pixels.

use std::num::NonZeroUsize;

use kino_codec::{CodecError, Encoded, FrameType, Frames, Scratch};

/// The codec that stores JPEG files as they are.
pub const JPEG_FILES: &str = "jpeg:carry";

/// The pixels of JPEG files of this type, packed.
pub fn decode_jpeg_files(frame: &FrameType, files: &[&[u8]]) -> Result<Vec<u8>, CodecError> {
    let codec = kino_codec::codec(JPEG_FILES)?;
    let frames = Frames::bytes(frame, files);
    let (mut encoded, mut scratch) = (Encoded::default(), Scratch::new());
    codec.encode(&frames, NonZeroUsize::MIN, &mut encoded, &mut scratch)?;
    let decoder = codec.decoder(frame, &encoded.shared)?;
    let size = frame.as_values().map_or(0, |ty| ty.frame_bytes());
    let mut out = vec![0; size * files.len()];
    for (page, room) in encoded.pages.iter().zip(out.chunks_mut(size.max(1))) {
        decoder.decode(page.page(), 0..page.frames, room, &mut scratch)?;
    }
    Ok(out)
}
