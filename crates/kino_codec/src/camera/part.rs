//! The parts of a page, one per image, and the planes they are unpacked into.

use std::mem::swap;

use super::pairs::{self, Layout};
use super::{MAX_FRAMES, NAME, blocks};
use crate::codec::{Page, page_bytes};
use crate::error::{Result, corrupt};
use crate::predict::{Predictor, Size, restore_row};
use crate::scratch::at_least;
use crate::varint;
use crate::zstd_frame::{ZstdContexts, check_frame, content_size};

/// How one image of a page is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Intra: values minus this prediction.
    Alone(Predictor),
    /// Values minus those of the previous image, block by block.
    Moved,
    /// The previous image, repeated.
    Same,
}

impl Kind {
    pub(super) const MOVED: u8 = 5;
    pub(super) const SAME: u8 = 6;

    /// The id in the page.
    pub(super) fn id(self, layout: Layout) -> u8 {
        let id = match self {
            Self::Alone(predictor) => predictor.id(),
            Self::Moved => Self::MOVED,
            Self::Same => Self::SAME,
        };
        match layout {
            Layout::Planes => id,
            Layout::Paired => id | Layout::PAIRED,
        }
    }

    /// The kind and layout with that id in a page of images with `channels` channels.
    fn from_id(id: u8, channels: usize) -> Option<(Self, Layout)> {
        let (id, layout) = match id.checked_sub(Layout::PAIRED) {
            Some(id) if channels >= 3 => (id, Layout::Paired),
            Some(_) => return None,
            None => (id, Layout::Planes),
        };
        match (id, layout) {
            (Self::MOVED, layout) => Some((Self::Moved, layout)),
            (Self::SAME, Layout::Planes) => Some((Self::Same, layout)),
            _ => Predictor::from_id(id).map(|predictor| (Self::Alone(predictor), layout)),
        }
    }
}

/// One part: how the image is stored, and the zstd frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'p> {
    pub(super) kind: Kind,
    layout: Layout,
    frame: &'p [u8],
}

/// The parts of a page, with lengths checked.
pub(super) struct Parts<'p, 's> {
    size: Size,
    bytes: &'p [u8],
    /// Where each part ends in `bytes`.
    ends: &'s [usize],
}

impl<'p, 's> Parts<'p, 's> {
    pub(super) fn new(page: Page<'p>, size: Size, ends: &'s mut Vec<usize>) -> Result<Self> {
        if page.frames > MAX_FRAMES {
            return Err(corrupt(
                NAME,
                format!("a page cannot have {} frames", page.frames),
            ));
        }
        page_bytes(NAME, page.frames, size.bytes())?;
        let mut bytes = page.bytes;
        ends.clear();
        let mut end = 0;
        for _ in 0..page.frames {
            end += varint::take(NAME, &mut bytes)?;
            ends.push(end);
        }
        if end != bytes.len() {
            let what = format!(
                "its parts add up to {end} bytes, but there are {}",
                bytes.len()
            );
            return Err(corrupt(NAME, what));
        }
        Ok(Self { size, bytes, ends })
    }

    /// Part `idx`.
    pub(super) fn get(&self, idx: usize) -> Result<Part<'p>> {
        let start = idx.checked_sub(1).map_or(0, |before| self.ends[before]);
        let (&id, frame) = self.bytes[start..self.ends[idx]]
            .split_first()
            .ok_or_else(|| corrupt(NAME, "a part is empty"))?;
        match Kind::from_id(id, self.size.channels) {
            Some((Kind::Same, _)) if !frame.is_empty() => {
                Err(corrupt(NAME, "a repeated image must not have content"))
            }
            Some((kind, layout)) => Ok(Part {
                kind,
                layout,
                frame,
            }),
            None => Err(corrupt(NAME, format!("unknown kind {id}"))),
        }
    }

    /// The last intra image up to `idx`.
    pub(super) fn start_for(&self, idx: usize) -> Result<usize> {
        for first in (0..=idx).rev() {
            if matches!(self.get(first)?.kind, Kind::Alone(_)) {
                return Ok(first);
            }
        }
        Err(corrupt(NAME, "its first image depends on another image"))
    }
}

/// The planes of the current image and of the previous one, each after room for a map.
pub(super) struct Planes<'s> {
    size: Size,
    kind: Kind,
    layout: Layout,
    now: &'s mut Vec<u8>,
    before: &'s mut Vec<u8>,
    /// Paired content, and the offset of its next escape.
    content: &'s mut Vec<u8>,
    next_escape: usize,
}

impl<'s> Planes<'s> {
    pub(super) fn new(size: Size, [now, before, content]: [&'s mut Vec<u8>; 3]) -> Self {
        Self {
            size,
            kind: Kind::Same,
            layout: Layout::Planes,
            now,
            before,
            content,
            next_escape: 0,
        }
    }

    /// Unpacks the residuals of the next image.
    pub(super) fn open(&mut self, part: Part<'_>, zstd: &mut ZstdContexts) -> Result<()> {
        (self.kind, self.layout) = (part.kind, part.layout);
        let room = blocks::map_len(self.size);
        let map_len = match part.kind {
            Kind::Same => return Ok(()),
            Kind::Alone(_) => 0,
            Kind::Moved => {
                swap(&mut self.now, &mut self.before);
                room
            }
        };
        match part.layout {
            Layout::Planes => {
                check_frame(NAME, part.frame, map_len + self.size.bytes())?;
                let now = at_least(self.now, room + self.size.bytes());
                zstd.decompress(NAME, part.frame, &mut now[room - map_len..])?;
            }
            Layout::Paired => self.open_paired(part, map_len, zstd)?,
        }
        if part.kind == Kind::Moved && !blocks::is_valid(self.size, &self.now[..room]) {
            return Err(corrupt(NAME, "a block comes from outside the image"));
        }
        Ok(())
    }

    fn open_paired(
        &mut self,
        part: Part<'_>,
        map_len: usize,
        zstd: &mut ZstdContexts,
    ) -> Result<()> {
        let pixels = self.size.pixels();
        let least = map_len + Layout::Paired.len(self.size);
        let len = content_size(NAME, part.frame)?;
        // At most one escape per pixel: checked before anything is allocated.
        let Some(escapes) = len.checked_sub(least).filter(|len| *len <= 2 * pixels) else {
            return Err(corrupt(
                NAME,
                format!("content of {len} bytes does not fit the image"),
            ));
        };
        let content = at_least(self.content, len);
        zstd.decompress(NAME, part.frame, content)?;
        let (map, content) = content.split_at(map_len);
        if 2 * pairs::count_escapes(&content[pixels..2 * pixels]) != escapes {
            return Err(corrupt(
                NAME,
                format!("{escapes} bytes of escapes do not fit the image"),
            ));
        }
        let room = blocks::map_len(self.size);
        let now = at_least(self.now, room + self.size.bytes());
        now[..map_len].copy_from_slice(map);
        self.next_escape = 0;
        Ok(())
    }

    /// Turns row `y` into values; the rows above must already be values.
    pub(super) fn restore_row(&mut self, y: usize) {
        let size = self.size;
        let room = blocks::map_len(size);
        let len = room + size.bytes();
        let (map, now) = self.now[..len].split_at_mut(room);
        if self.layout == Layout::Paired {
            let map_len = if self.kind == Kind::Moved { room } else { 0 };
            let content = &self.content[map_len..];
            pairs::take_row(size, content, &mut self.next_escape, now, y);
        }
        match self.kind {
            Kind::Same => {}
            Kind::Alone(predictor) => restore_row(predictor, size, now, y),
            Kind::Moved => blocks::restore_row(size, map, now, &self.before[room..len], y),
        }
    }

    /// The planes of values.
    pub(super) fn values(&self) -> &[u8] {
        let room = blocks::map_len(self.size);
        &self.now[room..room + self.size.bytes()]
    }
}
