//! Errors of object stores, in the words of this crate.

use std::error::Error as _;
use std::io;

use object_store::Error;

use crate::error::{StorageError, invalid};

/// Where credentials are looked for.
const HINT: &str = "credentials are taken from where the service's own tools find them: AWS_* or ~/.aws, GOOGLE_* or gcloud, \
                    AZURE_*, HF_TOKEN; for a public S3 bucket set AWS_SKIP_SIGNATURE=true";

/// An error of a request.
pub(super) fn failed(operation: &'static str, place: String, error: Error) -> StorageError {
    match error {
        Error::NotFound { .. } => StorageError::NotFound { place },
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => StorageError::Denied {
            place,
            hint: HINT,
            source: io::Error::other(describe(&error)),
        },
        Error::NotSupported { source } => {
            let what = without_queries(&source.to_string());
            invalid(format!(
                "{place} cannot be read in ranges: {what}; use a server that supports range requests"
            ))
        }
        error => StorageError::Io {
            operation,
            place,
            source: io::Error::other(describe(&error)),
        },
    }
}

/// What an error and its causes say, without the queries of URLs, which may hold signatures.
fn describe(error: &Error) -> String {
    let mut texts = vec![without_queries(&error.to_string())];
    let mut source = error.source();
    while let Some(error) = source {
        let text = without_queries(&error.to_string());
        // Most of these errors repeat their cause.
        if !texts.iter().any(|known| known.contains(&text)) {
            texts.push(text);
        }
        source = error.source();
    }
    texts.join(": ")
}

/// A text in which the query of every URL is left out.
fn without_queries(text: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ')' | '>' | '<' | ',');
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let end = rest[at..].find(is_end).map_or(rest.len(), |end| at + end);
        let url = &rest[..end];
        plain.push_str(url.split_once('?').map_or(url, |(before, _)| before));
        rest = &rest[end..];
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_never_reach_a_message() {
        let text = "cannot GET (https://host/a?sig=secret) or http://b?x=secret, sorry? yes";
        assert_eq!(
            without_queries(text),
            "cannot GET (https://host/a) or http://b, sorry? yes"
        );
        assert_eq!(without_queries("what? nothing"), "what? nothing");
        let error = Error::Generic {
            store: "S3",
            source: "error sending request for url (https://h/k?X-Amz-Signature=secret)".into(),
        };
        let shown = failed("read", "s3://b/k".to_owned(), error);
        let all = format!("{shown}: {}", shown.source().unwrap());
        assert!(
            !all.contains("secret") && all.contains("https://h/k"),
            "{all}"
        );
    }
}
