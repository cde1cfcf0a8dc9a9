//! Where something is: a path, or a URL.
//!
//! ```text
//! /data/lift.kino  data/lift.kino  C:/lift.kino  ./s3:/odd         a path
//! s3://bucket/lift.kino  gs://…  az://…  https://…  hf://datasets/lab/lift@main/lift.kino
//! ```
//!
//! A URL travels as a path through every signature, so its slashes may have been merged by a path library
//! (`s3:/bucket/…`): that is still the URL. Credentials are not taken from URLs and would end up in messages, so URLs
//! with a user or a query are refused.

use std::fmt;
use std::path::{Path, PathBuf};

use url::Url;

use crate::error::{Result, invalid};

/// A path or a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A folder or file of this machine.
    Local(PathBuf),
    /// An object store, and the prefix of the keys in it.
    Remote(Url),
}

/// What kind of storage a URL names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Amazon S3, and what speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
    /// A web server.
    Http,
    /// A dataset repository of the Hugging Face Hub.
    HuggingFace,
}

const SCHEMES: &[(&str, Scheme)] = &[
    ("s3", Scheme::S3),
    ("s3a", Scheme::S3),
    ("gs", Scheme::Gcs),
    ("az", Scheme::Azure),
    ("abfs", Scheme::Azure),
    ("abfss", Scheme::Azure),
    ("http", Scheme::Http),
    ("https", Scheme::Http),
    ("hf", Scheme::HuggingFace),
];

impl Scheme {
    fn find(name: &str) -> Option<Self> {
        let found = SCHEMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, scheme)| *scheme)
    }
}

impl Location {
    /// Reads a path or a URL.
    ///
    /// ```
    /// use std::path::Path;
    /// use kino_storage::Location;
    /// assert!(matches!(Location::parse(Path::new("data/lift.kino")), Ok(Location::Local(_))));
    /// let url = Location::parse(Path::new("s3:/lab/lift.kino/")).unwrap();
    /// assert_eq!(url.to_string(), "s3://lab/lift.kino");
    /// ```
    pub fn parse(path: &Path) -> Result<Self> {
        let text = path.to_string_lossy();
        let Some((scheme, rest)) = split_scheme(&text) else {
            return Ok(Self::Local(path.to_owned()));
        };
        if scheme == "file" {
            return Err(invalid(format!(
                "{scheme}://{rest} is a URL; pass the path without `file://`"
            )));
        }
        if Scheme::find(&scheme).is_none() {
            let known: Vec<_> = SCHEMES
                .iter()
                .map(|(name, _)| format!("{name}://"))
                .collect();
            return Err(invalid(format!(
                "{scheme}:// is not a storage that can be read; use a path or one of {}",
                known.join(", ")
            )));
        }
        let plain = format!("{scheme}://{}", rest.trim_end_matches('/'));
        let url = Url::parse(&plain)
            .map_err(|error| invalid(format!("cannot parse the URL {scheme}://…: {error}")))?;
        check_plain(&url)?;
        Ok(Self::Remote(url))
    }

    /// Whether a path is a URL.
    pub fn is_url(path: &Path) -> bool {
        split_scheme(&path.to_string_lossy()).is_some()
    }

    /// The folder, if it is one of this machine.
    pub fn local(&self) -> Option<&Path> {
        match self {
            Self::Local(path) => Some(path),
            Self::Remote(_) => None,
        }
    }

    /// The location as a path: a URL unchanged, so that it can be given to whatever takes either.
    pub fn to_path(&self) -> PathBuf {
        match self {
            Self::Local(path) => path.clone(),
            Self::Remote(url) => PathBuf::from(url.as_str()),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => path.display().fmt(out),
            Self::Remote(url) => url.as_str().fmt(out),
        }
    }
}

/// What kind of storage a URL names.
pub(crate) fn scheme_of(url: &Url) -> Result<Scheme> {
    Scheme::find(url.scheme())
        .ok_or_else(|| invalid(format!("{}:// is not a known storage", url.scheme())))
}

/// The scheme of a URL in lower case, and what follows the slashes; `None` for a path.
fn split_scheme(text: &str) -> Option<(String, &str)> {
    let (scheme, rest) = text.split_once(":/")?;
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    // One letter is a drive of Windows, and no scheme begins with a dot.
    let is_scheme = scheme.len() >= 2
        && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(is_letter);
    is_scheme.then(|| (scheme.to_ascii_lowercase(), rest.trim_start_matches('/')))
}

/// Refuses URLs with parts that are credentials or would be lost.
fn check_plain(url: &Url) -> Result<()> {
    let scheme = url.scheme();
    if url.password().is_some() || (!url.username().is_empty() && !scheme.starts_with("abfs")) {
        return Err(invalid(format!(
            "the {scheme}:// URL contains a user or a password, which would appear in messages and manifests; \
             pass credentials in the environment"
        )));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid(format!(
            "the {scheme}:// URL contains `?` or `#`: a dataset has many objects, so a presigned URL cannot open it; \
             pass credentials in the environment"
        )));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(invalid(format!(
            "the {scheme}:// URL names no bucket or host; write {scheme}://BUCKET/PATH"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Location> {
        Location::parse(Path::new(text))
    }

    #[test]
    fn urls_are_known_however_their_slashes_are_written() {
        for (text, plain) in [
            ("s3://bucket/q.kino", "s3://bucket/q.kino"),
            ("s3:/bucket/q.kino/", "s3://bucket/q.kino"),
            ("S3://bucket/q.kino", "s3://bucket/q.kino"),
            ("gs://b/q", "gs://b/q"),
            ("https://host:8080/q.kino", "https://host:8080/q.kino"),
            ("hf://datasets/lab/x", "hf://datasets/lab/x"),
        ] {
            let location = parse(text).unwrap();
            assert_eq!(location.to_string(), plain);
            assert!(Location::is_url(Path::new(text)));
            let again = Location::parse(&location.to_path()).unwrap();
            assert_eq!(again, location);
        }
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
            "..:/x",
        ] {
            assert_eq!(parse(path).unwrap(), Location::Local(PathBuf::from(path)));
        }
    }

    #[test]
    fn what_cannot_be_opened_is_refused_without_its_secrets() {
        for (text, says) in [
            ("file:///data/q.kino", "without `file://`"),
            ("ftp://host/q.kino", "use a path or one of s3://"),
            (
                "https://user:secret@host/q.kino",
                "pass credentials in the environment",
            ),
            ("https://host/q.kino?X-Amz-Signature=secret", "presigned"),
            ("s3://", "names no bucket"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(
                error.contains(says) || error.contains("names no bucket"),
                "{text}: {error}"
            );
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
