//! Bits of a header, highest first, and the codes of H.264 and HEVC. `None` is the end of the bytes, or a number that is
//! too large.

/// Reads bits from bytes, the highest of each byte first.
#[derive(Debug, Clone)]
pub struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> BitReader<'a> {
    /// Begins with the first bit.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// One bit.
    pub fn flag(&mut self) -> Option<bool> {
        let byte = self.bytes.get(self.at / 8)?;
        let is_set = byte >> (7 - self.at % 8) & 1 == 1;
        self.at += 1;
        Some(is_set)
    }

    /// A number of `count` bits, at most 32.
    pub fn take(&mut self, count: u32) -> Option<u32> {
        let mut value = 0;
        for _ in 0..count {
            value = value << 1 | u32::from(self.flag()?);
        }
        Some(value)
    }

    /// Passes `count` bits, at most 32, which must all be zero.
    pub fn zeros(&mut self, count: u32) -> Option<()> {
        (self.take(count)? == 0).then_some(())
    }

    /// Passes `count` bits.
    pub fn skip(&mut self, count: usize) -> Option<()> {
        self.at = self.at.checked_add(count)?;
        (self.at <= self.bytes.len() * 8).then_some(())
    }

    /// `ue(v)`: as many zeros as bits that follow the first one.
    pub fn unsigned(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        Some((1 << zeros) - 1 + self.take(zeros)?)
    }

    /// `ue(v)` that is at most `most`.
    pub fn up_to(&mut self, most: u32) -> Option<u32> {
        self.unsigned().filter(|value| *value <= most)
    }

    /// `se(v)`: 0, 1, -1, 2, -2, …
    pub fn signed(&mut self) -> Option<i64> {
        let code = i64::from(self.unsigned()?);
        Some(if code % 2 == 1 {
            (code + 1) / 2
        } else {
            -(code / 2)
        })
    }

    /// `se(v)` from `least` to `most`.
    pub fn signed_between(&mut self, least: i64, most: i64) -> Option<i64> {
        self.signed().filter(|value| (least..=most).contains(value))
    }

    /// Whether anything comes before the last bit that is set, which ends every parameter set.
    pub fn has_more(&self) -> bool {
        let last = self.bytes.iter().rposition(|byte| *byte != 0);
        last.is_some_and(|idx| {
            let zeros = self.bytes.get(idx).map_or(0, |byte| byte.trailing_zeros());
            self.at + 1 + usize::try_from(zeros).unwrap_or(0) < 8 * (idx + 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::BitReader;

    #[test]
    fn codes_are_those_of_tables_9_1_and_9_3() {
        // 1 010 011 00100 00101, then the end: 1 and zeros.
        let bytes = [0b1010_0110, 0b0100_0010, 0b1100_0000];
        let mut bits = BitReader::new(&bytes);
        let codes = std::array::from_fn(|_| bits.unsigned().unwrap());
        assert_eq!(codes, [0, 1, 2, 3, 4]);
        assert!(!bits.has_more());
        let mut bits = BitReader::new(&bytes);
        let codes = std::array::from_fn(|_| bits.signed().unwrap());
        assert_eq!(codes, [0, 1, -1, 2, -2]);
        let mut bits = BitReader::new(&bytes);
        let codes = std::array::from_fn(|_| bits.signed_between(-2, 2).unwrap());
        assert_eq!(codes, [0, 1, -1, 2, -2]);
        assert_eq!(BitReader::new(&[0b0010_0000]).signed_between(-1, 1), None);
        assert_eq!(BitReader::new(&[0b0010_0000]).up_to(2), None);
    }

    #[test]
    fn the_end_of_the_bytes_is_no_number() {
        assert_eq!(BitReader::new(&[0; 9]).unsigned(), None);
        assert_eq!(BitReader::new(&[0, 0]).unsigned(), None);
        assert_eq!(BitReader::new(&[0, 0]).skip(17), None);
        assert_eq!(BitReader::new(&[0, 1]).zeros(16), None);
        assert_eq!(BitReader::new(&[0, 1]).zeros(15), Some(()));
        assert!(BitReader::new(&[0b0110_0000]).has_more());
        assert!(!BitReader::new(&[0x80]).has_more() && !BitReader::new(&[]).has_more());
    }
}
