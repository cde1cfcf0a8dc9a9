//! Pixels of a video file for a plan that asks for another codec: decoded page by page, one frame at a time.

use std::ops::Range;
use std::path::{Path, PathBuf};

use kino_codec::{CodecError, VideoCursor};
use kino_sync::Mutex;

use super::PacketFile;
use crate::error::{ImportError, Result};

/// Decoders in the middle of a stream: enough for one per reading thread on any machine.
const BUSY: usize = 256;

/// Decoders that wait for the next frames of their stream.
#[derive(Debug, Default)]
pub(crate) struct PixelReaders(Mutex<Vec<Waiting>>);

#[derive(Debug)]
struct Waiting {
    path: PathBuf,
    /// The episode's frames in the file, and the next of them.
    frames: Range<u64>,
    next: u64,
    cursor: VideoCursor,
    /// Where the cursor's page ends.
    page_end: u64,
}

impl PixelReaders {
    /// Appends `wanted` of the episode's `frames`, both counted in the file.
    pub(crate) fn read(
        &self,
        file: &PacketFile,
        frames: &Range<u64>,
        wanted: Range<u64>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let frame_bytes = file.frame().as_values().map_or(0, |ty| ty.frame_bytes());
        let mut waiting = self.take(&file.path, frames, wanted.start);
        for frame in wanted {
            let mut at = match waiting.take().filter(|at| at.next < at.page_end) {
                Some(at) => at,
                None => begin(file, frames, frame)?,
            };
            let start = out.len();
            // Going to the first wanted frame overwrites the ones before it.
            while at.next <= frame {
                out.resize(start + frame_bytes, 0);
                let decoded = at.cursor.next(&mut out[start..]);
                decoded.map_err(|error| damaged(&file.path, at.next, error))?;
                at.next += 1;
            }
            waiting = Some(at);
        }
        if let Some(waiting) = waiting {
            self.put(waiting);
        }
        Ok(())
    }

    fn take(&self, path: &Path, frames: &Range<u64>, next: u64) -> Option<Waiting> {
        let mut waiting = self.0.lock();
        let is_it = |one: &Waiting| (one.next, &one.frames) == (next, frames) && one.path == path;
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
fn begin(file: &PacketFile, frames: &Range<u64>, frame: u64) -> Result<Waiting> {
    let corrupt = |what: String| ImportError::corrupt(&file.path, "video", what);
    let pages = file.pages(frames).map_err(corrupt)?;
    let number = frame - frames.start;
    let page = pages.iter().find(|page| page.frames.contains(&number));
    let page = page.ok_or_else(|| corrupt(format!("has no frame {frame}")))?;
    let count = usize::try_from(page.frames.end - page.frames.start).unwrap_or(usize::MAX);
    let next = frames.start + page.frames.start;
    let bytes = file.page_bytes(page)?;
    let cursor = VideoCursor::new(file.coding(), file.frame(), bytes, count);
    Ok(Waiting {
        path: file.path.to_path_buf(),
        frames: frames.clone(),
        next,
        cursor: cursor.map_err(|error| damaged(&file.path, next, error))?,
        page_end: frames.start + page.frames.end,
    })
}

/// The error for a frame that cannot be decoded.
fn damaged(path: &Path, frame: u64, error: CodecError) -> ImportError {
    let what = match error {
        CodecError::Corrupt { what, .. } => what,
        other => other.to_string(),
    };
    ImportError::corrupt(
        path,
        "video",
        format!("cannot be decoded at frame {frame}: {what}"),
    )
}
