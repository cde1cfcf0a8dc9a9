//! The packets of a page as an elementary stream, for a decoder outside of this library: one in hardware.
//!
//! ```text
//! page    avcC or hvcC │ length, NAL unit, length, NAL unit │ …          as in MP4 files
//! stream  00000001, parameter set, … 00000001, NAL unit, …  │ …          Annex B; parameter sets before each group
//! ```
//!
//! Such a decoder gives planes; [`VideoStream::factors`] make the pixels of them that the decoders of this library make.

use std::ops::Range;

use crate::error::{Result, corrupt};

use super::NAME;
use super::coding::VideoCoding;
use super::page::VideoPage;
use super::rgb::Conversion;

/// In front of a NAL unit.
const START_CODE: [u8; 4] = [0, 0, 0, 1];

/// Where `hvcC` says how long lengths are; what follows are its arrays.
const HVCC_LENGTHS: usize = 21;

/// The packets that some frames of a page need, as an elementary stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VideoStream {
    /// How the packets are coded.
    pub coding: VideoCoding,
    /// All packets, one behind the other.
    pub bytes: Vec<u8>,
    /// In the order in which they are decoded.
    pub packets: Vec<StreamPacket>,
    /// What makes RGB of planes, as `spec/codecs/video.md` names it: luma, black, red of V, green of U, green of V, blue of U.
    pub factors: [i16; 6],
}

/// A packet of a [`VideoStream`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamPacket {
    /// Its place in the bytes.
    pub range: Range<usize>,
    /// Which frame of the page it shows; `None` if its image is not shown.
    pub frame: Option<usize>,
    /// Whether it can be decoded without those before it.
    pub starts_group: bool,
}

impl VideoStream {
    /// Whether pages of this coding can become elementary streams.
    pub fn has(coding: VideoCoding) -> bool {
        matches!(coding, VideoCoding::H264 | VideoCoding::Hevc)
    }

    /// The packets that these frames of a page need (untrusted bytes); `None` if it cannot be made of this coding.
    pub fn of_page(
        coding: VideoCoding,
        page: &[u8],
        frames: usize,
        wanted: &Range<usize>,
    ) -> Result<Option<Self>> {
        if !Self::has(coding) {
            return Ok(None);
        }
        let page = VideoPage::parse(page, frames)?;
        let sets = ParameterSets::parse(coding, page.config)?;
        let packets = &page.packets[page.needed(wanted)];
        let size: usize = packets.iter().map(|packet| packet.bytes.len()).sum();
        let mut stream = Self {
            coding,
            bytes: Vec::with_capacity(size + sets.bytes.len() + 64),
            packets: Vec::with_capacity(packets.len()),
            factors: Conversion::new(page.color).factors(),
        };
        for packet in packets {
            let start = stream.bytes.len();
            if packet.starts_group {
                stream.bytes.extend_from_slice(&sets.bytes);
            }
            sets.put(packet.bytes, &mut stream.bytes)?;
            stream.packets.push(StreamPacket {
                range: start..stream.bytes.len(),
                frame: packet.frame,
                starts_group: packet.starts_group,
            });
        }
        Ok(Some(stream))
    }
}

/// What a configuration says.
struct ParameterSets {
    /// The sets, each behind a start code.
    bytes: Vec<u8>,
    /// Bytes of the length in front of a NAL unit; 0 if packets have start codes already.
    length_size: usize,
}

impl ParameterSets {
    fn parse(coding: VideoCoding, config: &[u8]) -> Result<Self> {
        // Without a configuration of version 1, FFmpeg too takes everything for Annex B.
        if config.first() != Some(&1) {
            return Ok(Self {
                bytes: config.to_vec(),
                length_size: 0,
            });
        }
        let mut sets = Self {
            bytes: Vec::with_capacity(2 * config.len()),
            length_size: 0,
        };
        let read = match coding {
            VideoCoding::Hevc => sets.read_hvcc(config),
            _ => sets.read_avcc(config),
        };
        read.ok_or_else(|| corrupt(NAME, "its configuration is truncated"))?;
        Ok(sets)
    }

    /// `1 │ profile │ compatibility │ level │ fc + lengths │ e0 + count, sequence sets │ count, picture sets │ …`
    fn read_avcc(&mut self, config: &[u8]) -> Option<()> {
        self.length_size = usize::from(config.get(4)? & 3) + 1;
        let mut rest = config.get(5..)?;
        for mask in [0x1f, 0xff] {
            let (count, after) = rest.split_first()?;
            rest = after;
            for _ in 0..count & mask {
                self.take(&mut rest)?;
            }
        }
        Some(())
    }

    /// `… │ lengths │ arrays: for each, kind │ u16 count │ sets`
    fn read_hvcc(&mut self, config: &[u8]) -> Option<()> {
        self.length_size = usize::from(config.get(HVCC_LENGTHS)? & 3) + 1;
        let (arrays, mut rest) = config.get(HVCC_LENGTHS + 1..)?.split_first()?;
        for _ in 0..*arrays {
            let ([_, high, low], after) = rest.split_first_chunk::<3>()?;
            rest = after;
            for _ in 0..u16::from_be_bytes([*high, *low]) {
                self.take(&mut rest)?;
            }
        }
        Some(())
    }

    /// Takes a set with two bytes of length in front of it.
    fn take(&mut self, rest: &mut &[u8]) -> Option<()> {
        let (len, after) = rest.split_first_chunk::<2>()?;
        let (set, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        self.bytes.extend_from_slice(&START_CODE);
        self.bytes.extend_from_slice(set);
        *rest = after;
        Some(())
    }

    /// Appends the NAL units of a packet, each behind a start code.
    fn put(&self, packet: &[u8], out: &mut Vec<u8>) -> Result<()> {
        if self.length_size == 0 {
            out.extend_from_slice(packet);
            return Ok(());
        }
        let mut rest = packet;
        while !rest.is_empty() {
            let unit = rest
                .split_at_checked(self.length_size)
                .and_then(|(len, rest)| {
                    let len = len
                        .iter()
                        .fold(0, |all, &byte| all << 8 | usize::from(byte));
                    rest.split_at_checked(len)
                });
            let (unit, after) = unit.ok_or_else(|| corrupt(NAME, "a NAL unit is cut short"))?;
            out.extend_from_slice(&START_CODE);
            out.extend_from_slice(unit);
            rest = after;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::color::VideoColor;
    use super::super::page::VideoPacket;
    use super::*;

    /// A sequence set of three bytes, a picture set of two, lengths of two bytes.
    const AVCC: &[u8] = &[1, 66, 0, 10, 0xfd, 0xe1, 0, 3, 0x67, 1, 2, 1, 0, 2, 0x68, 9];
    const SETS: &[u8] = &[0, 0, 0, 1, 0x67, 1, 2, 0, 0, 0, 1, 0x68, 9];

    fn page(config: &[u8]) -> Vec<u8> {
        let packet = |bytes, frame, starts_group| VideoPacket {
            bytes,
            frame,
            starts_group,
        };
        let packets = vec![
            packet(&[0, 2, 0x65, 7][..], Some(0), true),
            packet(&[0, 1, 0x41, 0, 2, 0x41, 8], Some(2), false),
            packet(&[0, 1, 0x01], Some(1), false),
            packet(&[0, 2, 0x65, 5], Some(3), true),
        ];
        let color = VideoColor::default();
        let page = VideoPage {
            config,
            color,
            packets,
        };
        page.to_bytes()
    }

    fn stream(config: &[u8], wanted: Range<usize>) -> Result<VideoStream> {
        let made = VideoStream::of_page(VideoCoding::H264, &page(config), 4, &wanted);
        made.map(Option::unwrap)
    }

    #[test]
    fn packets_have_start_codes_and_groups_their_parameter_sets() {
        let all = stream(AVCC, 0..4).unwrap();
        let bytes = |nr: usize| &all.bytes[all.packets[nr].range.clone()];
        assert_eq!(bytes(0), [SETS, &[0, 0, 0, 1, 0x65, 7]].concat());
        assert_eq!(bytes(1), [0, 0, 0, 1, 0x41, 0, 0, 0, 1, 0x41, 8]);
        assert_eq!(bytes(2), [0, 0, 0, 1, 0x01]);
        assert_eq!(bytes(3), [SETS, &[0, 0, 0, 1, 0x65, 5]].concat());
        let frames: Vec<_> = all.packets.iter().map(|packet| packet.frame).collect();
        assert_eq!(frames, [Some(0), Some(2), Some(1), Some(3)]);
        assert_eq!(all.factors, [9539, 128, 13_075, -3209, -6660, 16_525]);
    }

    #[test]
    fn only_the_packets_that_frames_need_are_in_it() {
        for (wanted, packets) in [(0..1, 1), (1..2, 3), (2..3, 2), (3..4, 1), (1..4, 4)] {
            let some = stream(AVCC, wanted.clone()).unwrap();
            assert_eq!(some.packets.len(), packets, "{wanted:?}");
            assert!(some.packets[0].starts_group);
            assert_eq!(some.packets.last().unwrap().range.end, some.bytes.len());
        }
    }

    #[test]
    fn hvcc_is_read_too_and_without_a_configuration_packets_are_as_they_are() {
        let mut hvcc = vec![1; HVCC_LENGTHS];
        hvcc.extend([0xfd, 2, 0xa0, 0, 1, 0, 2, 0x40, 1, 0xa1, 0, 1, 0, 1, 0x42]);
        let page = page(&hvcc);
        let made = VideoStream::of_page(VideoCoding::Hevc, &page, 4, &(0..1));
        let made = made.unwrap().unwrap();
        let wanted = [
            &[0, 0, 0, 1, 0x40, 1, 0, 0, 0, 1, 0x42][..],
            &[0, 0, 0, 1, 0x65, 7],
        ];
        assert_eq!(made.bytes, wanted.concat());
        assert_eq!(stream(&[], 0..1).unwrap().bytes, [0, 2, 0x65, 7]);
        let other = VideoStream::of_page(VideoCoding::Vp9, &page, 4, &(0..1));
        assert_eq!(other, Ok(None));
    }

    #[test]
    fn damage_is_an_error_or_another_stream_and_never_a_panic() {
        for len in 1..AVCC.len() {
            assert!(stream(&AVCC[..len], 0..4).is_err(), "{len}");
        }
        let page = page(AVCC);
        for byte in 0..page.len() {
            for bit in 0..8 {
                let mut bad = page.clone();
                bad[byte] ^= 1 << bit;
                for coding in [VideoCoding::H264, VideoCoding::Hevc] {
                    let _ = VideoStream::of_page(coding, &bad, 4, &(0..4));
                }
            }
        }
    }
}
