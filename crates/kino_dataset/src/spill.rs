//! Frames that wait for the rest of their stream or episode in a file instead of in memory.
//!
//! The file is in the writer's own folder under `staging/`, on the same disk as the dataset, and is unnamed: it
//! disappears with the writer, however that ends.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;

use crate::error::{DatasetError, Result, io_at};

/// Bytes in a file.
#[derive(Debug)]
pub(crate) struct Spill {
    file: File,
    /// The folder, for messages.
    folder: String,
    len: usize,
}

impl Spill {
    /// An empty file in the folder.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let path = folder.display().to_string();
        let file =
            tempfile::tempfile_in(folder).map_err(io_at("create a file in", path.clone()))?;
        Ok(Self {
            file,
            folder: path,
            len: 0,
        })
    }

    /// The number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<()> {
        let error = self.error("write waiting frames to a temporary file in");
        self.file
            .seek(SeekFrom::End(0))
            .and_then(|_| self.file.write_all(bytes))
            .map_err(error)?;
        self.len += bytes.len();
        Ok(())
    }

    /// The bytes of `range`.
    pub(crate) fn read(&self, range: Range<usize>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; range.len()];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(range.start as u64))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(self.error("read waiting frames from a temporary file in"))?;
        Ok(bytes)
    }

    fn error(
        &self,
        operation: &'static str,
    ) -> impl FnOnce(std::io::Error) -> DatasetError + use<> {
        io_at(operation, self.folder.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_and_no_file_is_visible() {
        let folder = tempfile::tempdir().unwrap();
        let mut spill = Spill::new(folder.path()).unwrap();
        spill.push(b"abc").unwrap();
        assert_eq!(spill.read(1..3).unwrap(), b"bc");
        spill.push(b"def").unwrap();
        assert_eq!(
            (spill.len(), spill.read(0..6).unwrap()),
            (6, b"abcdef".to_vec())
        );
        assert!(spill.read(4..7).is_err());
        let files = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 0);
    }
}
