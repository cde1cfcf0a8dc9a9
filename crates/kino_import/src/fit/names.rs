//! Valid names of streams and episodes, and replacements for invalid ones.
//!
//! ```text
//! obs/..   ─▶ obs/_        a\nb ─▶ a_b        (no name) ─▶ _        x, x ─▶ x, x_2
//! ```

use std::collections::HashSet;

use kino_dataset::is_unprintable;

/// The longest name, in bytes.
const MAX_BYTES: usize = 255;

/// Whether a stream can have this name: a relative path of non-empty parts.
pub(crate) fn is_name(name: &str) -> bool {
    name.len() <= MAX_BYTES && name.split('/').all(is_part) && !name.contains(is_odd)
}

/// Whether an episode can have this id.
pub(crate) fn is_id(id: &str) -> bool {
    id.len() <= MAX_BYTES && !id.contains(is_unprintable)
}

/// The valid stream name closest to `name`.
pub(crate) fn fit_name(name: &str) -> String {
    let part = |part: &str| {
        if is_part(part) {
            part.replace(is_odd, "_")
        } else {
            "_".to_owned()
        }
    };
    let parts: Vec<_> = name.split('/').map(part).collect();
    let name = cut(&parts.join("/"), MAX_BYTES);
    // Truncating after a slash leaves an empty component.
    name.trim_end_matches('/').to_owned()
}

/// The valid id closest to `id`.
pub(crate) fn fit_id(id: &str) -> String {
    cut(&id.replace(is_unprintable, "_"), MAX_BYTES)
}

/// `name`, with a number if it is taken; marks it as taken.
pub(crate) fn unique(name: String, taken: &mut HashSet<String>) -> String {
    // An unnamed one gets a unique name from the writer.
    if name.is_empty() || taken.insert(name.clone()) {
        return name;
    }
    let numbered = (2u64..).map(|number| {
        let end = format!("_{number}");
        cut(&name, MAX_BYTES - end.len()) + &end
    });
    let free = numbered.into_iter().find(|name| taken.insert(name.clone()));
    free.unwrap_or(name)
}

fn is_part(part: &str) -> bool {
    !matches!(part, "" | "." | "..")
}

fn is_odd(c: char) -> bool {
    is_unprintable(c) || c == '\\'
}

/// The longest prefix of a text with at most `len` bytes.
fn cut(text: &str, len: usize) -> String {
    let end = (0..=len.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at));
    text[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_name_is_replaced_by_a_valid_one() {
        for (name, expected) in [
            ("obs/..", "obs/_"),
            ("", "_"),
            ("/a//b/", "_/a/_/b/_"),
            ("a\nb\\c", "a_b_c"),
            ("..", "_"),
            ("gpj\u{202e}.exe", "gpj_.exe"),
            ("Größe/x y", "Größe/x y"),
        ] {
            assert_eq!(fit_name(name), expected, "{name:?}");
            assert_eq!(is_name(name), name == expected, "{name:?}");
        }
        for long in ["x".repeat(300), "ö".repeat(200), "a/".repeat(200)] {
            assert!(is_name(&fit_name(&long)), "{}", fit_name(&long));
            assert!(is_id(&fit_id(&long)));
        }
        assert_eq!(fit_id("a\nb\u{2066}"), "a_b_");
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        let mut taken = HashSet::new();
        let names = ["x", "x", "x_2", "x"].map(|name| unique(name.to_owned(), &mut taken));
        assert_eq!(names, ["x", "x_2", "x_2_2", "x_3"]);
        let long = "x".repeat(255);
        assert_eq!(unique(long.clone(), &mut taken), long);
        assert!(is_name(&unique(long, &mut taken)));
    }
}
