//! How commands that read a dataset open it.

use std::path::{Path, PathBuf};

use anyhow::Result;
use kino_dataset::{Dataset, OpenOptions};

/// Where the files are that a dataset links to.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct RootArg {
    /// The folder of the files that the dataset links to, if they were moved
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
}

impl RootArg {
    /// Opens a version of a dataset, or the newest.
    pub(crate) fn open(&self, path: &Path, version: Option<u64>) -> Result<Dataset> {
        let root = self.root.clone();
        Ok(Dataset::open_with(
            path,
            OpenOptions {
                version,
                root,
                ..OpenOptions::default()
            },
        )?)
    }
}
