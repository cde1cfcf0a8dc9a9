//! The Hugging Face Hub: `hf://datasets/ORG/NAME[@REVISION]/PATH`.
//!
//! ```text
//! https://huggingface.co/datasets/ORG/NAME/resolve/REVISION/PATH/versions/00000001.json     a file; leads to storage
//! https://huggingface.co/api/datasets/ORG/NAME/tree/REVISION/PATH/versions                  a listing, as JSON
//! ```
//!
//! The token is `HF_TOKEN`, or that of `hf auth login`. It is sent to the Hub alone: the client drops it where a file
//! leads to another host.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::path::Path;
use object_store::{ObjectStore, RetryConfig};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde::Deserialize;
use url::Url;

use super::connect::{Connection, Listing, NO_RETRIES, client_options, retries, unusable, web};
use crate::error::{Result, invalid};
use crate::storage::Entry;

const ENDPOINT: &str = "https://huggingface.co";
const REVISION: &str = "main";

/// The parts of a URL of the Hub.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    name: String,
    revision: String,
    path: String,
}

/// One file of a listing.
#[derive(Debug, Deserialize)]
struct Listed {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
}

/// Makes the client for a URL.
pub(super) fn connect(url: &Url) -> Result<Connection> {
    let place = parse(url)?;
    let endpoint = env::var("HF_ENDPOINT").unwrap_or_else(|_| ENDPOINT.to_owned());
    let endpoint = endpoint.trim_end_matches('/');
    let mut headers = HeaderMap::new();
    if let Some(token) = token() {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
            invalid("the token of the Hugging Face Hub contains characters that no token has")
        })?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let options = client_options(endpoint.starts_with("http://")).with_default_headers(headers);
    let client = |retries: RetryConfig| -> Result<Arc<dyn ObjectStore>> {
        let made = web(endpoint, options.clone(), retries);
        Ok(Arc::new(made.map_err(|error| unusable(url, &error))?))
    };
    let key = |text: String| Path::parse(text).map_err(|error| invalid(error.to_string()));
    let below = |kind: &str| {
        let Place {
            name,
            revision,
            path,
        } = &place;
        key(format!("datasets/{name}/{kind}/{revision}/{path}")
            .trim_end_matches('/')
            .to_owned())
    };
    let api = below("tree")?;
    Ok(Connection {
        store: client(retries())?,
        reads: client(NO_RETRIES)?,
        prefix: below("resolve")?,
        listing: Listing::Hub(key(format!("api/{api}"))?),
    })
}

/// The files of a listing, as the Hub describes them.
pub(super) fn parse_listing(json: &[u8]) -> Result<Vec<Entry>> {
    let listed: Vec<Listed> = serde_json::from_slice(json)
        .map_err(|error| invalid(format!("cannot parse the listing of the Hub: {error}")))?;
    let files = listed.into_iter().filter(|one| one.kind == "file");
    let entry = |one: Listed| Entry {
        name: one.path.rsplit('/').next().unwrap_or_default().to_owned(),
        bytes: one.size,
        modified: None,
    };
    Ok(files.map(entry).collect())
}

fn parse(url: &Url) -> Result<Place> {
    let wrong = || {
        invalid(format!(
            "{url} is not a dataset of the Hugging Face Hub; write hf://datasets/ORG/NAME/PATH, or \
             hf://datasets/ORG/NAME@REVISION/PATH"
        ))
    };
    let mut parts = url.path().trim_matches('/').splitn(3, '/');
    let (owner, name, path) = (parts.next(), parts.next(), parts.next());
    let (Some("datasets"), Some(owner), Some(name)) = (url.host_str(), owner, name) else {
        return Err(wrong());
    };
    let (name, revision) = name.split_once('@').unwrap_or((name, REVISION));
    if owner.is_empty() || name.is_empty() || revision.is_empty() || owner.contains('@') {
        return Err(wrong());
    }
    Ok(Place {
        name: format!("{owner}/{name}"),
        revision: revision.to_owned(),
        path: path.unwrap_or_default().to_owned(),
    })
}

fn token() -> Option<String> {
    let set = env::var("HF_TOKEN").ok();
    let stored = || {
        let home = env::var_os("HF_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(env::home_dir()?.join(".cache/huggingface")))?;
        std::fs::read_to_string(home.join("token")).ok()
    };
    let token = set.or_else(stored)?.trim().to_owned();
    (!token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Result<Place> {
        parse(&Url::parse(text).unwrap())
    }

    #[test]
    fn a_url_names_repository_revision_and_path() {
        let of = |name: &str, revision: &str, path: &str| Place {
            name: name.to_owned(),
            revision: revision.to_owned(),
            path: path.to_owned(),
        };
        assert_eq!(
            place("hf://datasets/lab/x").unwrap(),
            of("lab/x", "main", "")
        );
        assert_eq!(
            place("hf://datasets/lab/x@v2/a/b.kino").unwrap(),
            of("lab/x", "v2", "a/b.kino")
        );
        for wrong in [
            "hf://models/lab/x",
            "hf://datasets/lab",
            "hf://datasets/lab/x@",
            "hf://lab/x",
        ] {
            let error = place(wrong).unwrap_err().to_string();
            assert!(error.contains("hf://datasets/ORG/NAME"), "{error}");
        }
    }

    #[test]
    fn a_listing_has_the_files_without_the_folders() {
        let json = br#"[{"type":"file","oid":"x","size":7,"path":"a.kino/versions/00000001.json"},
                        {"type":"directory","oid":"y","size":0,"path":"a.kino/versions/old"}]"#;
        let entries = parse_listing(json).unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(
            (entries[0].name.as_str(), entries[0].bytes),
            ("00000001.json", 7)
        );
        assert!(parse_listing(b"{}").is_err());
    }
}
