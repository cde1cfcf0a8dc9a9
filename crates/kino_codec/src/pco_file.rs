//! What a reader of pcodec's format needs, whichever codec the columns belong to: `pco` or `vector`.

use ::pco::wrapped::FileDecompressor;

use crate::error::{Result, corrupt};
use crate::scratch::at_least;

/// The major version of the library's format that we read and write.
const MAJOR: u8 = 4;

/// The library's longest column.
pub(crate) const MAX_RUN_FRAMES: usize = 1 << 24;

/// Our writer's tables have at most 2¹² states; larger ones would only cost readers memory.
pub(crate) const MAX_ANS_SIZE_LOG: u32 = 12;

/// The library reads up to 4.6 KB at a time, and allocates its own buffer where there are fewer bytes:
/// zeros after a page are cheaper than an allocation per column.
const PADDING: usize = 8 << 10;

/// The library's header at the start of what the pages of a run share, and the bytes after it.
pub(crate) fn open<'s>(
    codec: &'static str,
    shared: &'s [u8],
) -> Result<(FileDecompressor, &'s [u8])> {
    let Some(&[major, minor]) = shared.first_chunk::<2>() else {
        return Err(corrupt(codec, "its shared part is truncated"));
    };
    let (file, rest) =
        FileDecompressor::new(shared).map_err(|error| corrupt(codec, format!("pco: {error}")))?;
    if major != MAJOR || file.format_version().can_be_decompressed() != Some(true) {
        let what = format!("it uses pco format {major}.{minor}; upgrade `kinograph` to read it");
        return Err(corrupt(codec, what));
    }
    Ok((file, rest))
}

/// The bytes of a page with zeros behind them.
pub(crate) fn padded<'b>(buffer: &'b mut Vec<u8>, bytes: &[u8]) -> &'b [u8] {
    let padded = at_least(buffer, bytes.len() + PADDING);
    let (start, end) = padded.split_at_mut(bytes.len());
    start.copy_from_slice(bytes);
    end.fill(0);
    padded
}
