//! Cameras in video files: which frames of which file, and decoders that continue where they stopped.
//!
//! ```text
//! file-000.mp4   |e0 e0 e0|e1 e1|e2 e2 e2 e2|      frames by number, in presentation order
//!                          └ first = round(from_timestamp × fps)
//! ```

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kino_sync::Mutex;

use crate::error::{ImportError, Result};
use crate::video::{Video, VideoError, VideoInfo, Videos};

/// Decoders in the middle of a stream: enough for one per reading thread on any machine.
const BUSY: usize = 256;

/// Decoders kept for another episode of the same file: listing its frames takes time.
const IDLE: usize = 4;

/// Files cached during the walk: more than a robot has cameras.
const LOOKED: usize = 32;

/// The metadata of a video file, or why it cannot be read.
type Looked = Result<Arc<VideoInfo>, String>;

/// The video files of a source.
#[derive(Default)]
pub(super) struct Cameras {
    videos: Option<Arc<dyn Videos>>,
    looked: Mutex<Vec<(PathBuf, Looked)>>,
    waiting: Mutex<Vec<Decoder>>,
}

struct Decoder {
    path: PathBuf,
    video: Box<dyn Video>,
    /// The next frame of the stream being read; `None` once it is finished.
    next: Option<u64>,
}

impl Cameras {
    pub(super) fn new(videos: Option<Arc<dyn Videos>>) -> Self {
        Self {
            videos,
            ..Self::default()
        }
    }

    /// The metadata of a file, or what is wrong with it; an error only if there is no decoder.
    pub(super) fn look(&self, path: &Path) -> Result<Looked> {
        let mut known = self.looked.lock();
        if let Some((_, looked)) = known.iter().find(|(known, _)| known == path) {
            return Ok(looked.clone());
        }
        let looked = match self.open(path) {
            Ok(video) => Ok(Arc::new(video.info().clone())),
            Err(VideoError::Damaged { what }) => Err(what),
            Err(error) => return Err(no_decoder(path, &error)),
        };
        if known.len() >= LOOKED {
            drop(known.remove(0));
        }
        known.push((path.to_owned(), looked.clone()));
        Ok(looked)
    }

    /// Drops what the walk cached.
    pub(super) fn finish_walk(&self) {
        *self.looked.lock() = Vec::new();
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Video>, VideoError> {
        match &self.videos {
            Some(videos) => videos.open(path),
            None => Err(VideoError::NoDecoder {
                what: "this binary has no video decoder".to_owned(),
            }),
        }
    }

    /// Reads frames of a file, as part of a stream that ends before the frame `stop`.
    pub(super) fn read(
        &self,
        path: &Path,
        frames: Range<u64>,
        stop: u64,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut decoder = match self.take(path, frames.start) {
            Some(decoder) => decoder,
            None => Decoder {
                path: path.to_owned(),
                video: self.open(path).map_err(|error| to_import(path, error))?,
                next: None,
            },
        };
        decoder.next = Some(frames.end).filter(|&next| next < stop);
        // A decoder that failed is dropped: its position is unknown.
        decoder
            .video
            .read(frames, out)
            .map_err(|error| to_import(path, error))?;
        self.put(decoder);
        Ok(())
    }

    /// The decoder that stopped before a frame, or an idle one of the same file.
    fn take(&self, path: &Path, frame: u64) -> Option<Decoder> {
        let mut waiting = self.waiting.lock();
        let find = |next| {
            let is_it = |found: &Decoder| found.next == next && found.path == path;
            waiting.iter().position(is_it)
        };
        let found = find(Some(frame)).or_else(|| find(None))?;
        Some(waiting.remove(found))
    }

    fn put(&self, decoder: Decoder) {
        let mut waiting = self.waiting.lock();
        let is_idle = decoder.next.is_none();
        let limit = if is_idle { IDLE } else { BUSY };
        let alike = |found: &&Decoder| found.next.is_none() == is_idle;
        if waiting.iter().filter(alike).count() >= limit
            && let Some(oldest) = waiting.iter().position(|found| alike(&found))
        {
            waiting.remove(oldest);
        }
        waiting.push(decoder);
    }
}

fn to_import(path: &Path, error: VideoError) -> ImportError {
    match error {
        VideoError::Damaged { what } => ImportError::corrupt(path, "video", what),
        error => no_decoder(path, &error),
    }
}

fn no_decoder(path: &Path, error: &VideoError) -> ImportError {
    ImportError::unsupported(
        path,
        "video",
        &format!("cannot be decoded: {error}"),
        "run `pip install 'kinograph[video]'` and pack with the `kinograph` that pip installs",
    )
}
