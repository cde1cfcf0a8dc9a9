//! Base64, which JSON messages have for bytes.

/// The bytes of a text in the standard alphabet; `None` if it is not one.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').as_bytes();
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for four in text.chunks(4) {
        let mut bits = 0_u32;
        for &byte in four {
            bits = bits << 6 | u32::from(digit(byte)?);
        }
        // Two digits are one byte, three are two, four are three.
        let len = four.len().checked_sub(1).filter(|len| *len > 0)?;
        let bytes = (bits << (6 * (4 - four.len()))).to_be_bytes();
        out.extend_from_slice(bytes.get(1..1 + len)?);
    }
    Some(out)
}

fn digit(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn the_examples_of_rfc_4648() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("Zg==", b"f"),
            ("Zm8=", b"fo"),
            ("Zm9v", b"foo"),
            ("Zm9vYg==", b"foob"),
            ("Zm9vYmE=", b"fooba"),
            ("Zm9vYmFy", b"foobar"),
            ("+/+/", &[0xfb, 0xff, 0xbf]),
        ] {
            assert_eq!(decode(text).as_deref(), Some(bytes), "{text}");
        }
        for wrong in ["Z", "Zm9vY", "Zm 9v", "Zm9ä", "Z==="] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
