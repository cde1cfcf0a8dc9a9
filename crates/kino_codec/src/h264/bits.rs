//! Bits of a parameter set or a slice header, highest first, and the codes of H.264. `None` is the end of the bytes, or a
//! number that is too large.

/// Reads bits from bytes without emulation prevention.
#[derive(Debug, Clone)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        let byte = self.bytes.get(self.at / 8)?;
        let is_set = byte >> (7 - self.at % 8) & 1 == 1;
        self.at += 1;
        Some(is_set)
    }

    /// A number of `count` bits, at most 32.
    pub(super) fn bits(&mut self, count: u32) -> Option<u32> {
        let mut value = 0;
        for _ in 0..count {
            value = value << 1 | u32::from(self.flag()?);
        }
        Some(value)
    }

    /// `ue(v)`: as many zeros as bits that follow the first one.
    pub(super) fn unsigned(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        Some((1 << zeros) - 1 + self.bits(zeros)?)
    }

    /// `ue(v)` that is at most `most`.
    pub(super) fn up_to(&mut self, most: u32) -> Option<u32> {
        self.unsigned().filter(|value| *value <= most)
    }

    /// `se(v)` from `least` to `most`: 0, 1, -1, 2, -2, …
    pub(super) fn signed(&mut self, least: i64, most: i64) -> Option<i64> {
        let code = i64::from(self.unsigned()?);
        let value = if code % 2 == 1 {
            (code + 1) / 2
        } else {
            -(code / 2)
        };
        (least..=most).contains(&value).then_some(value)
    }

    /// Whether anything comes before the last bit that is set, which ends every parameter set.
    pub(super) fn has_more(&self) -> bool {
        let last = self.bytes.iter().rposition(|byte| *byte != 0);
        last.is_some_and(|idx| {
            let zeros = self.bytes.get(idx).map_or(0, |byte| byte.trailing_zeros());
            self.at + 1 + usize::try_from(zeros).unwrap_or(0) < 8 * (idx + 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Bits;

    #[test]
    fn codes_are_those_of_table_9_1_and_9_3() {
        // 1 010 011 00100 00101, then the end: 1 and zeros.
        let mut bits = Bits::new(&[0b1010_0110, 0b0100_0010, 0b1100_0000]);
        let codes = std::array::from_fn(|_| bits.unsigned().unwrap());
        assert_eq!(codes, [0, 1, 2, 3, 4]);
        assert!(!bits.has_more());
        let mut bits = Bits::new(&[0b1010_0110, 0b0100_0010, 0b1100_0000]);
        let codes = std::array::from_fn(|_| bits.signed(-2, 2).unwrap());
        assert_eq!(codes, [0, 1, -1, 2, -2]);
        assert_eq!(Bits::new(&[0b0010_0000]).signed(-1, 1), None);
        assert_eq!(Bits::new(&[0b0010_0000]).up_to(2), None);
        assert_eq!(Bits::new(&[0; 9]).unsigned(), None);
        assert_eq!(Bits::new(&[0, 0]).unsigned(), None);
        assert!(Bits::new(&[0b0110_0000]).has_more());
        assert!(!Bits::new(&[0x80]).has_more() && !Bits::new(&[]).has_more());
    }
}
