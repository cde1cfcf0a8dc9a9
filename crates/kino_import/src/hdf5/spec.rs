//! Maps the datasets of an episode to streams, attributes and defects.
//!
//! | dataset of an episode of N frames | becomes |
//! |---|---|
//! | first axis N | stream, named by its path inside the episode |
//! | scalar | attribute |
//! | first axis not N, where the layout stores frames | error: the episode is incomplete |
//! | first axis not N elsewhere, small (a calibration matrix) | attribute |
//! | first axis not N elsewhere, large | defect, skipped |
//! | elements that cannot be frames (compound types, references) | defect, skipped |

use std::ops::Range;
use std::sync::Arc;

use kino_dataset::{Kind, MAX_FRAMES, MAX_STREAMS};
use serde_json::{Map, Value};

use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result};
use crate::hdf5::element::Element;
use crate::hdf5::file::H5File;
use crate::hdf5::frame_type::{Typed, advice, typed};
use crate::hdf5::frames;
use crate::hdf5::rows::{Form, Rows};
use crate::hdf5::tree::{Leaf, Node, below, shown};
use crate::shift::find_shifts;
use crate::source::{ClockSpec, EpisodeSpec, MAX_IMPORTED_FRAME_BYTES, StreamSpec};

/// A dataset of at most this many values or strings can become an attribute.
const SMALL_ELEMENTS: u64 = 4096;

/// And of at most this many bytes.
const SMALL_BYTES: u64 = 1 << 20;

/// The expectations for an episode's datasets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub(crate) file: &'a Arc<H5File>,
    /// The group of the episode.
    pub(crate) object: &'a str,
    /// Its number of frames.
    pub(crate) frames: u64,
    /// The source of that number: "`num_samples` says".
    pub(crate) says: &'a str,
    pub(crate) rate_hz: f64,
    /// Where the layout stores one row per frame.
    pub(crate) is_per_frame: fn(&str) -> bool,
}

/// What an episode's datasets become.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub(crate) streams: Vec<StreamSpec>,
    pub(crate) attributes: Map<String, Value>,
    pub(crate) defects: Vec<Defect>,
}

/// A request to turn a dataset into a stream.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) name: String,
    pub(crate) leaf: Leaf,
    /// The row of the first frame.
    pub(crate) first: u64,
    pub(crate) frames: u64,
    pub(crate) clock: ClockSpec,
    /// Default: from the shape and the name.
    pub(crate) kind: Option<Kind>,
    /// Default: from the shape.
    pub(crate) layout: Option<ImageLayout>,
    /// The index on the second axis.
    pub(crate) index: Option<u64>,
    pub(crate) unit: Option<String>,
}

/// The axis order of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageLayout {
    Hwc,
    Chw,
}

impl Frame<'_> {
    /// The episode of a group, without id and task, and its defects.
    pub(crate) fn episode(&self, group: Node) -> Result<(EpisodeSpec, Vec<Defect>)> {
        let (leaves, mut attributes) = group.into_parts();
        let mut found = self.streams(leaves)?;
        attributes.append(&mut found.attributes);
        let episode = EpisodeSpec {
            success: success_of(&attributes),
            attributes,
            object: shown(self.object).to_owned(),
            streams: found.streams,
            ..EpisodeSpec::default()
        };
        Ok((episode, found.defects))
    }

    /// Sorts an episode's datasets into streams, attributes and defects.
    fn streams(&self, leaves: Vec<Leaf>) -> Result<Streams> {
        let Self {
            file, frames, says, ..
        } = *self;
        let wrong = |object: &str, what| Err(ImportError::incomplete(file.path(), object, what));
        if frames > u64::from(MAX_FRAMES) {
            let what = format!("has {frames} frames; the limit is {MAX_FRAMES} per stream");
            return wrong(shown(self.object), what);
        }
        let mut out = Streams::default();
        for leaf in leaves {
            let name = below(self.object, &leaf.path).to_owned();
            if let Element::Other(what) = leaf.element {
                out.skip(file, &leaf, format!("contains {what}"));
            } else if leaf.rows() == Some(frames) {
                let rate_hz = self.rate_hz;
                let clock = ClockSpec::Regular { rate_hz };
                out.add(file, Request::new(name, leaf, 0..frames, clock))?;
            } else if (self.is_per_frame)(&name) {
                let what = match leaf.rows() {
                    Some(len) => format!("has {len} frames, but {says} {frames}"),
                    None => format!("is a scalar, but {says} {frames} frames"),
                };
                return wrong(&leaf.path, what);
            } else {
                out.aside(file, leaf, name)?;
            }
        }
        let count = out.streams.len();
        if count > MAX_STREAMS {
            let what = format!("has {count} streams; the limit is {MAX_STREAMS} per episode");
            return wrong(shown(self.object), what);
        }
        find_shifts(&mut out.streams);
        Ok(out)
    }
}

impl Request {
    /// Rows of a dataset, unchanged.
    pub(crate) fn new(name: String, leaf: Leaf, rows: Range<u64>, clock: ClockSpec) -> Self {
        Self {
            name,
            leaf,
            first: rows.start,
            frames: rows.end - rows.start,
            clock,
            kind: None,
            layout: None,
            index: None,
            unit: None,
        }
    }
}

impl Streams {
    /// Adds a stream, or the defect that prevents it.
    pub(crate) fn add(&mut self, file: &Arc<H5File>, request: Request) -> Result<()> {
        let leaf = &request.leaf;
        if leaf.row_bytes() > MAX_IMPORTED_FRAME_BYTES {
            let bytes = leaf.row_bytes();
            let what =
                format!("has frames of {bytes} bytes; the limit is {MAX_IMPORTED_FRAME_BYTES}");
            self.skip(file, leaf, what);
            return Ok(());
        }
        let bytes = leaf.row_bytes().saturating_mul(request.frames);
        file.reserve_bytes(&leaf.path, bytes)?;
        match typed(file, &request)? {
            Ok(typed) => self.push(file, request, typed),
            Err(what) => self.skip(file, leaf, what),
        }
        Ok(())
    }

    fn push(&mut self, file: &Arc<H5File>, request: Request, typed: Typed) {
        let Typed { frame, kind, form } = typed;
        if let Some(what) = advice(&request, &frame, &form) {
            let place = file.place(&request.leaf.path);
            self.defects.push(Defect::new(place, what, Action::Noted));
        }
        let carried = matches!(&form, Form::Files(encoded) if encoded.carried);
        let attributes = request.leaf.attributes.clone();
        let rows = Rows {
            file: Arc::clone(file),
            leaf: request.leaf,
            first: request.first,
            index: request.index,
            form,
        };
        let (name, frames) = (request.name, request.frames);
        let mut stream = StreamSpec::new(name, kind, frame, frames, Arc::new(rows));
        stream.clock = request.clock;
        stream.carried = carried;
        match request.unit {
            None => stream.set_attributes(attributes),
            unit => (stream.unit, stream.attributes) = (unit, attributes),
        }
        self.streams.push(stream);
    }

    /// A dataset that is not frames: an attribute if it is small.
    pub(crate) fn aside(&mut self, file: &H5File, leaf: Leaf, name: String) -> Result<()> {
        let bytes = leaf.elements().saturating_mul(leaf.element.size());
        if let Element::Other(what) = leaf.element {
            self.skip(file, &leaf, format!("contains {what}"));
        } else if leaf.elements() > SMALL_ELEMENTS || bytes > SMALL_BYTES {
            let what = format!(
                "does not have one row per frame: its shape is {:?}",
                leaf.shape
            );
            self.skip(file, &leaf, what);
        } else {
            let value = frames::read_json(file, &leaf)?;
            for (key, value) in leaf.attributes {
                self.attributes.insert(format!("{name}@{key}"), value);
            }
            self.attributes.insert(name, value);
        }
        Ok(())
    }

    pub(crate) fn skip(&mut self, file: &H5File, leaf: &Leaf, what: String) {
        self.defects
            .push(Defect::new(file.place(&leaf.path), what, Action::Skipped));
    }
}

/// The first attribute of `keys` that is text.
pub(crate) fn text_of(attributes: &Map<String, Value>, keys: &[&str]) -> Option<String> {
    let text = |key: &&str| Some(attributes.get(*key)?.as_str()?.to_owned());
    keys.iter().find_map(text).filter(|text| !text.is_empty())
}

/// Whether the attributes say that the episode succeeded.
pub(crate) fn success_of(attributes: &Map<String, Value>) -> Option<bool> {
    is_true(attributes.get("success")?)
}

/// A bool, or a number that is not zero.
pub(crate) fn is_true(value: &Value) -> Option<bool> {
    value.as_bool().or_else(|| Some(value.as_f64()? != 0.0))
}
