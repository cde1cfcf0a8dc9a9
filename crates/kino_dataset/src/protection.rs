//! Which blocks of an episode wait for events, and which of their frames come back bit for bit.
//!
//! ```text
//! written:   actions (events show here) │ joints (protects them) │ camera (protects them)
//! joints:    one block, held back until the episode ends: events may show in any of its streams
//! camera:    too large to hold back: every stream in which its events show has to come before it
//! ```

use std::ops::Range;

use kino_codec::Scope;
use kino_format::Clock;

use crate::assembly::Job;
use crate::encode::BlockData;
use crate::error::{Result, invalid};
use crate::events::{EventRule, Protected, Recorder, frames_in};
use crate::plan::Choice;
use crate::stream_info::StreamInfo;

/// A block, and how its stream is stored.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) job: Job,
    pub(crate) choice: Choice,
}

/// What the streams of one episode wait for.
#[derive(Debug, Default)]
pub(crate) struct Protection {
    waiting: Vec<Held>,
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
                    "{place}: event `{}` shows here, and stream `{stream}`, which protects it, was written \
                     before; write this one first",
                    rule.name
                )));
            }
            recorders.push(Recorder::new(rule, info.frame.as_values(), place)?);
        }
        Ok(recorders)
    }

    /// Keeps a block that events may still come for, or gives it back to be encoded now.
    pub(crate) fn hold_back(&mut self, job: Job, choice: Choice) -> Option<Held> {
        let waits = !choice.protect.is_empty() && choice.codec.scope() == Scope::Run;
        let held = Held { job, choice };
        if waits {
            self.waiting.push(held);
            return None;
        }
        Some(held)
    }

    /// The blocks that waited for the end of the episode.
    pub(crate) fn take_waiting(&mut self) -> Vec<Held> {
        std::mem::take(&mut self.waiting)
    }
}

/// What is protected because of the frames from `own_start` on that were recorded.
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

/// The frames of a block that come back bit for bit, counted from its first.
pub(crate) fn frames_of(
    job: &Job,
    clock: &Clock,
    protected: &[Protected],
    choice: &Choice,
) -> Vec<Range<usize>> {
    let first = job.first_frame as usize;
    let size = job
        .block
        .frame
        .as_values()
        .map_or(1, |ty| ty.frame_bytes().max(1));
    let frames = match &job.block.data {
        BlockData::Values(bytes) => bytes.len() / size,
        BlockData::Bytes(frames) => frames.len(),
    };
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
