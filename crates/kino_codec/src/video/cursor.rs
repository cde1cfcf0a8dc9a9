//! The frames of a page one after the other, for a reader that goes through a video and keeps one frame at a time.

use std::cell::Cell;
use std::fmt;

use crate::error::{Result, buffer, corrupt};
use crate::frame::FrameType;

use super::coding::VideoCoding;
use super::engine::{Engine, Numbered, Picture};
use super::rgb::Conversion;
use super::size::Size;
use super::{NAME, ShownOrder, VideoDecoder, VideoPage};

/// Goes through the frames of one page.
pub struct VideoCursor {
    decoder: VideoDecoder,
    engine: Engine,
    page: Vec<u8>,
    frames: usize,
    /// The next packet to send; one more than the last after the end was sent.
    next_packet: usize,
    order: ShownOrder,
}

impl fmt::Debug for VideoCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VideoCursor({:?})", self.decoder)
    }
}

impl VideoCursor {
    /// Begins with the first of the `frames` frames of a page.
    pub fn new(
        coding: VideoCoding,
        frame: &FrameType,
        page: Vec<u8>,
        frames: usize,
    ) -> Result<Self> {
        let size = Size::new(frame)?;
        let parsed = VideoPage::parse(&page, frames)?;
        let mut engine = Engine::new(coding, parsed.config, size)?;
        engine.reset(parsed.config)?;
        Ok(Self {
            decoder: VideoDecoder { coding, size },
            engine,
            page,
            frames,
            next_packet: 0,
            order: ShownOrder::default(),
        })
    }

    /// Writes the next frame, packed, to `dest`, which has exactly its size.
    pub fn next(&mut self, dest: &mut [u8]) -> Result<()> {
        if dest.len() != self.decoder.size.bytes() {
            return Err(buffer("the destination does not have the size of a frame"));
        }
        let page = VideoPage::parse(&self.page, self.frames)?;
        let conversion = Conversion::new(page.color);
        let (is_done, decoder, order) = (Cell::new(false), &self.decoder, &mut self.order);
        let mut put = |number: usize, picture: &Picture<'_>| {
            let packet = page.packets.get(number);
            let packet = packet.ok_or_else(|| corrupt(NAME, "an image belongs to no packet"))?;
            if order.next(packet)?.is_some() {
                is_done.set(true);
                decoder.put(picture, &conversion, dest)?;
            }
            Ok(())
        };
        loop {
            while self.engine.receive(&mut put)? {
                if is_done.get() {
                    return Ok(());
                }
            }
            match page.packets.get(self.next_packet) {
                Some(packet) => self.engine.send(Numbered {
                    number: self.next_packet,
                    packet,
                })?,
                None if self.next_packet == page.packets.len() => self.engine.finish()?,
                None => return Err(corrupt(NAME, "it has fewer images than frames")),
            }
            self.next_packet += 1;
        }
    }
}
