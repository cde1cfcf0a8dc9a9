//! The sessions of a device, by what they decode, and what it cannot decode.

use std::collections::HashMap;
use std::sync::Arc;

use crate::device::{Device, Stream};
use crate::error::Result;
use crate::nvcuvid::{Caps, Nvcuvid, VideoCodec};

use super::Session;

/// So many sessions are kept; a GPU has up to 8 engines.
const KEPT: usize = 16;

/// Sessions of one kind: more engines are not worth their memory.
const MOST: usize = 8;

/// Surfaces that wait to be mapped, at least and at most, and the bytes of a session's that decide between.
const AHEAD: (usize, usize) = (4, 16);
const AHEAD_BYTES: usize = 16 << 20;

/// If so many pages of a kind are refused one after the other, all are.
const MANY: usize = 8;

/// What a session decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) codec: VideoCodec,
    /// Height and width.
    pub(crate) size: (usize, usize),
    pub(crate) caps: Caps,
    /// Images that may wait to be mapped.
    pub(crate) ahead: usize,
}

/// A codec and a size.
type Key = (VideoCodec, (usize, usize));

/// What is known of a codec and a size.
#[derive(Debug, Clone, Default)]
struct Known {
    /// Why it is not decoded.
    refused: Option<String>,
    /// Pages that were refused since one was decoded.
    failed: usize,
    /// No image may wait to be mapped.
    is_close: bool,
    is_verified: bool,
    /// More decoders could not be made.
    most: Option<usize>,
}

/// The sessions of a device.
#[derive(Debug)]
pub(crate) struct Sessions {
    device: Arc<Device>,
    stream: Arc<Stream>,
    library: &'static Nvcuvid,
    caps: HashMap<VideoCodec, Caps>,
    known: HashMap<Key, Known>,
    /// Those that are free, the last used at the end.
    free: Vec<Session>,
}

impl Sessions {
    pub(crate) fn new(
        device: &Arc<Device>,
        stream: &Arc<Stream>,
        library: &'static Nvcuvid,
    ) -> Self {
        Self {
            device: Arc::clone(device),
            stream: Arc::clone(stream),
            library,
            caps: HashMap::new(),
            known: HashMap::new(),
            free: Vec::new(),
        }
    }

    /// What decodes a codec at a size; the text of an error says why nothing does.
    pub(crate) fn kind(&mut self, codec: VideoCodec, size: (usize, usize)) -> Result<Kind, String> {
        let known = self.known.get(&(codec, size)).cloned().unwrap_or_default();
        if let Some(why) = known.refused {
            return Err(why);
        }
        let caps = self.caps(codec).map_err(|error| error.to_string())?;
        if caps.engines == 0 {
            return Err(format!("this GPU does not decode {codec:?}"));
        }
        let (height, width) = size;
        if height % 2 != 0 || width % 2 != 0 || height == 0 || width == 0 {
            return Err(format!("{height} × {width} is not even"));
        }
        let bytes = height.saturating_mul(width).saturating_mul(3) / 2;
        let ahead = (AHEAD_BYTES / bytes).clamp(AHEAD.0, AHEAD.1);
        Ok(Kind {
            codec,
            size,
            caps,
            ahead: if known.is_close { 0 } else { ahead },
        })
    }

    fn caps(&mut self, codec: VideoCodec) -> Result<Caps> {
        if let Some(caps) = self.caps.get(&codec) {
            return Ok(*caps);
        }
        let library = self.library;
        let caps = self.device.within(|driver| library.caps(driver, codec))?;
        self.caps.insert(codec, caps);
        Ok(caps)
    }

    /// Sessions of a kind, as many as there are engines for so many pages; an error if there is none.
    pub(crate) fn take(&mut self, kind: &Kind, pages: usize) -> Result<Vec<Session>> {
        let most = self.known_of(kind).most.unwrap_or(MOST);
        let wanted = kind.caps.engines.min(most).min(pages);
        let suits = |session: &mut Session| session.kind() == kind;
        let mut taken: Vec<Session> = self.free.extract_if(.., suits).collect();
        self.free.extend(taken.drain(wanted.min(taken.len())..));
        while taken.len() < wanted {
            match self.open(kind) {
                Ok(session) => taken.push(session),
                // With fewer it takes longer.
                Err(_) if !taken.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    /// A new session.
    pub(crate) fn open(&self, kind: &Kind) -> Result<Session> {
        Session::new(&self.device, &self.stream, self.library, *kind)
    }

    /// Takes sessions back. The oldest of too many are closed.
    pub(crate) fn put(&mut self, sessions: impl IntoIterator<Item = Session>) {
        self.free.extend(sessions);
        let surplus = self.free.len().saturating_sub(KEPT);
        self.free.drain(..surplus);
    }

    /// How many decoders there are, and the bytes that they have.
    pub(crate) fn decoders(&mut self) -> (usize, usize) {
        let open = self.free.iter_mut().filter_map(|session| {
            let is_open = session.is_open();
            is_open.then(|| session.bytes())
        });
        open.fold((0, 0), |(count, all), bytes| (count + 1, all + bytes))
    }

    /// Notes that no more than so many decoders of a kind can be made.
    pub(crate) fn limit(&mut self, kind: &Kind, most: usize) {
        self.known_of(kind).most = Some(most.max(1));
    }

    /// Notes that the pages of a kind are decoded as the CPU does.
    pub(crate) fn verified(&mut self, kind: &Kind) {
        self.known_of(kind).is_verified = true;
    }

    pub(crate) fn is_verified(&mut self, kind: &Kind) -> bool {
        self.known_of(kind).is_verified
    }

    /// Lets no image wait to be mapped from now on; `false` if none did.
    pub(crate) fn keep_close(&mut self, kind: &mut Kind) -> bool {
        let known = self.known_of(kind);
        known.is_close = true;
        std::mem::replace(&mut kind.ahead, 0) > 0
    }

    /// Notes that a page was decoded, or refused and why; whether all of its kind are refused from now on.
    pub(crate) fn note(&mut self, kind: &Kind, refused: Option<&str>) -> bool {
        let known = self.known_of(kind);
        let Some(why) = refused else {
            known.failed = 0;
            return false;
        };
        known.failed += 1;
        if known.failed < MANY {
            return false;
        }
        self.refuse(kind, why)
    }

    /// Refuses everything of a kind from now on; whether it was not refused yet.
    pub(crate) fn refuse(&mut self, kind: &Kind, why: &str) -> bool {
        let known = self.known_of(kind);
        let is_new = known.refused.is_none();
        known.refused.get_or_insert(why.to_owned());
        is_new
    }

    fn known_of(&mut self, kind: &Kind) -> &mut Known {
        self.known.entry((kind.codec, kind.size)).or_default()
    }
}
