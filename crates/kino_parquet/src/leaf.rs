//! A leaf of a file, read forward.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kino_codec::ValueType;
use parquet::column::reader::{ColumnReader, get_column_reader};
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::reader::FileReader;

use crate::error::{Result, guarded, wrong};
use crate::file::{Column, ParquetFile};
use crate::pages::CheckedPages;
use crate::values::{Rows, Values, skip};

/// How many byte strings are decoded at a time: each may keep its own page in memory.
const STRINGS: u64 = 8;

/// One leaf of a file, at a row.
pub struct Leaf {
    file: Arc<ParquetFile>,
    /// The name of the column.
    column: String,
    leaf: usize,
    next: u64,
    open: Option<OpenGroup>,
    /// Byte strings that are decoded and not returned yet; they share the memory of their pages.
    waiting: VecDeque<Option<ByteArray>>,
}

/// A row group that is being read.
struct OpenGroup {
    reader: ColumnReader,
    end: u64,
    /// How many values the pages may return.
    requested: Arc<AtomicU64>,
}

impl Leaf {
    /// The first leaf of a column, before `row`.
    pub fn new(file: Arc<ParquetFile>, column: &Column, row: u64) -> Self {
        Self {
            file,
            column: column.name.clone(),
            leaf: column.leaf,
            next: row,
            open: None,
            waiting: VecDeque::new(),
        }
    }

    /// The leaf after it, at the same row.
    pub fn second(mut self) -> Self {
        self.leaf += 1;
        self.open = None;
        self
    }

    /// The next row.
    pub fn row(&self) -> u64 {
        self.next
    }

    /// Reads the next rows: as many as requested, or fewer if their row group ends.
    ///
    /// A row has at most `per_row` values; one with more is damage, however many the file claims.
    pub fn read(&mut self, rows: u64, per_row: u64) -> Result<Rows> {
        self.read_with(rows, per_row, |rows, _| Ok(rows))
    }

    /// Reads numeric rows as packed little-endian bytes.
    pub fn numbers(&mut self, rows: u64, ty: &ValueType) -> Result<Vec<u8>> {
        let (shape, dtype) = (ty.shape(), ty.dtype());
        let per_row = shape.iter().product::<usize>();
        let (mut out, end) = (Vec::new(), self.next.saturating_add(rows));
        while self.next < end {
            self.read_with(end - self.next, per_row as u64, |found, rows| {
                found.check_shape(rows, shape)?;
                found.values.pack(dtype, &mut out)
            })?;
        }
        Ok(out)
    }

    /// The shape of the next row, which has `len` values in `depth` nested lists; skips it.
    pub fn shape(&mut self, depth: usize, len: u64) -> Result<Vec<usize>> {
        let reps = self.read(1, len)?.levels.reps;
        // How many lists of each depth begin in the row; if they are equal, each has as many of the next.
        let begin = |level: usize| {
            let is_below = |rep: &&i16| usize::try_from(**rep).is_ok_and(|rep| rep <= level);
            reps.iter().filter(is_below).count()
        };
        let counts: Vec<_> = (0..=depth).map(begin).collect();
        let dims = counts.windows(2).map(|pair| pair[1] / pair[0].max(1));
        Ok(dims.collect())
    }

    /// Reads up to this many rows of byte strings, `None` where one is null: at least one row, and at most `max_bytes`,
    /// since a small dictionary can repeat one long text many times.
    pub fn strings(&mut self, rows: u64, max_bytes: usize) -> Result<Vec<Option<Vec<u8>>>> {
        let (mut out, mut bytes) = (Vec::new(), 0usize);
        while (out.len() as u64) < rows {
            if self.waiting.is_empty() {
                self.waiting = self.read_strings(STRINGS.min(rows - out.len() as u64))?;
            }
            let next = self.waiting.front().and_then(Option::as_ref);
            bytes = bytes.saturating_add(next.map_or(0, ByteArray::len));
            if bytes > max_bytes && !out.is_empty() {
                break;
            }
            let next = self.waiting.pop_front().flatten();
            out.push(next.map(|value| value.data().to_vec()));
        }
        Ok(out)
    }

    fn read_strings(&mut self, rows: u64) -> Result<VecDeque<Option<ByteArray>>> {
        self.read_with(rows, 1, |found, _| match found.values {
            Values::ByteArray(values) => Ok(found.levels.flat(values).collect()),
            _ => Err(wrong("is not byte strings")),
        })
    }

    /// Reads rows of one row group and passes them on, with their number.
    fn read_with<T>(
        &mut self,
        rows: u64,
        per_row: u64,
        convert: impl FnOnce(Rows, usize) -> Result<T, ParquetError>,
    ) -> Result<T> {
        let file = Arc::clone(&self.file);
        let column = self.column.clone();
        // After an error the position inside the row group is unknown.
        let open = self.open.take();
        guarded(file.path(), &column, || {
            let mut group = match open {
                Some(group) => group,
                None => self.open_group(per_row)?,
            };
            let stop = group.end.min(self.next.saturating_add(rows));
            let count = stop - self.next;
            let values = count.saturating_mul(per_row.max(1));
            group.requested.fetch_add(values, Ordering::Relaxed);
            let schema = file.metadata().file_metadata().schema_descr();
            let full = schema.column(self.leaf).max_def_level();
            let count = usize::try_from(count).unwrap_or(0);
            let found = Rows::read(&mut group.reader, count, full)?;
            self.next = stop;
            self.open = Some(group).filter(|group| group.end > stop);
            convert(found, count)
        })
    }

    /// The row group of the next row, skipped to that row.
    fn open_group(&self, per_row: u64) -> Result<OpenGroup, ParquetError> {
        let ends = self.file.ends();
        let idx = ends.partition_point(|&end| end <= self.next);
        let end = ends.get(idx);
        let end = *end.ok_or_else(|| wrong("has fewer rows than requested"))?;
        let start = idx.checked_sub(1).map_or(0, |before| ends[before]);
        let values = |rows: u64| rows.saturating_mul(per_row.max(1)).max(1);
        let requested = Arc::new(AtomicU64::new(values(self.next - start)));
        let group = self.file.reader.get_row_group(idx)?;
        let pages = CheckedPages::new(
            group.get_column_page_reader(self.leaf)?,
            self.file.page_headers(idx, self.leaf),
            Arc::clone(&requested),
            values(end - start),
        );
        let schema = group.metadata().schema_descr();
        let mut reader = get_column_reader(schema.column(self.leaf), Box::new(pages));
        let skipped = usize::try_from(self.next - start).unwrap_or(usize::MAX);
        skip(&mut reader, skipped)?;
        Ok(OpenGroup {
            reader,
            end,
            requested,
        })
    }
}
