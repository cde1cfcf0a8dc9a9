//! AV1: the OBUs of a message, which are a temporal unit, and the configuration made of a sequence header.
//!
//! ```text
//! message  delimiter │ sequence header │ frame │ …        each OBU: type │ leb128 size │ payload
//! packet               sequence header │ frame │ …
//! av1C     81 │ profile, level │ depth, chroma │ 0 │ sequence header
//! ```

use kino_codec::BitReader;

use super::VideoHeader;
use super::bits::byte;
use crate::mp4::av1_pixels;

/// A message with more is refused.
const MAX_OBUS: usize = 4096;

/// OBU types, as in section 6.2.2 of the AV1 specification.
const SEQUENCE_HEADER: u8 = 1;
const TEMPORAL_DELIMITER: u8 = 2;
const FRAME_HEADER: u8 = 3;
const FRAME: u8 = 6;

/// A temporal delimiter.
const DELIMITER: [u8; 2] = [TEMPORAL_DELIMITER << 3 | 2, 0];

/// Bytes of `av1C` before its OBUs.
const FIXED_BYTES: usize = 4;

#[derive(Debug)]
struct Obu<'a> {
    kind: u8,
    whole: &'a [u8],
    payload: &'a [u8],
}

/// What a message has.
#[derive(Debug, Default)]
pub(super) struct Unit {
    pub(super) packet: Vec<u8>,
    pub(super) header: Option<VideoHeader>,
    pub(super) starts_group: bool,
}

/// The temporal unit of a message.
pub(super) fn parse(message: &[u8]) -> Result<Unit, String> {
    let mut unit = Unit::default();
    let (mut coded, mut shown) = (0, 0);
    let mut is_still = false;
    for (place, obu) in split(message)?.iter().enumerate() {
        match obu.kind {
            TEMPORAL_DELIMITER if place == 0 => continue,
            TEMPORAL_DELIMITER => return Err("has more than one temporal unit".to_owned()),
            SEQUENCE_HEADER => {
                let sequence = sequence(obu.payload);
                let sequence = sequence.ok_or("has a damaged sequence header")?;
                is_still = sequence.is_still;
                unit.header = Some(sequence.header(obu.whole));
            }
            FRAME_HEADER | FRAME => {
                let frame = if is_still {
                    Some((true, true))
                } else {
                    frame(obu.payload)
                };
                let (is_key, is_shown) = frame.ok_or("has a damaged frame header")?;
                unit.starts_group |= coded == 0 && is_key && is_shown;
                coded += 1;
                shown += usize::from(is_shown);
            }
            _ => {}
        }
        unit.packet.extend_from_slice(obu.whole);
    }
    if shown != 1 {
        return Err(format!("shows {shown} images, not one"));
    }
    Ok(unit)
}

/// A packet as a message; one that starts a group has the sequence header.
pub(super) fn to_message(
    packet: &[u8],
    config: &[u8],
    starts_group: bool,
) -> Result<Vec<u8>, String> {
    let obus = split(packet)?;
    let has = |kind: u8| obus.iter().any(|obu| obu.kind == kind);
    let mut message = DELIMITER.to_vec();
    if starts_group && !has(SEQUENCE_HEADER) {
        message.extend_from_slice(config.get(FIXED_BYTES..).unwrap_or_default());
    }
    let obus = obus.iter().filter(|obu| obu.kind != TEMPORAL_DELIMITER);
    obus.for_each(|obu| message.extend_from_slice(obu.whole));
    Ok(message)
}

fn split(message: &[u8]) -> Result<Vec<Obu<'_>>, String> {
    let mut rest = message;
    let mut obus = Vec::new();
    while !rest.is_empty() {
        let (obu, after) = take(rest).ok_or("has an OBU without size, or one that is cut short")?;
        obus.push(obu);
        rest = after;
        if obus.len() > MAX_OBUS {
            return Err(format!("has more than {MAX_OBUS} OBUs"));
        }
    }
    Ok(obus)
}

/// An OBU, which must have a size, and what follows it.
fn take(bytes: &[u8]) -> Option<(Obu<'_>, &[u8])> {
    let (&head, mut rest) = bytes.split_first()?;
    // A forbidden bit, four of type, an extension, a size, a reserved bit.
    if head & 0x82 != 0x02 {
        return None;
    }
    if head & 0x04 != 0 {
        rest = rest.get(1..)?;
    }
    let mut len = 0_usize;
    for shift in (0..35).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        len |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let (payload, after) = rest.split_at_checked(len)?;
    let obu = Obu {
        kind: head >> 3 & 15,
        whole: bytes.get(..bytes.len() - after.len())?,
        payload,
    };
    Some((obu, after))
}

/// Whether a frame is a key frame, and whether it is shown.
fn frame(payload: &[u8]) -> Option<(bool, bool)> {
    let bits = &mut BitReader::new(payload);
    // An earlier frame is shown again.
    if bits.flag()? {
        return Some((false, true));
    }
    Some((bits.take(2)? == 0, bits.flag()?))
}

#[derive(Debug, Default)]
struct Sequence {
    profile: u32,
    is_still: bool,
    level: u32,
    tier: u32,
    height: u32,
    width: u32,
    color: Color,
}

#[derive(Debug, Default)]
struct Color {
    is_high: bool,
    is_twelve: bool,
    is_gray: bool,
    halved: (bool, bool),
    position: u32,
}

impl Sequence {
    fn header(&self, obu: &[u8]) -> VideoHeader {
        let Color { halved, .. } = self.color;
        let flag = |is_set: bool| (u32::from(is_set), 1);
        let depth = [
            (self.tier, 1),
            flag(self.color.is_high),
            flag(self.color.is_twelve),
            flag(self.color.is_gray),
            flag(halved.0),
            flag(halved.1),
            (self.color.position, 2),
        ];
        let profile = byte(&[(self.profile, 3), (self.level, 5)]);
        let mut config = vec![0x81, profile, byte(&depth), 0];
        config.extend_from_slice(obu);
        VideoHeader {
            pixels: av1_pixels(&config),
            config,
            height: self.height,
            width: self.width,
        }
    }
}

/// Reads a sequence header (section 5.5 of the AV1 specification) up to its colors.
fn sequence(payload: &[u8]) -> Option<Sequence> {
    let bits = &mut BitReader::new(payload);
    let mut found = Sequence {
        profile: bits.take(3)?,
        ..Sequence::default()
    };
    // Whether it is one image.
    bits.flag()?;
    found.is_still = bits.flag()?;
    if found.is_still {
        found.level = bits.take(5)?;
    } else {
        operating_points(bits, &mut found)?;
    }
    let (width_bits, height_bits) = (bits.take(4)? + 1, bits.take(4)? + 1);
    found.width = bits.take(width_bits)? + 1;
    found.height = bits.take(height_bits)? + 1;
    if !found.is_still && bits.flag()? {
        // Bits of frame numbers.
        bits.take(4 + 3)?;
    }
    // 128 × 128 blocks, filtered intra, intra edges.
    bits.take(3)?;
    if !found.is_still {
        skip_tools(bits)?;
    }
    // Superres, and the two in-loop filters.
    bits.take(3)?;
    found.color = color(bits, found.profile)?;
    Some(found)
}

/// Timing, and the first operating point.
fn operating_points(bits: &mut BitReader<'_>, found: &mut Sequence) -> Option<()> {
    let mut delay_bits = None;
    if bits.flag()? {
        // Units of time.
        bits.skip(64)?;
        if bits.flag()? {
            bits.unsigned()?;
        }
        if bits.flag()? {
            delay_bits = Some(bits.take(5)? + 1);
            bits.skip(32 + 5 + 5)?;
        }
    }
    let has_display_delay = bits.flag()?;
    for point in 0..=bits.take(5)? {
        bits.take(12)?;
        let level = bits.take(5)?;
        let tier = if level > 7 { bits.take(1)? } else { 0 };
        if point == 0 {
            (found.level, found.tier) = (level, tier);
        }
        if let Some(delay_bits) = delay_bits
            && bits.flag()?
        {
            bits.take(delay_bits)?;
            bits.take(delay_bits)?;
            bits.flag()?;
        }
        if has_display_delay && bits.flag()? {
            bits.take(4)?;
        }
    }
    Some(())
}

fn skip_tools(bits: &mut BitReader<'_>) -> Option<()> {
    // Inter-intra, masks, warps, dual filters.
    bits.take(4)?;
    let has_order = bits.flag()?;
    if has_order {
        bits.take(2)?;
    }
    // Screen content tools and integer motion vectors: chosen per frame or for all.
    let screen_tools = bits.flag()? || bits.flag()?;
    if screen_tools && !bits.flag()? {
        bits.flag()?;
    }
    if has_order {
        bits.take(3)?;
    }
    Some(())
}

/// Reads the color config.
fn color(bits: &mut BitReader<'_>, profile: u32) -> Option<Color> {
    const UNSPECIFIED: (u32, u32, u32) = (2, 2, 2);
    const SRGB: (u32, u32, u32) = (1, 13, 0);
    let mut found = Color {
        is_high: bits.flag()?,
        ..Color::default()
    };
    found.is_twelve = profile == 2 && found.is_high && bits.flag()?;
    found.is_gray = profile != 1 && bits.flag()?;
    let mut codes = UNSPECIFIED;
    if bits.flag()? {
        codes = (bits.take(8)?, bits.take(8)?, bits.take(8)?);
    }
    if found.is_gray {
        bits.flag()?;
        found.halved = (true, true);
        return Some(found);
    }
    if codes == SRGB {
        return Some(found);
    }
    // The range.
    bits.flag()?;
    found.halved = match profile {
        0 => (true, true),
        1 => (false, false),
        _ if found.is_twelve => {
            let x = bits.flag()?;
            (x, x && bits.flag()?)
        }
        _ => (true, false),
    };
    if found.halved == (true, true) {
        found.position = bits.take(2)?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From rav1e: 480 × 640, 4:2:0.
    const HEADER: [u8; 11] = [
        0x00, 0x00, 0x00, 0xfa, 0x62, 0x7f, 0xef, 0x88, 0x42, 0xa1, 0x28,
    ];

    fn message(header: &[u8], frame: u8) -> Vec<u8> {
        let len = u8::try_from(header.len()).unwrap();
        [&[0x12, 0, 0x0a, len], header, &[0x32, 1, frame]].concat()
    }

    #[test]
    fn the_size_and_key_frames_are_found() {
        let unit = parse(&message(&HEADER, 0b0001_0000)).unwrap();
        let header = unit.header.unwrap();
        assert_eq!((header.height, header.width), (480, 640));
        assert!(unit.starts_group);
        assert_eq!(unit.packet, message(&HEADER, 0b0001_0000)[2..]);
        let back = to_message(&unit.packet, &header.config, true).unwrap();
        assert_eq!(back, message(&HEADER, 0b0001_0000));
        // Without its own header, a key frame gets that of the configuration.
        let back = to_message(&[0x32, 1, 0x10], &header.config, true).unwrap();
        assert_eq!(back, message(&HEADER, 0b0001_0000));
        // An inter frame; a frame that is shown again.
        for byte in [0b0011_0000, 0b1000_0000] {
            let unit = parse(&[0x32, 1, byte]).unwrap();
            assert!(!unit.starts_group && unit.header.is_none());
        }
    }

    #[test]
    fn damaged_messages_are_refused() {
        // A hidden key frame.
        assert!(
            parse(&message(&HEADER, 0))
                .unwrap_err()
                .contains("0 images")
        );
        let whole = message(&HEADER, 0b0001_0000);
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "{len}");
        }
        assert!(parse(&[whole.clone(), whole].concat()).is_err());
        for cut in 0..HEADER.len() - 1 {
            assert!(parse(&message(&HEADER[..cut], 0x10)).is_err(), "{cut}");
        }
        assert!(parse(&[0x32, 0xff, 0xff, 0xff, 0xff, 0x7f, 1]).is_err());
        assert!(parse(&[0x12, 0].repeat(9000)).is_err());
    }
}
