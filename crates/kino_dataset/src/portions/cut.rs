//! Where portions end.
//!
//! Inside a portion shards are closed when they are full, and the last one is closed where the portion ends. So no shard is
//! larger than without portions, and of a portion's shards one may be smaller. Portions of several shards keep these few.

use std::ops::Range;

/// A portion has decoded frames of at least this many shards.
const RAW_SHARDS: u64 = 16;

/// Cuts episodes, in the order of writing, by their decoded bytes and the bytes that they take now: of video, a few stored
/// bytes are many frames, and it may be stored as it is.
pub fn cut_portions(sizes: &[(u64, u64)], shard_bytes: u64) -> Vec<Range<usize>> {
    let mut portions = Vec::new();
    let (mut start, mut raw, mut stored) = (0, 0_u64, 0_u64);
    for (place, (more_raw, more_stored)) in sizes.iter().enumerate() {
        raw = raw.saturating_add(*more_raw);
        stored = stored.saturating_add(*more_stored);
        let is_enough = raw >= shard_bytes.saturating_mul(RAW_SHARDS) && stored >= shard_bytes;
        if is_enough || place + 1 == sizes.len() {
            portions.push(start..place + 1);
            (start, raw, stored) = (place + 1, 0, 0);
        }
    }
    portions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_have_enough_decoded_and_stored_bytes_and_leave_nothing_out() {
        assert_eq!(
            cut_portions(&[(16, 1); 5], 1),
            [0..1, 1..2, 2..3, 3..4, 4..5]
        );
        assert_eq!(cut_portions(&[(8, 1); 5], 1), [0..2, 2..4, 4..5]);
        // Video: decoded frames are many, stored bytes few.
        assert_eq!(cut_portions(&[(1000, 1); 7], 3), [0..3, 3..6, 6..7]);
        assert_eq!(cut_portions(&[(0, 0); 3], 0), [0..1, 1..2, 2..3]);
        let whole = cut_portions(&[(1, 1); 3], u64::MAX);
        assert_eq!((whole.len(), whole.first()), (1, Some(&(0..3))));
        assert!(cut_portions(&[], 1).is_empty());
    }
}
