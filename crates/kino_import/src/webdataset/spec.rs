//! Maps samples, which are steps or episodes, to episodes of streams.
//!
//! | one sample per step | becomes |
//! |---|---|
//! | `.npy`, `.cls`, an array of an `.npz` | numeric stream |
//! | `.jpg`, `.png` | image stream |
//! | `.txt`, `.json` | text stream |
//!
//! | one sample per episode of T frames | becomes |
//! |---|---|
//! | `front.00000.jpg`, `front.00001.jpg`, … | stream `front` |
//! | `.npy`, or an array of an `.npz`, with a first axis of T | stream |
//! | any other array, if it is small, `.txt`, `.json` | attribute of the episode |
//! | `kinograph.json`, which an export wrote | describes the other fields: see `about.rs` |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kino_codec::FrameType;
use serde_json::Value;

use crate::about::About;
use crate::npy::Npy;
use crate::source::{EpisodeSpec, StreamSpec};
use crate::specs::INSTRUCTIONS;
use crate::values::kind_of;
use crate::webdataset::ABOUT;
use crate::webdataset::cell::{self, Cell, Place, Reader};
use crate::webdataset::frames::{TarStream, Tars};
use crate::webdataset::names::{self, Ending};

/// A larger array is not an attribute.
const SMALL_BYTES: usize = 32 << 10;

/// Fields of a sample, by name.
pub(crate) type Fields = BTreeMap<String, Place>;

/// What an episode becomes.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// Its streams, attributes and task.
    pub(crate) episode: EpisodeSpec,
    /// Field and what is wrong with it.
    pub(crate) lost: Vec<(String, String)>,
    /// Field and note.
    pub(crate) noted: Vec<(String, String)>,
    /// What an export wrote about it.
    pub(crate) about: Option<About>,
}

/// An episode whose samples are its steps.
pub(crate) fn steps(tars: &Arc<Tars>, steps: &[Fields]) -> Result<Draft, String> {
    let mut out = Draft::default();
    let all: BTreeSet<&str> = steps.iter().flatten().map(|(field, _)| &**field).collect();
    let mut reader = Reader::default();
    for &field in &all {
        let places = steps.iter().filter_map(|step| step.get(field).copied());
        let places: Vec<_> = places.collect();
        let Some(first) = places.first().copied() else {
            continue;
        };
        if places.len() < steps.len() {
            let what = format!(
                "is missing in {} of {} steps",
                steps.len() - places.len(),
                steps.len()
            );
            out.lost.push((field.to_owned(), what));
            continue;
        }
        let bytes = reader.read(&tars.paths, first);
        let bytes = bytes.map_err(|error| error.to_string())?;
        for array in cell::arrays(first.ending, &bytes)? {
            let name = stream_name(field, array.as_deref(), all.iter().copied());
            let found = cell::decode(first.ending, &bytes, array.as_deref());
            let frame = found.and_then(|cell| {
                out.look_for_task(&name, &cell);
                cell::frame_type(&cell)
            });
            match frame {
                Ok((frame, encoded)) => {
                    let values = TarStream {
                        tars: Arc::clone(tars),
                        places: places.clone(),
                        array,
                        encoded,
                        is_over_time: false,
                    };
                    out.push(name, frame, steps.len(), values);
                }
                Err(what) => out.lost.push((field.to_owned(), what)),
            }
        }
    }
    Ok(out)
}

/// The name of a stream: without the extension, if that is unique.
fn stream_name<'a>(field: &str, array: Option<&str>, all: impl Iterator<Item = &'a str>) -> String {
    let stem = names::stem(field);
    let is_alone = all.filter(|other| names::stem(other) == stem).count() == 1;
    let name = if is_alone { stem } else { field };
    match array {
        None => name.to_owned(),
        // `demo_2.npz`: the arrays are the streams.
        Some(array) if field == "npz" => array.to_owned(),
        Some(array) => format!("{name}/{array}"),
    }
}

/// An array of a sample that is an episode.
struct Found {
    name: String,
    place: Place,
    array: Option<String>,
    /// The length of its first axis.
    rows: Option<usize>,
    frame: Result<FrameType, String>,
    /// Its value, if it is small; larger ones are read again when needed.
    small: Option<Value>,
}

/// An episode that is one sample.
pub(crate) fn episode(tars: &Arc<Tars>, fields: &Fields) -> Result<Draft, String> {
    let mut out = Draft::default();
    let mut reader = Reader::default();
    let mut read = |place| {
        let bytes = reader.read(&tars.paths, place);
        bytes.map_err(|error| error.to_string())
    };
    if let Some(&place) = fields.get(ABOUT) {
        let about = About::parse(&String::from_utf8_lossy(&read(place)?));
        out.about = Some(about.map_err(|what| format!("`{ABOUT}` {what}"))?);
    }
    let mut images: BTreeMap<&str, BTreeMap<u64, Place>> = BTreeMap::new();
    let mut arrays = Vec::new();
    for (field, &place) in fields.iter().filter(|(field, _)| *field != ABOUT) {
        match (place.ending, names::numbered(field)) {
            (Ending::Image, Some((stream, number))) => {
                images.entry(stream).or_default().insert(number, place);
            }
            _ => arrays.extend(out.look(fields, field, &read(place)?)?),
        }
    }
    let most = frame_count(&arrays, &images)?;
    for (stream, places) in images {
        let frames = out.frames(stream, most);
        if places.len() != frames {
            return Err(format!(
                "`{stream}` has {} images, but the episode has {frames} frames",
                places.len()
            ));
        }
        out.images(tars, stream, places.into_values().collect(), &mut read)?;
    }
    for array in arrays {
        let frames = out.frames(&array.name, most);
        out.array(tars, array, frames);
    }
    Ok(out)
}

fn first_axis(npy: &Npy) -> Option<usize> {
    match npy {
        Npy::Numbers(array) => array.shape.first().copied(),
        Npy::Texts(_, shape) => shape.first().copied(),
    }
}

fn row_type(npy: &Npy) -> Result<FrameType, String> {
    match npy {
        Npy::Numbers(array) => {
            FrameType::values(array.dtype, array.shape.get(1..).unwrap_or_default())
                .map_err(|error| error.to_string())
        }
        Npy::Texts(_, shape) if shape.len() == 1 => Ok(FrameType::Text),
        Npy::Texts(_, shape) => Err(format!(
            "has several strings per frame: its shape is {shape:?}"
        )),
    }
}

fn is_small(npy: &Npy) -> bool {
    match npy {
        Npy::Numbers(array) => array.values.len() <= SMALL_BYTES,
        Npy::Texts(texts, _) => texts.iter().map(String::len).sum::<usize>() <= SMALL_BYTES,
    }
}

/// The frame count of an episode: that of its actions, its images, or the longest of its arrays.
fn frame_count(
    arrays: &[Found],
    images: &BTreeMap<&str, BTreeMap<u64, Place>>,
) -> Result<usize, String> {
    let is_action = |array: &&Found| matches!(&*array.name, "action" | "actions");
    let actions = arrays.iter().find(is_action).and_then(|array| array.rows);
    let images = || images.values().map(BTreeMap::len).max();
    let longest = || arrays.iter().filter_map(|array| array.rows).max();
    match actions.or_else(images).or_else(longest) {
        None | Some(0) => Err("has no frames".to_owned()),
        Some(frames) => Ok(frames),
    }
}

impl Draft {
    /// The frame count that makes a field a stream: an export states it for each.
    fn frames(&self, name: &str, most: usize) -> usize {
        let said = self.about.as_ref().and_then(|about| about.frames(name));
        said.unwrap_or(most)
    }

    /// Whether a text is a list with one item per frame.
    fn is_text_stream(&self, name: &str) -> bool {
        let about = self.about.as_ref();
        about.is_some_and(|about| about.is_text(name))
    }

    /// Inspects a field of a sample that is an episode: text becomes an attribute, arrays are returned.
    fn look(&mut self, fields: &Fields, field: &str, bytes: &[u8]) -> Result<Vec<Found>, String> {
        let Some(&place) = fields.get(field) else {
            return Ok(Vec::new());
        };
        let mut arrays = Vec::new();
        for array in cell::arrays(place.ending, bytes)? {
            let all = fields.keys().map(String::as_str);
            let name = stream_name(field, array.as_deref(), all);
            let (npy, small) = match cell::decode(place.ending, bytes, array.as_deref()) {
                Ok(Cell::Array(npy)) => {
                    let small = is_small(&npy).then(|| cell::to_json(&npy));
                    (npy, small)
                }
                Ok(Cell::Text(list)) if self.is_text_stream(&name) => (cell::texts(&list)?, None),
                Ok(Cell::Text(text)) => {
                    let value = cell::attribute(&text);
                    self.look_for_task(&name, &Cell::Text(text));
                    self.episode.attributes.insert(name, value);
                    continue;
                }
                Ok(Cell::Image(_)) => {
                    let what = "is a single image per episode, not one per frame";
                    self.lost.push((field.to_owned(), what.to_owned()));
                    continue;
                }
                Err(what) => {
                    self.lost.push((field.to_owned(), what));
                    continue;
                }
            };
            arrays.push(Found {
                name,
                place,
                array,
                rows: first_axis(&npy),
                frame: row_type(&npy),
                small,
            });
        }
        Ok(arrays)
    }

    /// An array with a time axis becomes a stream, a small one an attribute.
    fn array(&mut self, tars: &Arc<Tars>, array: Found, frames: usize) {
        let (name, rows) = (array.name, array.rows);
        match (array.frame, array.small) {
            (Ok(frame), _) if rows == Some(frames) => {
                let values = TarStream {
                    tars: Arc::clone(tars),
                    places: vec![array.place],
                    array: array.array,
                    encoded: None,
                    is_over_time: true,
                };
                self.push(name, frame, frames, values);
            }
            (_, Some(value)) => {
                if let Some(rows) = rows {
                    let what = format!(
                        "becomes an attribute: it has {rows} rows, but the episode has {frames} frames"
                    );
                    self.noted.push((name.clone(), what));
                }
                self.episode.attributes.insert(name, value);
            }
            (Err(what), None) => self.lost.push((name, what)),
            (Ok(_), None) => {
                let what = format!(
                    "does not have the {frames} frames of the episode, and is too large for an attribute"
                );
                self.lost.push((name, what));
            }
        }
    }

    fn push(&mut self, name: String, frame: FrameType, frames: usize, values: TarStream) {
        let encoded = values.encoded.as_ref();
        let carried = encoded.is_some_and(|encoded| encoded.carried);
        let kind = match encoded {
            Some(encoded) => encoded.kind(),
            None => kind_of(&name, &frame),
        };
        let values = Arc::new(values);
        let mut stream = StreamSpec::new(name, kind, frame, frames as u64, values);
        stream.carried = carried;
        self.episode.streams.push(stream);
    }

    fn images(
        &mut self,
        tars: &Arc<Tars>,
        stream: &str,
        places: Vec<Place>,
        read: &mut impl FnMut(Place) -> Result<Vec<u8>, String>,
    ) -> Result<(), String> {
        let Some(first) = places.first() else {
            return Ok(());
        };
        match cell::frame_type(&Cell::Image(read(*first)?)) {
            Ok((frame, encoded)) => {
                let frames = places.len();
                let values = TarStream {
                    tars: Arc::clone(tars),
                    places,
                    array: None,
                    encoded,
                    is_over_time: false,
                };
                self.push(stream.to_owned(), frame, frames, values);
            }
            Err(what) => self.lost.push((stream.to_owned(), what)),
        }
        Ok(())
    }

    fn look_for_task(&mut self, name: &str, cell: &Cell) {
        if let Cell::Text(text) = cell
            && INSTRUCTIONS.contains(&name)
            && self.episode.task.is_none()
            && !text.trim().is_empty()
        {
            self.episode.task = Some(text.trim().to_owned());
        }
    }
}
