//! Small integers in as few bits and bytes as they need: 64-bit varints, and packed bits (written by bit_writer.rs).
//!
//! ```text
//! varint   seven bits per byte, lowest first, a set top bit means more follow; at most ten bytes
//! zigzag   0, −1, 1, −2, 2 … → 0, 1, 2, 3, 4 …
//! bits     lowest bit first, starting at the lowest bit of the first byte
//! ```

use crate::error::{Result, corrupt};

use super::NAME;

/// Appends a varint.
pub(super) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Takes a varint off the front of `bytes`.
pub(super) fn take_varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0;
    for idx in 0..10 {
        let (&byte, rest) = bytes
            .split_first()
            .ok_or_else(|| corrupt(NAME, "it ends inside a varint"))?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << (7 * idx);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(corrupt(NAME, "a varint is longer than ten bytes"))
}

/// Takes a varint that must be at most `max` off the front of `bytes`.
pub(super) fn take_up_to(max: usize, bytes: &mut &[u8]) -> Result<usize> {
    let value = take_varint(bytes)?;
    usize::try_from(value)
        .ok()
        .filter(|value| *value <= max)
        .ok_or_else(|| corrupt(NAME, format!("value {value} exceeds the limit of {max}")))
}

/// A signed integer as an unsigned one.
pub(super) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The inverse of [`zigzag`].
pub(super) fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// Unpacks bits.
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Takes the next `width` bits, at most 64.
    pub(super) fn take(&mut self, width: u32) -> Result<u64> {
        let mut value: u128 = 0;
        let (start, end) = (self.at, self.at + width as usize);
        let bytes = self
            .bytes
            .get(start / 8..end.div_ceil(8))
            .ok_or_else(|| corrupt(NAME, "it ends inside the start values"))?;
        for (idx, byte) in bytes.iter().enumerate() {
            value |= u128::from(*byte) << (8 * idx);
        }
        self.at = end;
        let mask = (1_u128 << width) - 1;
        Ok(u64::try_from(value >> (start % 8) & mask).unwrap_or_default())
    }

    /// The bytes after the last bit's byte; the padding bits must be zero.
    pub(super) fn finish(mut self) -> Result<&'a [u8]> {
        let left = u32::try_from(self.at.next_multiple_of(8) - self.at).unwrap_or_default();
        if self.take(left)? != 0 {
            return Err(corrupt(
                NAME,
                "padding bits after the start values are not zero",
            ));
        }
        Ok(&self.bytes[self.at / 8..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bit_writer::BitWriter;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_and_bits_round_trip(values in prop::collection::vec((any::<u64>(), 0_u32..=64), 0..50)) {
            let mut bytes = Vec::new();
            let mut writer = BitWriter::default();
            for &(value, width) in &values {
                put_varint(value, &mut bytes);
                prop_assert_eq!(unzigzag(zigzag(value.cast_signed())), value.cast_signed());
                writer.put(value, width);
            }
            let mut rest = bytes.as_slice();
            for &(value, _) in &values {
                prop_assert_eq!(take_varint(&mut rest).unwrap(), value);
            }
            prop_assert!(rest.is_empty() && take_varint(&mut rest).is_err());
            let packed = writer.finish();
            let mut reader = BitReader::new(&packed);
            for &(value, width) in &values {
                let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
                prop_assert_eq!(reader.take(width).unwrap(), value & mask);
            }
            prop_assert!(reader.finish().unwrap().is_empty());
        }
    }

    #[test]
    fn small_signed_integers_stay_small() {
        assert_eq!([0, -1, 1, -2, i64::MIN].map(zigzag), [0, 1, 2, 3, u64::MAX]);
        assert!(take_varint(&mut [0xff; 11].as_slice()).is_err());
        assert!(take_up_to(3, &mut [4].as_slice()).is_err());
    }
}
