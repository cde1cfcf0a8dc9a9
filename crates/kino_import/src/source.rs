//! A recording in a foreign format: what it contains, and its frames on request.
//!
//! ```text
//! Source ─┬─ describe() ─▶ SourceInfo   format, files, attributes, defects
//!         └─ episodes() ─▶ EpisodeSpec  id, splits, attributes
//!                           └─ StreamSpec  name, kind, frame type, clock
//!                               └─ ReadFrames  where its frames are ─▶ FrameBuf
//! ```
//!
//! An importer makes a [`Source`] and has one type that implements [`ReadFrames`]: the location of a stream, together
//! with what its streams share (an open file, a cache). The tests of this file have the smallest possible one.
//!
//! Opening reads metadata only. Frames are read one range at a time, so a recording larger than memory can be packed.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kino_codec::{FrameType, VideoCoding};
use kino_dataset::Kind;
use serde_json::{Map, Value};

use crate::defect::Defect;
use crate::error::{Result, invalid};
use crate::files;
use crate::link::{PageExtent, cannot_link};
use crate::part::NotOpened;
use crate::source_file::SourceFile;

/// How many bytes of frames are requested from a [`Source`] at a time, unless one frame is larger.
pub(crate) const BLOCK_BYTES: usize = 8 << 20;

/// At most this much is read in one call.
const MAX_READ_BYTES: u64 = 1 << 30;

/// A recording in a foreign format, as episodes of streams.
#[derive(Debug)]
pub struct Source {
    pub(crate) info: SourceInfo,
    pub(crate) episodes: Vec<EpisodeSpec>,
    /// What was not opened because [`ImportOptions::part`](crate::ImportOptions::part) excludes it.
    pub(crate) not_opened: NotOpened,
    /// Whether it is a part of what was recorded.
    pub(crate) is_part: bool,
    /// Whether float images are imported as they are: [`ImportOptions::keep_dtype`](crate::ImportOptions::keep_dtype).
    pub(crate) keep_dtype: bool,
}

impl Source {
    /// A source of these episodes.
    pub fn new(info: SourceInfo, episodes: Vec<EpisodeSpec>) -> Self {
        Self {
            info,
            episodes,
            not_opened: NotOpened::default(),
            is_part: false,
            keep_dtype: false,
        }
    }

    /// What was opened, and what the walk noticed.
    pub fn describe(&self) -> &SourceInfo {
        &self.info
    }

    /// The episodes, in the source's own order.
    pub fn episodes(&self) -> &[EpisodeSpec] {
        &self.episodes
    }

    /// Reads `frames` of a stream; see [`EpisodeSpec::read`].
    pub fn read(&self, episode: usize, stream: usize, frames: Range<u64>) -> Result<FrameBuf> {
        let spec = self.episodes.get(episode).ok_or_else(|| {
            invalid(format!(
                "episode {episode} does not exist; the source has {}",
                self.episodes.len()
            ))
        })?;
        spec.read(stream, frames)
    }
}

/// Where the frames of a stream are; implemented once by each format.
///
/// Several threads may read at the same time, each going forward through its own stream; that way each piece of the
/// file is decoded once.
pub trait ReadFrames: Send + Sync {
    /// Reads frames of the stream, which has them. Of texts and JPEG files fewer than requested may be returned, but at
    /// least one. Of video, the first frame of a page is a [`VideoPage`](kino_codec::VideoPage), and the others are
    /// empty.
    fn read(&self, wanted: Wanted<'_>) -> Result<FrameBuf>;

    /// The codec whose pages the frames already are, byte for byte, in the source's files; or why they are not.
    ///
    /// The answer is about the stream as a whole and reads metadata only.
    fn link_codec(&self, stream: &StreamSpec) -> Result<String, String> {
        let _ = stream;
        Err("is not stored as images that can be read where they are".to_owned())
    }

    /// Where the pages of these frames are, in order. Requested only if there is a [`link_codec`](Self::link_codec), and
    /// for all frames of a stream at once. Reads metadata only.
    fn link(&self, wanted: Wanted<'_>) -> Result<Vec<PageExtent>> {
        let Wanted {
            episode, stream, ..
        } = wanted;
        let why = "this format has no pages";
        Err(cannot_link(Path::new(&episode.object), &stream.name, why))
    }
}

/// Frames that are requested of a stream.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The episode, for messages.
    pub episode: &'a EpisodeSpec,
    /// The stream.
    pub stream: &'a StreamSpec,
    /// Which of its frames.
    pub frames: Range<u64>,
}

impl fmt::Debug for dyn ReadFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadFrames")
    }
}

/// A description of a source.
#[derive(Debug)]
pub struct SourceInfo {
    /// Its layout: `robomimic-hdf5`, `act-hdf5`, `lerobot-v3`.
    pub format: &'static str,
    /// The files, in the order of their episodes.
    pub files: Vec<SourceFile>,
    /// Dataset-level attributes of the source (`env_args`, `total`), as JSON.
    pub attributes: Map<String, Value>,
    /// What the walk noticed, in file order.
    pub defects: Vec<Defect>,
}

impl SourceInfo {
    /// A description without files, attributes and defects.
    pub fn new(format: &'static str) -> Self {
        Self {
            format,
            files: Vec::new(),
            attributes: Map::new(),
            defects: Vec::new(),
        }
    }

    /// `demos.hdf5:/data/demo_0, stream `obs/x``, or without the stream if it is empty.
    pub(crate) fn place(&self, episode: &EpisodeSpec, stream: &str) -> String {
        let file = self.files.get(episode.file);
        let file = file.map_or(String::new(), |file| files::file_name(file.path()));
        let object = &episode.object;
        match stream {
            "" => format!("{file}:{object}"),
            stream => format!("{file}:{object}, stream `{}`", stream.escape_debug()),
        }
    }
}

/// One episode of a source.
#[derive(Debug, Clone, Default)]
pub struct EpisodeSpec {
    /// Its name in the source: `demo_0`, `episode_0`.
    pub id: String,
    /// The splits it belongs to.
    pub splits: Vec<String>,
    /// Its attributes in the source (`num_samples`, `model_file`), as JSON.
    pub attributes: Map<String, Value>,
    /// The task: the language instruction, or the name of the environment.
    pub task: Option<String>,
    /// Whether it succeeded, if the source says so.
    pub success: Option<bool>,
    /// The licence as an SPDX expression, if the source names one.
    pub licence: Option<String>,
    /// Which of [`SourceInfo::files`] it is in.
    pub file: usize,
    /// Its location in the file.
    pub object: String,
    /// Its streams, sorted by name.
    pub streams: Vec<StreamSpec>,
}

impl EpisodeSpec {
    /// Reads `frames` of a stream.
    ///
    /// Requesting [`block_frames`] at a time bounds memory; ranges over a gibibyte are refused. Texts and JPEG files
    /// may have any length, so fewer of them than requested may be returned, but at least one: check the length of
    /// [`FrameBuf::Bytes`].
    pub fn read(&self, stream: usize, frames: Range<u64>) -> Result<FrameBuf> {
        let Some(stream) = self.streams.get(stream) else {
            return Err(invalid(format!(
                "stream {stream} of episode `{}` does not exist; it has {}",
                self.id,
                self.streams.len()
            )));
        };
        if frames.start > frames.end || frames.end > stream.frames {
            return Err(invalid(format!(
                "frames {frames:?} of stream `{}` do not exist; it has {} frames",
                stream.name, stream.frames
            )));
        }
        let count = frames.end - frames.start;
        if count.saturating_mul(stream.frame_bytes()) > MAX_READ_BYTES {
            return Err(invalid(format!(
                "{count} frames of stream `{}` are more than a gibibyte; read fewer at a time",
                stream.name
            )));
        }
        stream.reader.read(Wanted {
            episode: self,
            stream,
            frames,
        })
    }

    /// The bytes of all frames; text does not count.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.streams.iter().map(StreamSpec::bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Keeps the streams at these positions, which ascend.
    pub(crate) fn keep_streams(&mut self, kept: &[usize]) {
        let streams = std::mem::take(&mut self.streams).into_iter().enumerate();
        let streams = streams.filter(|(idx, _)| kept.binary_search(idx).is_ok());
        self.streams = streams.map(|(_, stream)| stream).collect();
        for stream in &mut self.streams {
            let base = stream.shift_of;
            stream.shift_of = base.and_then(|base| kept.binary_search(&base).ok());
        }
    }

    pub(crate) fn sort_streams(&mut self) {
        self.streams.sort_by(|a, b| a.name.cmp(&b.name));
    }
}

/// One stream of one episode.
#[derive(Debug, Clone)]
pub struct StreamSpec {
    /// Its path inside the episode: `actions`, `obs/agentview_image`.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// The type of its frames.
    pub frame: FrameType,
    /// The number of frames.
    pub frames: u64,
    /// The timestamps of its frames.
    pub clock: ClockSpec,
    /// The stream that this may be one step ahead of (`next_obs/x` of `obs/x`); see [`is_shift`](crate::is_shift).
    pub shift_of: Option<usize>,
    /// Whether frames are delivered as they are stored in the source: as JPEG files or packets of video, not as pixels.
    pub carried: bool,
    /// The coding, if the source has the stream as video that can be delivered either way.
    pub video: Option<VideoCoding>,
    /// The unit of its values, if the source names one.
    pub unit: Option<String>,
    /// Other attributes in the source, as JSON.
    pub attributes: Map<String, Value>,
    /// The codec of its pages, if they are linked instead of packed.
    pub link: Option<String>,
    /// The stream that this is another encoding of, which a plan asks for: `wrist@small` of `wrist`.
    pub variant_of: Option<String>,
    /// Where its frames are.
    pub reader: Arc<dyn ReadFrames>,
}

impl StreamSpec {
    /// A stream without attributes, whose clock is still to be set.
    pub fn new(
        name: impl Into<String>,
        kind: Kind,
        frame: FrameType,
        frames: u64,
        reader: Arc<dyn ReadFrames>,
    ) -> Self {
        Self {
            name: name.into(),
            kind,
            frame,
            frames,
            clock: ClockSpec::Regular { rate_hz: 0.0 },
            shift_of: None,
            carried: false,
            video: None,
            unit: None,
            attributes: Map::new(),
            link: None,
            variant_of: None,
            reader,
        }
    }

    /// Sets the attributes; one of them may be the unit.
    pub(crate) fn set_attributes(&mut self, mut attributes: Map<String, Value>) {
        self.unit = ["unit", "units"].iter().find_map(|&key| {
            let unit = attributes.get(key)?.as_str()?.to_owned();
            attributes.remove(key);
            Some(unit)
        });
        self.attributes = attributes;
    }

    /// The bytes of one frame; 0 for text.
    pub(crate) fn frame_bytes(&self) -> u64 {
        self.frame
            .as_values()
            .map_or(0, |ty| ty.frame_bytes() as u64)
    }

    /// The bytes of all frames; 0 for text.
    pub(crate) fn bytes(&self) -> u64 {
        self.frames.saturating_mul(self.frame_bytes())
    }
}

/// The timestamps of a stream's frames.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ClockSpec {
    /// At a fixed rate, the first at zero.
    Regular {
        /// Frames per second.
        rate_hz: f64,
    },
    /// Timestamps in nanoseconds, one per frame, non-decreasing.
    Explicit(Arc<[i64]>),
}

/// Frames as read from a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameBuf {
    /// Packed little-endian values, frame after frame.
    Values(Vec<u8>),
    /// One byte string per frame: UTF-8 text, or a JPEG file.
    Bytes(Vec<Vec<u8>>),
}

impl Default for FrameBuf {
    fn default() -> Self {
        Self::Values(Vec::new())
    }
}

/// Larger frames are not imported: several of them are in memory at a time.
pub const MAX_IMPORTED_FRAME_BYTES: u64 = 64 << 20;

/// How many frames of this type to read at a time: about 8 MiB, at least one frame.
pub fn block_frames(frame: &FrameType) -> u64 {
    let frame_bytes = frame.as_values().map_or(1 << 10, |ty| ty.frame_bytes());
    u64::try_from(BLOCK_BYTES / frame_bytes.max(1)).map_or(1, |frames| frames.max(1))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use kino_codec::Dtype;

    use super::*;
    use crate::error::ImportError;
    use crate::files::{self, ReadingPath};

    /// A toy format, whole: a file is one episode of one joint angle, a float32 per frame.
    fn open(path: &Path) -> Result<Source> {
        let file = fs::metadata(path).reading(path)?;
        let reader = Arc::new(Angles {
            path: path.to_owned(),
        });
        let frame =
            FrameType::values(Dtype::F32, &[]).map_err(|error| invalid(error.to_string()))?;
        let mut angles = StreamSpec::new("angle", Kind::Vector, frame, file.len() / 4, reader);
        angles.clock = ClockSpec::Regular { rate_hz: 50.0 };
        let episode = EpisodeSpec {
            id: path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            object: "/".to_owned(),
            streams: vec![angles],
            ..EpisodeSpec::default()
        };
        let mut info = SourceInfo::new("angles");
        info.files
            .push(SourceFile::new(path.to_owned(), file.len()));
        Ok(Source::new(info, vec![episode]))
    }

    struct Angles {
        path: std::path::PathBuf,
    }

    impl ReadFrames for Angles {
        fn read(&self, wanted: Wanted<'_>) -> Result<FrameBuf> {
            let Wanted { stream, frames, .. } = wanted;
            let len = (frames.end - frames.start) * 4;
            let bytes = files::read_range(&self.path, frames.start * 4, len);
            let bytes = bytes.reading(&self.path)?;
            if bytes.len() as u64 != len {
                let what = "is truncated";
                return Err(ImportError::corrupt(&self.path, &stream.name, what));
            }
            Ok(FrameBuf::Values(bytes))
        }
    }

    #[test]
    fn a_format_supplies_an_open_function_and_a_reader() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reach.angles");
        fs::write(&path, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]).unwrap();
        let source = open(&path).unwrap();
        let frames = source.read(0, 0, 1..3).unwrap();
        assert_eq!(frames, FrameBuf::Values((4..12).collect()));
        for (episode, stream, frames, expected) in [
            (1, 0, 0..1, "episode 1 does not exist; the source has 1"),
            (
                0,
                1,
                0..1,
                "stream 1 of episode `reach` does not exist; it has 1",
            ),
            (
                0,
                0,
                2..4,
                "frames 2..4 of stream `angle` do not exist; it has 3 frames",
            ),
        ] {
            let error = source.read(episode, stream, frames);
            assert_eq!(error.unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn streams_that_are_kept_still_know_the_stream_they_are_shifted_from() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reach.angles");
        fs::write(&path, []).unwrap();
        let mut episode = open(&path).unwrap().episodes.remove(0);
        let stream = |name: &str, shift_of| StreamSpec {
            name: name.to_owned(),
            shift_of,
            ..episode.streams[0].clone()
        };
        let streams = vec![
            stream("a", None),
            stream("next_a", Some(0)),
            stream("next_b", Some(3)),
            stream("b", None),
        ];
        episode.streams = streams;
        episode.keep_streams(&[1, 2, 3]);
        let bases: Vec<_> = episode
            .streams
            .iter()
            .map(|stream| stream.shift_of)
            .collect();
        assert_eq!(bases, [None, Some(2), None]);
    }
}
