//! The frames of a page one after the other: for readers that go through a video a few frames at a time.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;

use crate::codec::Page;
use crate::error::{Result, buffer, corrupt};
use crate::frame::FrameType;

use super::coding::VideoCoding;
use super::engine::{Engine, Numbered, Picture};
use super::rgb::Conversion;
use super::size::Size;
use super::{Kept, NAME, ShownOrder, VideoDecoder, VideoPage};

/// Goes through the frames of one page.
pub struct VideoCursor {
    decoder: VideoDecoder,
    kept: Kept,
    page: Vec<u8>,
    frames: usize,
    /// The next frame.
    next_frame: usize,
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
        let decoder = VideoDecoder {
            coding,
            size: Size::new(frame)?,
        };
        let config = VideoPage::parse(&page, frames)?.config.to_vec();
        let kept = Kept {
            engine: Engine::new(coding, &config, decoder.size)?,
            coding,
            size: decoder.size,
            config,
        };
        Self::begin(decoder, kept, page, frames)
    }

    /// Begins with a decoder that suits the page.
    pub(super) fn begin(
        decoder: VideoDecoder,
        mut kept: Kept,
        page: Vec<u8>,
        frames: usize,
    ) -> Result<Self> {
        kept.engine.reset(&kept.config)?;
        Ok(Self {
            decoder,
            kept,
            page,
            frames,
            next_frame: 0,
            next_packet: 0,
            order: ShownOrder::default(),
        })
    }

    /// Whether it goes through this page, has not passed these frames, and no group begins in between.
    pub(super) fn leads_to(
        &self,
        decoder: &VideoDecoder,
        page: Page<'_>,
        frames: &Range<usize>,
    ) -> bool {
        let is_it = self.next_frame <= frames.start
            && self.decoder == *decoder
            && self.frames == page.frames
            && self.page == page.bytes;
        let begins = |page: VideoPage<'_>| page.needed(frames).start;
        is_it
            && VideoPage::parse(page.bytes, page.frames)
                .is_ok_and(|page| begins(page) <= self.next_packet)
    }

    /// Whether there is another frame.
    pub(super) fn has_more(&self) -> bool {
        self.next_frame < self.frames
    }

    /// Its decoder, for another page.
    pub(super) fn into_kept(self) -> Kept {
        self.kept
    }

    /// Writes the next frame, packed, to `dest`, which has exactly its size.
    pub fn next(&mut self, dest: &mut [u8]) -> Result<()> {
        if dest.len() != self.decoder.size.bytes() {
            return Err(buffer("the destination does not have the size of a frame"));
        }
        self.read(self.next_frame, dest)
    }

    /// Passes all frames before `first`, and writes those from there on to `dest`, which has room for some.
    pub(super) fn read(&mut self, first: usize, dest: &mut [u8]) -> Result<()> {
        // Taken out, so that its table is parsed once for all frames.
        let bytes = std::mem::take(&mut self.page);
        let read = VideoPage::parse(&bytes, self.frames).and_then(|page| {
            while self.next_frame < first {
                self.advance(&page, None)?;
            }
            let mut frames = dest.chunks_exact_mut(self.decoder.size.bytes());
            frames.try_for_each(|frame| self.advance(&page, Some(frame)))
        });
        self.page = bytes;
        read
    }

    /// Passes the next frame of its page, and writes it to `dest` if there is one.
    fn advance(&mut self, page: &VideoPage<'_>, mut dest: Option<&mut [u8]>) -> Result<()> {
        let conversion = Conversion::new(page.color);
        let (is_done, decoder, order) = (Cell::new(false), &self.decoder, &mut self.order);
        let mut put = |number: usize, picture: &Picture<'_>| {
            let packet = page.packets.get(number);
            let packet = packet.ok_or_else(|| corrupt(NAME, "an image belongs to no packet"))?;
            if order.next(packet)?.is_none() {
                return Ok(());
            }
            is_done.set(true);
            match &mut dest {
                Some(dest) => decoder.put(picture, &conversion, dest),
                None => Ok(()),
            }
        };
        let engine = &mut self.kept.engine;
        loop {
            while !is_done.get() && engine.receive(&mut put)? {}
            if is_done.get() {
                break;
            }
            match page.packets.get(self.next_packet) {
                Some(packet) => engine.send(Numbered {
                    number: self.next_packet,
                    packet,
                })?,
                None if self.next_packet == page.packets.len() => engine.finish()?,
                None => return Err(corrupt(NAME, "it has fewer images than frames")),
            }
            self.next_packet += 1;
        }
        if self.order.last() != Some(self.next_frame) {
            return Err(corrupt(NAME, "a frame is missing"));
        }
        self.next_frame += 1;
        Ok(())
    }
}
