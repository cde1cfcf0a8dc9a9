//! Writes a Parquet file by row groups, one column after the other.
//!
//! ```text
//! OutTable ─ group() ─▶ OutGroup ─ column() ─▶ OutColumn ─ numbers(), text(), images(), null()
//! a file                an episode             its rows, a block at a time
//! ```
//!
//! A column is passed in blocks and leaves memory page by page.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kino_codec::Dtype;
use parquet::basic::Compression;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray,
    FixedLenByteArrayType, FloatType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{
    SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter,
};
use parquet::schema::types::{ColumnPath, Type};

use super::schema::field;
use crate::error::{ImportError, Result, invalid};
use crate::export::unwritable;

/// The content of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// Numeric values in arrays of one shape; no dimension: a scalar.
    Numbers(Dtype, Vec<usize>),
    /// One text.
    Text,
    /// Any number of texts.
    Texts,
    /// An image file.
    Image,
}

/// A file that is being written.
pub(super) struct OutTable {
    path: PathBuf,
    contents: Vec<Content>,
    writer: SerializedFileWriter<File>,
}

/// A row group of it.
pub(super) struct OutGroup<'a> {
    path: &'a Path,
    contents: std::slice::Iter<'a, Content>,
    writer: SerializedRowGroupWriter<'a, File>,
}

/// A column of a row group.
pub(super) struct OutColumn<'a> {
    path: &'a Path,
    content: &'a Content,
    writer: SerializedColumnWriter<'a>,
    rows: usize,
}

impl OutTable {
    /// Creates a file with these columns; `about` is the footer's metadata, by name.
    pub(super) fn create(
        path: &Path,
        columns: &[(&str, &Content)],
        about: Option<(&str, String)>,
    ) -> Result<Self> {
        let fail = |error: ParquetError| unwritable(path, error);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| unwritable(folder, error))?;
        }
        let fields = columns.iter().map(|(name, content)| field(name, content));
        let fields = fields.collect::<Result<_, _>>().map_err(fail)?;
        let schema = Type::group_type_builder("schema").with_fields(fields);
        let schema = Arc::new(schema.build().map_err(fail)?);
        let about = about.map(|(name, text)| vec![KeyValue::new(name.to_owned(), text)]);
        let mut properties = WriterProperties::builder()
            .set_created_by("kinograph".to_owned())
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_key_value_metadata(about);
        for (name, _) in columns
            .iter()
            .filter(|(_, content)| **content == Content::Image)
        {
            // Image files do not repeat, do not compress, and have no order.
            let bytes = ColumnPath::new(vec![(*name).to_owned(), "bytes".to_owned()]);
            properties = properties
                .set_column_dictionary_enabled(bytes.clone(), false)
                .set_column_compression(bytes.clone(), Compression::UNCOMPRESSED)
                .set_column_statistics_enabled(bytes, EnabledStatistics::None);
        }
        let file = File::create_new(path).map_err(|error| unwritable(path, error))?;
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build()));
        Ok(Self {
            path: path.to_owned(),
            contents: columns
                .iter()
                .map(|(_, content)| (*content).clone())
                .collect(),
            writer: writer.map_err(fail)?,
        })
    }

    /// Begins the next row group.
    pub(super) fn group(&mut self) -> Result<OutGroup<'_>> {
        let writer = self.writer.next_row_group();
        Ok(OutGroup {
            path: &self.path,
            contents: self.contents.iter(),
            writer: writer.map_err(|error| unwritable(&self.path, error))?,
        })
    }

    /// Bytes that are written so far.
    pub(super) fn len(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    /// Writes the footer.
    pub(super) fn finish(self) -> Result<()> {
        let Self { path, writer, .. } = self;
        writer
            .close()
            .map_err(|error| unwritable(&path, error))
            .map(drop)
    }
}

impl<'a> OutGroup<'a> {
    /// Writes the next column: `fill` puts its rows into it.
    pub(super) fn column(
        &mut self,
        fill: impl FnOnce(&mut OutColumn<'_>) -> Result<()>,
    ) -> Result<()> {
        let none = || invalid("a file of the export has no more columns");
        let content = self.contents.next().ok_or_else(none)?;
        let rows = {
            let mut column = OutColumn {
                path: self.path,
                content,
                writer: next(self.path, &mut self.writer)?,
                rows: 0,
            };
            fill(&mut column)?;
            let done = column.writer.close();
            done.map_err(|error| unwritable(self.path, error))?;
            column.rows
        };
        if *content == Content::Image {
            // The second half of an image is its original path: none.
            let mut paths = next(self.path, &mut self.writer)?;
            let writer = paths.typed::<ByteArrayType>();
            let written = writer.write_batch(&[], Some(&vec![1; rows]), None);
            written.map_err(|error| unwritable(self.path, error))?;
            let done = paths.close();
            done.map_err(|error| unwritable(self.path, error))?;
        }
        Ok(())
    }

    /// Ends it.
    pub(super) fn finish(self) -> Result<()> {
        let done = self.writer.close();
        done.map_err(|error| unwritable(self.path, error)).map(drop)
    }
}

fn next<'g>(
    path: &Path,
    writer: &'g mut SerializedRowGroupWriter<'_, File>,
) -> Result<SerializedColumnWriter<'g>> {
    let column = writer.next_column();
    let column = column.map_err(|error| unwritable(path, error))?;
    column.ok_or_else(|| invalid("a file of the export has no more columns"))
}

impl OutColumn<'_> {
    /// Adds rows of numeric values, packed and little-endian.
    pub(super) fn numbers(&mut self, packed: &[u8]) -> Result<()> {
        let Content::Numbers(dtype, shape) = self.content else {
            return Err(misplaced());
        };
        let dtype = *dtype;
        let elements = shape.iter().product::<usize>();
        let rows = packed.len() / (elements * dtype.size()).max(1);
        let levels = Levels::of(shape, rows);
        self.rows += rows;
        match dtype {
            Dtype::Bool => {
                let values: Vec<_> = packed.iter().map(|&byte| byte != 0).collect();
                self.put::<BoolType>(&values, levels)
            }
            Dtype::F16 => {
                let to = |two: &[u8; 2]| FixedLenByteArray::from(two.to_vec());
                let values: Vec<_> = packed.as_chunks().0.iter().map(to).collect();
                self.put::<FixedLenByteArrayType>(&values, levels)
            }
            Dtype::F32 => {
                let values = packed
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&four| f32::from_le_bytes(four));
                self.put::<FloatType>(&values.collect::<Vec<_>>(), levels)
            }
            Dtype::F64 => {
                let values = packed
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&eight| f64::from_le_bytes(eight));
                self.put::<DoubleType>(&values.collect::<Vec<_>>(), levels)
            }
            // An unsigned integer is stored in the bits of a signed one.
            Dtype::I64 | Dtype::U64 => {
                let values = packed
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&eight| i64::from_le_bytes(eight));
                self.put::<Int64Type>(&values.collect::<Vec<_>>(), levels)
            }
            _ => self.put::<Int32Type>(&small_integers(packed, dtype), levels),
        }
    }

    /// Adds a row of texts.
    pub(super) fn texts(&mut self, texts: &[String]) -> Result<()> {
        let values: Vec<_> = texts
            .iter()
            .map(|text| ByteArray::from(text.as_str()))
            .collect();
        let mut levels = Levels::of(&[values.len()], 1);
        if values.is_empty() {
            // An empty list, which is not null.
            levels = Levels {
                defined: vec![1],
                repeated: Some(vec![0]),
            };
        }
        self.rows += 1;
        self.put::<ByteArrayType>(&values, levels)
    }

    /// Adds a row of one text, or of none.
    pub(super) fn text(&mut self, text: Option<&str>) -> Result<()> {
        match text {
            Some(text) => {
                self.rows += 1;
                self.put::<ByteArrayType>(&[ByteArray::from(text)], Levels::of(&[], 1))
            }
            None => self.null(),
        }
    }

    /// Adds rows of one image file each.
    pub(super) fn images(&mut self, files: Vec<Vec<u8>>) -> Result<()> {
        for file in files {
            // Neither the group nor the bytes are null.
            let levels = Levels {
                defined: vec![2],
                repeated: None,
            };
            self.rows += 1;
            self.put::<ByteArrayType>(&[ByteArray::from(file)], levels)?;
        }
        Ok(())
    }

    /// Adds a null row.
    pub(super) fn null(&mut self) -> Result<()> {
        self.rows += 1;
        let levels = Levels {
            defined: vec![0],
            repeated: match self.content {
                Content::Numbers(_, shape) if shape.is_empty() => None,
                Content::Numbers(..) | Content::Texts => Some(vec![0]),
                Content::Text | Content::Image => None,
            },
        };
        match self.content {
            Content::Numbers(Dtype::Bool, _) => self.put::<BoolType>(&[], levels),
            Content::Numbers(Dtype::F16, _) => self.put::<FixedLenByteArrayType>(&[], levels),
            Content::Numbers(Dtype::F32, _) => self.put::<FloatType>(&[], levels),
            Content::Numbers(Dtype::F64, _) => self.put::<DoubleType>(&[], levels),
            Content::Numbers(Dtype::I64 | Dtype::U64, _) => self.put::<Int64Type>(&[], levels),
            Content::Numbers(..) => self.put::<Int32Type>(&[], levels),
            _ => self.put::<ByteArrayType>(&[], levels),
        }
    }

    fn put<T: DataType>(&mut self, values: &[T::T], levels: Levels) -> Result<()> {
        let writer = self.writer.typed::<T>();
        let written = writer.write_batch(values, Some(&levels.defined), levels.repeated.as_deref());
        written
            .map_err(|error| unwritable(self.path, error))
            .map(drop)
    }
}

/// Parquet's definition and repetition levels of some values.
struct Levels {
    defined: Vec<i16>,
    repeated: Option<Vec<i16>>,
}

impl Levels {
    /// Of `rows` rows of one shape.
    ///
    /// A row of `[2, 3]` is `0 2 2 1 2 2`: 0 begins a row, 1 a list inside it, 2 is in the list of the one before.
    fn of(shape: &[usize], rows: usize) -> Self {
        let elements: usize = shape.iter().product();
        let depth = i16::try_from(shape.len()).unwrap_or(i16::MAX);
        let begins = |element: usize| {
            let (mut len, mut level) = (1, depth);
            for dim in shape.iter().rev() {
                len *= dim;
                if !element.is_multiple_of(len) {
                    break;
                }
                level -= 1;
            }
            level
        };
        let row: Vec<i16> = (0..elements).map(begins).collect();
        Self {
            defined: vec![1 + 2 * depth; elements * rows],
            repeated: (depth > 0).then(|| row.repeat(rows)),
        }
    }
}

fn misplaced() -> ImportError {
    invalid("a value of the export does not match its column")
}

fn small_integers(packed: &[u8], dtype: Dtype) -> Vec<i32> {
    let pairs = || packed.as_chunks::<2>().0.iter();
    let fours = || packed.as_chunks::<4>().0.iter();
    match dtype {
        Dtype::I8 => packed
            .iter()
            .map(|&byte| i32::from(i8::from_le_bytes([byte])))
            .collect(),
        Dtype::I16 => pairs()
            .map(|&two| i32::from(i16::from_le_bytes(two)))
            .collect(),
        Dtype::U16 => pairs()
            .map(|&two| i32::from(u16::from_le_bytes(two)))
            .collect(),
        Dtype::I32 | Dtype::U32 => fours().map(|&four| i32::from_le_bytes(four)).collect(),
        _ => packed.iter().map(|&byte| i32::from(byte)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slow twin: walks nested lists; `begins` is the level of the first value, `depth` the number of enclosing
    /// lists.
    fn walk(shape: &[usize], begins: i16, depth: i16, out: &mut Vec<i16>) {
        let Some((&dim, inner)) = shape.split_first() else {
            return out.push(begins);
        };
        for idx in 0..dim {
            let begins = if idx == 0 { begins } else { depth + 1 };
            walk(inner, begins, depth + 1, out);
        }
    }

    #[test]
    fn levels_match_a_walk_through_the_lists() {
        for shape in [&[1][..], &[6], &[2, 3], &[3, 1, 2], &[1, 1], &[2, 2, 2, 2]] {
            let mut row = Vec::new();
            walk(shape, 0, 0, &mut row);
            let levels = Levels::of(shape, 3);
            assert_eq!(levels.repeated.unwrap(), row.repeat(3), "{shape:?}");
            assert_eq!(levels.defined.len(), row.len() * 3);
        }
        let plain = Levels::of(&[], 2);
        assert_eq!((plain.defined, plain.repeated), (vec![1, 1], None));
    }
}
