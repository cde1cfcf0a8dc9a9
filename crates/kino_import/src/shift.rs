//! Detects a stream that is another stream shifted by one step.
//!
//! ```text
//! obs/x       a b c d
//! next_obs/x    b c d e      only `e` is new
//! ```
//!
//! robomimic files of version 0.1 store every observation twice. What is already in `obs` needs no second copy, but
//! only after comparing the bytes: some recorders write a `next_obs` that was captured separately.

use kino_codec::FrameType;

use crate::error::{Result, invalid};
use crate::source::{EpisodeSpec, StreamSpec, block_frames};

/// Marks each `next_obs/x` that may be `obs/x` shifted by one step.
pub(crate) fn find_shifts(streams: &mut [StreamSpec]) {
    let bases: Vec<_> = streams
        .iter()
        .map(|stream| {
            let name = stream.name.strip_prefix("next_")?;
            streams.iter().position(|base| {
                let (a, b) = (stream, base);
                let is_numbers = a.frame != FrameType::Text;
                is_numbers
                    && b.name == name
                    && (&a.frame, a.frames, a.carried) == (&b.frame, b.frames, b.carried)
            })
        })
        .collect();
    for (stream, base) in streams.iter_mut().zip(bases) {
        stream.shift_of = base.filter(|_| stream.name.starts_with("next_obs/"));
    }
}

/// Whether frames `0..n-1` of `stream` are bit-identical to frames `1..n` of the stream it may be shifted from.
///
/// Reads both, a block at a time. False for a stream without [`shift_of`](crate::StreamSpec::shift_of).
pub fn is_shift(episode: &EpisodeSpec, stream: usize) -> Result<bool> {
    let spec = episode.streams.get(stream).ok_or_else(|| {
        invalid(format!(
            "stream {stream} of episode `{}` does not exist",
            episode.id
        ))
    })?;
    let Some(base) = spec.shift_of else {
        return Ok(false);
    };
    let (step, last) = (block_frames(&spec.frame), spec.frames.saturating_sub(1));
    let mut start = 0;
    while start < last {
        let end = last.min(start + step);
        if episode.read(stream, start..end)? != episode.read(base, start + 1..end + 1)? {
            return Ok(false);
        }
        start = end;
    }
    Ok(true)
}
