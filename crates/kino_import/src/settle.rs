//! Codecs that a plan leaves to the first frames of a stream: chosen before the first episode is written.
//!
//! ```text
//! on-disk order   demo_4 (no wrist)   demo_9 (wrist)   …          of every stream, the first episode that has it
//!                     └ front ─ trial     └ wrist ─ trial         ─▶ the codec of all its episodes
//! ```
//!
//! The choice is a function of the source and the plan. It does not depend on which episodes turn out to be damaged, nor
//! on which of them this process writes, so the parts of a pack agree without talking to each other.

use std::collections::{HashMap, HashSet};

use kino_codec::decode_jpeg_files;
use kino_dataset::{Choice, DatasetWriter, StreamInfo, Trial};

use crate::error::Result;
use crate::fit::Fitted;
use crate::preview::arrival;
use crate::shift::is_shift;
use crate::source::{EpisodeSpec, FrameBuf, StreamSpec};
use crate::stream_order::{stream_order, times};

/// The codec of a stream, and how it compared with others.
#[derive(Debug, Clone)]
pub(crate) struct Decided {
    stream: String,
    codec: String,
    trial: Option<Trial>,
}

impl Decided {
    /// Tells a writer of it.
    pub(crate) fn tell(&self, writer: &mut DatasetWriter) {
        writer.decide(&self.stream, &self.codec, self.trial.clone());
    }
}

/// Decides every stream that `writer` has not decided, by the first episode in `order` whose frames can be read.
pub(crate) fn settle(
    source: &Fitted<'_>,
    order: &[usize],
    writer: &DatasetWriter,
) -> Result<Vec<Decided>> {
    let mut decided: Vec<Decided> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut closed: HashSet<&str> = HashSet::new();
    for episode in order.iter().map(|&idx| &source.episodes[idx]) {
        for idx in stream_order(&episode.streams) {
            let spec = &episode.streams[idx];
            let is_known = closed.contains(&*spec.name) || places.contains_key(&spec.name);
            if is_known || spec.frames == 0 || spec.link.is_some() {
                continue;
            }
            let Some(mut choice) = writer.undecided(&info(spec), spec.variant_of.as_deref())?
            else {
                closed.insert(&spec.name);
                continue;
            };
            let base = shared_base(episode, idx).and_then(|base| places.get(base));
            let base = base.map(|&place: &usize| &decided[place]);
            let is_kept = |base: &Decided, choice: &mut Choice| choice.keep(&base.codec);
            let trial = match base {
                Some(base) if is_kept(base, &mut choice) => None,
                // What cannot be read or encoded is reported when it is packed.
                _ => match try_first(episode, idx, &mut choice) {
                    Some(trial) => trial,
                    None => continue,
                },
            };
            places.insert(spec.name.clone(), decided.len());
            decided.push(Decided {
                stream: spec.name.clone(),
                codec: choice.codec.spec().to_string(),
                trial,
            });
        }
    }
    Ok(decided)
}

/// The stream that this one shares its first frames with, whose codec it then has.
fn shared_base(episode: &EpisodeSpec, stream: usize) -> Option<&str> {
    let spec = &episode.streams[stream];
    let base = spec.shift_of?;
    let is_shift = spec.frames > 1 && is_shift(episode, stream).unwrap_or(false);
    is_shift.then(|| &*episode.streams[base].name)
}

/// Tries the codecs on the first frames; `None` if that is not possible.
fn try_first(episode: &EpisodeSpec, stream: usize, choice: &mut Choice) -> Option<Option<Trial>> {
    let spec = &episode.streams[stream];
    let frames = choice.trial_frames(&spec.frame)? as u64;
    let (wanted, mut values) = (spec.frames.min(frames), Vec::new());
    let mut start = 0;
    // A source may return fewer files than requested, but at least one.
    while start < wanted {
        match episode.read(stream, start..wanted).ok()? {
            FrameBuf::Values(read) => {
                values = read;
                break;
            }
            FrameBuf::Bytes(files) if !files.is_empty() => {
                start += files.len() as u64;
                let files: Vec<_> = files.iter().map(Vec::as_slice).collect();
                values.extend(decode_jpeg_files(&spec.frame, &files).ok()?);
            }
            FrameBuf::Bytes(_) => return None,
        }
    }
    choice.settle_values(&spec.frame, &values).ok()
}

/// A stream as the writer is told of it.
pub(crate) fn info(spec: &StreamSpec) -> StreamInfo {
    StreamInfo {
        name: spec.name.clone(),
        kind: spec.kind,
        frame: spec.frame.clone(),
        frames: spec.frames,
        times: times(&spec.clock),
        arrival: arrival(spec),
        shared: None,
    }
}
