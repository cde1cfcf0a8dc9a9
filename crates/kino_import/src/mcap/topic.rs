//! One topic of a file during the walk: where its messages are, and what they have in common.
//!
//! ```text
//! message ──decode──▶ values ─┬─ stamp ──▶ entry: three timestamps, and the location of the payload
//!                             └─ leaves ─▶ their types, their lengths, whether they change
//! ```
//!
//! Payloads are not kept: an entry takes 40 bytes, whatever the size of the message.
use std::collections::BTreeMap;
use std::sync::Arc;

use super::decoder::{Decoder, Schema};
use super::leaf::{self, Leaf};
use super::mapping::{self, Clock};
use super::message::{Value, stamp};
use super::picks::{Pick, known};
use super::pixels;
use super::records::Place;
use super::ros2::short;
use super::streams::as_image;
use crate::image::Encoded;

/// A message: when, and where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) log_ns: i64,
    pub(super) publish_ns: i64,
    /// The stamp in the message, 0 if it has none.
    pub(super) stamp_ns: i64,
    pub(super) place: Place,
}

#[derive(Debug)]
pub(super) struct Topic {
    pub(super) name: String,
    pub(super) schema: Schema,
    pub(super) encoding: String,
    pub(super) decoder: Result<Arc<Decoder>, String>,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) entries: Vec<Entry>,
    /// How many messages cannot be decoded, and the error of the first.
    pub(super) unread: (u64, Option<(i64, String)>),
    stamps: usize,
    pub(super) has_time: bool,
    pub(super) leaves: BTreeMap<String, Leaf>,
    pub(super) images: Vec<Image>,
}

#[derive(Debug, Default)]
pub(super) struct Image {
    /// The message that it is in.
    pub(super) inside: String,
    pub(super) look: Option<Encoded>,
    /// Why the images are not one stream.
    pub(super) wrong: Option<String>,
}

impl Topic {
    pub(super) fn new(
        name: &str,
        encoding: &str,
        schema: &Schema,
        wanted: &[&mapping::Stream],
    ) -> Self {
        let images = known(&short(&schema.name))
            .into_iter()
            .map(|(_, pick)| pick);
        let wanted = wanted.iter().filter_map(|stream| as_image(stream));
        let mut images: Vec<_> = images
            .chain(wanted)
            .filter_map(|pick| match pick {
                Pick::Image(inside) => Some(inside),
                Pick::Fields(_) => None,
            })
            .collect();
        images.sort();
        images.dedup();
        let to_image = |inside| Image {
            inside,
            ..Image::default()
        };
        Self {
            name: name.to_owned(),
            schema: schema.clone(),
            encoding: encoding.to_owned(),
            decoder: Decoder::new(encoding, schema).map(Arc::new),
            metadata: BTreeMap::new(),
            entries: Vec::new(),
            unread: (0, None),
            stamps: 0,
            has_time: false,
            leaves: BTreeMap::new(),
            images: images.into_iter().map(to_image).collect(),
        }
    }

    /// Adds a message; passes its value to `watch`.
    pub(super) fn add(&mut self, mut entry: Entry, data: &[u8], watch: &mut dyn FnMut(&Value<'_>)) {
        let Ok(decoder) = &self.decoder else {
            self.unread.0 += 1;
            return;
        };
        let decoder = Arc::clone(decoder);
        let value = decoder.decode(data).and_then(|value| {
            let mut looks = Vec::new();
            for image in &self.images {
                let inside = value.get(&image.inside).ok_or("has no image")?;
                looks.push(pixels::look(inside)?);
            }
            Ok((value, looks))
        });
        let (value, looks) = match value {
            Ok(found) => found,
            Err(what) => {
                self.unread.0 += 1;
                self.unread.1.get_or_insert((entry.log_ns, what));
                return;
            }
        };
        let number = self.entries.len();
        for (image, look) in self.images.iter_mut().zip(looks) {
            match &image.look {
                None => image.look = Some(look),
                Some(first) if *first == look => {}
                Some(first) => {
                    let what = format!(
                        "message {number} is an image of {}, but the first is of {}",
                        look.ty, first.ty
                    );
                    image.wrong.get_or_insert(what);
                }
            }
        }
        if let Some(stamp_ns) = stamp(&value) {
            entry.stamp_ns = stamp_ns;
            self.stamps += 1;
            self.has_time |= stamp_ns != 0;
        }
        let leaves = &mut self.leaves;
        value.leaves(&mut String::new(), &mut |path, value| {
            leaf::note(leaves, path, value)
        });
        self.entries.push(entry);
        watch(&value);
    }

    /// The default clock of the frames.
    pub(super) fn clock(&self) -> Clock {
        if self.has_stamps() && self.has_time {
            Clock::Header
        } else {
            Clock::Log
        }
    }

    /// Whether every message has a stamp.
    pub(super) fn has_stamps(&self) -> bool {
        self.stamps == self.entries.len()
    }
}

impl Entry {
    pub(super) fn time(&self, clock: Clock) -> i64 {
        match clock {
            Clock::Header => self.stamp_ns,
            Clock::Log => self.log_ns,
            Clock::Publish => self.publish_ns,
        }
    }
}
