//! Which blocks of an episode wait for events, and which of their frames are bit-exact.
//!
//! ```text
//! written:   actions (events are detected here) │ joints (protects them) │ camera (protects them)
//! joints:    one block, held back until the episode ends: events may be detected in any of its streams;
//!            beyond a few megabytes it waits in a file
//! camera:    too large to hold back: every stream in which its events are detected must be written before it
//! ```

use std::ops::Range;
use std::path::Path;

use kino_codec::Scope;
use kino_format::Clock;

use crate::encode::BlockData;
use crate::encode_queue::Job;
use crate::error::{Result, invalid};
use crate::events::{EventRule, Protected, Recorder, frames_in};
use crate::plan::Choice;
use crate::spill::Spill;
use crate::stream_info::StreamInfo;

/// Beyond this many bytes, an episode waits in files.
const HELD_BYTES: usize = 16 << 20;

/// A block, and how its stream is stored.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) job: Job,
    pub(crate) choice: Choice,
}

/// The blocks of one episode that wait for events.
#[derive(Debug, Default)]
pub(crate) struct Protection {
    waiting: Vec<Held>,
    /// Bytes of them that are in memory.
    in_memory: usize,
    /// Streams whose pages cannot wait, and how they are stored.
    gone: Vec<(String, Choice)>,
}

impl Protection {
    /// The recorders of a new stream's events.
    pub(crate) fn begin(
        &mut self,
        events: &[EventRule],
        info: &StreamInfo,
        choice: &Choice,
        place: &str,
    ) -> Result<Vec<Recorder>> {
        if !choice.protect.is_empty() && choice.codec.scope() == Scope::Page {
            self.gone.push((info.name.clone(), choice.clone()));
        }
        let mut recorders = Vec::new();
        for rule in events.iter().filter(|rule| rule.matches(&info.name)) {
            let needs = |(_, gone): &&(String, Choice)| gone.protects(&rule.name);
            if let Some((stream, _)) = self.gone.iter().find(needs) {
                return Err(invalid(format!(
                    "{place}: event `{}` is detected in this stream, but stream `{stream}`, which protects it, was already \
                     written; write this stream first",
                    rule.name
                )));
            }
            recorders.push(Recorder::new(rule, info.frame.as_values(), place)?);
        }
        Ok(recorders)
    }

    /// Holds a block back if events may still affect it, or returns it to be encoded now.
    pub(crate) fn hold_back(
        &mut self,
        mut job: Job,
        choice: Choice,
        staging: &Path,
    ) -> Result<Option<Held>> {
        if choice.protect.is_empty() || choice.codec.scope() != Scope::Run {
            return Ok(Some(Held { job, choice }));
        }
        if let BlockData::Values(bytes) = &job.block.data {
            self.in_memory += bytes.len();
            if self.in_memory > HELD_BYTES {
                self.in_memory -= bytes.len();
                let mut file = Spill::new(staging)?;
                file.push(bytes)?;
                job.block.data = BlockData::File(file);
            }
        }
        self.waiting.push(Held { job, choice });
        Ok(None)
    }

    /// The blocks that waited for the end of the episode.
    pub(crate) fn take_waiting(&mut self) -> Vec<Held> {
        self.in_memory = 0;
        std::mem::take(&mut self.waiting)
    }
}

/// The time ranges protected by events in the recorded frames, from `own_start` on.
pub(crate) fn find(recorders: &[Recorder], clock: &Clock, own_start: usize) -> Vec<Protected> {
    if recorders.is_empty() {
        return Vec::new();
    }
    let times = (own_start..clock.len()).filter_map(|idx| clock.time_ns(idx));
    let times: Vec<i64> = times.collect();
    recorders
        .iter()
        .flat_map(|recorder| recorder.find(&times))
        .collect()
}

/// The bit-exact frames of a block, relative to its first.
pub(crate) fn frames_of(
    job: &Job,
    clock: &Clock,
    protected: &[Protected],
    choice: &Choice,
) -> Vec<Range<usize>> {
    let first = job.first_frame as usize;
    let frames = job.block.frames();
    let in_block = |range: &Range<usize>| {
        let start = range.start.clamp(first, first + frames) - first;
        start..range.end.clamp(first, first + frames) - first
    };
    let all = frames_in(clock, protected, |event| choice.protects(event));
    all.iter()
        .map(in_block)
        .filter(|range| !range.is_empty())
        .collect()
}
