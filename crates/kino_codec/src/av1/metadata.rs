//! Metadata of AV1 packets that the decoder does not survive.
//!
//! ```text
//! OBU      = header │ [extension] │ [size] │ payload          a packet is a row of them
//!            u8       u8            leb128
//! metadata = type │ [country, extension if it is 255] │ … │ 0x80 │ zeros…      type 4 is ITU-T T.35
//!            leb128  u8       u8
//! ```
//!
//! `rav1d` subtracts the country and the byte of the final bit from the length of a T.35 message without a check. If they are
//! missing, the length wraps around, and the three bytes 84 80 00 are enough to end the process. No encoder writes such
//! messages.

use crate::error::{Result, corrupt};

use super::NAME;

const METADATA: u8 = 5;
const ITU_T_T35: u64 = 4;
const HAS_EXTENSION: u8 = 0x04;
const HAS_SIZE: u8 = 0x02;

/// Refuses packets with a T.35 message that is too short. Anything else that is wrong is found by the decoder.
pub(super) fn check(packet: &[u8]) -> Result<()> {
    let mut rest = packet;
    while let Some((kind, payload)) = obu(&mut rest) {
        if kind == METADATA && is_too_short(payload) {
            return Err(corrupt(NAME, "an ITU-T T.35 message is truncated"));
        }
    }
    Ok(())
}

/// Takes the next OBU: its type and its payload.
fn obu<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&header, mut after) = rest.split_first()?;
    if header & HAS_EXTENSION != 0 {
        after = after.get(1..)?;
    }
    let size = if header & HAS_SIZE == 0 {
        after.len()
    } else {
        usize::try_from(leb128(&mut after)?).ok()?
    };
    let (payload, after) = after.split_at_checked(size)?;
    *rest = after;
    Some((header >> 3 & 0x0f, payload))
}

fn is_too_short(metadata: &[u8]) -> bool {
    let mut message = metadata;
    if leb128(&mut message) != Some(ITU_T_T35) {
        return false;
    }
    let zeros = message.iter().rev().take_while(|&&byte| byte == 0).count();
    let country = if message.first() == Some(&0xff) { 2 } else { 1 };
    message.len() - zeros < country + 1
}

/// Takes a number of at most eight bytes, seven bits each, the lowest first.
fn leb128(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for at in 0..8 {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::av1::ffi::Library;

    /// A delimiter, then metadata with this payload.
    fn packet(payload: &[u8]) -> Vec<u8> {
        let size = u8::try_from(payload.len()).unwrap();
        [&[0x12, 0, METADATA << 3 | HAS_SIZE, size], payload].concat()
    }

    #[test]
    fn a_short_t35_message_is_an_error_and_not_the_end_of_the_process() {
        let short: [&[u8]; 7] = [
            &[0x84, 0x80, 0],
            &[4],
            &[4, 0, 0],
            &[4, 0x80],
            &[4, 0xb5],
            &[4, 0xff, 0x80],
            &[0x84, 0, 0x80, 0],
        ];
        for payload in short {
            let mut library = Library::new(64 * 64, false).unwrap();
            assert!(library.send(&packet(payload)).is_err(), "{payload:?}");
            let unsized_obu = [&[METADATA << 3], payload].concat();
            assert!(library.send(&unsized_obu).is_err(), "{payload:?}");
        }
    }

    #[test]
    fn a_whole_t35_message_is_passed_on() {
        let whole: [&[u8]; 3] = [
            &[4, 0xb5, 0x3c, 0x80],
            &[4, 0xff, 1, 2, 0x80, 0, 0],
            // No text, but the final bit: the decoder ignores it.
            &[4, 0xb5, 0x80],
        ];
        for payload in whole {
            check(&packet(payload)).unwrap();
            let mut library = Library::new(64 * 64, false).unwrap();
            library.send(&packet(payload)).unwrap();
        }
    }

    #[test]
    fn other_metadata_and_bytes_that_are_no_obu_are_left_to_the_decoder() {
        for bytes in [
            &packet(&[1, 0])[..],
            &packet(&[0x80]),
            &[0x2a],
            &[0x2a, 9, 4],
            &[],
        ] {
            check(bytes).unwrap();
        }
    }
}
