//! The rows of a csv file, read sequentially, with a length limit.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::rc::Rc;

use crate::error::{ImportError, Result};
use crate::files;

/// Longer tables are refused: they are scanned before anything is packed.
const MAX_BYTES: u64 = 1 << 30;

/// Longer rows are refused: they are held in memory whole.
const MAX_ROW_BYTES: u64 = 16 << 20;

/// The rows of a file, none of them too long.
pub(crate) struct Rows {
    reader: csv::Reader<Limited>,
    left: Rc<Cell<u64>>,
}

impl Rows {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let io = |source| files::cannot_read(path, source);
        let (file, len) = files::open_with_len(path).map_err(io)?;
        if len > MAX_BYTES {
            return Err(ImportError::unsupported(
                path,
                "/",
                &format!("is a table of {len} bytes, more than a gibibyte"),
                "split it into one table per episode, or write its columns as npy",
            ));
        }
        let left = Rc::new(Cell::new(MAX_ROW_BYTES));
        let file = Limited {
            file,
            left: Rc::clone(&left),
        };
        let reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .from_reader(file);
        Ok(Self { reader, left })
    }

    /// The position of the next row.
    pub(crate) fn position(&self) -> csv::Position {
        self.reader.position().clone()
    }

    pub(crate) fn seek(&mut self, path: &Path, position: csv::Position) -> Result<()> {
        self.reader
            .seek(position)
            .map_err(|error| wrong(path, &error))
    }

    /// Reads the next row; `false` at the end.
    pub(crate) fn next(&mut self, path: &Path, row: &mut csv::StringRecord) -> Result<bool> {
        self.left.set(MAX_ROW_BYTES);
        self.reader
            .read_record(row)
            .map_err(|error| wrong(path, &error))
    }
}

/// A file that yields only this many bytes until the next row.
struct Limited {
    file: File,
    left: Rc<Cell<u64>>,
}

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 {
            let what = format!("a row of more than {MAX_ROW_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let len = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.file.read(&mut buffer[..len])?;
        self.left.set(left - read as u64);
        Ok(read)
    }
}

impl Seek for Limited {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

fn wrong(path: &Path, error: &csv::Error) -> ImportError {
    ImportError::corrupt(path, "/", format!("is not a valid table ({error})"))
}
