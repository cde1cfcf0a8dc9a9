//! Access points: packets at which decoding can begin.
//!
//! A sample table marks key frames, and messages mark none, but not every key frame will do. An H.264 key frame may be an I picture after which
//! others still refer to pictures before it; only an IDR picture forbids that. HEVC has one more kind, CRA: only
//! pictures that are shown before it may do so.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use kino_codec::VideoCoding;

use crate::mp4::{Mp4Sample, Mp4Track};

/// At most this much of a packet is read to find its first picture: parameter sets and messages come before it.
const LOOKED_AT: u64 = 64 << 10;

/// The positions, in decode order, of packets at which decoding can begin.
pub(super) fn access_points(
    track: &Mp4Track,
    coding: VideoCoding,
    file: &mut File,
) -> io::Result<Vec<usize>> {
    if !matches!(coding, VideoCoding::H264 | VideoCoding::Hevc) {
        // A key frame of the others refers to nothing before it, and nothing after it does.
        return Ok(keys(track).map(|(position, _)| position).collect());
    }
    let length_bytes = length_bytes(&track.config, coding);
    let mut found = Vec::new();
    let mut start = Vec::new();
    for (position, sample) in keys(track) {
        start.clear();
        file.seek(SeekFrom::Start(sample.offset))?;
        let len = u64::from(sample.size).min(LOOKED_AT);
        (&mut *file).take(len).read_to_end(&mut start)?;
        if first_picture(&start, length_bytes, coding) == Some(true) {
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

/// Whether decoding can begin with the NAL unit that has this first byte; `None` if it is no picture.
pub(crate) fn starts_group(coding: VideoCoding, byte: u8) -> Option<bool> {
    match coding {
        VideoCoding::H264 => h264(byte),
        VideoCoding::Hevc => hevc(byte),
        _ => None,
    }
}

/// Whether the first byte of an H.264 NAL unit begins an IDR picture; `None` if it is no picture.
fn h264(byte: u8) -> Option<bool> {
    match byte & 0x1f {
        5 => Some(true),
        1..=4 => Some(false),
        _ => None,
    }
}

/// Whether the first byte of an HEVC NAL unit begins an IDR, BLA or CRA picture; `None` if it is no picture.
fn hevc(byte: u8) -> Option<bool> {
    match byte >> 1 & 0x3f {
        16..=21 => Some(true),
        0..=15 | 22..=31 => Some(false),
        _ => None,
    }
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
