//! Where a dataset may be: in a folder, or behind a URL. Recordings and exports are files of this machine.
//!
//! `s3://bucket/demos.hdf5` is a valid relative path, so without [`check_local`] an export would write to a folder called
//! `s3:` and report success.

use std::path::Path;

use kino_storage::Location;

use crate::error::{Result, invalid, stored};

/// Whether a path is a URL (`s3://…`, `hf://…`, `https://…`), also one whose slashes a path library has merged (`s3:/…`).
///
/// A local folder whose name looks like a scheme can still be given as `./s3:/…`.
///
/// ```
/// use std::path::Path;
/// assert!(kino_dataset::is_url(Path::new("s3://lab/demos.kino")));
/// assert!(!kino_dataset::is_url(Path::new("data/demos.kino")));
/// ```
pub fn is_url(path: &Path) -> bool {
    Location::is_url(path)
}

/// The text of a URL, with the slashes that a path library may have merged; `None` for a path.
///
/// ```
/// use std::path::Path;
/// assert_eq!(kino_dataset::to_url(Path::new("s3:/lab/x")).as_deref(), Some("s3://lab/x"));
/// assert_eq!(kino_dataset::to_url(Path::new("lab/x")), None);
/// ```
pub fn to_url(path: &Path) -> Option<String> {
    let text = path.to_string_lossy();
    let (scheme, rest) = text.split_once(":/").filter(|_| is_url(path))?;
    Some(format!("{scheme}://{}", rest.trim_start_matches('/')))
}

/// Refuses a URL where only files of this machine can be used.
pub fn check_local(path: &Path) -> Result<()> {
    if !is_url(path) {
        return Ok(());
    }
    // Not every URL can be parsed, and one that can be has no credentials in it.
    match Location::parse(path) {
        Ok(url) => Err(invalid(format!(
            "{url} is a URL, and only datasets can be remote; recordings are read and exports are written on this \
             machine, so copy the files with the storage's own tool"
        ))),
        Err(error) => Err(stored(error)),
    }
}

/// Refuses a URL below which no dataset can be written, and sends nothing.
pub fn check_writable(path: &Path) -> Result<()> {
    match Location::parse(path).map_err(stored)? {
        Location::Local(_) => Ok(()),
        url @ Location::Remote(_) => kino_storage::open(&url)
            .and_then(|storage| storage.check_writable())
            .map_err(stored),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_refused_for_recordings_and_exports() {
        for url in [
            "s3://bucket/q.hdf5",
            "s3:/bucket/q.hdf5",
            "https://host/q.mcap",
        ] {
            let error = check_local(Path::new(url)).unwrap_err().to_string();
            assert!(error.contains("only datasets can be remote"), "{error}");
        }
        let error = check_local(Path::new("file:///data/q.kino")).unwrap_err();
        assert!(error.to_string().contains("without `file://`"), "{error}");
        let error = check_local(Path::new("ftp://user:secret@host/q")).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn paths_are_accepted_even_if_they_look_odd() {
        for path in [
            "q.kino",
            "/data/q.kino",
            "./s3:/q",
            "a/b:/c",
            "C:/q",
            "12:30.kino",
        ] {
            check_local(Path::new(path)).unwrap();
            check_writable(Path::new(path)).unwrap();
        }
    }

    #[test]
    fn what_can_only_be_read_is_refused_as_a_target() {
        for url in ["https://host/q.kino", "hf://datasets/lab/q"] {
            let error = check_writable(Path::new(url)).unwrap_err().to_string();
            assert!(error.contains("can only be read"), "{error}");
        }
    }
}
