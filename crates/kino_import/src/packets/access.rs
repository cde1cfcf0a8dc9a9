//! Access points: packets at which decoding can begin.
//!
//! A sample table marks key frames, but not all of them will do, and a table may lie; messages mark none. The packets
//! themselves decide. An H.264 key frame may be an I picture after which
//! others still refer to pictures before it; only an IDR picture forbids that. HEVC has one more kind, CRA: only
//! pictures that are shown before it may do so. A key frame of the others refers to nothing before it, and nothing after it
//! does.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use kino_codec::VideoCoding;

use crate::mp4::{Mp4Sample, Mp4Track};

/// This much of a packet is read to find its first picture, and the second number where parameter sets and messages come
/// before it. A file may have a key frame every second frame: more would be to read all of it.
const LOOKED_AT: [u64; 2] = [256, 64 << 10];

/// The positions, in decode order, of packets at which decoding can begin.
pub(super) fn access_points(
    track: &Mp4Track,
    coding: VideoCoding,
    file: &mut File,
) -> io::Result<Vec<usize>> {
    let length_bytes = length_bytes(&track.config, coding);
    let is_point = |packet: &[u8]| match coding {
        VideoCoding::H264 | VideoCoding::Hevc => first_picture(packet, length_bytes, coding),
        VideoCoding::Mpeg4 => mpeg4(packet),
        VideoCoding::Av1 => av1(packet),
        VideoCoding::Vp9 => vp9(packet),
        _ => None,
    };
    let mut found = Vec::new();
    let mut start = Vec::new();
    for (position, sample) in keys(track) {
        let mut is_found = None;
        for most in LOOKED_AT {
            start.clear();
            file.seek(SeekFrom::Start(sample.offset))?;
            (&mut *file)
                .take(most.min(sample.size.into()))
                .read_to_end(&mut start)?;
            is_found = is_point(&start);
            if is_found.is_some() {
                break;
            }
        }
        if is_found == Some(true) {
            found.push(position);
        }
    }
    Ok(found)
}

fn keys(track: &Mp4Track) -> impl Iterator<Item = (usize, &Mp4Sample)> {
    let samples = track.samples.iter().enumerate();
    samples.filter(|(_, sample)| sample.is_key)
}

/// Bytes of the length before each NAL unit, from the configuration.
fn length_bytes(config: &[u8], coding: VideoCoding) -> usize {
    let place = if coding == VideoCoding::Hevc { 21 } else { 4 };
    config
        .get(place)
        .map_or(4, |byte| usize::from(byte & 3) + 1)
}

/// Whether decoding can begin with the first NAL unit that is a picture.
fn first_picture(packet: &[u8], length_bytes: usize, coding: VideoCoding) -> Option<bool> {
    let mut rest = packet;
    loop {
        let (length, after) = rest.split_at_checked(length_bytes)?;
        let length = length
            .iter()
            .fold(0, |all, &byte| all << 8 | usize::from(byte));
        if let Some(found) = starts_group(coding, *after.first()?) {
            return Some(found);
        }
        rest = after.get(length..)?;
    }
}

/// Whether decoding can begin with the NAL unit that has this first byte; `None` if it does not begin a picture.
pub(crate) fn starts_group(coding: VideoCoding, byte: u8) -> Option<bool> {
    match coding {
        VideoCoding::H264 => h264(byte),
        VideoCoding::Hevc => hevc(byte),
        _ => None,
    }
}

/// Whether the first byte of an H.264 NAL unit begins an IDR picture; `None` if it does not begin a picture.
fn h264(byte: u8) -> Option<bool> {
    match byte & 0x1f {
        5 => Some(true),
        1..=4 => Some(false),
        _ => None,
    }
}

/// Whether the first byte of an HEVC NAL unit begins an IDR, BLA or CRA picture; `None` if it does not begin a picture.
fn hevc(byte: u8) -> Option<bool> {
    match byte >> 1 & 0x3f {
        16..=21 => Some(true),
        0..=15 | 22..=31 => Some(false),
        _ => None,
    }
}

/// Whether the first frame of an AV1 packet is a key frame that is shown; `None` if there is none.
fn av1(packet: &[u8]) -> Option<bool> {
    const FRAME_HEADER: u8 = 3;
    const FRAME: u8 = 6;
    let mut rest = packet;
    loop {
        let (&header, after) = rest.split_first()?;
        let has_extension = header & 0b100 != 0;
        let has_size = header & 0b10 != 0;
        let after = after.get(usize::from(has_extension)..)?;
        let (size, payload) = if has_size {
            leb128(after)?
        } else {
            (after.len(), after)
        };
        if matches!(header >> 3 & 0xf, FRAME_HEADER | FRAME) {
            // Shown again; type, 0 for a key frame; shown.
            let byte = payload.first()?;
            return Some(byte >> 7 == 0 && byte >> 5 & 3 == 0 && byte >> 4 & 1 == 1);
        }
        rest = payload.get(size..)?;
    }
}

/// An integer of seven bits per byte, lowest first, and what follows it.
fn leb128(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0;
    for (place, byte) in bytes.iter().enumerate().take(5) {
        value |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[place + 1..]));
        }
    }
    None
}

/// Whether a VP9 packet is a key frame; `None` if it is none of VP9.
fn vp9(packet: &[u8]) -> Option<bool> {
    let byte = packet.first().filter(|byte| **byte >> 6 == 2)?;
    // The fourth profile has one more bit before these two: shown again; type, 0 for a key frame.
    let place = if byte >> 4 & 3 == 3 { 1 } else { 2 };
    Some(byte >> place & 3 == 0)
}

/// Whether the first picture (VOP) of an MPEG-4 packet is coded by itself; `None` if there is none.
fn mpeg4(packet: &[u8]) -> Option<bool> {
    let code = packet
        .windows(4)
        .position(|four| *four == [0, 0, 1, 0xb6])?;
    // Its first two bits are its type.
    packet.get(code + 4).map(|byte| byte >> 6 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_picture_decides() {
        // SEI, then a slice of an IDR picture, or of another one.
        let idr = [0, 0, 0, 2, 6, 9, 0, 0, 0, 3, 0x65, 1, 2];
        assert_eq!(first_picture(&idr, 4, VideoCoding::H264), Some(true));
        let other = [0, 0, 0, 2, 6, 9, 0, 0, 0, 3, 0x41, 1, 2];
        assert_eq!(first_picture(&other, 4, VideoCoding::H264), Some(false));
        let cra = [0, 2, 40 << 1, 1, 0, 3, 21 << 1, 1, 2];
        assert_eq!(first_picture(&cra, 2, VideoCoding::Hevc), Some(true));
        assert_eq!(mpeg4(&[0, 0, 1, 0xb3, 9, 0, 0, 1, 0xb6, 0x10]), Some(true));
        assert_eq!(mpeg4(&[0, 0, 1, 0xb6, 0x50]), Some(false));
        assert_eq!(mpeg4(&[0, 0, 1, 0xb6]), None);
        // Delimiter, sequence header, then a key frame that is shown, an inter frame, one that is shown again.
        let unit = |byte| [0x12, 0, 0x0a, 1, 9, 0x32, 1, byte];
        assert_eq!(av1(&unit(0b0001_0000)), Some(true));
        assert_eq!(av1(&unit(0b0000_0000)), Some(false));
        assert_eq!(av1(&unit(0b0011_0000)), Some(false));
        assert_eq!(av1(&unit(0b1001_0000)), Some(false));
        assert_eq!((av1(&[0x12, 0]), av1(&[0x0a, 0xff])), (None, None));
        assert_eq!(
            (vp9(&[0b1000_0010]), vp9(&[0b1000_0110])),
            (Some(true), Some(false))
        );
        assert_eq!((vp9(&[0b1000_1000]), vp9(&[0])), (Some(false), None));
        for len in 0..10 {
            assert_eq!(
                first_picture(&idr[..len], 4, VideoCoding::H264),
                None,
                "{len}"
            );
        }
        assert_eq!(first_picture(&[0xff; 9], 4, VideoCoding::Av1), None);
    }
}
