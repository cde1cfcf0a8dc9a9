//! Replacing a dataset: the new one is written beside it, and takes its place in one step when it is whole.
//!
//! ```text
//! demos.kino                     readers see this one until the commit
//! .demos.kino.overwrite-Xy12     the new one  ──commit──▶ the two change places ──▶ the old one is removed
//! ```
//!
//! Unlike a new version, nothing of the old dataset is kept: readers that have it open lose its files. A writer that is
//! dropped removes what it wrote; one that is killed leaves the hidden folder, and the old dataset as it was.

use std::fs;
use std::path::{Path, PathBuf};

use kino_storage::{create_folder, sync_folder};

use crate::error::{DatasetError, Result, invalid, io_at};
use crate::local::is_url;
use crate::local_files::list_folder;
use crate::resume;
use crate::staging::FoundArea;
use crate::store::Store;

/// The folders of a dataset.
pub(crate) const FOLDERS: [&str; 6] = [
    "versions", "episodes", "shards", "stats", "staging", "portions",
];

/// A dataset that is being written to replace another, or to be the first at its place.
#[derive(Debug)]
pub(crate) struct Replacement {
    target: PathBuf,
    /// Where it is written; `None` once it has taken its place.
    folder: Option<PathBuf>,
}

impl Replacement {
    /// A private folder beside the target, which must be a dataset without an active writer, an empty folder, or nothing.
    pub(crate) fn beside(target: &Path) -> Result<Self> {
        check_target(target)?;
        // Not the link to a dataset is replaced, but the dataset.
        let target = target.canonicalize().unwrap_or_else(|_| target.to_owned());
        let Some(name) = target.file_name() else {
            return Err(invalid(format!(
                "{} cannot be overwritten; choose a folder with a name",
                target.display()
            )));
        };
        let parent = parent_of(&target);
        let error = |path: &Path| io_at("create", path.display().to_string());
        create_folder(parent).map_err(error(parent))?;
        let mut builder = tempfile::Builder::new();
        let prefix = format!(".{}.overwrite-", name.to_string_lossy());
        builder.prefix(&prefix);
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
        let folder = builder.tempdir_in(parent).map_err(error(parent))?.keep();
        Ok(Self {
            target,
            folder: Some(folder),
        })
    }

    /// Where to write.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.as_deref().unwrap_or(&self.target)
    }

    /// Puts the new dataset in the place of the old one, and removes that.
    pub(crate) fn finish(mut self) -> Result<()> {
        let Some(folder) = self.folder.take() else {
            return Ok(());
        };
        let parent = parent_of(&self.target);
        let error = || io_at("replace", self.target.display().to_string());
        let replaced = if self.target.exists() {
            exchange(&folder, &self.target)
        } else {
            move_folder(&folder, &self.target).map(|()| None)
        };
        let old = replaced.map_err(|source| {
            let failed = error()(source);
            let _ = fs::remove_dir_all(&folder);
            failed
        })?;
        sync_folder(parent).map_err(error())?;
        if let Some(old) = old {
            // What cannot be removed only takes space, under a hidden name.
            let _ = fs::remove_dir_all(old);
        }
        Ok(())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.take() {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

fn parent_of(path: &Path) -> &Path {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a folder takes the place of an empty folder at most: a rival's dataset is an error, not lost"
)]
fn move_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::rename(from, to)
}

/// Puts `new` in the place of `target`; gives where the old one is now.
fn exchange(new: &Path, target: &Path) -> std::io::Result<Option<PathBuf>> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        if renameat_with(CWD, new, CWD, target, RenameFlags::EXCHANGE).is_ok() {
            return Ok(Some(new.to_owned()));
        }
    }
    // A file system that cannot exchange two names: between these two steps nothing is at the target.
    let mut old = new.as_os_str().to_owned();
    old.push("-old");
    let old = PathBuf::from(old);
    move_folder(target, &old)?;
    match move_folder(new, target) {
        Ok(()) => Ok(Some(old)),
        Err(error) => {
            let _ = move_folder(&old, target);
            Err(error)
        }
    }
}

/// Refuses to overwrite anything but a dataset: a wrong path must not cost a folder of something else.
pub(crate) fn check_target(target: &Path) -> Result<()> {
    let refuse = |what: &str| {
        let what = format!("{} {what}", target.display());
        Err(DatasetError::Exists { what })
    };
    if is_url(target) {
        return Err(invalid(format!(
            "{} cannot be overwritten: objects of a store cannot change places in one step; write to another URL",
            target.display()
        )));
    }
    if !target.exists() {
        return Ok(());
    }
    if !target.is_dir() {
        return refuse("is a file, not a dataset; it is not overwritten");
    }
    let entries = list_folder(target)?;
    let is_ours = |name: &std::ffi::OsStr| FOLDERS.iter().any(|folder| name == *folder);
    if !entries.iter().all(|entry| is_ours(&entry.file_name())) {
        return refuse(
            "holds files that are not a dataset's, and is not overwritten; choose another path",
        );
    }
    let store = Store::open(target)?;
    if !entries.is_empty() && store.versions()?.is_empty() {
        return refuse("is not a dataset, and is not overwritten; choose another path");
    }
    if resume::is_at_work(&FoundArea::all(&store)?) {
        refuse("is being written to; wait for that writer, or choose another path")
    } else {
        Ok(())
    }
}
