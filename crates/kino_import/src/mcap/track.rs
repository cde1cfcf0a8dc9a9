//! A video topic during the walk: which messages are frames, and where decoding can begin.
//!
//! ```text
//! messages   P P │ I P P P │ I P ✗ P P │ I P …        ✗ is damaged or missing
//! frames           0 1 2 3   4 5         6 7          what cannot be decoded is skipped, and counted
//! parts            └ sets A              └ sets B     a configuration is valid up to the next
//! ```
//!
//! Messages must be in the order in which images are shown, as the schema of `CompressedVideo` requires: each has one
//! timestamp.

use std::sync::Arc;

use kino_codec::{ContainerColor, FrameType, VideoCoding, VideoColor, VideoPacket, VideoPage};

use super::message::Value;
use super::pixels;
use super::topic::Entry;
use super::video::{Part, Video};
use crate::bitstream::{NotNext, VideoHeader, VideoParser};
use crate::mp4::Mp4Sample;
use crate::packets::{Groups, NotCarried, frame_of, not_carried};
use crate::source::MAX_IMPORTED_FRAME_BYTES;

/// A camera changes its parameter sets when it is started again; more often, something is wrong.
const MAX_PARTS: usize = 64;

/// The video of a topic.
#[derive(Debug)]
pub(super) struct Track {
    parser: VideoParser,
    /// One per message that is a frame.
    samples: Vec<Mp4Sample>,
    points: Vec<usize>,
    parts: Vec<(VideoHeader, Part)>,
    frame: Option<FrameType>,
    /// Whether frames are skipped until the next key frame.
    is_waiting: bool,
    /// Why the messages are not a stream.
    wrong: Option<String>,
}

/// Whether a message is a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    Frame,
    /// It needs messages that are not there.
    Skipped,
}

/// The coding of the video in a message; `None` if it is something else.
pub(super) fn coding(message: &Value<'_>) -> Option<VideoCoding> {
    match message.get("format")? {
        Value::Text(format) if message.get("encoding").is_none() => match &**format {
            "h264" => Some(VideoCoding::H264),
            "h265" => Some(VideoCoding::Hevc),
            "vp9" => Some(VideoCoding::Vp9),
            "av1" => Some(VideoCoding::Av1),
            _ => None,
        },
        _ => None,
    }
}

impl Track {
    pub(super) fn new(coding: VideoCoding) -> Self {
        Self {
            parser: VideoParser::new(coding),
            samples: Vec::new(),
            points: Vec::new(),
            parts: Vec::new(),
            frame: None,
            is_waiting: true,
            wrong: None,
        }
    }

    /// Adds a message; an error says what is wrong with it.
    pub(super) fn add(&mut self, message: &Value<'_>) -> Result<Added, String> {
        if self.wrong.is_some() {
            return Ok(Added::Frame);
        }
        match self.try_add(message) {
            Ok(added) => Ok(added),
            Err(Refused::Message(what)) => Err(what),
            Err(Refused::Stream(what)) => {
                self.wrong = Some(what);
                Ok(Added::Frame)
            }
        }
    }

    fn try_add(&mut self, message: &Value<'_>) -> Result<Added, Refused> {
        let coding = coding(message);
        let number = self.samples.len();
        if coding != Some(self.parser.coding()) {
            let what = format!(
                "message {number} is not {} as the first",
                self.parser.coding()
            );
            return Err(Refused::Stream(what));
        }
        let data = pixels::data(message)?;
        let parsed = match self.parser.next(&data) {
            Ok(parsed) => parsed,
            Err(NotNext::Missing) => return Ok(Added::Skipped),
            Err(NotNext::Damaged(what)) => return Err(Refused::Message(what)),
            Err(NotNext::Reordered) => return Err(Refused::Stream(reordered(number))),
        };
        if parsed.starts_group {
            self.begin_group(&parsed.packet)?;
        }
        if self.is_waiting {
            return Ok(Added::Skipped);
        }
        let time = i64::try_from(number).unwrap_or(i64::MAX);
        self.samples.push(Mp4Sample {
            offset: 0,
            size: u32::try_from(parsed.packet.len()).unwrap_or(u32::MAX),
            dts: time,
            pts: time,
            is_key: parsed.starts_group,
            rank: u32::try_from(number).ok(),
        });
        Ok(Added::Frame)
    }

    /// Drops the messages from number `len` on, and skips frames up to the next key frame.
    pub(super) fn break_off(&mut self, len: usize) {
        self.samples.truncate(len);
        let points = self.points.partition_point(|point| *point < len);
        self.points.truncate(points);
        let parts = self.parts.partition_point(|(_, part)| part.first < len);
        self.parts.truncate(parts);
        self.is_waiting = true;
        self.parser.restart();
    }

    /// A key frame: notes its configuration, if it is another one.
    fn begin_group(&mut self, packet: &[u8]) -> Result<(), Refused> {
        let first = self.samples.len();
        let header = self.parser.header().ok_or("has no parameter sets")?;
        if self.parts.last().is_none_or(|(known, _)| known != header) {
            let frame = self.check_size(header)?;
            let part = Part {
                first,
                config: header.config.clone(),
                color: probe(self.parser.coding(), &frame, &header.config, packet)?,
            };
            self.parts.push((header.clone(), part));
            self.frame = Some(frame);
        }
        self.points.push(first);
        self.is_waiting = false;
        Ok(())
    }

    /// The type of the frames, which must stay the same.
    fn check_size(&self, header: &VideoHeader) -> Result<FrameType, Refused> {
        let side = |side: u32| usize::try_from(side).unwrap_or(usize::MAX);
        let size = [side(header.height), side(header.width)];
        let frame = frame_of(size, header.pixels).map_err(refused)?;
        let bytes = frame.as_values().map_or(0, |ty| ty.frame_bytes());
        if bytes == 0 || bytes as u64 > MAX_IMPORTED_FRAME_BYTES {
            let what = format!(
                "has images of {frame}; at most {MAX_IMPORTED_FRAME_BYTES} bytes are imported"
            );
            return Err(Refused::Stream(what));
        }
        let number = self.samples.len();
        match &self.frame {
            Some(first) if *first != frame => Err(Refused::Stream(format!(
                "message {number} is video of {frame}, but the first is of {first}"
            ))),
            _ if self.parts.len() >= MAX_PARTS => Err(Refused::Stream(format!(
                "changes its parameter sets more than {MAX_PARTS} times"
            ))),
            _ => Ok(frame),
        }
    }

    /// The video of all messages, or why they are not a stream. `entries` are those of the frames.
    pub(super) fn finish(&self, entries: &[Entry]) -> Result<Arc<Video>, String> {
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        let (Some(frame), true) = (&self.frame, self.samples.len() == entries.len()) else {
            return Err("has no frame that can be decoded".to_owned());
        };
        if !entries.is_sorted_by_key(|entry| entry.log_ns) {
            return Err("has messages out of order, and video is decoded in order".to_owned());
        }
        let parts = self.parts.iter().map(|(_, part)| part.first).collect();
        let groups = Groups::new(&self.samples, self.points.clone())?;
        Ok(Arc::new(Video {
            coding: self.parser.coding(),
            frame: frame.clone(),
            samples: self.samples.clone(),
            groups: groups.with_parts(parts),
            parts: self.parts.iter().map(|(_, part)| part.clone()).collect(),
            places: entries.iter().map(|entry| entry.place).collect(),
        }))
    }
}

/// Decodes the image of a key frame, and returns what its values mean.
fn probe(
    coding: VideoCoding,
    frame: &FrameType,
    config: &[u8],
    packet: &[u8],
) -> Result<VideoColor, Refused> {
    let page = VideoPage {
        config,
        color: VideoColor::default(),
        packets: vec![VideoPacket {
            bytes: packet,
            frame: Some(0),
            starts_group: true,
        }],
    };
    let probed = kino_codec::probe_video(coding, frame, &page, ContainerColor::default());
    probed.map_err(|error| match not_carried(error) {
        NotCarried::NoDecoder(what) => Refused::Stream(format!("cannot be decoded: {what}")),
        NotCarried::Because(what) => Refused::Message(what),
    })
}

fn reordered(message: usize) -> String {
    format!(
        "the image of message {message} is shown before the one before it (B-frames), and a message has only one \
         timestamp; encode the video without B-frames (`-bf 0`)"
    )
}

/// Why a message is not added.
#[derive(Debug)]
enum Refused {
    /// What is wrong with it, as a predicate.
    Message(String),
    /// Why its topic cannot be a stream.
    Stream(String),
}

fn refused(why: NotCarried) -> Refused {
    match why {
        NotCarried::Because(what) | NotCarried::NoDecoder(what) => Refused::Stream(what),
    }
}

impl From<String> for Refused {
    fn from(what: String) -> Self {
        Self::Message(what)
    }
}

impl From<&str> for Refused {
    fn from(what: &str) -> Self {
        Self::Message(what.to_owned())
    }
}
