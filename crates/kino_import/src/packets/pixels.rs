//! Pixels of a video for a plan that asks for another codec: decoded page by page, one frame at a time.

use std::ops::Range;
use std::path::PathBuf;

use kino_codec::{CodecError, VideoCursor};
use kino_sync::Mutex;

use super::Packets;
use crate::error::{ImportError, Result};

/// Decoders in the middle of a stream: enough for one per reading thread on any machine.
const BUSY: usize = 256;

/// Decoders that wait for the next frames of their stream.
#[derive(Debug, Default)]
pub(crate) struct PixelReaders(Mutex<Vec<Waiting>>);

#[derive(Debug)]
struct Waiting {
    path: PathBuf,
    name: String,
    /// The episode's frames in the video, and the next of them.
    frames: Range<u64>,
    next: u64,
    cursor: VideoCursor,
    /// Where the cursor's page ends.
    page_end: u64,
}

impl PixelReaders {
    /// Appends `wanted` of the episode's `frames`, both counted in the video.
    pub(crate) fn read(
        &self,
        video: &dyn Packets,
        frames: &Range<u64>,
        wanted: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let frame_bytes = video.frame().as_values().map_or(0, |ty| ty.frame_bytes());
        let mut waiting = self.take(video, frames, wanted.start);
        for frame in wanted {
            let mut at = match waiting.take().filter(|at| at.next < at.page_end) {
                Some(at) => at,
                None => begin(video, frames, frame)?,
            };
            let start = out.len();
            // Going to the first wanted frame overwrites the ones before it.
            while at.next <= frame {
                out.resize(start + frame_bytes, 0);
                let decoded = at.cursor.next(&mut out[start..]);
                decoded.map_err(|error| damaged(video, at.next, error))?;
                at.next += 1;
            }
            waiting = Some(at);
        }
        if let Some(waiting) = waiting {
            self.put(waiting);
        }
        Ok(())
    }

    fn take(&self, video: &dyn Packets, frames: &Range<u64>, next: u64) -> Option<Waiting> {
        let mut waiting = self.0.lock();
        let is_it = |one: &Waiting| {
            (one.next, &one.frames) == (next, frames)
                && one.path == video.path()
                && one.name == video.name()
        };
        let found = waiting.iter().position(is_it)?;
        Some(waiting.remove(found))
    }

    fn put(&self, one: Waiting) {
        if one.next >= one.frames.end {
            return;
        }
        let mut waiting = self.0.lock();
        if waiting.len() >= BUSY {
            waiting.remove(0);
        }
        waiting.push(one);
    }
}

/// A decoder of the page that shows a frame of the episode.
fn begin(video: &dyn Packets, frames: &Range<u64>, frame: u64) -> Result<Waiting> {
    let corrupt = |what: String| ImportError::corrupt(video.path(), video.name(), what);
    let pages = video.pages(frames).map_err(corrupt)?;
    let number = frame - frames.start;
    let page = pages.iter().find(|page| page.frames.contains(&number));
    let page = page.ok_or_else(|| corrupt(format!("has no frame {frame}")))?;
    let count = usize::try_from(page.frames.end - page.frames.start).unwrap_or(usize::MAX);
    let next = frames.start + page.frames.start;
    let bytes = video.page_bytes(page)?;
    let cursor = VideoCursor::new(video.coding(), video.frame(), bytes, count);
    Ok(Waiting {
        path: video.path().to_owned(),
        name: video.name().to_owned(),
        frames: frames.clone(),
        next,
        cursor: cursor.map_err(|error| damaged(video, next, error))?,
        page_end: frames.start + page.frames.end,
    })
}

/// The error for a frame that cannot be decoded.
fn damaged(video: &dyn Packets, frame: u64, error: CodecError) -> ImportError {
    let what = match error {
        CodecError::Corrupt { what, .. } => what,
        other => other.to_string(),
    };
    ImportError::corrupt(
        video.path(),
        video.name(),
        format!("cannot be decoded at frame {frame}: {what}"),
    )
}
