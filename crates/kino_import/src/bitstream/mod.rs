//! Video as encoders write it, in messages, and as MP4 files store it, in packets.
//!
//! ```text
//! message ─▶ VideoParser ─┬─ packet        as a sample of an MP4 file
//!                         ├─ header        configuration and size, with a key frame (h264.rs, hevc.rs, av1.rs, vp9.rs)
//!                         └─ order         whether it follows the one before it
//! packet  ─▶ to_message                    the other direction
//! ```
//!
//! | coding | message | packet |
//! |---|---|---|
//! | H.264, HEVC | NAL units with start codes; a key frame with its parameter sets | with lengths; sets in the configuration |
//! | AV1 | a temporal unit; a key frame with its sequence header | the same without delimiter |
//! | VP9 | a frame or superframe | the same |
//!
//! Nothing that is read is trusted, and nothing is decoded.

mod av1;
mod bits;
mod h264;
mod hevc;
mod nal;
#[cfg(test)]
mod tests;
mod vp9;

use kino_codec::VideoCoding;

use crate::mp4::Mp4Pixels;
use nal::Kind;

/// The longest configuration that a page stores.
const MAX_CONFIG: usize = 1 << 16;

/// What a stream says before its first image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VideoHeader {
    /// The payload of `avcC`, `hvcC` or `av1C`; empty for VP9.
    pub(crate) config: Vec<u8>,
    pub(crate) height: u32,
    pub(crate) width: u32,
    /// Bit depth and chroma subsampling, if they are known.
    pub(crate) pixels: Option<Mp4Pixels>,
}

/// A message as a packet.
#[derive(Debug)]
pub(crate) struct ParsedMessage {
    pub(crate) packet: Vec<u8>,
    /// Whether decoding can begin with it.
    pub(crate) starts_group: bool,
}

/// Why a message is not the next packet of its stream.
#[derive(Debug)]
pub(crate) enum NotNext {
    /// It is damaged, or is not one image; as a predicate of the message.
    Damaged(String),
    /// Its image is shown before one that comes before it.
    Reordered,
    /// It needs one that is missing.
    Missing,
}

impl From<String> for NotNext {
    fn from(what: String) -> Self {
        Self::Damaged(what)
    }
}

impl From<&str> for NotNext {
    fn from(what: &str) -> Self {
        Self::Damaged(what.to_owned())
    }
}

/// What the first slice of an image says.
#[derive(Debug, Clone, Copy, Default)]
struct Slice {
    /// When the image is shown; `None` if that is when it is decoded.
    order: Option<Count>,
    /// The number of the image, which is one more than that of the last reference image, or the same; `None` if it may
    /// be any.
    number: Option<Count>,
    is_reference: bool,
    /// Whether both counts begin again.
    is_reset: bool,
}

/// A count that wraps around.
#[derive(Debug, Clone, Copy)]
struct Count {
    value: u32,
    bits: u32,
}

impl Count {
    /// How far it is ahead.
    fn since(self, last: u32) -> u32 {
        self.value.wrapping_sub(last) & ((1 << self.bits) - 1)
    }

    fn is_after(self, last: u32) -> bool {
        (1..1 << (self.bits - 1)).contains(&self.since(last))
    }
}

/// Parameter sets, as far as slices need them.
#[derive(Debug)]
enum Sets {
    H264(h264::Sets),
    Hevc(hevc::Sets),
}

/// Parses the messages of one stream, one after the other.
#[derive(Debug)]
pub(crate) struct VideoParser {
    coding: VideoCoding,
    header: Option<VideoHeader>,
    sets: Option<Sets>,
    /// The order of the last image, and the number of the last reference image.
    last: (Option<u32>, Option<u32>),
}

impl VideoParser {
    pub(crate) fn new(coding: VideoCoding) -> Self {
        Self {
            coding,
            header: None,
            sets: None,
            last: (None, None),
        }
    }

    pub(crate) fn coding(&self) -> VideoCoding {
        self.coding
    }

    /// What the last key frame said.
    pub(crate) fn header(&self) -> Option<&VideoHeader> {
        self.header.as_ref()
    }

    /// After messages are missing: the next one may be shown at any time.
    pub(crate) fn restart(&mut self) {
        self.last = (None, None);
    }

    /// Parses the next message.
    pub(crate) fn next(&mut self, message: &[u8]) -> Result<ParsedMessage, NotNext> {
        let (packet, header, starts_group) = match self.coding {
            VideoCoding::H264 | VideoCoding::Hevc => return self.next_units(message),
            VideoCoding::Av1 => {
                let unit = av1::parse(message)?;
                (unit.packet, unit.header, unit.starts_group)
            }
            _ => {
                let header = vp9::parse(message)?;
                let starts_group = header.is_some();
                (message.to_vec(), header, starts_group)
            }
        };
        if starts_group && let Some(header) = header {
            self.set_header(header)?;
        }
        if starts_group && self.header.is_none() {
            return Err("is a key frame without sequence header".into());
        }
        Ok(ParsedMessage {
            packet,
            starts_group,
        })
    }

    fn set_header(&mut self, header: VideoHeader) -> Result<(), NotNext> {
        if header.config.len() > MAX_CONFIG {
            return Err("has parameter sets that are too long".into());
        }
        self.header = Some(header);
        Ok(())
    }

    /// Parses a message of NAL units.
    fn next_units(&mut self, message: &[u8]) -> Result<ParsedMessage, NotNext> {
        let units = nal::split(message)?;
        let picture = units
            .iter()
            .find_map(|unit| match nal::kind(self.coding, unit) {
                Kind::Picture { starts_group } => Some((*unit, starts_group)),
                _ => None,
            });
        let (slice, starts_group) = picture.ok_or("has no image")?;
        self.take_sets(&units, starts_group)?;
        let (Some(header), Some(sets)) = (&self.header, &self.sets) else {
            if starts_group {
                return Err("is a key frame without parameter sets".into());
            }
            // Nothing can be said about an image before the first key frame, and it cannot be decoded.
            return Ok(ParsedMessage {
                packet: Vec::new(),
                starts_group,
            });
        };
        if sets.images(self.coding, &units) > 1 {
            return Err("has more than one image".into());
        }
        let slice = sets.slice(slice)?;
        let packet = nal::to_packet(self.coding, &units, &header.config);
        self.follow(slice)?;
        Ok(ParsedMessage {
            packet,
            starts_group,
        })
    }

    /// Checks that an image follows the one before it.
    fn follow(&mut self, slice: Slice) -> Result<(), NotNext> {
        let (order, number) = if slice.is_reset {
            (None, None)
        } else {
            self.last
        };
        if let (Some(found), Some(last)) = (slice.number, number)
            && found.since(last) > 1
        {
            return Err(NotNext::Missing);
        }
        if let (Some(found), Some(last)) = (slice.order, order)
            && !found.is_after(last)
        {
            return Err(NotNext::Reordered);
        }
        self.last.0 = slice.order.map(|order| order.value);
        if slice.is_reference {
            self.last.1 = slice.number.map(|number| number.value);
        }
        Ok(())
    }

    /// Takes over the parameter sets of a key frame; those of other images must be known.
    fn take_sets(&mut self, units: &[&[u8]], starts_group: bool) -> Result<(), NotNext> {
        let Some(found) = nal::sets_of(self.coding, units) else {
            return Ok(());
        };
        if !starts_group {
            let is_known = self.header.as_ref().is_none_or(|header| {
                let known = nal::sets(self.coding, &header.config).unwrap_or_default();
                found.iter().all(|(_, set)| known.0.contains(set))
            });
            if is_known {
                return Ok(());
            }
            return Err("changes parameter sets without being a key frame".into());
        }
        let (header, sets) = match self.coding {
            VideoCoding::Hevc => {
                let (header, sets) = hevc::header(&found)?;
                (header, Sets::Hevc(sets))
            }
            _ => {
                let (header, sets) = h264::header(&found)?;
                (header, Sets::H264(sets))
            }
        };
        self.sets = Some(sets);
        self.set_header(header)
    }
}

impl Sets {
    fn slice(&self, slice: &[u8]) -> Result<Slice, String> {
        let parsed = match self {
            Self::H264(sets) => sets.slice(slice),
            Self::Hevc(sets) => sets.slice(slice),
        };
        parsed.ok_or_else(|| "has a slice without valid header or parameter sets".to_owned())
    }

    /// How many images begin in these units.
    fn images(&self, coding: VideoCoding, units: &[&[u8]]) -> usize {
        let begins = |unit: &&&[u8]| {
            let is_picture = matches!(nal::kind(coding, unit), Kind::Picture { .. });
            is_picture
                && match self {
                    Self::H264(sets) => sets.begins_image(unit),
                    Self::Hevc(_) => hevc::begins_image(unit),
                }
        };
        units.iter().filter(begins).count()
    }
}

/// The packet in a message that was parsed before, when its stream had this configuration.
pub(crate) fn to_packet(
    coding: VideoCoding,
    message: &[u8],
    config: &[u8],
) -> Result<Vec<u8>, String> {
    match coding {
        VideoCoding::H264 | VideoCoding::Hevc => {
            Ok(nal::to_packet(coding, &nal::split(message)?, config))
        }
        VideoCoding::Av1 => Ok(av1::parse(message)?.packet),
        _ => Ok(message.to_vec()),
    }
}

/// A packet as a message; one that starts a group has everything that a decoder needs.
pub(crate) fn to_message(
    coding: VideoCoding,
    packet: &[u8],
    config: &[u8],
    starts_group: bool,
) -> Result<Vec<u8>, String> {
    match coding {
        VideoCoding::H264 | VideoCoding::Hevc => {
            nal::to_message(coding, packet, config, starts_group)
        }
        VideoCoding::Av1 => av1::to_message(packet, config, starts_group),
        _ => Ok(packet.to_vec()),
    }
}
