//! Writes a file by row groups, one column after the other.
//!
//! ```text
//! Writer ─ group() ─▶ GroupWriter ─ column() ─▶ ColumnWriter ─ values(), numbers(), lists(), images(), null()
//! a file              a row group               its rows, a block at a time
//! ```
//!
//! A column is passed in blocks and leaves memory page by page.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;

use parquet::basic::{self, ZstdLevel};
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{
    SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter,
};
use parquet::schema::types::{ColumnPath, Type};

use crate::error::{Error, Result, wrong};
use crate::schema::{Field, Form, Presence};
use crate::values::{Levels, Rows, Values};

/// The size of a page (1 MiB) is checked after this many values, each of which may be a long text.
const VALUES_PER_STEP: usize = 1 << 8;

/// How a file is written.
#[derive(Debug)]
pub struct WriteOptions<'a> {
    /// The name of the schema.
    pub schema: &'a str,
    /// How pages are compressed.
    pub compression: Compression,
    /// Columns whose values are all different: a dictionary would hold every value and gain nothing.
    pub unique: &'a [&'a str],
    /// An entry of the footer's metadata: its key and its text.
    pub metadata: Option<(&'a str, String)>,
}

/// How pages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Small.
    Zstd,
    /// What pyarrow uses by default.
    Snappy,
}

/// A file that is being written.
pub struct Writer<W: Write + Send> {
    path: PathBuf,
    fields: Vec<Field>,
    writer: SerializedFileWriter<W>,
}

/// A row group of it.
pub struct GroupWriter<'a, W: Write + Send> {
    path: &'a Path,
    fields: slice::Iter<'a, Field>,
    writer: SerializedRowGroupWriter<'a, W>,
}

/// A column of a row group.
pub struct ColumnWriter<'a> {
    path: &'a Path,
    form: Form,
    presence: Presence,
    writer: SerializedColumnWriter<'a>,
    rows: usize,
}

impl<W: Write + Send> Writer<W> {
    /// Begins a file with these columns; `path` is what errors name.
    pub fn new(path: &Path, out: W, fields: &[Field], options: &WriteOptions<'_>) -> Result<Self> {
        let writer = || {
            let columns = fields.iter().map(Field::to_parquet);
            let columns = columns.collect::<Result<_, ParquetError>>()?;
            let schema = Type::group_type_builder(options.schema).with_fields(columns);
            let properties = options.properties(fields)?;
            SerializedFileWriter::new(out, Arc::new(schema.build()?), Arc::new(properties))
        };
        Ok(Self {
            path: path.to_owned(),
            fields: fields.to_vec(),
            writer: writer().map_err(|source| unwritable(path, source))?,
        })
    }

    /// Begins the next row group.
    pub fn group(&mut self) -> Result<GroupWriter<'_, W>> {
        let writer = self.writer.next_row_group();
        Ok(GroupWriter {
            path: &self.path,
            fields: self.fields.iter(),
            writer: writer.map_err(|source| unwritable(&self.path, source))?,
        })
    }

    /// Bytes that are written so far.
    pub fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    /// Writes the footer.
    pub fn finish(self) -> Result<W> {
        let Self { path, writer, .. } = self;
        writer
            .into_inner()
            .map_err(|source| unwritable(&path, source))
    }
}

impl WriteOptions<'_> {
    fn properties(&self, fields: &[Field]) -> Result<WriterProperties, ParquetError> {
        let compression = match self.compression {
            Compression::Zstd => basic::Compression::ZSTD(ZstdLevel::default()),
            Compression::Snappy => basic::Compression::SNAPPY,
        };
        let metadata = self.metadata.as_ref();
        let metadata = metadata.map(|(key, text)| KeyValue::new((*key).to_owned(), text.clone()));
        let mut properties = WriterProperties::builder()
            .set_created_by("kinograph".to_owned())
            .set_compression(compression)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_write_batch_size(VALUES_PER_STEP)
            .set_key_value_metadata(metadata.map(|entry| vec![entry]));
        for name in self.unique {
            properties = properties.set_column_dictionary_enabled(ColumnPath::from(*name), false);
        }
        for image in fields.iter().filter(|field| field.form == Form::Image) {
            // Image files do not repeat, do not compress, and have no order.
            let bytes = ColumnPath::new(vec![image.name.clone(), "bytes".to_owned()]);
            properties = properties
                .set_column_dictionary_enabled(bytes.clone(), false)
                .set_column_compression(bytes.clone(), basic::Compression::UNCOMPRESSED)
                .set_column_statistics_enabled(bytes, EnabledStatistics::None);
        }
        Ok(properties.build())
    }
}

impl<W: Write + Send> GroupWriter<'_, W> {
    /// Writes the next column: `fill` puts its rows into it.
    pub fn column<E: From<Error>>(
        &mut self,
        fill: impl FnOnce(&mut ColumnWriter<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let none = || unwritable(self.path, wrong("there are no more columns"));
        let field = self.fields.next().ok_or_else(none)?;
        let mut column = self.leaf(field)?;
        fill(&mut column)?;
        let rows = column.finish()?;
        if field.form == Form::Image {
            // The second half of an image is its original path: none.
            let mut paths = self.leaf(field)?;
            let levels = Levels {
                defs: vec![1; rows],
                ..Levels::default()
            };
            paths.put(Values::ByteArray(Vec::new()), levels)?;
            paths.finish()?;
        }
        Ok(())
    }

    /// Ends it.
    pub fn finish(self) -> Result<()> {
        let closed = self.writer.close();
        closed
            .map(drop)
            .map_err(|source| unwritable(self.path, source))
    }

    fn leaf(&mut self, field: &Field) -> Result<ColumnWriter<'_>> {
        let fail = |source| unwritable(self.path, source);
        let writer = self.writer.next_column().map_err(fail)?;
        Ok(ColumnWriter {
            path: self.path,
            form: field.form,
            presence: field.presence,
            writer: writer.ok_or_else(|| fail(wrong("there are no more columns")))?,
            rows: 0,
        })
    }
}

impl ColumnWriter<'_> {
    /// Adds a row for each value of a column without lists; only a nullable column may have `None`.
    pub fn values<T>(&mut self, rows: impl IntoIterator<Item = Option<T>>) -> Result<()>
    where
        Values: From<Vec<T>>,
    {
        let (mut values, mut levels) = (Vec::new(), Levels::default());
        for value in rows {
            if self.presence == Presence::Nullable {
                levels.defs.push(i16::from(value.is_some()));
            }
            values.extend(value);
            self.rows += 1;
        }
        self.put(values.into(), levels)
    }

    /// Adds a row with a text, or with none.
    pub fn text(&mut self, text: Option<&str>) -> Result<()> {
        self.values([text.map(ByteArray::from)])
    }

    /// Adds rows of numeric values of one shape, packed and little-endian.
    pub fn numbers(&mut self, packed: &[u8], shape: &[usize]) -> Result<()> {
        let Form::Numbers { dtype, .. } = self.form else {
            return Err(unwritable(
                self.path,
                wrong("a value does not match its column"),
            ));
        };
        let row_bytes = shape.iter().product::<usize>() * dtype.size();
        let rows = packed.len() / row_bytes.max(1);
        self.rows += rows;
        let levels = Levels::of_shape(shape, rows, self.full());
        self.put(Values::unpack(packed, dtype), levels)
    }

    /// Adds a row for each list of texts.
    pub fn lists<'t>(&mut self, rows: impl IntoIterator<Item = &'t [String]>) -> Result<()> {
        let (mut values, mut levels, full) = (Vec::new(), Levels::default(), self.full());
        for row in rows {
            if row.is_empty() {
                levels.defs.push(self.whole_row());
                levels.reps.push(0);
            }
            for (idx, text) in row.iter().enumerate() {
                values.push(ByteArray::from(text.as_str()));
                levels.defs.push(full);
                levels.reps.push(i16::from(idx > 0));
            }
            self.rows += 1;
        }
        self.put(values.into(), levels)
    }

    /// Adds a row for each image file.
    pub fn images(&mut self, files: Vec<Vec<u8>>) -> Result<()> {
        for file in files {
            // One by one, since a page ends only between calls.
            let levels = Levels {
                defs: vec![self.full()],
                ..Levels::default()
            };
            self.rows += 1;
            self.put(vec![ByteArray::from(file)].into(), levels)?;
        }
        Ok(())
    }

    /// Adds a null row.
    pub fn null(&mut self) -> Result<()> {
        let nothing = match self.form {
            Form::Numbers { dtype, .. } => Values::unpack(&[], dtype),
            _ => Values::ByteArray(Vec::new()),
        };
        let levels = Levels {
            defs: vec![0],
            reps: if self.form.depth() > 0 {
                vec![0]
            } else {
                Vec::new()
            },
            full: self.full(),
        };
        self.rows += 1;
        self.put(nothing, levels)
    }

    /// The definition level of a row that is not null.
    fn whole_row(&self) -> i16 {
        i16::from(self.presence == Presence::Nullable)
    }

    /// The definition level of a value: every list adds one, and another if its elements are nullable.
    fn full(&self) -> i16 {
        let depth = i16::try_from(self.form.depth()).unwrap_or(i16::MAX);
        let image = if self.form == Form::Image {
            self.whole_row()
        } else {
            0
        };
        self.whole_row() + depth * (1 + self.whole_row()) + image
    }

    fn put(&mut self, values: Values, levels: Levels) -> Result<()> {
        let written = Rows { values, levels }.write(self.writer.untyped());
        written.map_err(|source| unwritable(self.path, source))
    }

    /// Ends it and returns its number of rows.
    fn finish(self) -> Result<usize> {
        let closed = self.writer.close();
        closed.map_err(|source| unwritable(self.path, source))?;
        Ok(self.rows)
    }
}

fn unwritable(path: &Path, source: ParquetError) -> Error {
    Error::Unwritable {
        file: path.to_owned(),
        source,
    }
}
