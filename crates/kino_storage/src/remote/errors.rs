//! Errors of object stores, in the words of this crate.

use std::error::Error as _;
use std::io;

use object_store::Error;

use crate::error::{StorageError, invalid};

/// Where credentials are looked for.
const HINT: &str = "credentials are taken from where the service's own tools find them: AWS_* or ~/.aws, GOOGLE_* or gcloud, \
                    AZURE_*, HF_TOKEN; for a public S3 bucket set AWS_SKIP_SIGNATURE=true";

/// The code of an answer, or a part of a message, and what to do about it.
const HINTS: &[(&str, &str)] = &[
    (
        "PermanentRedirect",
        "the bucket is in another region; set AWS_REGION to it",
    ),
    (
        "AuthorizationHeaderMalformed",
        "the bucket is in another region; set AWS_REGION to it",
    ),
    (
        "IllegalLocationConstraint",
        "the bucket is in another region; set AWS_REGION to it",
    ),
    (
        "bare redirect",
        "the bucket is in another region; set AWS_REGION to it",
    ),
    ("RequestTimeTooSkewed", "the clock of this machine is wrong"),
    (
        "Connect",
        "no server answered: check the network, and the endpoint if one is set (AWS_ENDPOINT_URL, HF_ENDPOINT)",
    ),
    (
        "dns error",
        "no server answered: check the network, and the endpoint if one is set (AWS_ENDPOINT_URL, HF_ENDPOINT)",
    ),
    (
        "429 ",
        "the server limits how often it may be asked; wait, or use fewer processes",
    ),
    (
        "SlowDown",
        "the server limits how often it may be asked; wait, or use fewer processes",
    ),
    ("503 ", "the server is overloaded; try again later"),
    ("169.254.169.254", HINT),
];

/// Answers to a request for something in a bucket that does not exist.
const NO_BUCKET: &[&str] = &[
    "NoSuchBucket",
    "ContainerNotFound",
    "specified bucket does not exist",
];

/// Answers to a request without the right credentials.
const DENIED: &[&str] = &[
    "403 Forbidden",
    "401 Unauthorized",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
];

/// An error of a request.
pub(super) fn failed(operation: &'static str, place: String, error: Error) -> StorageError {
    let text = describe(&error);
    let says = |known: &&str| text.contains(known);
    if NO_BUCKET.iter().any(&says) {
        let place = format!("the bucket of {place}");
        return StorageError::NotFound { place };
    }
    if matches!(error, Error::Generic { .. }) && DENIED.iter().any(&says) {
        let source = io::Error::other(text);
        return StorageError::Denied {
            place,
            hint: HINT,
            source,
        };
    }
    match error {
        Error::NotFound { .. } => StorageError::NotFound { place },
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => StorageError::Denied {
            place,
            hint: HINT,
            source: io::Error::other(text),
        },
        Error::NotSupported { source } => {
            let what = without_queries(&source.to_string());
            invalid(format!(
                "{place} cannot be read in ranges: {what}; use a server that supports range requests"
            ))
        }
        _ => {
            let hint = HINTS.iter().find(|(known, _)| says(known));
            let hint = hint.map(|(_, hint)| format!("; {hint}"));
            let source = io::Error::other(text + hint.as_deref().unwrap_or_default());
            StorageError::Io {
                operation,
                place,
                source,
            }
        }
    }
}

/// What an error says, without the queries of URLs, which may hold signatures.
///
/// A server's answer is XML; its code and its message are shown. Of a chain of causes, the last two are: those before
/// name the operation, the address and the settings of the client.
fn describe(error: &Error) -> String {
    let all = without_queries(&error.to_string());
    let status = all.split("status code: ").nth(1);
    if let Some(status) = status.map(|rest| rest.split(": ").next().unwrap_or(rest)) {
        let said: Vec<_> = [element(&all, "Code"), element(&all, "Message")]
            .into_iter()
            .flatten()
            .collect();
        return [vec![status], said].concat().join(": ");
    }
    let mut texts: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        texts.push(without_queries(&cause.to_string()));
        next = cause.source();
    }
    let last = texts.len().saturating_sub(2);
    let mut shown: Vec<String> = texts.split_off(last);
    // Most of these errors repeat their cause.
    if shown.len() == 2 && shown[0].contains(&shown[1]) {
        shown.pop();
    }
    match shown.as_slice() {
        [] => all,
        shown => shown.join(": "),
    }
}

/// The text of the first XML element with this name.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>"))
        .map(|(inside, _)| inside)
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

    #[test]
    fn an_answer_of_a_server_is_told_by_its_code_and_what_to_do() {
        let answer = |status: &str, code: &str| {
            let xml = format!(
                "<Error><Code>{code}</Code><Message>so it is</Message><HostId>x</HostId></Error>"
            );
            let source = format!(
                "Error performing GET http://h/b in 1 ms - Server returned non-2xx status code: {status}: {xml}"
            );
            let error = Error::Generic {
                store: "S3",
                source: source.into(),
            };
            let shown = failed("list", "s3://b/k".to_owned(), error);
            let source = shown.source().map(ToString::to_string).unwrap_or_default();
            format!("{shown}: {source}")
        };
        assert_eq!(
            answer("404 Not Found", "NoSuchBucket"),
            "the bucket of s3://b/k does not exist: "
        );
        let denied = answer("403 Forbidden", "SignatureDoesNotMatch");
        assert!(
            denied.contains("was denied")
                && denied.contains("~/.aws")
                && denied.contains("so it is"),
            "{denied}"
        );
        assert!(!denied.contains("HostId"), "{denied}");
        let region = answer("301 Moved Permanently", "PermanentRedirect");
        assert!(region.contains("set AWS_REGION"), "{region}");
        let busy = answer("503 Service Unavailable", "SlowDown");
        assert!(
            busy.starts_with("cannot list s3://b/k: 503 Service Unavailable: SlowDown"),
            "{busy}"
        );
    }
}
