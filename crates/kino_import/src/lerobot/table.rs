//! A Parquet file as a table: its columns, and their rows on request.
//!
//! ```text
//! field of the schema                      form
//! float | list<float> | list<list<float>>  Numbers, of depth 0, 1, 2
//! binary (String)                          Text
//! { bytes: binary, path: binary }, binary  Image
//! list<{role, content, …}>, list<string>   Json: one JSON text per row
//! ```
//!
//! A panic inside the parquet crate, which has had such bugs, becomes an error.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use kino_codec::Dtype;
use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::schema::types::{Type, TypePtr};

use super::headers::Headers;
use crate::error::{ImportError, Result};
use crate::files;

/// Limit on the rows of a file: a day at 1000 Hz.
const MAX_ROWS: u64 = 1 << 27;

/// Limit on nested lists: the dimensions of a frame.
const MAX_DEPTH: usize = 8;

/// An open parquet file.
pub(super) struct Table {
    path: PathBuf,
    pub(super) reader: SerializedFileReader<Shared>,
    columns: Vec<Column>,
    /// Where each row group ends.
    ends: Vec<u64>,
    len: u64,
}

/// One field of the schema.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) form: Form,
    /// Its first leaf among those of the file.
    pub(super) leaf: usize,
    pub(super) ty: TypePtr,
}

/// The content of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// Numeric values in `depth` nested lists.
    Numbers { dtype: Dtype, depth: usize },
    /// A text.
    Text,
    /// An image file.
    Image,
    /// Anything else that JSON can represent.
    Json,
    /// Something that cannot be a frame.
    Other(&'static str),
}

impl Table {
    /// Reads the footer.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let (_, len) =
            files::open_with_len(path).map_err(|source| files::cannot_read(path, source))?;
        let file = Shared {
            path: path.to_owned(),
            len,
        };
        guarded(path, "footer", || {
            let reader = SerializedFileReader::new(file)?;
            let schema = reader.metadata().file_metadata().schema_descr();
            let (mut columns, mut leaf) = (Vec::new(), 0);
            for field in schema.root_schema().get_fields() {
                columns.push(Column {
                    name: field.name().to_owned(),
                    form: form(field),
                    leaf,
                    ty: field.clone(),
                });
                leaf += leaves(field);
            }
            let (mut ends, mut rows) = (Vec::new(), 0u64);
            for group in reader.metadata().row_groups() {
                rows = rows.saturating_add(u64::try_from(group.num_rows()).unwrap_or(u64::MAX));
                ends.push(rows);
                if group.num_columns() != leaf {
                    return Err(ParquetError::General(
                        "a row group lacks columns".to_owned(),
                    ));
                }
            }
            if rows > MAX_ROWS {
                return Err(ParquetError::General(format!("it claims {rows} rows")));
            }
            Ok(Self {
                path: path.to_owned(),
                len,
                reader,
                columns,
                ends,
            })
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// A column by its name.
    pub(super) fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    pub(super) fn rows(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Where each row group ends.
    pub(super) fn ends(&self) -> &[u64] {
        &self.ends
    }

    /// The row groups that hold these rows.
    fn groups(&self, rows: &Range<u64>) -> Range<usize> {
        let first = self.ends.partition_point(|&end| end <= rows.start);
        let last = self.ends.partition_point(|&end| end < rows.end);
        first..(last + 1).min(self.ends.len())
    }

    /// How many values each row of a column has, from the footer; `None` if rows differ.
    pub(super) fn row_len(&self, column: &Column, rows: &Range<u64>) -> Option<u64> {
        let mut len = None;
        for group in self.groups(rows) {
            let group = self.reader.metadata().row_group(group);
            let (count, rows) = (group.column(column.leaf).num_values(), group.num_rows());
            if rows == 0 {
                continue;
            }
            let here = (count % rows == 0).then(|| u64::try_from(count / rows).ok())??;
            if len.is_some_and(|len| len != here) {
                return None;
            }
            len = Some(here);
        }
        len
    }

    /// The headers of the pages of a leaf.
    pub(super) fn page_headers(&self, group: usize, leaf: usize) -> Result<Headers, ParquetError> {
        Headers::open(
            &self.path,
            self.reader.metadata().row_group(group).column(leaf),
        )
    }

    /// How many bytes the file has.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Whether the footer says that some of these rows are null.
    pub(super) fn has_nulls(&self, column: &Column, rows: &Range<u64>) -> bool {
        self.groups(rows).any(|group| {
            let chunk = self.reader.metadata().row_group(group).column(column.leaf);
            let nulls = chunk
                .statistics()
                .and_then(|of_chunk| of_chunk.null_count_opt());
            nulls.is_some_and(|nulls| nulls > 0)
        })
    }
}

/// A file that several threads read at once.
///
/// Clones of one open file share its position, so each piece is read through its own file handle.
pub(super) struct Shared {
    path: PathBuf,
    len: u64,
}

impl Length for Shared {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Shared {
    type T = BufReader<File>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let mut file = files::open(&self.path)?;
        file.seek(SeekFrom::Start(start))?;
        Ok(BufReader::new(file))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        // The length is the file's claim: check it against the file before allocating.
        let left = self.len.saturating_sub(start);
        if length as u64 > left {
            let what = format!("it claims {length} bytes where {left} are left");
            return Err(ParquetError::EOF(what));
        }
        let mut bytes = vec![0; length];
        self.get_read(start)?.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}

/// Runs `read` and converts an error or panic of the parquet crate.
pub(super) fn guarded<T>(
    path: &Path,
    object: &str,
    read: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T> {
    // Callers drop the reader when this fails, so no half-read state is visible afterwards.
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            let what = format!("cannot be read ({error})");
            Err(ImportError::corrupt(path, object, what))
        }
        Err(_) => Err(ImportError::corrupt(
            path,
            object,
            "made the Parquet reader panic",
        )),
    }
}

/// How many leaves a field has.
pub(super) fn leaves(ty: &Type) -> usize {
    match ty.is_primitive() {
        true => 1,
        false => ty.get_fields().iter().map(|field| leaves(field)).sum(),
    }
}

fn form(field: &Type) -> Form {
    let (mut inner, mut depth) = (field, 0);
    while let Some(element) = element(inner) {
        (inner, depth) = (element, depth + 1);
    }
    if depth > MAX_DEPTH {
        return Form::Other("lists nested too deeply for a frame");
    }
    if inner.is_primitive() {
        return match (number(inner), depth) {
            (Some(dtype), _) => Form::Numbers { dtype, depth },
            (None, 0) if is_text(inner) => Form::Text,
            (None, 0) if inner.get_physical_type() == Physical::BYTE_ARRAY => Form::Image,
            (None, 0) => Form::Other("values of a type that cannot be a frame"),
            (None, _) => Form::Json,
        };
    }
    let is_binary =
        |ty: &TypePtr| ty.is_primitive() && ty.get_physical_type() == Physical::BYTE_ARRAY;
    match inner.get_fields() {
        [bytes, path]
            if depth == 0
                && (bytes.name(), path.name()) == ("bytes", "path")
                && is_binary(bytes)
                && is_binary(path) =>
        {
            Form::Image
        }
        _ => Form::Json,
    }
}

/// The element of a list: `optional group x (List) { repeated group list { optional y element } }`.
fn element(ty: &Type) -> Option<&Type> {
    if ty.is_primitive() || ty.get_basic_info().converted_type() != ConvertedType::LIST {
        return None;
    }
    let [repeated] = ty.get_fields() else {
        return None;
    };
    match repeated.is_primitive() {
        true => None,
        false => match repeated.get_fields() {
            [element] => Some(element),
            _ => None,
        },
    }
}

fn is_text(ty: &Type) -> bool {
    ty.get_physical_type() == Physical::BYTE_ARRAY
        && matches!(
            ty.get_basic_info().converted_type(),
            ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON
        )
}

/// The dtype, `None` if it is not numeric.
fn number(ty: &Type) -> Option<Dtype> {
    let info = ty.get_basic_info();
    let logical = info.logical_type_ref();
    Some(match (ty.get_physical_type(), info.converted_type()) {
        (_, ConvertedType::DECIMAL) => return None,
        (Physical::BOOLEAN, _) => Dtype::Bool,
        (Physical::FLOAT, _) => Dtype::F32,
        (Physical::DOUBLE, _) => Dtype::F64,
        (Physical::INT32, ConvertedType::INT_8) => Dtype::I8,
        (Physical::INT32, ConvertedType::INT_16) => Dtype::I16,
        (Physical::INT32, ConvertedType::UINT_8) => Dtype::U8,
        (Physical::INT32, ConvertedType::UINT_16) => Dtype::U16,
        (Physical::INT32, ConvertedType::UINT_32) => Dtype::U32,
        (Physical::INT32, _) => Dtype::I32,
        (Physical::INT64, ConvertedType::UINT_64) => Dtype::U64,
        (Physical::INT64, _) => Dtype::I64,
        (Physical::FIXED_LEN_BYTE_ARRAY, _) if matches!(logical, Some(LogicalType::Float16)) => {
            Dtype::F16
        }
        _ => return None,
    })
}
