//! Reads a video topic: the messages of a page as packets, or their pixels.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kino_codec::{FrameType, VideoCoding, VideoColor, VideoPacket, VideoPage};

use super::decoder::Decoder;
use super::records::Place;
use super::{McapFile, payload, pixels};
use crate::bitstream::to_packet;
use crate::error::{ImportError, Result};
use crate::mp4::Mp4Sample;
use crate::packets::{Groups, Packets, PagePlan, PixelReaders};
use crate::source::{FrameBuf, ReadFrames, Wanted};

/// The messages of a topic, in order.
#[derive(Debug)]
pub(super) struct Video {
    pub(super) coding: VideoCoding,
    pub(super) frame: FrameType,
    pub(super) samples: Vec<Mp4Sample>,
    pub(super) groups: Groups,
    pub(super) parts: Vec<Part>,
    pub(super) places: Vec<Place>,
}

/// What is valid from a message on.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// The number of the first message.
    pub(super) first: usize,
    pub(super) config: Vec<u8>,
    pub(super) color: VideoColor,
}

/// The frames of an episode.
#[derive(Debug)]
pub(super) struct VideoStream {
    pub(super) file: Arc<McapFile>,
    pub(super) decoder: Arc<Decoder>,
    pub(super) topic: String,
    /// The path of the video in a message.
    pub(super) inside: String,
    pub(super) video: Arc<Video>,
    /// Which of the video's frames.
    pub(super) frames: Range<u64>,
    pub(super) pages: Vec<PagePlan>,
    pub(super) pixels: Arc<PixelReaders>,
}

impl Video {
    /// The pages of a range of frames, or why there are none.
    pub(super) fn pages(&self, frames: &Range<u64>) -> Result<Vec<PagePlan>, String> {
        self.groups.pages(&self.samples, &self.frame, frames)
    }

    /// What is valid for a message.
    fn part(&self, message: usize) -> Option<&Part> {
        let after = self.parts.partition_point(|part| part.first <= message);
        self.parts.get(after.checked_sub(1)?)
    }
}

impl VideoStream {
    fn corrupt(&self, what: impl Into<String>) -> ImportError {
        ImportError::corrupt(&self.file.path, &self.topic, what)
    }

    /// The packet in a message.
    fn packet(&self, message: usize, config: &[u8]) -> Result<Vec<u8>> {
        let place = self.video.places.get(message).copied();
        let place = place.ok_or_else(|| self.corrupt("has fewer messages than frames"))?;
        let chunk = self.file.chunk(place.chunk)?;
        let read = || {
            let message = self.decoder.decode(payload(&chunk, place)?)?;
            let inside = message.get(&self.inside).ok_or("has no video")?;
            to_packet(self.video.coding, &pixels::data(inside)?, config)
        };
        read().map_err(|what: String| self.corrupt(format!("has a message that {what}")))
    }

    /// Frames as packets: the first frame of a page is the page, the others are empty.
    fn packets(&self, wanted: Range<u64>) -> Result<Vec<Vec<u8>>> {
        let first = |page: &PagePlan| page.frames.start < wanted.start;
        let mut pages = self.pages[self.pages.partition_point(first)..]
            .iter()
            .peekable();
        let mut out = Vec::new();
        for frame in wanted {
            let page = pages.next_if(|page| page.frames.start == frame);
            out.push(page.map_or_else(|| Ok(Vec::new()), |page| self.page_bytes(page))?);
        }
        Ok(out)
    }
}

impl ReadFrames for VideoStream {
    fn read(&self, wanted: Wanted<'_>) -> Result<FrameBuf> {
        if wanted.stream.carried {
            return self.packets(wanted.frames).map(FrameBuf::Bytes);
        }
        let first = self.frames.start;
        let frames = first + wanted.frames.start..first + wanted.frames.end;
        let mut values = Vec::new();
        self.pixels.read(self, &self.frames, frames, &mut values)?;
        Ok(FrameBuf::Values(values))
    }
}

impl Packets for VideoStream {
    fn path(&self) -> &Path {
        &self.file.path
    }

    fn name(&self) -> &str {
        &self.topic
    }

    fn coding(&self) -> VideoCoding {
        self.video.coding
    }

    fn frame(&self) -> &FrameType {
        &self.video.frame
    }

    fn pages(&self, _frames: &Range<u64>) -> Result<Cow<'_, [PagePlan]>, String> {
        Ok(Cow::Borrowed(&self.pages))
    }

    fn page_bytes(&self, plan: &PagePlan) -> Result<Vec<u8>> {
        let first = plan.packets.first().map_or(0, |packet| packet.sample);
        let part = self.video.part(first);
        let part = part.ok_or_else(|| self.corrupt("has no parameter sets"))?;
        let planned = plan.packets.iter();
        let packets = planned.map(|packet| self.packet(packet.sample, &part.config));
        let packets: Vec<_> = packets.collect::<Result<_>>()?;
        let page = VideoPage {
            config: &part.config,
            color: part.color,
            packets: packets
                .iter()
                .zip(&plan.packets)
                .map(|(bytes, planned)| VideoPacket {
                    bytes,
                    frame: planned.frame,
                    starts_group: planned.starts_group,
                })
                .collect(),
        };
        Ok(page.to_bytes())
    }
}
