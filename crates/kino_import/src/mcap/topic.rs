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
use super::track::{self, Added, Track};
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
    /// Frames of video that need messages before them which are not there: before the first key frame, and others.
    pub(super) skipped: [Skipped; 2],
    stamps: usize,
    pub(super) has_time: bool,
    pub(super) leaves: BTreeMap<String, Leaf>,
    pub(super) images: Vec<Image>,
}

/// How many messages are skipped, and the log time of the first.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Skipped {
    pub(super) count: u64,
    pub(super) log_ns: i64,
}

#[derive(Debug, Default)]
pub(super) struct Image {
    /// The message that it is in.
    pub(super) inside: String,
    pub(super) look: Option<Encoded>,
    /// Present if it is video.
    pub(super) track: Option<Track>,
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
            skipped: [Skipped::default(); 2],
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
            let added = self.add_images(&value)?;
            Ok((value, added))
        });
        let value = match value {
            Ok((value, Added::Frame)) => value,
            Ok((_, Added::Skipped)) => {
                self.break_off();
                let skipped = &mut self.skipped[usize::from(!self.entries.is_empty())];
                if skipped.count == 0 {
                    skipped.log_ns = entry.log_ns;
                }
                skipped.count += 1;
                return;
            }
            Err(what) => {
                self.break_off();
                self.unread.0 += 1;
                self.unread.1.get_or_insert((entry.log_ns, what));
                return;
            }
        };
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

    /// Compares the images in a message with those before.
    fn add_images(&mut self, value: &Value<'_>) -> Result<Added, String> {
        let (number, mut added) = (self.entries.len(), Added::Frame);
        for image in &mut self.images {
            let inside = value.get(&image.inside).ok_or("has no image")?;
            if let Some(coding) = track::coding(inside).filter(|_| image.look.is_none()) {
                image.track.get_or_insert_with(|| Track::new(coding));
            }
            if let Some(track) = &mut image.track {
                if track.add(inside)? == Added::Skipped {
                    added = Added::Skipped;
                }
                continue;
            }
            let look = pixels::look(inside)?;
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
        Ok(added)
    }

    /// A message is missing: frames of video cannot be decoded up to the next key frame.
    pub(super) fn break_off(&mut self) {
        let frames = self.entries.len();
        let tracks = self
            .images
            .iter_mut()
            .filter_map(|image| image.track.as_mut());
        tracks.for_each(|track| track.break_off(frames));
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
