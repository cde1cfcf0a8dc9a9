//! For tests: checks that a text is well-formed XML, as far as a report needs it. Checks tags strictly, not the
//! grammar.

/// Panics at the first error.
pub(super) fn check(text: &str) {
    let text = text.strip_prefix("<!DOCTYPE html>").unwrap_or(text);
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some((before, tag)) = rest.split_once('<') {
        check_text(before);
        let (tag, after) = tag.split_once('>').expect("every tag ends");
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "tags are closed in order");
            continue;
        }
        let body = tag.strip_suffix('/').unwrap_or(tag);
        let name = body
            .split_whitespace()
            .next()
            .expect("every tag has a name");
        check_attributes(&body[name.len()..]);
        if body.len() == tag.len() {
            open.push(name);
        }
    }
    check_text(rest);
    assert!(open.is_empty(), "not closed: {open:?}");
}

fn check_attributes(mut rest: &str) {
    while let Some((name, after)) = rest.trim_start().split_once("=\"") {
        assert!(
            name.chars()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == '-'),
            "{name}"
        );
        let (value, after) = after.split_once('"').expect("every value ends");
        check_text(value);
        rest = after;
    }
    assert!(rest.trim().is_empty(), "{rest}");
}

fn check_text(text: &str) {
    assert!(!text.contains('>'), "{text}");
    assert!(
        text.chars()
            .all(|letter| letter == '\n' || letter == '\t' || !letter.is_control())
    );
    for entity in text.split('&').skip(1) {
        let (name, _) = entity.split_once(';').expect("every entity ends");
        assert!(["amp", "lt", "gt", "quot", "#39"].contains(&name), "{name}");
    }
}
