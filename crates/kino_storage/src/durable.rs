//! Files and folders that survive a crash: bytes are synced with their file, names with their folder.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use tempfile::TempPath;

/// Creates a folder and its parents, durably.
pub fn create_folder(folder: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut above = Some(folder);
    while let Some(path) = above.filter(|path| !path.as_os_str().is_empty() && !path.exists()) {
        missing.push(path);
        above = path.parent();
    }
    fs::create_dir_all(folder)?;
    for path in missing {
        let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
        sync_folder(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

/// Makes the names in a folder durable.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()
    } else {
        Ok(())
    }
}

/// Writes a temporary file next to `path`, durably. If the process is killed, it is left behind as `<name>#<number>`,
/// which `garbage.rs` removes.
pub fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<TempPath> {
    path.parent().map_or(Ok(()), create_folder)?;
    let (mut file, temporary) = create_beside(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(temporary)
}

/// Creates the first of the names `<name>#<number>` that is free.
fn create_beside(path: &Path) -> io::Result<(File, TempPath)> {
    let mut number = 1_u32;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!("#{number}"));
        match File::create_new(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            created => return Ok((created?, TempPath::try_from_path(name)?)),
        }
    }
}

/// Makes a file's name durable.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync_folder)
}
