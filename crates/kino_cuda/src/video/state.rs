//! What a parser calls: it makes the decoder, and starts to decode pictures, unless their surface is still needed.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::Arc;

use crate::device::{Device, Event};
use crate::error::{CudaError, Result};
use crate::nvcuvid::{DISPLAY_DELAY, DecoderSize, Events, Format, Nvcuvid, RawDecoder, RawPicture};

use super::Kind;
use super::session::Shown;

/// More surfaces than these, decoders do not have.
pub(super) const MOST_SURFACES: usize = 32;

/// Why a page is not decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another session may decode it: this one is of another format, or has too few surfaces.
    Session,
    /// A decoder could not be made: there may be too many.
    NoDecoder(String),
    /// A surface was to be decoded to that was still needed: with none that wait, it would not have been.
    TooFar,
    /// The device does not decode such video.
    Unsupported(String),
    /// Something is wrong with it.
    Damaged(String),
}

impl Refusal {
    /// For people.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Session => "its parameter sets change".to_owned(),
            Self::TooFar => "a surface was used again too early".to_owned(),
            Self::NoDecoder(what) | Self::Unsupported(what) | Self::Damaged(what) => what.clone(),
        }
    }
}

impl From<CudaError> for Refusal {
    fn from(error: CudaError) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// What the parser calls.
#[derive(Debug)]
pub(super) struct State {
    pub(super) device: Arc<Device>,
    pub(super) library: &'static Nvcuvid,
    pub(super) kind: Kind,
    /// Displayed images that may wait to be mapped.
    pub(super) ahead: usize,
    pub(super) format: Option<Format>,
    pub(super) decoder: Option<RawDecoder>,
    pub(super) surfaces: usize,
    /// The packet that is parsed, and how many pictures it has.
    pub(super) packet: usize,
    pub(super) pictures: usize,
    /// By surface: the packet whose picture was decoded to it last.
    pub(super) owners: [Option<usize>; MOST_SURFACES],
    /// Displayed since the caller looked: surface, and number of the packet.
    pub(super) displayed: Vec<(c_int, usize)>,
    /// Displayed, and not mapped.
    pub(super) shown: VecDeque<Shown>,
    /// Mapped addresses.
    pub(super) mapped: Vec<u64>,
    /// Surfaces that a stream may still read.
    pub(super) read: Vec<c_int>,
    /// Behind what reads them.
    pub(super) converted: Event,
    pub(super) refusal: Option<Refusal>,
}

impl Events for State {
    fn sequence(&mut self, format: &Format) -> c_int {
        match self.open(format) {
            Ok(surfaces) => c_int::try_from(surfaces).unwrap_or(0),
            Err(refusal) => {
                self.refusal.get_or_insert(refusal);
                0
            }
        }
    }

    fn decode(&mut self, picture: &RawPicture<'_>) -> bool {
        let decoded = self.start(picture);
        match decoded {
            Ok(()) => true,
            Err(refusal) => {
                self.refusal.get_or_insert(refusal);
                false
            }
        }
    }

    fn display(&mut self, surface: c_int) -> bool {
        let owner = usize::try_from(surface).ok();
        let owner = owner.and_then(|surface| self.owners.get(surface).copied().flatten());
        match owner {
            Some(packet) => self.displayed.push((surface, packet)),
            None => {
                let refusal = Refusal::Damaged("an image belongs to no packet".to_owned());
                self.refusal.get_or_insert(refusal);
            }
        }
        owner.is_some()
    }
}

impl State {
    /// Makes the decoder, or checks that the one that there is decodes this too; returns how many surfaces it has.
    fn open(&mut self, format: &Format) -> Result<usize, Refusal> {
        let codec = self.kind.codec;
        if let Some(what) = format.refusal(codec) {
            return Err(Refusal::Unsupported(what.to_owned()));
        }
        if format.shown() != Some(self.kind.size) {
            let what = format!(
                "its images are {:?}, not {:?}",
                format.shown(),
                self.kind.size
            );
            return Err(Refusal::Damaged(what));
        }
        let least = usize::from(format.min_surfaces) + DISPLAY_DELAY as usize;
        if let Some(found) = &self.format {
            let fits = found.is_like(format) && least + self.ahead <= self.surfaces;
            return if fits {
                Ok(self.surfaces)
            } else {
                Err(Refusal::Session)
            };
        }
        if !self
            .kind
            .caps
            .has((format.coded_height, format.coded_width))
        {
            let what = format!(
                "images of {} × {} are not decoded by this GPU",
                format.coded_height, format.coded_width
            );
            return Err(Refusal::Unsupported(what));
        }
        self.ahead = self.ahead.min(MOST_SURFACES.saturating_sub(least));
        let surfaces = least + self.ahead;
        let size = DecoderSize {
            codec,
            surfaces,
            mapped: self.ahead.max(1),
        };
        let make = |driver: &_| RawDecoder::new(self.library, driver, format, size);
        let made = self.device.within(make);
        let made = made.map_err(|error| Refusal::NoDecoder(error.to_string()))?;
        self.decoder = Some(made);
        self.format = Some(*format);
        self.surfaces = surfaces;
        Ok(surfaces)
    }

    /// Starts to decode a picture, unless its surface is still needed.
    fn start(&mut self, picture: &RawPicture<'_>) -> Result<(), Refusal> {
        let surface = picture.surface;
        let waits = self.shown.iter().map(|shown| shown.surface);
        let displayed = self.displayed.iter().map(|(surface, _)| *surface);
        if waits.chain(displayed).any(|one| one == surface) {
            return Err(Refusal::TooFar);
        }
        if self.read.contains(&surface) {
            self.converted.synchronize()?;
            self.read.clear();
        }
        let Some(decoder) = &self.decoder else {
            return Err(Refusal::Damaged("a picture has no sequence".to_owned()));
        };
        self.device
            .within(|driver| decoder.decode(driver, picture))?;
        let owner = usize::try_from(surface).ok();
        let owner = owner.and_then(|surface| self.owners.get_mut(surface));
        let owner = owner.ok_or_else(|| Refusal::Damaged("a surface is not one".to_owned()))?;
        *owner = Some(self.packet);
        self.pictures += 1;
        Ok(())
    }

    /// Unmaps what is mapped, once the stream has come past what reads it.
    pub(super) fn release(&mut self) -> Result<()> {
        if self.mapped.is_empty() {
            return Ok(());
        }
        self.converted.synchronize()?;
        self.read.clear();
        let mapped = std::mem::take(&mut self.mapped);
        let Some(decoder) = &self.decoder else {
            return Ok(());
        };
        self.device.within(|_| {
            mapped
                .into_iter()
                .for_each(|address| decoder.unmap(address));
            Ok(())
        })
    }
}
