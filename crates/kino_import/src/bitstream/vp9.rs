//! VP9: whether a frame is a key frame, and its size. A message is a frame, or a superframe with hidden frames in front.
//!
//! ```text
//! superframe = frames … │ marker │ sizes │ marker        marker: 110, bytes per size − 1, frames − 1
//! ```

use kino_codec::BitReader;

use super::VideoHeader;
use crate::mp4::{Mp4Chroma, Mp4Pixels};

const SYNC_CODE: u32 = 0x49_83_42;

/// The color space of red, green and blue.
const RGB: u32 = 7;

#[derive(Debug, Default)]
struct Frame {
    is_shown: bool,
    /// Present if it is a key frame.
    header: Option<VideoHeader>,
}

/// What a message says if it is a key frame.
pub(super) fn parse(message: &[u8]) -> Result<Option<VideoHeader>, String> {
    let mut first = None;
    let mut shown = 0;
    for bytes in split(message) {
        let frame = frame(bytes).ok_or("has a damaged VP9 frame header")?;
        shown += usize::from(frame.is_shown);
        first.get_or_insert(frame.header);
    }
    match shown {
        1 => Ok(first.flatten()),
        shown => Err(format!("shows {shown} images, not one")),
    }
}

/// The frames of a superframe, or the only one.
fn split(message: &[u8]) -> Vec<&[u8]> {
    sizes(message)
        .and_then(|sizes| {
            let mut rest = message;
            let mut frames = Vec::new();
            for size in sizes {
                let (frame, after) = rest.split_at_checked(size)?;
                frames.push(frame);
                rest = after;
            }
            Some(frames)
        })
        .unwrap_or_else(|| vec![message])
}

/// The sizes in the index of a superframe; at most eight.
fn sizes(message: &[u8]) -> Option<Vec<usize>> {
    let marker = *message.last().filter(|byte| **byte & 0xe0 == 0xc0)?;
    let (count, bytes) = (
        usize::from(marker & 7) + 1,
        usize::from(marker >> 3 & 3) + 1,
    );
    let start = message.len().checked_sub(2 + count * bytes)?;
    let index = message.get(start..).filter(|index| index[0] == marker)?;
    let size = |bytes: &[u8]| {
        let bytes = bytes.iter().rev();
        bytes.fold(0, |all, &byte| all << 8 | usize::from(byte))
    };
    let sizes = index.get(1..1 + count * bytes)?.chunks_exact(bytes);
    Some(sizes.map(size).collect())
}

/// Reads the start of an uncompressed header (section 6.2 of the VP9 specification).
fn frame(bytes: &[u8]) -> Option<Frame> {
    let bits = &mut BitReader::new(bytes);
    bits.take(2).filter(|marker| *marker == 2)?;
    let profile = bits.take(1)? | bits.take(1)? << 1;
    if profile == 3 {
        bits.flag()?;
    }
    // An earlier frame is shown again.
    if bits.flag()? {
        return Some(Frame {
            is_shown: true,
            header: None,
        });
    }
    let is_key = !bits.flag()?;
    let is_shown = bits.flag()?;
    // Whether it is resilient to errors.
    bits.flag()?;
    let header = if is_key {
        Some(header(bits, profile)?)
    } else {
        None
    };
    Some(Frame { is_shown, header })
}

fn header(bits: &mut BitReader<'_>, profile: u32) -> Option<VideoHeader> {
    bits.take(24).filter(|code| *code == SYNC_CODE)?;
    let bit_depth = match profile {
        0 | 1 => 8,
        _ if bits.flag()? => 12,
        _ => 10,
    };
    let is_rgb = bits.take(3)? == RGB;
    if !is_rgb {
        // The range.
        bits.flag()?;
    }
    let chroma = match (profile % 2 == 1, is_rgb) {
        (false, _) => Mp4Chroma::Yuv420,
        (true, true) => {
            bits.flag()?;
            Mp4Chroma::Yuv444
        }
        (true, false) => {
            let halved = (bits.flag()?, bits.flag()?);
            bits.flag()?;
            match halved {
                (true, true) => Mp4Chroma::Yuv420,
                (true, false) => Mp4Chroma::Yuv422,
                (false, true) => Mp4Chroma::Yuv440,
                (false, false) => Mp4Chroma::Yuv444,
            }
        }
    };
    let (width, height) = (bits.take(16)? + 1, bits.take(16)? + 1);
    Some(VideoHeader {
        config: Vec::new(),
        height,
        width,
        pixels: Some(Mp4Pixels { bit_depth, chroma }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shown key frame of profile 0: 120 × 160.
    const KEY: [u8; 10] = [0x82, 0x49, 0x83, 0x42, 0x20, 0x09, 0xf0, 0x07, 0x70, 0];

    #[test]
    fn the_size_of_a_key_frame_is_found_also_in_a_superframe() {
        let header = parse(&KEY).unwrap().unwrap();
        assert_eq!((header.height, header.width), (120, 160));
        // A hidden inter frame in front of a shown one.
        let (hidden, shown) = ([0x84, 0, 1], [0x86, 7]);
        let index = [0xc1, 3, 2, 0xc1];
        let message = [&hidden[..], &shown, &index].concat();
        assert!(parse(&message).unwrap().is_none());
        assert!(parse(&hidden).unwrap_err().contains("0 images"));
        let message = [&KEY[..], &shown, &[0xc1, 10, 2, 0xc1]].concat();
        assert!(parse(&message).unwrap_err().contains("2 images"));
        // A frame that is shown again.
        assert!(parse(&[0x88]).unwrap().is_none());
        for len in 0..KEY.len() - 1 {
            assert!(parse(&KEY[..len]).is_err(), "{len}");
        }
    }
}
