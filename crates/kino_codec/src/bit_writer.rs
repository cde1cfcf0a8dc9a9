//! Integers packed into as few bits as they need: lowest bit first, starting at the lowest bit of the first byte.

/// Packs bits.
#[derive(Debug, Default)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    /// Bits that do not fill an eight-byte word yet, and how many there are.
    held: u128,
    used: u32,
}

impl BitWriter {
    /// Appends the low `width` bits of `value`, at most 64.
    #[inline]
    pub(crate) fn put(&mut self, value: u64, width: u32) {
        let mask = u64::MAX.checked_shr(64 - width).unwrap_or(0);
        self.held |= u128::from(value & mask) << self.used;
        self.used += width;
        if self.used >= 64 {
            self.bytes.extend_from_slice(&self.held.to_le_bytes()[..8]);
            self.held >>= 64;
            self.used -= 64;
        }
    }

    /// Pads the last byte with zeros.
    pub(crate) fn finish_byte(&mut self) {
        self.put(0, self.used.next_multiple_of(8) - self.used);
    }

    /// The bytes, the last one padded with zeros.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let left = self.used.div_ceil(8) as usize;
        self.bytes
            .extend_from_slice(&self.held.to_le_bytes()[..left]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_writing_one_bit_at_a_time(numbers: Vec<(u64, u8)>) {
            let mut writer = BitWriter::default();
            let mut bits = Vec::new();
            for (value, width) in numbers {
                let width = u32::from(width % 66);
                if width == 65 {
                    writer.finish_byte();
                    bits.resize(bits.len().next_multiple_of(8), false);
                    continue;
                }
                writer.put(value, width);
                bits.extend((0..width).map(|bit| value >> bit & 1 == 1));
            }
            let byte = |bits: &[bool]| (0..bits.len()).map(|idx| u8::from(bits[idx]) << idx).sum::<u8>();
            let expected: Vec<u8> = bits.chunks(8).map(byte).collect();
            prop_assert_eq!(writer.finish(), expected);
        }
    }
}
