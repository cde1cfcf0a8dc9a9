//! The walk: everything in a file, as topics, marks, attributes and faults.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Map, Value as Json};

use super::chunks::Chunk;
use super::decoder::Schema;
use super::mapping::{Mapping, Stream, Watch};
use super::message::Value;
use super::records::{Channel, Fault};
use super::scan::scan;
use super::split::Mark;
use super::topic::{Entry, Topic};
use crate::error::Result;
use crate::files::ReadingPath;
use crate::survey::cores;

/// A text attachment of at most this many bytes becomes an attribute.
const SMALL_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) chunks: Vec<Chunk>,
    pub(super) topics: Vec<Topic>,
    pub(super) attributes: Map<String, Json>,
    pub(super) faults: Vec<Fault>,
    /// The values of the watched fields, in the order of [`Mapping::watches`].
    pub(super) marks: Vec<Vec<Mark>>,
}

/// Walks files, as many at a time as there are cores; results are in file order.
pub(super) fn walk_all(paths: &[PathBuf], mapping: &Mapping) -> Vec<Result<Contents>> {
    let next = AtomicUsize::new(0);
    let walked: Vec<_> = paths.iter().map(|path| (path, OnceLock::new())).collect();
    let work = || {
        while let Some((path, contents)) = walked.get(next.fetch_add(1, Ordering::Relaxed)) {
            contents.get_or_init(|| walk(path, mapping));
        }
    };
    thread::scope(|scope| {
        let threads = cores(0);
        for _ in 1..threads.min(paths.len()) {
            scope.spawn(work);
        }
        work();
    });
    let walked = walked.into_iter();
    walked
        .filter_map(|(_, contents)| contents.into_inner())
        .collect()
}

/// Reads every message of a file.
fn walk(path: &Path, mapping: &Mapping) -> Result<Contents> {
    let watches = mapping.watches();
    let mut walk = Walk {
        contents: Contents {
            marks: vec![Vec::new(); watches.len()],
            ..Contents::default()
        },
        schemas: HashMap::new(),
        channels: HashMap::new(),
        unknown: (0, None),
        mapping,
        watches,
    };
    walk.contents.chunks = scan(path, &mut walk).reading(path)?;
    let (unknown, log_ns) = walk.unknown;
    if unknown > 0 {
        let what = format!("{unknown} messages belong to channels that are not in the file");
        walk.lose("messages", what, log_ns);
    }
    Ok(walk.contents)
}

pub(super) struct Walk<'a> {
    contents: Contents,
    schemas: HashMap<u16, Schema>,
    /// Channels by id: the index of the topic, or `None` if it cannot be decoded.
    channels: HashMap<u16, Option<usize>>,
    /// Messages of unknown channels, and the time of the first.
    unknown: (u64, Option<i64>),
    mapping: &'a Mapping,
    watches: Vec<Watch>,
}

impl Walk<'_> {
    pub(super) fn schema(&mut self, id: u16, schema: Schema) {
        self.schemas.entry(id).or_insert(schema);
    }

    pub(super) fn channel(&mut self, channel: Channel<'_>) {
        if !self.channels.contains_key(&channel.id) {
            let id = channel.id;
            let topic = self.topic(channel);
            self.channels.insert(id, topic);
        }
    }

    pub(super) fn metadata(&mut self, name: &str, values: BTreeMap<String, String>) {
        let values = values.into_iter();
        let values = values.map(|(name, value)| (name, Json::from(value)));
        let attributes = &mut self.contents.attributes;
        attributes.insert(name.to_owned(), Json::Object(values.collect()));
    }

    /// The topic of a channel; several channels may share one.
    fn topic(&mut self, channel: Channel<'_>) -> Option<usize> {
        let (none, name) = (Schema::default(), channel.topic);
        let schema = self.schemas.get(&channel.schema).unwrap_or(&none);
        let topics = &self.contents.topics;
        if let Some(place) = topics.iter().position(|known| known.name == name) {
            let known = &topics[place];
            if (&known.schema, &*known.encoding) == (schema, channel.encoding) {
                return Some(place);
            }
            let what = format!(
                "has messages of type `{}` and of type `{}`; those of the second type are not imported",
                known.schema.name, schema.name
            );
            self.lose(name, what, None);
            return None;
        }
        let streams = self.mapping.streams.iter();
        let wanted: Vec<&Stream> = streams.filter(|stream| stream.topic == name).collect();
        let mut topic = Topic::new(name, channel.encoding, schema, &wanted);
        topic.metadata = channel.metadata;
        self.contents.topics.push(topic);
        Some(self.contents.topics.len() - 1)
    }

    pub(super) fn message(&mut self, channel: u16, entry: Entry, data: &[u8]) {
        let topic = match self.channels.get(&channel) {
            Some(Some(topic)) => &mut self.contents.topics[*topic],
            // The channel is already among the faults.
            Some(None) => return,
            None => {
                self.unknown.0 += 1;
                self.unknown.1.get_or_insert(entry.log_ns);
                return;
            }
        };
        let (name, log_ns) = (topic.name.clone(), entry.log_ns);
        let (watches, marks) = (&self.watches, &mut self.contents.marks);
        topic.add(entry, data, &mut |value| {
            let watched = watches
                .iter()
                .zip(marks.iter_mut())
                .filter(|(watch, _)| watch.topic == name);
            for (watch, marks) in watched {
                match value.get(&watch.field).map(Value::to_json) {
                    None | Some(Json::Null) => {}
                    Some(Json::String(text)) => marks.push((log_ns, text)),
                    Some(other) => marks.push((log_ns, other.to_string())),
                }
            }
        });
    }

    /// Small text attachments become attributes; anything else cannot be imported.
    pub(super) fn attachment(&mut self, name: &str, media_type: &str, data: &[u8]) {
        let is_text = media_type.starts_with("text/")
            || media_type.ends_with("json")
            || media_type.ends_with("yaml");
        let text = str::from_utf8(data)
            .ok()
            .filter(|_| is_text && data.len() <= SMALL_BYTES);
        match text {
            Some(text) => {
                self.contents
                    .attributes
                    .insert(format!("attachment {name}"), Json::from(text));
            }
            None => {
                let what = format!(
                    "is an attachment of {} bytes ({media_type}), which cannot be imported",
                    data.len()
                );
                self.lose(name, what, None);
            }
        }
    }

    /// Records a fault of the file.
    pub(super) fn fault(&mut self, fault: Fault) {
        if fault.is_loss {
            // Messages of any topic may be missing.
            self.contents.topics.iter_mut().for_each(Topic::break_off);
        }
        self.contents.faults.push(fault);
    }

    fn lose(&mut self, place: &str, what: String, log_ns: Option<i64>) {
        self.contents.faults.push(Fault {
            place: place.to_owned(),
            what,
            is_loss: true,
            log_ns,
        });
    }
}
