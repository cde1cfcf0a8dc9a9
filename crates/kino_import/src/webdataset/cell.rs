//! A cell: one member of a tar, or one array of it, decoded.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use kino_codec::{Dtype, FrameType};
use serde_json::Value;

use crate::npy::{self, Array, Npy};
use crate::source::FrameBuf;
use crate::webdataset::names::Ending;
use crate::{image, values, zip};

/// Limit on a decompressed array of an npz (1 GiB), whatever its zip claims.
const MAX_MEMBER_BYTES: u64 = 128 << 20;

/// Limit on JSON that is parsed.
const MAX_JSON_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: usize,
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) ending: Ending,
}

#[derive(Debug)]
pub(crate) enum Cell {
    Array(Npy),
    Text(String),
    Image(Vec<u8>),
}

/// Reads the bytes of members, and keeps the file of the last one open.
#[derive(Default)]
pub(crate) struct Reader(Option<(usize, File)>);

impl Reader {
    pub(crate) fn read(&mut self, paths: &[PathBuf], place: Place) -> io::Result<Vec<u8>> {
        let mut file = match self.0.take() {
            Some((number, file)) if number == place.file => file,
            _ => crate::files::open(&paths[place.file])?,
        };
        file.seek(SeekFrom::Start(place.start))?;
        let mut bytes = Vec::new();
        (&mut file).take(place.len).read_to_end(&mut bytes)?;
        self.0 = Some((place.file, file));
        Ok(bytes)
    }
}

/// JSON or text as an attribute: a long one stays text, because parsed values would take many times as much.
pub(crate) fn attribute(text: &str) -> Value {
    if text.len() <= MAX_JSON_BYTES {
        values::text(text)
    } else {
        Value::from(text)
    }
}

/// Decodes a member; `array` is the name of one inside an npz.
pub(crate) fn decode(ending: Ending, bytes: &[u8], array: Option<&str>) -> Result<Cell, String> {
    let text = |bytes: &[u8]| {
        String::from_utf8(bytes.to_vec()).map_err(|_| "is not UTF-8 text".to_owned())
    };
    match ending {
        Ending::Npy => npy::parse(bytes).map(Cell::Array),
        Ending::Npz => {
            let mut names = zip::names(bytes)?.into_iter();
            let name = names
                .find(|name| Some(array_name(name)) == array)
                .ok_or_else(|| format!("has no array `{}`", array.unwrap_or_default()))?;
            let file = zip::read(bytes, &name, MAX_MEMBER_BYTES);
            let file = file.map_err(|what| format!("`{name}` {what}"))?;
            npy::parse(&file).map(Cell::Array)
        }
        Ending::Json | Ending::Text => text(bytes).map(Cell::Text),
        Ending::Image => Ok(Cell::Image(bytes.to_vec())),
        Ending::Class => {
            let text = text(bytes)?;
            let value: i64 = text
                .trim()
                .parse()
                .map_err(|_| format!("contains {text:?}, which is not an integer"))?;
            Ok(Cell::Array(Npy::Numbers(Array {
                dtype: Dtype::I64,
                shape: Vec::new(),
                values: value.to_le_bytes().to_vec(),
            })))
        }
    }
}

/// A text per frame, from a JSON list of them.
pub(crate) fn texts(list: &str) -> Result<Npy, String> {
    let texts: Vec<String> =
        serde_json::from_str(list).map_err(|_| "is not a list of strings".to_owned())?;
    let shape = vec![texts.len()];
    Ok(Npy::Texts(texts, shape))
}

/// The arrays of a member: those of an npz by name, or the one that it is.
pub(crate) fn arrays(ending: Ending, bytes: &[u8]) -> Result<Vec<Option<String>>, String> {
    match ending {
        Ending::Npz => Ok(array_names(bytes)?.into_iter().map(Some).collect()),
        _ => Ok(vec![None]),
    }
}

/// The names of the arrays of an npz.
pub(crate) fn array_names(npz: &[u8]) -> Result<Vec<String>, String> {
    let names = zip::names(npz)?.into_iter();
    Ok(names.map(|name| array_name(&name).to_owned()).collect())
}

fn array_name(member: &str) -> &str {
    member.strip_suffix(".npy").unwrap_or(member)
}

/// The frame type of a stream with such a cell per frame.
pub(crate) fn frame_type(cell: &Cell) -> Result<(FrameType, Option<image::Encoded>), String> {
    match cell {
        Cell::Array(Npy::Numbers(array)) => {
            let frame = FrameType::values(array.dtype, &array.shape);
            Ok((frame.map_err(|error| error.to_string())?, None))
        }
        Cell::Array(Npy::Texts(_, shape)) if shape.iter().all(|&len| len == 1) => {
            Ok((FrameType::Text, None))
        }
        Cell::Array(Npy::Texts(_, shape)) => Err(format!(
            "has several strings per frame: its shape is {shape:?}"
        )),
        Cell::Text(_) => Ok((FrameType::Text, None)),
        Cell::Image(file) => {
            let encoded = image::look(file)?;
            Ok((encoded.frame(), Some(encoded)))
        }
    }
}

/// Appends a cell to the frames of a numeric or text stream.
pub(crate) fn push(cell: Cell, frame: &FrameType, out: &mut FrameBuf) -> Result<(), String> {
    match (cell, frame, out) {
        (Cell::Array(Npy::Numbers(array)), FrameType::Values(ty), FrameBuf::Values(values)) => {
            if (array.dtype, array.shape.as_slice()) != (ty.dtype(), ty.shape()) {
                let (dtype, shape) = (array.dtype.name(), array.shape);
                return Err(format!("is {dtype}{shape:?}, but the first is {ty}"));
            }
            values.extend(array.values);
        }
        (Cell::Text(text), FrameType::Text, FrameBuf::Bytes(texts)) => {
            texts.push(text.into_bytes())
        }
        (Cell::Array(Npy::Texts(mut found, _)), FrameType::Text, FrameBuf::Bytes(texts)) => {
            let text = found.pop().ok_or("has no text")?;
            texts.push(text.into_bytes());
        }
        _ => return Err("has a different type than the first".to_owned()),
    }
    Ok(())
}

/// Frames of an array whose first axis is time.
pub(crate) fn rows(npy: &Npy, at: std::ops::Range<usize>) -> Result<FrameBuf, String> {
    let gone = || "has changed since it was opened".to_owned();
    match npy {
        Npy::Numbers(array) => {
            let frames = array.shape.first().copied().unwrap_or(0);
            let row = array.values.len().checked_div(frames).unwrap_or(0);
            let values = array.values.get(at.start * row..at.end * row);
            Ok(FrameBuf::Values(values.ok_or_else(gone)?.to_vec()))
        }
        Npy::Texts(texts, _) => {
            let texts = texts.get(at).ok_or_else(gone)?.iter();
            Ok(FrameBuf::Bytes(
                texts.map(|text| text.clone().into_bytes()).collect(),
            ))
        }
    }
}

/// A small array as JSON.
pub(crate) fn to_json(npy: &Npy) -> Value {
    let lens = |shape: &[usize]| shape.iter().map(|&len| len as u64).collect::<Vec<_>>();
    match npy {
        Npy::Numbers(array) => values::numbers(array.dtype, &array.values, &lens(&array.shape)),
        Npy::Texts(texts, shape) => {
            let texts = texts.iter().map(|text| Value::from(text.as_str()));
            values::nest(texts.collect(), &lens(shape))
        }
    }
}
