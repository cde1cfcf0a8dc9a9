//! Bits of a header, highest first, and the codes of H.264 and HEVC. `None` is the end of the bytes, or a number that is
//! too large.

/// Reads bits from bytes without emulation prevention.
#[derive(Debug)]
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
    pub(super) fn take(&mut self, count: u32) -> Option<u32> {
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
        Some((1 << zeros) - 1 + self.take(zeros)?)
    }

    /// `ue(v)` that is at most `most`.
    pub(super) fn up_to(&mut self, most: u32) -> Option<u32> {
        self.unsigned().filter(|value| *value <= most)
    }

    /// `se(v)`: 0, 1, -1, 2, -2, …
    pub(super) fn signed(&mut self) -> Option<i64> {
        let code = i64::from(self.unsigned()?);
        Some(if code % 2 == 1 {
            (code + 1) / 2
        } else {
            -(code / 2)
        })
    }

    pub(super) fn skip(&mut self, count: usize) -> Option<()> {
        self.at = self.at.checked_add(count)?;
        (self.at <= self.bytes.len() * 8).then_some(())
    }
}

/// A byte from fields of one to eight bits each, highest first.
pub(super) fn byte(fields: &[(u32, u32)]) -> u8 {
    let all = fields.iter().fold(0, |all, (value, bits)| {
        all << bits | (value & ((1 << bits) - 1))
    });
    u8::try_from(all & 0xff).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_tables_9_1_and_9_3() {
        // 1 010 011 00100 00101, then the end.
        let bytes = [0b1010_0110, 0b0100_0010, 0b1100_0000];
        let mut bits = Bits::new(&bytes);
        let codes = std::array::from_fn(|_| bits.unsigned().unwrap());
        assert_eq!(codes, [0, 1, 2, 3, 4]);
        let mut bits = Bits::new(&bytes);
        let codes = std::array::from_fn(|_| bits.signed().unwrap());
        assert_eq!(codes, [0, 1, -1, 2, -2]);
        assert_eq!(Bits::new(&[0; 9]).unsigned(), None);
        assert_eq!(Bits::new(&[0b0010_0000]).up_to(2), None);
        assert_eq!(Bits::new(&[0, 0]).skip(17), None);
        assert_eq!(byte(&[(5, 3), (1, 1), (9, 4)]), 0b1011_1001);
    }
}
