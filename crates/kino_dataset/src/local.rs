//! Where a dataset may be: on a local file system, not behind a URL.
//!
//! `s3://bucket/demos.kino` is a valid relative path, so without this check a pack would write it to a folder called
//! `s3:` and report success.

use std::path::Path;

use crate::error::{Result, invalid};

/// Refuses a URL (`s3://…`, `hf://…`, `https://…`), also one whose slashes a path library has merged (`s3:/…`).
///
/// A local folder whose name looks like a scheme can still be given as `./s3:/…`.
///
/// ```
/// use std::path::Path;
/// assert!(kino_dataset::check_local(Path::new("data/demos.kino")).is_ok());
/// assert!(kino_dataset::check_local(Path::new("s3://lab/demos.kino")).is_err());
/// ```
pub fn check_local(path: &Path) -> Result<()> {
    let text = path.to_string_lossy();
    let Some((scheme, rest)) = text.split_once(":/") else {
        return Ok(());
    };
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    // One letter is a drive of Windows.
    if scheme.len() < 2 || !scheme.chars().all(is_letter) {
        return Ok(());
    }
    let rest = rest.trim_start_matches('/');
    if scheme == "file" {
        return Err(invalid(format!(
            "{scheme}://{rest} is a URL; pass the path without `file://`"
        )));
    }
    Err(invalid(format!(
        "remote storage is not supported yet: {scheme}://{rest}; use a local folder, and copy it with the storage's own tool"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_refused_however_their_slashes_are_written() {
        for url in [
            "s3://bucket/q.kino",
            "s3:/bucket/q.kino",
            "gs://b/q",
            "az://b/q",
            "hf://datasets/lab/x",
            "https://host/q.kino",
            "http:/host/q.kino",
        ] {
            let error = check_local(Path::new(url)).unwrap_err().to_string();
            let scheme = url.split(':').next().unwrap();
            assert!(
                error.starts_with(&format!("remote storage is not supported yet: {scheme}://")),
                "{error}"
            );
        }
        let error = check_local(Path::new("file:///data/q.kino"));
        assert!(error.unwrap_err().to_string().contains("without `file://`"));
    }

    #[test]
    fn paths_are_not_urls() {
        for path in [
            "q.kino",
            "/data/q.kino",
            "./s3:/q",
            "a/b:/c",
            "C:/q",
            "s3:",
            "12:30.kino",
            "",
        ] {
            check_local(Path::new(path)).unwrap();
        }
    }
}
