//! Integers in as few bytes as they need: seven bits per byte, lowest first; a set top bit means more bytes follow.
//!
//! ```text
//! 0..=127 → 0xxxxxxx        128..=16383 → 1xxxxxxx 0xxxxxxx        … at most 5 bytes, so below 2³⁵
//! ```

use crate::error::{Result, corrupt};

/// The most bytes of a varint.
const MAX_LEN: usize = 5;

/// Appends `value`; no codec writes values of 2³⁵ or more.
pub(crate) fn put(mut value: usize, out: &mut Vec<u8>) {
    debug_assert!(
        value < 1 << 35,
        "codecs bound their lengths well below this"
    );
    while value > 0x7f {
        out.push(low_bits(value) | 0x80);
        value >>= 7;
    }
    out.push(low_bits(value));
}

/// Takes a varint off the front of `bytes`.
pub(crate) fn take(codec: &'static str, bytes: &mut &[u8]) -> Result<usize> {
    let mut value = 0;
    for idx in 0..MAX_LEN {
        let byte = *bytes
            .get(idx)
            .ok_or_else(|| corrupt(codec, "it ends inside a varint"))?;
        value |= usize::from(byte & 0x7f) << (7 * idx);
        if byte < 0x80 {
            *bytes = &bytes[idx + 1..];
            return Ok(value);
        }
    }
    Err(corrupt(codec, "a varint is longer than five bytes"))
}

/// The lowest seven bits.
fn low_bits(value: usize) -> u8 {
    u8::try_from(value & 0x7f).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_round_trip_in_the_fewest_bytes() {
        for (value, len) in [
            (0, 1),
            (127, 1),
            (128, 2),
            (16383, 2),
            (16384, 3),
            ((1 << 35) - 1, 5),
        ] {
            let mut out = Vec::new();
            put(value, &mut out);
            assert_eq!(out.len(), len);
            let mut rest = out.as_slice();
            assert_eq!(take("text", &mut rest).unwrap(), value);
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn truncated_and_endless_varints_are_refused() {
        assert!(take("text", &mut [].as_slice()).is_err());
        assert!(take("text", &mut [0x80].as_slice()).is_err());
        assert!(take("text", &mut [0xff; 9].as_slice()).is_err());
    }
}
