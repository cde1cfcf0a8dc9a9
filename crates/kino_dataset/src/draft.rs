//! An episode and its streams while they are written: what the index of a shard will say about them.

use kino_codec::FrameType;
use kino_format::{Clock, StreamSchema};

use crate::episode_info::EpisodeInfo;
use crate::error::{Result, invalid};
use crate::events::{EventRule, Protected};
use crate::plan::Trial;
use crate::resize::Size;
use crate::stream_info::{SharedFrames, StreamInfo};

/// An episode as described by its writer.
#[derive(Debug)]
pub(crate) struct EpisodeDraft {
    pub(crate) info: EpisodeInfo,
    /// Distinguishes it from other episodes without an id; empty if it has one.
    pub(crate) draft: String,
    pub(crate) clocks: Vec<Clock>,
    pub(crate) streams: Vec<StreamDraft>,
    /// Time ranges around events, given or found so far.
    pub(crate) protected: Vec<Protected>,
    /// The rules by which events were found.
    pub(crate) events: Vec<serde_json::Value>,
}

/// A stream as described by its writer.
#[derive(Debug)]
pub(crate) struct StreamDraft {
    pub(crate) schema: StreamSchema,
    pub(crate) clock: usize,
    pub(crate) frames: u32,
    pub(crate) shared: SharedRange,
    pub(crate) raw_bytes: u64,
    /// Frames of its own that are bit-exact although the codec is lossy.
    pub(crate) protected_frames: u64,
    /// The size of its frames before they were resized.
    pub(crate) resized_from: Option<Size>,
    /// The codecs that were tried on its first frames.
    pub(crate) trial: Option<Trial>,
}

/// The first frames of a stream that another stream of the episode stores, if any.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SharedRange {
    /// The position of that stream in the episode.
    pub(crate) base: Option<usize>,
    /// Its frame that is frame 0 here.
    pub(crate) first: u32,
    /// The number of shared frames, and so the first frame of the stream's own.
    pub(crate) count: u32,
}

impl EpisodeDraft {
    pub(crate) fn new(mut info: EpisodeInfo, draft: String, events: &[EventRule]) -> Self {
        Self {
            draft,
            protected: std::mem::take(&mut info.protected),
            events: {
                let rules = events.iter();
                let rules = rules.map(|rule| serde_json::to_value(rule).unwrap_or_default());
                std::mem::take(&mut info.events)
                    .into_iter()
                    .chain(rules)
                    .collect()
            },
            info,
            clocks: Vec::new(),
            streams: Vec::new(),
        }
    }

    /// The position of a stream by name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        let mut streams = self.streams.iter();
        streams.position(|stream| stream.schema.name == name)
    }

    /// The clock of the stream at a position.
    pub(crate) fn clock_of(&self, position: usize) -> Option<&Clock> {
        self.clocks.get(self.streams.get(position)?.clock)
    }

    /// The frames that a new stream of `frames` frames, stored as `stored`, shares with another.
    pub(crate) fn shared(
        &self,
        place: &str,
        info: &StreamInfo,
        stored: &FrameType,
        frames: u32,
    ) -> Result<SharedRange> {
        let Some(shared) = &info.shared else {
            return Ok(SharedRange::default());
        };
        let find = || {
            let position = self.position(&shared.base)?;
            let base = &self.streams[position];
            let first = u32::try_from(shared.first).ok()?;
            let count = u32::try_from(shared.count).ok()?;
            let fits = count <= frames && first.checked_add(count)? <= base.frames;
            let is_alike = base.schema.frame_type().ok()? == *stored && *stored != FrameType::Text;
            (fits && is_alike && base.shared.base.is_none()).then_some(SharedRange {
                base: Some(position),
                first,
                count,
            })
        };
        find().ok_or_else(|| {
            let SharedFrames { base, first, count } = shared;
            invalid(format!("{place} cannot share {count} frames from frame {first} of `{base}`: the base stream does not have them"))
        })
    }
}
