//! Bytes from fields of bits, as configurations have them.

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
    fn the_first_field_is_highest() {
        assert_eq!(byte(&[(5, 3), (1, 1), (9, 4)]), 0b1011_1001);
    }
}
