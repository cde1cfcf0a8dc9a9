//! Maps the fields of an episode to streams and clocks.
//!
//! | field of an episode of N frames | becomes |
//! |---|---|
//! | named by a `[[stream]]` of the mapping | that stream; columns of one pattern become one vector |
//! | without such: first axis N | stream of the field's name |
//! | another first axis, or none, and small | attribute |
//! | another first axis, large | defect, skipped |

use std::sync::Arc;

use kino_codec::FrameType;
use kino_dataset::Kind;
use serde_json::{Map, Value};

use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result};
use crate::folder::cell::Cell;
use crate::folder::fields::{Columns, Field, Place};
use crate::folder::frames::{Caches, FolderStream};
use crate::folder::glob;
use crate::folder::mapping::{Mapping, StreamRequest};
use crate::source::{EpisodeSpec, StreamSpec};
use crate::specs::{self, product};
use crate::values::{self, is_kind, kind_of};

/// An array of at most this many elements can become an attribute.
const SMALL_ELEMENTS: u64 = 4096;

/// Builds the spec of one episode after another.
pub(crate) struct SpecBuilder<'a> {
    pub(super) mapping: &'a Mapping,
    pub(super) rate_hz: Option<f64>,
    /// Whether any episode had the field of each `[[stream]]`.
    found: Vec<bool>,
    has_noted: bool,
    /// The number of streams so far.
    streams: usize,
    caches: Arc<Caches>,
}

impl<'a> SpecBuilder<'a> {
    pub(crate) fn new(mapping: &'a Mapping, rate_hz: Option<f64>) -> Self {
        Self {
            mapping,
            rate_hz,
            found: vec![false; mapping.streams.len()],
            has_noted: false,
            streams: 0,
            caches: Arc::default(),
        }
    }

    /// Builds the spec of the episode `id` in the file or folder `name`; `None` if it is skipped.
    pub(crate) fn episode(
        &mut self,
        name: &str,
        id: &str,
        fields: Vec<Field>,
        defects: &mut Vec<Defect>,
    ) -> Result<Option<EpisodeSpec>> {
        let mut note = |field: &str, what: String, action| {
            let place = format!("{name}:/{field}");
            defects.push(Defect::new(place, what, action).of(id));
        };
        let (wanted, attributes) = if self.mapping.streams.is_empty() {
            self.all(&fields, &mut note)?
        } else {
            (self.requested(&fields, &mut note)?, Map::new())
        };
        let mut streams: Vec<StreamSpec> = Vec::new();
        let mut clocks = Vec::new();
        for (field, request) in wanted {
            let frames = field.rows.unwrap_or(0);
            let times = match self.known_clock(&field, request, &fields, &mut clocks) {
                Ok(times) => times,
                Err(ImportError::Corrupt { what, object, .. }) => {
                    note(&object, what, Action::Dropped);
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            let frame = match field.frame() {
                Ok(frame) => frame,
                Err(what) => {
                    note(&field.name, what, Action::Skipped);
                    continue;
                }
            };
            let name = request.map_or(&field.name, |request| &request.name);
            let kind = self.kind(name, &frame, request)?;
            let carried = field.is_carried();
            self.streams += 1;
            let values = FolderStream {
                place: field.place,
                number: self.streams,
                caches: Arc::clone(&self.caches),
            };
            let mut stream = StreamSpec::new(name, kind, frame, frames, Arc::new(values));
            stream.clock = times;
            stream.carried = carried;
            stream.unit = request.and_then(|request| request.unit.clone());
            streams.push(stream);
        }
        if streams.iter().all(|stream| stream.frames == 0) {
            note("", "has no frames".to_owned(), Action::Dropped);
            return Ok(None);
        }
        let mut episode = EpisodeSpec {
            id: id.to_owned(),
            attributes,
            task: self.mapping.task.clone(),
            licence: self.mapping.licence.clone(),
            object: "/".to_owned(),
            streams,
            ..EpisodeSpec::default()
        };
        episode.sort_streams();
        Ok(Some(episode))
    }

    /// Every field of the common length, and the others as attributes.
    #[expect(clippy::type_complexity, reason = "read in one place")]
    fn all(
        &self,
        fields: &[Field],
        note: &mut dyn FnMut(&str, String, Action),
    ) -> Result<(Vec<(Field, Option<&'a StreamRequest>)>, Map<String, Value>)> {
        let rows = specs::most_common(fields.iter().filter_map(|field| field.rows));
        let (mut streams, mut attributes) = (Vec::new(), Map::new());
        for field in fields {
            if field.rows.is_some() && field.rows == rows {
                streams.push((field.clone(), None));
                continue;
            }
            match to_json(field) {
                Ok(Some(value)) => drop(attributes.insert(field.name.clone(), value)),
                Ok(None) => {
                    let what = format!(
                        "has {} frames, but most fields have {}; add a [[stream]] with a rate_hz to the mapping",
                        field.rows.unwrap_or(0),
                        rows.unwrap_or(0)
                    );
                    note(&field.name, what, Action::Skipped);
                }
                Err(ImportError::Corrupt { what, .. }) => note(&field.name, what, Action::Skipped),
                Err(error) => return Err(error),
            }
        }
        Ok((streams, attributes))
    }

    /// The fields that the mapping names.
    fn requested(
        &mut self,
        fields: &[Field],
        note: &mut dyn FnMut(&str, String, Action),
    ) -> Result<Vec<(Field, Option<&'a StreamRequest>)>> {
        let mapping = self.mapping;
        let mut streams = Vec::new();
        for (number, request) in mapping.streams.iter().enumerate() {
            let found: Vec<_> = fields
                .iter()
                .filter(|field| glob::matches(&request.from, &field.name))
                .collect();
            let Some(first) = found.first() else {
                note(
                    &request.from,
                    format!(
                        "does not exist, but line {} of the mapping names it",
                        request.line
                    ),
                    Action::Skipped,
                );
                continue;
            };
            self.found[number] = true;
            let is_vector =
                request.from.contains(['*', '?']) && matches!(first.place, Place::Columns(_));
            let field = match (is_vector, found.as_slice()) {
                (false, [one]) => (*one).clone(),
                (true, many) => match joined(many) {
                    Some(joined) => joined,
                    None => {
                        let what = format!(
                            "matches columns that are not all numeric with one type and in one table; see line {} of the mapping",
                            request.line
                        );
                        note(&request.from, what, Action::Skipped);
                        continue;
                    }
                },
                (false, many) => {
                    let what = format!(
                        "{:?} matches {} arrays; only columns can be joined",
                        request.from,
                        many.len()
                    );
                    return Err(mapping.wrong(request, &what));
                }
            };
            streams.push((field, Some(request)));
        }
        let is_named = |field: &&Field| {
            mapping
                .streams
                .iter()
                .any(|request| glob::matches(&request.from, &field.name))
        };
        let others: Vec<_> = fields.iter().filter(|field| !is_named(field)).collect();
        if !others.is_empty() && !self.has_noted {
            self.has_noted = true;
            let names: Vec<_> = others
                .iter()
                .take(20)
                .map(|field| field.name.as_str())
                .collect();
            let what = format!(
                "has fields that the mapping does not name: {}",
                names.join(", ")
            );
            note("", what, Action::Noted);
        }
        Ok(streams)
    }

    /// Refuses a mapping that names something no episode has.
    pub(crate) fn check_all_found(&self) -> Result<()> {
        let missing = self.mapping.streams.iter().zip(&self.found);
        match missing.into_iter().find(|(_, found)| !**found) {
            None => Ok(()),
            Some((request, _)) => {
                let what = format!("no episode has {:?}", request.from);
                Err(self.mapping.wrong(request, &what))
            }
        }
    }

    fn kind(&self, name: &str, frame: &FrameType, request: Option<&StreamRequest>) -> Result<Kind> {
        let natural = kind_of(name, frame);
        let Some((request, wanted)) = request.and_then(|request| Some((request, request.kind?)))
        else {
            return Ok(natural);
        };
        if is_kind(wanted, name, frame) {
            return Ok(wanted);
        }
        let what = format!(
            "{:?} is {frame}, which cannot be of kind {}",
            request.from,
            wanted.name()
        );
        Err(self.mapping.wrong(request, &what))
    }
}

/// Columns of one table as one vector; `None` if no type represents all of them exactly.
fn joined(fields: &[&Field]) -> Option<Field> {
    let places = fields.iter().map(|field| match &field.place {
        Place::Columns(columns) => Some(columns),
        Place::Array(_) | Place::Images(_) => None,
    });
    let places: Vec<_> = places.collect::<Option<_>>()?;
    let table = &places.first()?.table;
    if places.iter().any(|place| !Arc::ptr_eq(&place.table, table)) {
        return None;
    }
    let all: Vec<_> = places
        .iter()
        .flat_map(|place| &place.columns)
        .copied()
        .collect();
    let columns = || all.iter().filter_map(|&column| table.columns.get(column));
    let is_all = |cell: Cell| columns().all(|column| column.cell == cell);
    let is_whole = columns().all(|column| matches!(column.cell, Cell::Whole | Cell::Unsigned));
    let is_number = !columns().any(|column| matches!(column.cell, Cell::Bool | Cell::Text));
    let fit = |cell: Cell| columns().all(|column| column.cell == cell || column.seen.fits(cell));
    let cell = if is_all(Cell::Bool) {
        Cell::Bool
    } else if is_all(Cell::Whole) {
        Cell::Whole
    } else if is_whole && fit(Cell::Unsigned) {
        Cell::Unsigned
    } else if is_number && fit(Cell::Float) {
        Cell::Float
    } else {
        return None;
    };
    Some(Field {
        name: fields.first()?.name.clone(),
        rows: fields.first()?.rows,
        place: Place::Columns(Columns {
            table: Arc::clone(table),
            columns: all,
            cell,
            is_vector: true,
        }),
    })
}

/// A small array or value as JSON; `None` if it is large.
fn to_json(field: &Field) -> Result<Option<Value>> {
    let Place::Array(array) = &field.place else {
        return Ok(None);
    };
    let header = &array.header;
    if product(1, &header.shape) > SMALL_ELEMENTS {
        return Ok(None);
    }
    let bytes = array.read_whole()?;
    if let Some(dtype) = header.element.dtype() {
        return Ok(Some(values::numbers(dtype, &bytes, &header.shape)));
    }
    let texts = header.element.texts(&bytes);
    let texts = texts.map_err(|what| ImportError::corrupt(&array.path, &field.name, what))?;
    let texts = texts.into_iter().map(Value::from).collect();
    Ok(Some(values::nest(texts, &header.shape)))
}
