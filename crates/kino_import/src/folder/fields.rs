//! Fields: the contents of a folder or file of one episode, and their locations.
//!
//! ```text
//! take_3.npz               action, state                take_3/state.npy           state
//! take_3.csv               time_s, joint.0              take_3/states.csv          states.csv/time_s,
//! states.csv/joint.0
//!                                                       take_3/front/000000.png …  front
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kino_codec::{Dtype, FrameType};

use crate::defect::Action;
use crate::error::Result;
use crate::folder::cell::Cell;
use crate::folder::glob;
use crate::folder::read::{Ending, read_image, read_range};
use crate::folder::table::{Column, Table};
use crate::image::{self, Encoded};
use crate::npy::Header;
use crate::values;
use crate::zip::{Member, Zip};

/// One array, column or folder of images.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// The length of its first axis; `None` if it has none.
    pub(crate) rows: Option<u64>,
    pub(crate) place: Place,
}

/// The location of a field.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    Array(StoredArray),
    Columns(Columns),
    Images(Images),
}

/// An npy file, or one inside an npz file.
#[derive(Debug, Clone)]
pub(crate) struct StoredArray {
    pub(crate) path: PathBuf,
    pub(crate) member: Option<String>,
    pub(crate) header: Header,
    pub(crate) reading: Reading,
}

/// Columns of a csv file.
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    pub(crate) table: Arc<Table>,
    pub(crate) columns: Vec<usize>,
    pub(crate) cell: Cell,
    pub(crate) is_vector: bool,
}

/// Image files, one per frame.
#[derive(Debug, Clone)]
pub(crate) struct Images {
    pub(crate) folder: PathBuf,
    pub(crate) files: Vec<String>,
    pub(crate) encoded: Encoded,
}

/// How the rows of an array are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// In any order.
    Rows,
    /// Sequentially, because they are deflated.
    Forward,
    /// All at once, because they are not contiguous.
    Whole,
}

impl Reading {
    fn of(header: &Header, member: Option<&Member>) -> Self {
        if header.is_fortran {
            Self::Whole
        } else if member.is_none_or(Member::is_plain) {
            Self::Rows
        } else {
            Self::Forward
        }
    }
}

/// The fields of an episode.
pub(crate) fn find(path: &Path, is_wanted: &dyn Fn(&str) -> bool) -> Result<Found> {
    let mut found = Found::default();
    if !path.is_dir() {
        found.file(path, "")?;
        return Ok(found);
    }
    for name in glob::find(path, "*") {
        let inside = path.join(&name);
        if inside.is_dir() && is_wanted(&name) {
            found.images(&inside, name);
        } else if inside.is_dir() {
            found.not_opened.push(name);
        } else if let Some(stem) = name.strip_suffix(".npy") {
            if is_wanted(stem) {
                found.array(&inside, stem.to_owned())
            } else {
                found.not_opened.push(stem.to_owned())
            }
        } else {
            found.file(&inside, &format!("{name}/"))?;
        }
    }
    Ok(found)
}

/// The contents of an episode.
#[derive(Debug, Default)]
pub(crate) struct Found {
    parts: Vec<Part>,
    /// Fields with their own file or folder that are excluded.
    pub(crate) not_opened: Vec<String>,
    /// Oddities: name, reason, and what is done about it.
    pub(crate) faults: Vec<(String, String, Action)>,
}

/// A field, or a table whose columns become fields once they agree with those of other episodes.
#[derive(Debug)]
enum Part {
    Field(Field),
    /// The prefix of its column names, and the table.
    Table(String, Table),
}

impl Found {
    fn file(&mut self, path: &Path, prefix: &str) -> Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("npz") => self.arrays(path, prefix),
            Some("csv") => self.columns(path, prefix),
            Some("npy") => {
                self.array(path, name.trim_end_matches(".npy").to_owned());
                Ok(())
            }
            _ => {
                let what = "is neither npz, npy, csv nor a folder of PNG or JPEG images";
                self.lose(prefix.trim_end_matches('/'), what.to_owned());
                Ok(())
            }
        }
    }

    fn array(&mut self, path: &Path, name: String) {
        let header = read_range(path, 0, Header::ENOUGH_BYTES as u64, Ending::MayBeNear);
        let len = fs::metadata(path).map_or(0, |file| file.len());
        self.push(name, header, len, |header| StoredArray {
            path: path.to_owned(),
            member: None,
            reading: Reading::of(&header, None),
            header,
        });
    }

    fn arrays(&mut self, path: &Path, prefix: &str) -> Result<()> {
        let zip = Zip::open(path)?;
        for member in zip.names() {
            let about = zip.member(&member)?;
            let name = format!("{prefix}{}", member.trim_end_matches(".npy"));
            let start = zip.read_start(&member, Header::ENOUGH_BYTES);
            self.push(name, start, about.len, |header| StoredArray {
                path: path.to_owned(),
                member: Some(member),
                reading: Reading::of(&header, Some(&about)),
                header,
            });
        }
        Ok(())
    }

    /// Adds the array of a file of `len` bytes, by the `start` of it.
    fn push(
        &mut self,
        name: String,
        start: Result<Vec<u8>>,
        len: u64,
        array: impl FnOnce(Header) -> StoredArray,
    ) {
        let start = start.map_err(|error| error.what());
        match start.and_then(|start| whole_header(&start, len)) {
            Err(what) => self.lose(&name, what),
            Ok(header) => {
                let rows = header.shape.first().copied();
                let place = Place::Array(array(header));
                self.field(name, rows, place);
            }
        }
    }

    fn field(&mut self, name: String, rows: Option<u64>, place: Place) {
        self.parts.push(Part::Field(Field { name, rows, place }));
    }

    fn columns(&mut self, path: &Path, prefix: &str) -> Result<()> {
        let mut table = Table::scan(path)?;
        let faults = std::mem::take(&mut table.faults).into_iter();
        self.faults
            .extend(faults.map(|(name, what, action)| (format!("{prefix}{name}"), what, action)));
        self.parts.push(Part::Table(prefix.to_owned(), table));
        Ok(())
    }

    fn lose(&mut self, name: &str, what: String) {
        self.faults.push((name.to_owned(), what, Action::Skipped));
    }

    /// The columns of its tables, by the names of their fields.
    pub(crate) fn table_columns(&mut self) -> impl Iterator<Item = (String, &mut Column)> {
        self.parts.iter_mut().flat_map(|part| {
            let (prefix, columns) = match part {
                Part::Table(prefix, table) => (prefix.as_str(), table.columns.as_mut_slice()),
                Part::Field(_) => ("", &mut [][..]),
            };
            columns
                .iter_mut()
                .map(move |column| (format!("{prefix}{}", column.name), column))
        })
    }

    /// All fields, and their oddities.
    pub(crate) fn finish(mut self) -> (Vec<Field>, Vec<(String, String, Action)>) {
        let mut fields = Vec::new();
        for part in self.parts {
            let (prefix, mut table) = match part {
                Part::Table(prefix, table) => (prefix, table),
                Part::Field(field) => {
                    fields.push(field);
                    continue;
                }
            };
            let mut kept = Vec::new();
            for (number, column) in table.columns.iter_mut().enumerate() {
                let name = format!("{prefix}{}", column.name);
                let fault = column.seen.fault(column.cell);
                match fault {
                    // It is read together with its neighbours, and none of its values would be a number.
                    Some((_, Action::Skipped)) => column.cell = Cell::Text,
                    _ => kept.push((number, name.clone())),
                }
                if let Some((what, action)) = fault {
                    self.faults.push((name, what, action));
                }
            }
            let table = Arc::new(table);
            for (number, name) in kept {
                let columns = Columns {
                    table: Arc::clone(&table),
                    columns: vec![number],
                    cell: table.columns[number].cell,
                    is_vector: false,
                };
                fields.push(Field {
                    name,
                    rows: Some(table.rows),
                    place: Place::Columns(columns),
                });
            }
        }
        (fields, self.faults)
    }

    fn images(&mut self, folder: &Path, name: String) {
        match images(folder) {
            Ok(images) => {
                let rows = Some(images.files.len() as u64);
                self.field(name, rows, Place::Images(images));
            }
            Err(what) => self.lose(&name, what),
        }
    }
}

/// A header whose values are complete.
fn whole_header(start: &[u8], len: u64) -> Result<Header, String> {
    let header = Header::parse(start)?;
    let end = header
        .values_bytes()
        .and_then(|bytes| bytes.checked_add(header.start as u64));
    if end.is_some_and(|end| end <= len) {
        Ok(header)
    } else {
        Err(format!(
            "is truncated: its shape is {:?}, but it has {len} bytes",
            header.shape
        ))
    }
}

fn images(folder: &Path) -> Result<Images, String> {
    let ending = |name: &str| {
        let (_, ending) = name.rsplit_once('.')?;
        match ending.to_ascii_lowercase().as_str() {
            "png" => Some(false),
            "jpg" | "jpeg" => Some(true),
            _ => None,
        }
    };
    let files = glob::find(folder, "*");
    let Some(is_jpeg) = files.first().and_then(|name| ending(name)) else {
        return Err("is a folder without PNG or JPEG images".to_owned());
    };
    if let Some(other) = files.iter().find(|name| ending(name) != Some(is_jpeg)) {
        return Err(format!("is a folder of images that also has `{other}`"));
    }
    let first = read_image(folder, &files[0]).map_err(|error| error.to_string())?;
    let encoded = image::look(&first).map_err(|what| format!("`{}` {what}", files[0]))?;
    Ok(Images {
        folder: folder.to_owned(),
        files,
        encoded,
    })
}

impl Field {
    /// The type of its frames, or why it has none.
    pub(crate) fn frame(&self) -> Result<FrameType, String> {
        let of = |dtype, shape: &[usize]| {
            FrameType::values(dtype, shape).map_err(|error| error.to_string())
        };
        match &self.place {
            Place::Images(images) => match (images.encoded.ty.dtype(), images.encoded.ty.shape()) {
                // Depth has one value per pixel, and no axis for it.
                (Dtype::U16, &[height, width, 1]) => of(Dtype::U16, &[height, width]),
                (dtype, shape) => of(dtype, shape),
            },
            Place::Columns(columns) => {
                let width = [columns.columns.len()];
                let shape = if columns.is_vector { &width[..] } else { &[] };
                match columns.cell.dtype() {
                    Some(dtype) => of(dtype, shape),
                    None => Ok(FrameType::Text),
                }
            }
            Place::Array(array) => {
                values::frame_type(array.header.element.dtype(), &array.header.shape)
            }
        }
    }

    /// Whether its frames are JPEG files.
    pub(crate) fn is_carried(&self) -> bool {
        matches!(&self.place, Place::Images(images) if images.encoded.carried)
    }
}
