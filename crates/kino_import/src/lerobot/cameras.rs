//! Cameras in video files: which frames of which file, as packets or as pixels.
//!
//! ```text
//! file-000.mp4   |e0 e0 e0|e1 e1|e2 e2 e2 e2|      frames by number, in presentation order
//!                          └ first = round(from_timestamp × fps)
//! ```
//!
//! The packets of most files can be stored as they are (`packets/`). What cannot is decoded by PyAV, whose decoders
//! continue where they stopped.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kino_codec::VideoCoding;
use kino_sync::Mutex;

use crate::error::{ImportError, Result};
use crate::link::PageExtent;
use crate::packets::{NotCarried, PacketFile, Packets, PagePlan, PixelReaders};
use crate::recent::Recent;
use crate::video::{Video, VideoError, VideoInfo, Videos};

/// Decoders in the middle of a stream: enough for one per reading thread on any machine.
const BUSY: usize = 256;

/// Decoders kept for another episode of the same file: listing its frames takes time.
const IDLE: usize = 4;

/// Files cached during the walk: more than a robot has cameras.
const LOOKED: usize = 32;

/// The metadata of a video file, or why it cannot be read.
type Looked = Result<Arc<Camera>, String>;

/// A video file.
#[derive(Debug)]
pub(super) struct Camera {
    pub(super) info: VideoInfo,
    /// How its packets are coded, or why they cannot be stored as they are.
    pub(super) coding: Result<VideoCoding, String>,
}

/// The frames of an episode in a file.
type Episode = (PathBuf, Range<u64>);

/// The video files of a source.
#[derive(Default)]
pub(super) struct Cameras {
    videos: Option<Arc<dyn Videos>>,
    looked: Mutex<Vec<(PathBuf, Looked)>>,
    waiting: Mutex<Vec<Decoder>>,
    files: Recent<PathBuf, PacketFile>,
    pages: Recent<Episode, Vec<PagePlan>>,
    pixels: PixelReaders,
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
        let looked = match self.files.get(path.to_owned(), || PacketFile::open(path)) {
            Ok(file) => Ok(Arc::new(Camera {
                info: file.info(),
                coding: Ok(file.coding()),
            })),
            Err(why) => self.look_inside(path, why)?,
        };
        if known.len() >= LOOKED {
            drop(known.remove(0));
        }
        known.push((path.to_owned(), looked.clone()));
        Ok(looked)
    }

    /// The metadata of a file that must be decoded.
    fn look_inside(&self, path: &Path, why: NotCarried) -> Result<Looked> {
        match (self.open(path), why) {
            (Ok(video), NotCarried::Because(why) | NotCarried::NoDecoder(why)) => {
                Ok(Ok(Arc::new(Camera {
                    info: video.info().clone(),
                    coding: Err(why),
                })))
            }
            (Err(VideoError::Damaged { what }), _) => Ok(Err(what)),
            (Err(_), NotCarried::NoDecoder(what)) => Err(no_ffmpeg(path, &what)),
            (Err(error), NotCarried::Because(_)) => Err(no_decoder(path, &error)),
        }
    }

    /// The pages of an episode's frames, or why there are none.
    pub(super) fn check_pages(&self, path: &Path, frames: Range<u64>) -> Result<(), String> {
        let file = self.files.get(path.to_owned(), || open_packets(path));
        let file = file.map_err(|error| error.what())?;
        file.pages(&frames).map(drop)
    }

    /// Reads `wanted` frames of an episode that has `frames`, as packets: the first frame of a page is the page, the
    /// others are empty.
    pub(super) fn packets(
        &self,
        path: &Path,
        frames: &Range<u64>,
        wanted: Range<u64>,
    ) -> Result<Vec<Vec<u8>>> {
        let (file, pages) = self.pages(path, frames)?;
        let mut next = pages.partition_point(|page| page.frames.start < wanted.start);
        let mut out = Vec::new();
        for frame in wanted {
            let page = pages.get(next).filter(|page| page.frames.start == frame);
            out.push(match page {
                Some(page) => file.page_bytes(page)?,
                None => Vec::new(),
            });
            next += usize::from(page.is_some());
        }
        Ok(out)
    }

    /// Where the pages of an episode's frames are.
    pub(super) fn extents(&self, path: &Path, frames: &Range<u64>) -> Result<Vec<PageExtent>> {
        let (file, pages) = self.pages(path, frames)?;
        Ok(pages.iter().map(|page| file.page_extent(page)).collect())
    }

    /// A file, and the pages of an episode's frames in it.
    fn pages(
        &self,
        path: &Path,
        frames: &Range<u64>,
    ) -> Result<(Arc<PacketFile>, Arc<Vec<PagePlan>>)> {
        let file = self.files.get(path.to_owned(), || open_packets(path))?;
        let plan = || {
            let pages = file.pages(frames);
            let pages = pages.map(std::borrow::Cow::into_owned);
            pages.map_err(|what| ImportError::corrupt(path, "video", what))
        };
        let pages = self.pages.get((path.to_owned(), frames.clone()), plan)?;
        Ok((file, pages))
    }

    /// Reads the same frames as pixels.
    pub(super) fn decoded_packets(
        &self,
        path: &Path,
        frames: &Range<u64>,
        wanted: Range<u64>,
    ) -> Result<Vec<u8>> {
        let file = self.files.get(path.to_owned(), || open_packets(path))?;
        let wanted = frames.start + wanted.start..frames.start + wanted.end;
        let mut pixels = Vec::new();
        self.pixels.read(&*file, frames, wanted, &mut pixels)?;
        Ok(pixels)
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

fn open_packets(path: &Path) -> Result<PacketFile> {
    PacketFile::open(path).map_err(|why| match why {
        NotCarried::Because(what) => ImportError::corrupt(path, "video", what),
        NotCarried::NoDecoder(what) => no_ffmpeg(path, &what),
    })
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

/// `what` says what to install.
fn no_ffmpeg(path: &Path, what: &str) -> ImportError {
    let what = format!("cannot be decoded: {what}");
    ImportError::unsupported(path, "video", &what, "then pack again")
}
