//! The Parquet files of an export, as pyarrow would write them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use kino_codec::Dtype;
use kino_parquet::{Compression, Field, Form, Presence, WriteOptions, Writer};

use crate::error::Result;
use crate::export::{WritingPath, create_new};

/// A column of one integer per row.
pub(super) const WHOLE: Form = Form::scalar(Dtype::I64);

/// A column of one float per row.
pub(super) const FLOAT: Form = Form::scalar(Dtype::F64);

/// A column; as in pyarrow, any may be null.
pub(super) fn field(name: &str, form: Form) -> Field {
    Field {
        name: name.to_owned(),
        form,
        presence: Presence::Nullable,
    }
}

/// Creates a file with these columns, and its folder; `metadata` is an entry of the footer.
pub(super) fn create(
    path: &Path,
    fields: &[Field],
    metadata: Option<(&str, String)>,
) -> Result<Writer<File>> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).writing(folder)?;
    }
    let file = create_new(path)?;
    let options = WriteOptions {
        schema: "schema",
        compression: Compression::Snappy,
        unique: &[],
        metadata,
    };
    Ok(Writer::new(path, file, fields, &options)?)
}

/// Where a file of v3.0 is: `chunk-<folder>/file-<file>`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FilePlace {
    pub(super) folder: u64,
    pub(super) file: u64,
}

impl FilePlace {
    /// The place number `idx`, with this many files in a folder.
    pub(super) fn nth(idx: u64, in_folder: u64) -> Self {
        Self {
            folder: idx / in_folder,
            file: idx % in_folder,
        }
    }

    /// The place after it.
    pub(super) fn next(self, in_folder: u64) -> Self {
        Self::nth(self.folder * in_folder + self.file + 1, in_folder)
    }

    /// The path of the file, below `data`, `meta/episodes` or a folder of videos.
    pub(super) fn path(self, below: &Path, ending: &str) -> PathBuf {
        let Self { folder, file } = self;
        below.join(format!("chunk-{folder:03}/file-{file:03}.{ending}"))
    }
}
