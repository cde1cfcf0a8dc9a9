//! Turns topics and timestamps into episodes of streams; what is left becomes defects.

use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde_json::Value as Json;

use super::mapping::{Clock, Mapping, Stream, Task};
use super::picks::Pick;
use super::records::Place;
use super::streams::{TopicStream, TopicStreams};
use super::topic::{Entry, Topic};
use super::video::{Video, VideoStream};
use super::walk::Contents;
use super::{McapFile, McapStream};
use crate::defect::{Action, Defect};
use crate::source::{ClockSpec, EpisodeSpec, ReadFrames, StreamSpec};

/// The streams of each topic. Of two streams with one name, the second is skipped.
pub(super) fn topic_streams(topics: &[Topic], mapping: &Mapping) -> Vec<TopicStreams> {
    let mut names = HashSet::new();
    let streams = |topic: &Topic| {
        let wanted: Vec<&Stream> = mapping
            .streams
            .iter()
            .filter(|stream| stream.topic == topic.name)
            .collect();
        let mut draft = topic.streams(&wanted, mapping.keeps_others());
        let TopicStreams { streams, lost, .. } = &mut draft;
        streams.retain(|stream| {
            let is_new = names.insert(stream.name.clone());
            if !is_new {
                lost.push((
                    String::new(),
                    format!("stream `{}` already belongs to another topic", stream.name),
                ));
            }
            is_new
        });
        draft
    };
    topics.iter().map(streams).collect()
}

/// Builds the spec of one episode.
pub(super) struct SpecBuilder<'a> {
    pub(super) name: &'a str,
    pub(super) file: &'a Arc<McapFile>,
    pub(super) id: String,
    /// The range of log times of its messages.
    pub(super) span: &'a RangeInclusive<i64>,
}

/// The messages of a topic by one clock: timestamps, locations, and how many were out of order.
struct Timed {
    times: Arc<[i64]>,
    places: Arc<[Place]>,
    moved: usize,
}

impl SpecBuilder<'_> {
    /// The episode and its defects, from topics and their messages in it.
    pub(super) fn episode<'t>(
        &self,
        topics: impl Iterator<Item = (&'t Topic, &'t TopicStreams, &'t [Entry])>,
    ) -> (EpisodeSpec, Vec<Defect>) {
        let (mut streams, mut defects) = (Vec::new(), Vec::new());
        for (topic, draft, entries) in topics {
            let Ok(decoder) = &topic.decoder else {
                continue;
            };
            let mut clocks: BTreeMap<Clock, Timed> = BTreeMap::new();
            for stream in &draft.streams {
                let timed = clocks
                    .entry(stream.clock)
                    .or_insert_with(|| in_time(entries, stream.clock));
                if timed.times.is_empty() {
                    continue;
                }
                let reader: Arc<dyn ReadFrames> = match &stream.video {
                    None => Arc::new(McapStream {
                        file: Arc::clone(self.file),
                        decoder: Arc::clone(decoder),
                        pick: stream.pick.clone(),
                        look: stream.look.clone(),
                        places: Arc::clone(&timed.places),
                    }),
                    Some(video) => match self.video(topic, stream, video, timed) {
                        Ok(found) => Arc::new(found),
                        Err(what) => {
                            let place = format!("{}:{}", self.name, topic.name);
                            defects.push(Defect::lost(place, what).of(&self.id));
                            continue;
                        }
                    },
                };
                streams.push(to_spec(stream, topic, &timed.times, reader));
            }
            for timed in clocks.values().filter(|timed| timed.moved > 0) {
                let what = format!(
                    "goes back in time: {} of {} messages come after a later one; kept, sorted by time",
                    timed.moved,
                    timed.times.len()
                );
                let place = format!("{}:{}", self.name, topic.name);
                defects.push(Defect::kept(place, what).of(&self.id));
            }
        }
        let object = if *self.span == (i64::MIN..=i64::MAX) {
            "/".to_owned()
        } else {
            format!("/ from {} ns to {} ns", self.span.start(), self.span.end())
        };
        let mut episode = EpisodeSpec {
            id: self.id.clone(),
            object,
            streams,
            ..EpisodeSpec::default()
        };
        episode.sort_streams();
        (episode, defects)
    }

    /// The frames of a video topic in this episode, or why there are none.
    fn video(
        &self,
        topic: &Topic,
        stream: &TopicStream,
        video: &Arc<Video>,
        timed: &Timed,
    ) -> Result<VideoStream, String> {
        if timed.moved > 0 {
            return Err(format!(
                "is video whose timestamps go back {} times, and it is decoded in order; use `clock = \"log\"` in a \
                 mapping if they are wrong",
                timed.moved
            ));
        }
        let Pick::Image(inside) = &stream.pick else {
            return Err("has no video".to_owned());
        };
        let Ok(decoder) = &topic.decoder else {
            return Err("has no video".to_owned());
        };
        // The walk has checked that log times ascend.
        let is_before = |entry: &Entry| entry.log_ns < *self.span.start();
        let first = topic.entries.partition_point(is_before) as u64;
        let frames = first..first + timed.times.len() as u64;
        Ok(VideoStream {
            file: Arc::clone(self.file),
            decoder: Arc::clone(decoder),
            topic: topic.name.clone(),
            inside: inside.clone(),
            pages: video.pages(&frames)?,
            video: Arc::clone(video),
            frames,
            pixels: Arc::clone(&self.file.pixels),
        })
    }
}

/// Messages sorted by a clock.
fn in_time(entries: &[Entry], clock: Clock) -> Timed {
    let entries = entries.iter();
    let mut timed: Vec<_> = entries
        .map(|entry| (entry.time(clock), entry.place))
        .collect();
    let mut latest = i64::MIN;
    let is_moved = |(time, _): &&(i64, Place)| {
        let is_moved = *time < latest;
        latest = latest.max(*time);
        is_moved
    };
    let moved = timed.iter().filter(is_moved).count();
    // Stable: messages with equal timestamps stay in file order.
    timed.sort_by_key(|(time, _)| *time);
    let (times, places): (Vec<_>, Vec<_>) = timed.into_iter().unzip();
    Timed {
        times: times.into(),
        places: places.into(),
        moved,
    }
}

fn to_spec(
    stream: &TopicStream,
    topic: &Topic,
    times: &Arc<[i64]>,
    reader: Arc<dyn ReadFrames>,
) -> StreamSpec {
    let mut attributes = stream.attributes.clone();
    let unit = match attributes.remove("unit") {
        Some(Json::String(unit)) => Some(unit),
        other => {
            attributes.extend(other.map(|other| ("unit".to_owned(), other)));
            None
        }
    };
    attributes.insert("topic".to_owned(), Json::from(topic.name.as_str()));
    if !topic.schema.name.is_empty() {
        attributes.insert("message".to_owned(), Json::from(topic.schema.name.as_str()));
    }
    let clock = match stream.clock {
        Clock::Header => "header",
        Clock::Log => "log",
        Clock::Publish => "publish",
    };
    attributes.insert("clock".to_owned(), Json::from(clock));
    StreamSpec {
        clock: ClockSpec::Explicit(Arc::clone(times)),
        carried: stream.video.is_some() || stream.look.as_ref().is_some_and(|look| look.carried),
        video: stream.video.as_ref().map(|video| video.coding),
        unit,
        attributes,
        ..StreamSpec::new(
            stream.name.as_str(),
            stream.kind,
            stream.frame.clone(),
            times.len() as u64,
            reader,
        )
    }
}

/// The task of an episode, from the mapping: its text, or the first one that a topic published in or before the
/// episode.
pub(super) fn task(
    mapping: &Mapping,
    contents: &Contents,
    span: &RangeInclusive<i64>,
) -> Option<String> {
    match mapping.task.as_ref()? {
        Task::Text(text) => Some(text.clone()),
        Task::Topic(_) => {
            let marks = contents.marks.first()?;
            let inside = marks.iter().find(|(time, _)| span.contains(time));
            let before = || marks.iter().rev().find(|(time, _)| time < span.start());
            inside.or_else(before).map(|(_, text)| text.clone())
        }
    }
}

/// The time of a fault.
#[derive(Debug, Clone, Copy)]
pub(super) enum When {
    /// At this log time.
    At(i64),
    /// At the end of the file, or unknown.
    AtTheEnd,
    /// In all messages of a topic.
    Always,
}

/// The faults of a file and its topics; `blame` maps a time to its episode.
pub(super) fn faults(
    file: &str,
    contents: &Contents,
    draft: &[TopicStreams],
    blame: impl Fn(When) -> Option<String>,
) -> Vec<Defect> {
    let mut out = Vec::new();
    let mut push = |place: &str, what: String, action, when| {
        let defect = Defect::new(format!("{file}:{place}"), what, action);
        out.push(match blame(when) {
            Some(episode) => defect.of(&episode),
            None => defect,
        });
    };
    for fault in &contents.faults {
        let action = if fault.is_loss {
            Action::Skipped
        } else {
            Action::Kept
        };
        let when = fault.log_ns.map_or(When::AtTheEnd, When::At);
        push(&fault.place, fault.what.clone(), action, when);
    }
    for (topic, draft) in contents.topics.iter().zip(draft) {
        let place = &topic.name;
        let [early, late] = topic.skipped;
        let all = topic.unread.0 + topic.entries.len() as u64 + early.count + late.count;
        match (&topic.decoder, &topic.unread) {
            (Err(_), (0, _)) => {}
            (Err(what), _) => push(
                place,
                format!("{all} messages are not imported: {what}"),
                Action::Skipped,
                When::Always,
            ),
            (Ok(_), (unread, Some((log_ns, what)))) => {
                let what = format!("{unread} of {all} messages are not imported; the first {what}");
                push(place, what, Action::Skipped, When::At(*log_ns));
            }
            (Ok(_), _) => {}
        }
        for (skipped, what) in [
            (early, "before the first key frame"),
            (
                late,
                "after a missing or damaged one, up to the next key frame",
            ),
        ] {
            if skipped.count > 0 {
                let what = format!(
                    "{} of {all} frames are not imported: they are {what}, and cannot be decoded",
                    skipped.count
                );
                push(place, what, Action::Skipped, When::At(skipped.log_ns));
            }
        }
        for (path, what) in &draft.lost {
            let place = if path.is_empty() {
                place.clone()
            } else {
                format!("{place}, field `{path}`")
            };
            push(&place, what.clone(), Action::Skipped, When::Always);
        }
        for what in &draft.notes {
            push(place, what.clone(), Action::Noted, When::Always);
        }
        if !topic.entries.is_empty() && draft.streams.is_empty() && draft.lost.is_empty() {
            push(
                place,
                "is not imported: the mapping excludes it, or it has no values".to_owned(),
                Action::Noted,
                When::Always,
            );
        }
    }
    out
}

/// Describes how many messages are outside of all episodes.
pub(super) fn outside(topics: &[Topic], inside: &[Vec<Vec<Entry>>]) -> Option<String> {
    let all: usize = topics.iter().map(|topic| topic.entries.len()).sum();
    let inside: usize = inside.iter().flatten().map(Vec::len).sum();
    let outside = all - inside;
    (outside > 0)
        .then(|| format!("{outside} messages are outside of the episodes and are not imported"))
}
