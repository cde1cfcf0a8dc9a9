//! The streams of a topic: those named by a mapping, or one per field of its messages.
//!
//! | leaf | becomes |
//! |---|---|
//! | a field of a well-known message (see `picks.rs`) | part of its stream |
//! | a number, a fixed-length list of numbers, text | a stream `topic/field` |
//! | names of joints or frames; in well-known messages anything that never changes | an attribute |
//! | a list of varying length, a field that is not in every message | a defect |

use std::sync::Arc;

use kino_codec::{Dtype, FrameType, ValueType};
use kino_dataset::Kind;
use serde_json::{Map, Value as Json};

use super::leaf::{Leaf, MAX_LEAVES, Shape};
use super::mapping::{self, Clock};
use super::message::is_stamp;
use super::picks::{Pick, join, known};
use super::ros2::short;
use super::topic::Topic;
use super::video::Video;
use crate::image::Encoded;

/// The longest name of a stream.
const MAX_NAME_BYTES: usize = 255;

#[derive(Debug, Clone)]
pub(super) struct TopicStream {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) frame: FrameType,
    pub(super) look: Option<Encoded>,
    /// Present if it is video.
    pub(super) video: Option<Arc<Video>>,
    pub(super) pick: Pick,
    pub(super) clock: Clock,
    pub(super) attributes: Map<String, Json>,
}

#[derive(Debug, Default)]
pub(super) struct TopicStreams {
    pub(super) streams: Vec<TopicStream>,
    /// Skipped fields, and why.
    pub(super) lost: Vec<(String, String)>,
    pub(super) notes: Vec<String>,
}

impl Topic {
    /// The streams that a mapping names, or all of them.
    pub(super) fn streams(&self, wanted: &[&mapping::Stream], keeps_others: bool) -> TopicStreams {
        let mut out = TopicStreams::default();
        if self.entries.is_empty() {
            return out;
        }
        if self.has_stamps() && !self.has_time {
            out.notes
                .push("has only zero stamps: log times are used".to_owned());
        }
        if self.leaves.len() > MAX_LEAVES {
            out.lost.push((
                String::new(),
                format!("has more than {MAX_LEAVES} fields; select some in a mapping file"),
            ));
            return out;
        }
        for stream in wanted {
            self.add_wanted(stream, &mut out);
        }
        if wanted.is_empty() && keeps_others {
            self.add_all(&mut out);
        }
        out
    }

    fn add_wanted(&self, wanted: &mapping::Stream, out: &mut TopicStreams) {
        match self.wanted_stream(wanted) {
            Ok(stream) => out.streams.push(stream),
            Err(what) => out.lost.push((String::new(), what)),
        }
    }

    fn wanted_stream(&self, wanted: &mapping::Stream) -> Result<TopicStream, String> {
        let (name, fields) = (&wanted.name, wanted.fields());
        let pick = match as_image(wanted) {
            Some(pick) => Some(pick),
            None if fields.is_empty() => {
                let mut usual = known(&short(&self.schema.name)).into_iter();
                usual.next().map(|(_, pick)| pick)
            }
            None => Some(Pick::Fields(fields)),
        };
        let pick =
            pick.ok_or_else(|| format!("stream `{name}` needs a `field`: {}", self.fields()))?;
        let clock = wanted.clock.unwrap_or_else(|| self.clock());
        if clock == Clock::Header && !self.has_stamps() {
            return Err(format!(
                "stream `{name}` requests the header clock, but not every message has a header"
            ));
        }
        let stream = self.stream(name.clone(), pick, clock);
        let mut stream = stream.map_err(|what| format!("stream `{name}`: {what}"))?;
        stream.attributes = self.constants(&stream.pick.fields());
        let is = stream.kind;
        match wanted.kind.filter(|says| *says != is) {
            None => Ok(stream),
            Some(says) => Err(format!(
                "stream `{name}` is {}, but the mapping says {}",
                is.name(),
                says.name()
            )),
        }
    }

    fn add_all(&self, out: &mut TopicStreams) {
        let base = self.name.trim_matches('/');
        let (clock, known) = (self.clock(), known(&short(&self.schema.name)));
        let is_known = !known.is_empty();
        let mut used = Vec::new();
        for (end, pick) in known {
            let fields = pick.fields();
            let is_image = matches!(pick, Pick::Image(_));
            match self.stream(join(base, end, '/'), pick, clock) {
                Ok(stream) => out.streams.push(stream),
                Err(what) if is_image => out.lost.push((String::new(), what)),
                // A message that merely has the name of a well-known one still has its fields.
                Err(_) => continue,
            }
            used.extend(fields);
        }
        let mut attributes = Map::new();
        for (path, leaf) in self.in_order() {
            if used.contains(path) || self.has_stamps() && is_stamp(path) {
                continue;
            }
            let is_label = matches!(leaf.shape, Shape::Texts) || path.ends_with("frame_id");
            let constant = leaf
                .constant
                .as_ref()
                .filter(|_| leaf.seen == self.entries.len());
            if let Some(constant) = constant.filter(|_| is_known || is_label) {
                attributes.insert(path.clone(), constant.to_json());
                continue;
            }
            if matches!(leaf.shape, Shape::Numbers(_)) && leaf.lens == (0, 0) {
                out.notes
                    .push(format!("`{path}` is empty in every message"));
                continue;
            }
            match self.stream(
                join(base, path, '/'),
                Pick::Fields(vec![path.clone()]),
                clock,
            ) {
                Ok(stream) => out.streams.push(stream),
                Err(what) => out.lost.push((path.clone(), what)),
            }
        }
        for (name, value) in &self.metadata {
            attributes
                .entry(name.clone())
                .or_insert_with(|| Json::from(value.as_str()));
        }
        for stream in &mut out.streams {
            stream.attributes = attributes.clone();
        }
    }

    /// Texts that never change and are not used otherwise, as attributes.
    fn constants(&self, used: &[String]) -> Map<String, Json> {
        let is_label = |leaf: &Leaf| matches!(leaf.shape, Shape::Text | Shape::Texts);
        let labels = self.in_order().into_iter();
        let labels = labels.filter(|(path, leaf)| is_label(leaf) && !used.contains(path));
        let constant = |(path, leaf): (&String, &Leaf)| {
            let value = leaf.constant.as_ref()?.to_json();
            Some((path.clone(), value))
        };
        labels.filter_map(constant).collect()
    }

    fn in_order(&self) -> Vec<(&String, &Leaf)> {
        let mut leaves: Vec<_> = self.leaves.iter().collect();
        leaves.sort_by_key(|(_, leaf)| leaf.order);
        leaves
    }

    fn stream(&self, name: String, pick: Pick, clock: Clock) -> Result<TopicStream, String> {
        let is_path = name.split('/').all(|part| !matches!(part, "" | "." | ".."));
        let is_odd = |c: char| c.is_control() || c == '\\';
        if !is_path || name.len() > MAX_NAME_BYTES || name.contains(is_odd) {
            return Err(format!("{name:?} is not a valid stream name"));
        }
        let mut video = None;
        let (kind, frame, look) = match &pick {
            Pick::Image(inside) => {
                let image = self.images.iter().find(|image| image.inside == *inside);
                let image = image.ok_or("has no image")?;
                if let Some(wrong) = &image.wrong {
                    return Err(wrong.clone());
                }
                match (&image.track, &image.look) {
                    (Some(track), _) => {
                        let found = track.finish(&self.entries)?;
                        let frame = found.frame.clone();
                        video = Some(found);
                        (video_kind(&frame), frame, None)
                    }
                    (None, Some(look)) => (look.kind(), look.frame(), Some(look.clone())),
                    (None, None) => return Err("has no image".to_owned()),
                }
            }
            Pick::Fields(paths) => {
                let frame = self.frame(paths)?;
                let kind = if frame == FrameType::Text {
                    Kind::Text
                } else {
                    Kind::Vector
                };
                (kind, frame, None)
            }
        };
        Ok(TopicStream {
            name,
            kind,
            frame,
            look,
            video,
            pick,
            clock,
            attributes: Map::new(),
        })
    }

    /// The type of concatenated fields.
    fn frame(&self, paths: &[String]) -> Result<FrameType, String> {
        let (mut dtypes, mut elements) = (Vec::new(), 0_usize);
        let mut is_one = paths.len() == 1;
        for path in paths {
            let leaf = self
                .leaves
                .get(path)
                .ok_or_else(|| format!("has no field `{path}`: {}", self.fields()))?;
            let all = self.entries.len();
            if leaf.seen < all {
                return Err(format!(
                    "is in {} of {all} messages; a stream needs a value in each",
                    leaf.seen
                ));
            }
            if leaf.is_mixed {
                return Err("has values of several types".to_owned());
            }
            match leaf.shape {
                Shape::Text if is_one => return Ok(FrameType::Text),
                Shape::Text => {
                    return Err(format!(
                        "field `{path}` is text, which cannot be joined with other fields"
                    ));
                }
                Shape::Texts => {
                    return Err(
                        "is a list of strings that changes, which cannot be a frame".to_owned()
                    );
                }
                Shape::Other => {
                    return Err("is neither a number nor text, nor a list of numbers".to_owned());
                }
                Shape::Number(dtype) => dtypes.push(dtype),
                Shape::Numbers(dtype) => {
                    let (fewest, most) = leaf.lens;
                    if fewest != most {
                        return Err(format!(
                            "has lists of {fewest} to {most} numbers; a stream needs a fixed length"
                        ));
                    }
                    dtypes.push(dtype);
                    is_one = false;
                }
            }
            elements = elements.saturating_add(leaf.lens.0);
        }
        let Some(&dtype) = dtypes.first() else {
            return Err("has no field".to_owned());
        };
        if dtypes.iter().any(|other| *other != dtype) {
            return Err("has fields of several dtypes; make each its own stream".to_owned());
        }
        if elements == 0 {
            return Err("is empty in every message".to_owned());
        }
        let shape = [elements];
        let shape = if is_one { &[][..] } else { &shape[..] };
        FrameType::values(dtype, shape).map_err(|error| error.to_string())
    }

    /// The available fields, for the error about an unknown one.
    fn fields(&self) -> String {
        let names: Vec<_> = self
            .in_order()
            .into_iter()
            .take(20)
            .map(|(path, _)| format!("`{path}`"))
            .collect();
        format!("its fields are {}", names.join(", "))
    }
}

impl Pick {
    /// The fields that are in the stream.
    fn fields(&self) -> Vec<String> {
        match self {
            Self::Image(inside) => vec![join(inside, "data", '.')],
            Self::Fields(paths) => paths.clone(),
        }
    }
}

/// Depth is video of more than 8 bits.
fn video_kind(frame: &FrameType) -> Kind {
    match frame.as_values().map(ValueType::dtype) {
        Some(Dtype::U16) => Kind::Depth,
        _ => Kind::Image,
    }
}

/// The image that a mapping names by its kind.
pub(super) fn as_image(stream: &mapping::Stream) -> Option<Pick> {
    let is_image = matches!(stream.kind, Some(Kind::Image | Kind::Depth));
    let fields = stream.fields();
    match fields.as_slice() {
        _ if !is_image => None,
        [] => Some(Pick::Image(String::new())),
        [data] if data == "data" => Some(Pick::Image(String::new())),
        [field] => Some(Pick::Image(
            field.strip_suffix(".data").unwrap_or(field).to_owned(),
        )),
        _ => None,
    }
}
