//! A parser and a decoder of NVDEC, and the surfaces between them.
//!
//! ```text
//! packet ─▶ parser ─▶ decode(surface) ─▶ … ─▶ display(surface) ─▶ shown ──take──▶ mapped ──release──▶ free
//!                        └─ must hold nothing that is still shown, or read by a stream
//! ```
//!
//! The parser takes a surface again once its image was displayed, although nobody may have mapped it yet. It has more surfaces than
//! the stream needs, and goes through them in turn; what it takes too early is noticed, and the page is refused.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::Arc;

use crate::device::{Device, Stream};
use crate::error::{CudaError, Result};
use crate::ffi::Timing;
use crate::nvcuvid::{Nvcuvid, RawParser, Status};

use super::Kind;
use super::state::{MOST_SURFACES, Refusal, State};

/// An image that was displayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(super) surface: c_int,
    /// The page that it belongs to, by the caller's number.
    pub(crate) page: usize,
    /// The number of its packet.
    pub(crate) packet: usize,
    /// Whether it is kept.
    pub(crate) is_kept: bool,
}

/// A frame that is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) shown: Shown,
    /// Of NV12.
    pub(crate) address: u64,
    /// Bytes of a row.
    pub(crate) pitch: u64,
}

/// A parser and a decoder.
#[derive(Debug)]
pub(crate) struct Session {
    device: Arc<Device>,
    stream: Arc<Stream>,
    kind: Kind,
    parser: RawParser<State>,
}

impl Session {
    /// A session; the decoder is made with the first packet. So many displayed images may wait to be mapped.
    pub(crate) fn new(
        device: &Arc<Device>,
        stream: &Arc<Stream>,
        library: &'static Nvcuvid,
        kind: Kind,
    ) -> Result<Self> {
        let state = State {
            device: Arc::clone(device),
            library,
            kind,
            ahead: kind.ahead,
            format: None,
            decoder: None,
            surfaces: 0,
            packet: 0,
            pictures: 0,
            owners: [None; MOST_SURFACES],
            displayed: Vec::new(),
            shown: VecDeque::new(),
            mapped: Vec::new(),
            read: Vec::new(),
            converted: device.event(Timing::Off)?,
            refusal: None,
        };
        let parser = device.within(|driver| RawParser::new(library, driver, kind.codec, state))?;
        Ok(Self {
            device: Arc::clone(device),
            stream: Arc::clone(stream),
            kind,
            parser,
        })
    }

    /// What it decodes.
    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Whether it has a decoder.
    pub(crate) fn is_open(&mut self) -> bool {
        self.parser.events().decoder.is_some()
    }

    /// Device memory of its decoder, as far as is known.
    pub(crate) fn bytes(&mut self) -> usize {
        let (height, width) = self.kind.size;
        let state = self.parser.events();
        match state.decoder {
            Some(_) => (state.surfaces + state.ahead.max(1)) * height * width * 3 / 2,
            None => 0,
        }
    }

    /// Parses a packet, by its bytes and number, or with `None` ends a group, whose images are all displayed then. Returns the
    /// packets whose images were displayed, in order. After a refusal the session is of no use.
    pub(crate) fn feed(&mut self, packet: Option<(&[u8], usize)>) -> Result<Vec<usize>, Refusal> {
        let state = self.parser.events();
        (state.packet, state.pictures) = (packet.map_or(0, |(_, number)| number), 0);
        let (parser, bytes) = (&mut self.parser, packet.map(|(bytes, _)| bytes));
        let parsed = self.device.within(|driver| parser.parse(driver, bytes));
        let state = self.parser.events();
        if let Some(refusal) = state.refusal.take() {
            return Err(refusal);
        }
        parsed?;
        // Which packet an image belongs to is known by when its picture was to be decoded.
        if state.pictures != usize::from(packet.is_some()) {
            let what = format!("a packet has {} pictures", state.pictures);
            return Err(Refusal::Damaged(what));
        }
        Ok(state.displayed.iter().map(|(_, packet)| *packet).collect())
    }

    /// Takes over the images that were displayed as those of a page, in order: they wait to be mapped.
    pub(crate) fn keep(&mut self, page: usize, is_kept: impl Fn(usize) -> bool) {
        let state = self.parser.events();
        for (surface, packet) in state.displayed.drain(..) {
            state.shown.push_back(Shown {
                surface,
                page,
                packet,
                is_kept: is_kept(packet),
            });
        }
    }

    /// The pages whose images wait to be mapped.
    pub(crate) fn pages(&mut self) -> Vec<usize> {
        let shown = self.parser.events().shown.iter();
        shown.map(|shown| shown.page).collect()
    }

    /// How many images wait to be mapped.
    pub(crate) fn waiting(&mut self) -> usize {
        self.parser.events().shown.len()
    }

    /// Whether no more images should wait before another packet is parsed.
    pub(crate) fn is_full(&mut self) -> bool {
        let state = self.parser.events();
        !state.shown.is_empty() && state.shown.len() >= state.ahead
    }

    /// Maps the images that wait longest, of one page, half as many as may wait. Those that are kept are returned: whoever reads them
    /// on the stream calls [`converted`](Self::converted) then. Unmaps what was mapped before.
    ///
    /// An error comes with the page that is to be refused.
    pub(crate) fn map(&mut self) -> Result<Vec<Mapped>, (usize, Refusal)> {
        let mapped = self.map_first();
        if mapped.is_err() {
            // The stream still writes what was mapped before the error.
            let _gone = self.converted();
        }
        mapped
    }

    fn map_first(&mut self) -> Result<Vec<Mapped>, (usize, Refusal)> {
        let stream = self.stream.handle();
        let state = self.parser.events();
        let Some(&Shown { page, .. }) = state.shown.front() else {
            return Ok(Vec::new());
        };
        let refused = |error: CudaError| (page, Refusal::from(error));
        state.release().map_err(refused)?;
        let most = state.ahead.div_ceil(2).max(1);
        let run = state.shown.iter().take(most);
        let count = run.take_while(|shown| shown.page == page).count();
        let taken: Vec<Shown> = state.shown.drain(..count).collect();
        let State {
            device,
            decoder: Some(decoder),
            mapped,
            read,
            ..
        } = state
        else {
            return Ok(Vec::new());
        };
        let mut found = Vec::with_capacity(count);
        // Mapping waits until a surface is decoded. What is not kept is mapped only to wait for it.
        let kept: Vec<Shown> = taken
            .iter()
            .copied()
            .filter(|shown| shown.is_kept)
            .collect();
        let only_waits = taken.last().copied().filter(|_| kept.is_empty());
        for shown in kept.into_iter().chain(only_waits) {
            let map = |driver: &_| decoder.map(driver, shown.surface, stream);
            let (address, pitch) = device.within(map).map_err(refused)?;
            mapped.push(address);
            read.push(shown.surface);
            if shown.is_kept {
                found.push(Mapped {
                    shown,
                    address,
                    pitch,
                });
            }
        }
        for shown in &taken {
            let status = |driver: &_| decoder.status(driver, shown.surface);
            let mut status_now = device.within(status).map_err(refused)?;
            if status_now == Status::InProgress {
                let map = |driver: &_| decoder.map(driver, shown.surface, stream);
                mapped.push(device.within(map).map_err(refused)?.0);
                read.push(shown.surface);
                status_now = device.within(status).map_err(refused)?;
            }
            if status_now != Status::Fine {
                let what = format!("the image of packet {} is damaged", shown.packet);
                return Err((page, Refusal::Damaged(what)));
            }
        }
        Ok(found)
    }

    /// Everything that reads what [`map`](Self::map) returned was asked of the stream.
    pub(crate) fn converted(&mut self) -> Result<()> {
        let stream = self.stream.handle();
        self.parser.events().converted.record(stream)
    }

    /// Unmaps what is mapped, once the stream has come past what reads it.
    pub(crate) fn release(&mut self) -> Result<()> {
        self.parser.events().release()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let parser = &mut self.parser;
        self.device.give_back(|_| {
            let state = parser.events();
            // Without the driver there is nothing to wait for.
            let recorded = state.converted.record(self.stream.handle());
            let _gone = recorded.and_then(|()| state.release());
            parser.destroy();
            if let Some(decoder) = &mut parser.events().decoder {
                decoder.destroy();
            }
        });
    }
}
