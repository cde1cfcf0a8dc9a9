//! NAL units of H.264 and HEVC: with start codes in messages (Annex B), with lengths in MP4 files.
//!
//! ```text
//! message  00 00 00 01 │ delimiter │ 00 00 00 01 │ sets … │ 00 00 01 │ slice │ …       a start code has 3 or 4 bytes
//! packet   u32 length  │ delimiter │ u32 length  │ slice │ …                           sets that `config` has are left out
//! ```

use kino_codec::VideoCoding;

use super::{h264, hevc};
use crate::packets::starts_group;

/// A message with more units is refused: an image has a few hundred slices at most.
const MAX_UNITS: usize = 4096;

/// What is written before every unit.
const START_CODE: [u8; 4] = [0, 0, 0, 1];

/// What a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Delimiter,
    /// A parameter set; those with a lower number come first.
    Set(u8),
    Picture {
        /// Whether decoding can begin with it.
        starts_group: bool,
    },
    Other,
}

/// What a unit of this coding is.
pub(super) fn kind(coding: VideoCoding, unit: &[u8]) -> Kind {
    let Some(&byte) = unit.first() else {
        return Kind::Other;
    };
    if let Some(starts_group) = starts_group(coding, byte) {
        return Kind::Picture { starts_group };
    }
    match (coding, byte & 0x1f, byte >> 1 & 0x3f) {
        (VideoCoding::H264, 9, _) | (VideoCoding::Hevc, _, 35) => Kind::Delimiter,
        (VideoCoding::Hevc, _, 32) => Kind::Set(0),
        (VideoCoding::H264, 7, _) | (VideoCoding::Hevc, _, 33) => Kind::Set(1),
        (VideoCoding::H264, 8, _) | (VideoCoding::Hevc, _, 34) => Kind::Set(2),
        _ => Kind::Other,
    }
}

/// The units of a message.
pub(super) fn split(message: &[u8]) -> Result<Vec<&[u8]>, String> {
    let mut next = find_start(message, 0);
    let is_led_by_zeros = |at: usize| message[..at].iter().all(|byte| *byte == 0);
    if !next.is_some_and(is_led_by_zeros) {
        return Err("does not begin with a start code (Annex B)".to_owned());
    }
    let mut units = Vec::new();
    while let Some(start) = next {
        let start = start + 3;
        next = find_start(message, start);
        let unit = &message[start..next.unwrap_or(message.len())];
        // A unit never ends with a zero: those belong to the next start code, or are padding.
        let end = unit.iter().rposition(|byte| *byte != 0);
        units.extend(end.and_then(|end| unit.get(..=end)));
        if units.len() > MAX_UNITS {
            return Err(format!("has more than {MAX_UNITS} NAL units"));
        }
    }
    Ok(units)
}

/// Where the next `00 00 01` begins.
fn find_start(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from + 2;
    loop {
        match bytes.get(at)? {
            0 => at += 1,
            1 if bytes[at - 1] == 0 && bytes[at - 2] == 0 => return Some(at - 2),
            // None of these three bytes can begin a start code.
            _ => at += 3,
        }
    }
}

/// The units of a packet of an MP4 file.
fn split_lengths(packet: &[u8], length_bytes: usize) -> Result<Vec<&[u8]>, String> {
    let mut rest = packet;
    let mut units = Vec::new();
    while !rest.is_empty() {
        let whole = rest.split_at_checked(length_bytes).and_then(|(len, rest)| {
            let len = len
                .iter()
                .fold(0, |all, &byte| all << 8 | usize::from(byte));
            rest.split_at_checked(len)
        });
        let (unit, after) = whole.ok_or("has a NAL unit that is longer than its packet")?;
        units.push(unit);
        rest = after;
    }
    Ok(units)
}

/// The bytes of the start of a unit without emulation prevention: `00 00 03` stands for `00 00`.
pub(super) fn unescape(unit: &[u8], most: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(unit.len().min(most));
    let mut zeros = 0;
    for &byte in unit {
        if out.len() >= most {
            break;
        }
        if zeros >= 2 && byte == 3 {
            zeros = 0;
            continue;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        out.push(byte);
    }
    out
}

/// The units of a message as a packet. Parameter sets are left out if they are those of the configuration and where an
/// export puts them.
pub(super) fn to_packet(coding: VideoCoding, units: &[&[u8]], config: &[u8]) -> Vec<u8> {
    let places = set_places(coding, units);
    let is_known = sets(coding, config).is_some_and(|(known, _)| known == units[places.clone()]);
    let mut packet = Vec::new();
    for (place, unit) in units.iter().enumerate() {
        if is_known && places.contains(&place) {
            continue;
        }
        packet.extend(u32::try_from(unit.len()).unwrap_or(u32::MAX).to_be_bytes());
        packet.extend_from_slice(unit);
    }
    packet
}

/// A packet as a message, with parameter sets if it starts a group.
pub(super) fn to_message(
    coding: VideoCoding,
    packet: &[u8],
    config: &[u8],
    starts_group: bool,
) -> Result<Vec<u8>, String> {
    let (known, length_bytes) = sets(coding, config).ok_or("has a damaged configuration")?;
    let units = split_lengths(packet, length_bytes)?;
    let is_set = |unit: &&[u8]| matches!(kind(coding, unit), Kind::Set(_));
    let is_added = starts_group && !units.iter().any(is_set);
    let known = if is_added { known } else { Vec::new() };
    let place = set_places(coding, &units).start;
    let all = units[..place].iter().chain(&known).chain(&units[place..]);
    Ok(all
        .flat_map(|unit| [&START_CODE, *unit])
        .flatten()
        .copied()
        .collect())
}

/// Where parameter sets are that begin a message, after the delimiter.
fn set_places(coding: VideoCoding, units: &[&[u8]]) -> std::ops::Range<usize> {
    let is_delimiter = |unit: &&[u8]| kind(coding, unit) == Kind::Delimiter;
    let start = units.iter().take_while(|unit| is_delimiter(unit)).count();
    let sets = units[start..].iter();
    let sets = sets.take_while(|unit| matches!(kind(coding, unit), Kind::Set(_)));
    start..start + sets.count()
}

/// The parameter sets of a configuration, and the bytes of a length.
pub(super) fn sets(coding: VideoCoding, config: &[u8]) -> Option<(Vec<&[u8]>, usize)> {
    match coding {
        VideoCoding::Hevc => hevc::sets(config),
        _ => h264::sets(config),
    }
}

/// The parameter sets of a message in the order of a configuration; `None` if it has none.
pub(super) fn sets_of<'a>(coding: VideoCoding, units: &[&'a [u8]]) -> Option<Vec<(u8, &'a [u8])>> {
    let found = units.iter().filter_map(|unit| match kind(coding, unit) {
        Kind::Set(rank) => Some((rank, *unit)),
        _ => None,
    });
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(|(rank, _)| *rank);
    found.dedup();
    (!found.is_empty()).then_some(found)
}

/// Parameter sets, each after its length.
pub(super) fn put_sets(sets: &[&[u8]], out: &mut Vec<u8>) -> Result<(), String> {
    for set in sets {
        let len = u16::try_from(set.len()).map_err(|_| "has a parameter set that is too long")?;
        out.extend(len.to_be_bytes());
        out.extend_from_slice(set);
    }
    Ok(())
}

/// Takes `count` parameter sets, each after its length.
pub(super) fn take_sets<'a>(
    rest: &mut &'a [u8],
    count: usize,
    sets: &mut Vec<&'a [u8]>,
) -> Option<()> {
    for _ in 0..count {
        let (len, after) = rest.split_first_chunk()?;
        let (set, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        sets.push(set);
        *rest = after;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_found_by_start_codes_of_both_lengths() {
        let message = [
            0, 0, 0, 1, 9, 0xf0, 0, 0, 1, 0x65, 0, 0, 3, 1, 0, 0, 0, 1, 7, 0, 0,
        ];
        let units = split(&message).unwrap();
        assert_eq!(units, [&[9, 0xf0][..], &[0x65, 0, 0, 3, 1], &[7]]);
        assert_eq!(unescape(units[1], 9), [0x65, 0, 0, 1]);
        assert_eq!(unescape(units[1], 2), [0x65, 0]);
        for wrong in [
            &[][..],
            &[0, 0],
            &[1, 2, 3],
            &[5, 0, 0, 1, 9],
            &[0, 0, 2, 0, 0, 1, 9],
        ] {
            assert!(split(wrong).is_err(), "{wrong:?}");
        }
        let many = [0, 0, 1, 9].repeat(MAX_UNITS + 1);
        assert!(split(&many).unwrap_err().contains("4096"));
    }

    #[test]
    fn a_naive_search_finds_the_same_start_codes() {
        let mut state = 1_u32;
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..24)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    u8::try_from(state >> 30).unwrap()
                })
                .collect();
            for from in 0..bytes.len() {
                let naive = bytes[from..].windows(3).position(|w| w == [0, 0, 1]);
                assert_eq!(
                    find_start(&bytes, from),
                    naive.map(|at| at + from),
                    "{bytes:?}"
                );
            }
        }
    }

    #[test]
    fn sets_come_back_where_they_were() {
        let config = [1, 66, 0, 10, 0xff, 0xe1, 0, 2, 0x67, 66, 1, 0, 1, 0x68];
        let sps: &[u8] = &[0x67, 66];
        let units = [&[9, 0x10][..], sps, &[0x68], &[6, 5], &[0x65, 1]];
        let packet = to_packet(VideoCoding::H264, &units, &config);
        assert_eq!(
            packet,
            [0, 0, 0, 2, 9, 16, 0, 0, 0, 2, 6, 5, 0, 0, 0, 2, 0x65, 1]
        );
        let message = to_message(VideoCoding::H264, &packet, &config, true).unwrap();
        assert_eq!(split(&message).unwrap(), units);
        let without = to_message(VideoCoding::H264, &packet, &config, false).unwrap();
        assert_eq!(split(&without).unwrap(), [units[0], units[3], units[4]]);
        // Sets that are not those of the configuration, or elsewhere, stay, and none are added.
        for units in [[sps, &[0x68, 1], &[0x65]], [&[6, 5], sps, &[0x65]]] {
            let packet = to_packet(VideoCoding::H264, &units, &config);
            assert_eq!(split_lengths(&packet, 4).unwrap(), units);
            let message = to_message(VideoCoding::H264, &packet, &config, true).unwrap();
            assert_eq!(split(&message).unwrap(), units);
        }
        for len in 1..packet.len() {
            let cut = to_message(VideoCoding::H264, &packet[..len], &config, true);
            assert_eq!(cut.is_ok(), len == 6 || len == 12, "{len}");
        }
    }
}
