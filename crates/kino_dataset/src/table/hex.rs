//! A 32-byte hash as 64 lower-case hex digits, which is how Parquet tools can show and compare it.

use std::fmt::Write as _;

/// The hash as text.
pub(super) fn to_hex(hash: &[u8; 32]) -> String {
    let mut text = String::with_capacity(64);
    for byte in hash {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The hash that `text` spells; `None` if it is anything but 64 lower-case hex digits.
pub(super) fn from_hex(text: &[u8]) -> Option<[u8; 32]> {
    if text.len() != 64 {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(hash)
}

fn digit(letter: u8) -> Option<u8> {
    match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_round_trips() {
        for start in [0u8, 32, 64, 96, 128, 160, 192, 224] {
            let hash = std::array::from_fn(|i| start + u8::try_from(i).unwrap());
            assert_eq!(from_hex(to_hex(&hash).as_bytes()), Some(hash));
        }
    }

    #[test]
    fn other_text_is_refused() {
        let text = to_hex(&[0xab; 32]);
        assert_eq!(from_hex(text.to_uppercase().as_bytes()), None);
        assert_eq!(from_hex(&text.as_bytes()[1..]), None);
        assert_eq!(from_hex(text.replace('a', "g").as_bytes()), None);
    }
}
