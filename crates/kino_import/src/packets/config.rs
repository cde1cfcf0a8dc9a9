//! The configuration that every page repeats, without what no decoder needs.
//!
//! x265 puts its options as text into `hvcC`, two kilobytes, which would be a tenth of a page of few frames.

use kino_codec::VideoCoding;

/// Bytes of `hvcC` before its arrays, and the number of arrays.
const HEAD: usize = 22;

/// NAL units of messages (SEI), before and after pictures.
const MESSAGES: [u8; 2] = [39, 40];

/// The configuration without messages; as it is if it has none or cannot be parsed.
pub(super) fn without_messages(coding: VideoCoding, config: Vec<u8>) -> Vec<u8> {
    match coding {
        VideoCoding::Hevc => shortened(&config).unwrap_or(config),
        _ => config,
    }
}

fn shortened(config: &[u8]) -> Option<Vec<u8>> {
    let (head, rest) = config.split_at_checked(HEAD)?;
    let (&count, mut rest) = rest.split_first()?;
    let mut kept = Vec::new();
    let mut arrays = 0;
    for _ in 0..count {
        let (array, after) = rest.split_at_checked(array_len(rest)?)?;
        rest = after;
        if !MESSAGES.contains(&(array.first()? & 0x3f)) {
            arrays += 1;
            kept.extend_from_slice(array);
        }
    }
    // What follows the arrays is not known here.
    rest.is_empty().then(|| [head, &[arrays], &kept].concat())
}

/// The length of an array: its type, a number of units, and each unit after its length.
fn array_len(bytes: &[u8]) -> Option<usize> {
    let two = |at: usize| {
        let bytes = bytes.get(at..at + 2)?;
        Some(usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
    };
    let mut len = 3;
    for _ in 0..two(1)? {
        len += 2 + two(len)?;
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_left_out_and_nothing_else() {
        let head = [7; HEAD];
        let parameters = [33, 0, 2, 0, 3, 1, 2, 3, 0, 1, 4];
        let message = [39, 0, 1, 0, 2, 8, 8];
        let with = [&head[..], &[2], &parameters, &message].concat();
        let without = [&head[..], &[1], &parameters].concat();
        let hevc = |config: &[u8]| without_messages(VideoCoding::Hevc, config.to_vec());
        assert_eq!(hevc(&with), without);
        assert_eq!(hevc(&without), without);
        assert_eq!(without_messages(VideoCoding::H264, with.clone()), with);
        for len in 0..with.len() {
            assert_eq!(hevc(&with[..len]), with[..len], "{len}");
        }
        let longer = [&with[..], &[0]].concat();
        assert_eq!(hevc(&longer), longer);
    }
}
