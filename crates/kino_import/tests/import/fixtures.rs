//! The recordings in `tests/fixtures`: single files, and the tars that `fixtures/pack.py` writes.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The path of a fixture: in its format's tar (`zarr/pusht.zarr`), or else beside it (`zarr/expected.json`).
pub(crate) fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kino_import/tests/fixtures");
    let (format, rest) = name.split_once('/').unwrap_or((name, ""));
    let packed = fixtures.join(format).join("recordings.tar");
    let unpacked = packed.exists().then(|| unpack(&packed).join(rest));
    let unpacked = unpacked.filter(|path| path.exists());
    unpacked.unwrap_or_else(|| fixtures.join(name))
}

/// The folder with the members of a tar. Its name is their hash, so it is written once and shared by all processes.
#[expect(
    clippy::disallowed_methods,
    reason = "a folder with files in it is never overwritten"
)]
fn unpack(packed: &Path) -> PathBuf {
    let bytes = fs::read(packed).unwrap();
    let hash = blake3::hash(&bytes).to_hex();
    let shared = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = shared.join(format!("recordings-{hash}"));
    if !folder.exists() {
        let new = tempfile::tempdir_in(shared).unwrap();
        let members = new.path().join("members");
        tar::Archive::new(&*bytes).unpack(&members).unwrap();
        // Another process may be faster; its folder has the same files.
        let renamed = fs::rename(&members, &folder).or_else(|error| match error.kind() {
            ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error),
        });
        renamed.unwrap();
    }
    folder
}

pub(crate) fn copy_tree(source: &Path, target: &Path) {
    fs::create_dir_all(target).unwrap();
    for entry in fs::read_dir(source).unwrap() {
        let path = entry.unwrap().path();
        let target = target.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_tree(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}
