//! The bytes of a page: packets of one or more groups of pictures, and which frame each of them shows.
//!
//! ```text
//! page  = config length, config │ color │ packet count, table │ packets, in decode order
//!         varint                  u8      varint
//! table = for each packet: varint 2 × size + starts a group, varint 0 (its image is not shown) or 1 + frame
//! ```
//!
//! *Config* is what a container stores beside the packets: the payload of `avcC`, `hvcC`, `av1C` or `esds`. Packets are
//! as in MP4. A packet that *starts a group* can be decoded without those before it, and all frames of later packets
//! come after all frames of earlier ones. An image that is not shown belongs to another page: decoding had to begin
//! before the page's first frame, or a frame needs one that is shown after the page.

use std::ops::Range;

use crate::error::{Result, corrupt};
use crate::varint;

use super::NAME;
use super::color::VideoColor;

/// The longest configuration.
const MAX_CONFIG: usize = 1 << 16;

/// Packets of a group of pictures, to be stored unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VideoPage<'a> {
    /// What a decoder needs before the first packet: the payload of `avcC`, `hvcC`, `av1C` or `esds`, or nothing.
    pub config: &'a [u8],
    /// What the values mean.
    pub color: VideoColor,
    /// The packets in decode order; the first starts a group.
    pub packets: Vec<VideoPacket<'a>>,
}

/// A packet of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VideoPacket<'a> {
    /// Its bytes, as in an MP4 file.
    pub bytes: &'a [u8],
    /// Which frame of the page it shows; `None` if its image is only needed by others.
    pub frame: Option<usize>,
    /// Whether it can be decoded without those before, and no frame after it is shown before it.
    pub starts_group: bool,
}

/// What the table of a page says about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VideoEntry {
    /// Its length in bytes.
    pub size: usize,
    /// As in [`VideoPacket`].
    pub frame: Option<usize>,
    /// As in [`VideoPacket`].
    pub starts_group: bool,
}

/// The bytes of a page up to the first packet; the packets follow one after the other.
pub fn video_page_head(config: &[u8], color: VideoColor, table: &[VideoEntry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(config.len() + 8 + 5 * table.len());
    varint::put(config.len(), &mut out);
    out.extend_from_slice(config);
    out.push(color.to_byte());
    varint::put(table.len(), &mut out);
    for packet in table {
        varint::put(2 * packet.size + usize::from(packet.starts_group), &mut out);
        varint::put(packet.frame.map_or(0, |frame| frame + 1), &mut out);
    }
    out
}

impl<'a> VideoPage<'a> {
    fn head(&self) -> Vec<u8> {
        let entry = |packet: &VideoPacket<'_>| VideoEntry {
            size: packet.bytes.len(),
            frame: packet.frame,
            starts_group: packet.starts_group,
        };
        let table: Vec<_> = self.packets.iter().map(entry).collect();
        video_page_head(self.config, self.color, &table)
    }

    /// The page.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.head();
        for packet in &self.packets {
            out.extend_from_slice(packet.bytes);
        }
        out
    }

    /// Parses a page of `frames` frames (untrusted bytes).
    pub fn parse(page: &'a [u8], frames: usize) -> Result<Self> {
        let mut rest = page;
        let config_len = varint::take(NAME, &mut rest)?;
        if config_len > MAX_CONFIG {
            return Err(corrupt(NAME, "its configuration is too long"));
        }
        let config = take(&mut rest, config_len)?;
        let color = VideoColor::from_byte(take(&mut rest, 1)?[0])?;
        let count = varint::take(NAME, &mut rest)?;
        // Two bytes of the table each, at least.
        if count < frames || count > rest.len() / 2 {
            let what = format!("it cannot have {count} packets for {frames} frames");
            return Err(corrupt(NAME, what));
        }
        let mut packets = Vec::with_capacity(count);
        let mut sizes = Vec::with_capacity(count);
        for _ in 0..count {
            let size = varint::take(NAME, &mut rest)?;
            let frame = varint::take(NAME, &mut rest)?;
            packets.push(VideoPacket {
                bytes: &[],
                frame: frame.checked_sub(1),
                starts_group: size % 2 == 1,
            });
            sizes.push(size / 2);
        }
        for (packet, size) in packets.iter_mut().zip(sizes) {
            packet.bytes = take(&mut rest, size)?;
        }
        if !rest.is_empty() {
            return Err(corrupt(NAME, "it has bytes after its last packet"));
        }
        let page = Self {
            config,
            color,
            packets,
        };
        page.check(frames)?;
        Ok(page)
    }

    /// Checks that every frame is shown once and groups are closed.
    fn check(&self, frames: usize) -> Result<()> {
        let mut is_shown = vec![false; frames];
        // One more than the last frame so far, and how many were shown: equal if none is missing before it.
        let (mut end, mut shown) = (0, 0);
        for (position, packet) in self.packets.iter().enumerate() {
            if packet.starts_group && end != shown {
                let what = format!("packet {position} starts a group that is not closed");
                return Err(corrupt(NAME, what));
            }
            if packet.bytes.is_empty() {
                return Err(corrupt(NAME, format!("packet {position} is empty")));
            }
            let Some(frame) = packet.frame else {
                continue;
            };
            match is_shown.get_mut(frame) {
                Some(is_shown) if !*is_shown => *is_shown = true,
                _ => {
                    let what = format!("frame {frame} does not exist or is shown twice");
                    return Err(corrupt(NAME, what));
                }
            }
            end = end.max(frame + 1);
            shown += 1;
        }
        if shown != frames || self.packets.first().is_some_and(|one| !one.starts_group) {
            let what = "frames are missing, or it does not start with a group";
            return Err(corrupt(NAME, what));
        }
        Ok(())
    }

    /// The packets to decode for these frames, which are not empty.
    pub(super) fn needed(&self, frames: &Range<usize>) -> Range<usize> {
        let is_wanted =
            |packet: &VideoPacket<'_>| packet.frame.is_some_and(|frame| frames.contains(&frame));
        let first = self.packets.iter().position(is_wanted).unwrap_or(0);
        let last = self.packets.iter().rposition(is_wanted).unwrap_or(0);
        let before = &self.packets[..=first];
        let start = before.iter().rposition(|packet| packet.starts_group);
        let start = start.unwrap_or(0);
        start..last + 1
    }
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8]> {
    let (head, tail) = rest
        .split_at_checked(len)
        .ok_or_else(|| corrupt(NAME, "it is truncated"))?;
    *rest = tail;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(bytes: &[u8], frame: Option<usize>, starts_group: bool) -> VideoPacket<'_> {
        VideoPacket {
            bytes,
            frame,
            starts_group,
        }
    }

    /// Two groups: I B P in the order of decoding I P B, then an I with a hidden image before it.
    fn example() -> VideoPage<'static> {
        VideoPage {
            config: b"config",
            color: VideoColor::default(),
            packets: vec![
                packet(b"iiii", Some(0), true),
                packet(b"pp", Some(2), false),
                packet(b"b", Some(1), false),
                packet(b"iii", None, true),
                packet(b"p", Some(3), false),
            ],
        }
    }

    #[test]
    fn a_page_comes_back_as_it_was() {
        let bytes = example().to_bytes();
        assert_eq!(VideoPage::parse(&bytes, 4).unwrap(), example());
        assert!(bytes.starts_with(&example().head()));
        for len in 0..bytes.len() {
            assert!(VideoPage::parse(&bytes[..len], 4).is_err(), "{len}");
        }
        for frames in [0, 3, 5, usize::MAX] {
            assert!(VideoPage::parse(&bytes, frames).is_err(), "{frames}");
        }
    }

    #[test]
    fn only_the_packets_that_frames_need_are_decoded() {
        let page = example();
        for (frames, expected) in [
            (0..1, 0..1),
            (1..2, 0..3),
            (2..3, 0..2),
            (3..4, 3..5),
            (1..4, 0..5),
        ] {
            assert_eq!(page.needed(&frames), expected, "{frames:?}");
        }
    }

    #[test]
    fn pages_that_lie_are_refused() {
        let lies: [fn(&mut VideoPage<'_>); 5] = [
            |page| page.packets[0].starts_group = false,
            |page| page.packets[2].starts_group = true,
            |page| page.packets[1].frame = Some(0),
            |page| page.packets[1].frame = Some(4),
            |page| page.packets[4].bytes = b"",
        ];
        for (nr, lie) in lies.iter().enumerate() {
            let mut page = example();
            lie(&mut page);
            let bytes = page.to_bytes();
            assert!(VideoPage::parse(&bytes, 4).is_err(), "lie {nr}");
        }
    }
}
