//! Names with `*` and `?`, and natural sort order.

use std::fs;
use std::path::Path;

/// Whether `name` matches `pattern`: `*` is any number of characters, `?` is one.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    // Backtracks to the last `*` only, which is sufficient and keeps it fast.
    let (mut at, mut in_name, mut star) = (0, 0, None);
    while in_name < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(&letter) if letter == '?' || letter == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => match star {
                None => return false,
                Some((star_at, star_name)) => {
                    star = Some((star_at, star_name + 1));
                    at = star_at + 1;
                    in_name = star_name + 1;
                }
            },
        }
    }
    pattern[at..].iter().all(|&letter| letter == '*')
}

/// Files and folders below `root` that match a pattern with `/` separators, sorted.
pub(crate) fn find(root: &Path, pattern: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for part in pattern.split('/') {
        let mut next = Vec::new();
        for folder in &found {
            let entries = fs::read_dir(root.join(folder))
                .into_iter()
                .flatten()
                .flatten();
            for entry in entries {
                let name = entry.file_name().to_string_lossy().into_owned();
                if !name.starts_with('.') && matches(part, &name) {
                    next.push(match folder.as_str() {
                        "" => name,
                        folder => format!("{folder}/{name}"),
                    });
                }
            }
        }
        found = next;
    }
    found.sort_by_cached_key(|name| order(name));
    found
}

/// The key that sorts `2.jpg` before `10.jpg`: runs of digits as numbers.
pub(crate) fn order(name: &str) -> Vec<(String, u128, usize)> {
    let mut key = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let letters = rest
            .find(|letter: char| letter.is_ascii_digit())
            .unwrap_or(rest.len());
        let (text, tail) = rest.split_at(letters);
        let digits = tail
            .find(|letter: char| !letter.is_ascii_digit())
            .unwrap_or(tail.len());
        let (number, tail) = tail.split_at(digits);
        // A number of more than 38 digits sorts last.
        let value = number
            .parse()
            .unwrap_or(if number.is_empty() { 0 } else { u128::MAX });
        key.push((text.to_owned(), value, number.len()));
        rest = tail;
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_match_characters() {
        for (pattern, name, is_match) in [
            ("*", "", true),
            ("episode_*.npz", "episode_12.npz", true),
            ("episode_?.npz", "episode_12.npz", false),
            ("joint.*", "joint.0", true),
            ("*a*b", "xaxxbxb", true),
            ("*a*b", "xaxxbx", false),
            ("ö?", "öx", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, name), is_match, "{pattern} {name}");
        }
        // No pattern takes more than its length times that of the name.
        assert!(!matches(&"*a".repeat(200), &"a".repeat(199)));
    }

    #[test]
    fn numbers_sort_numerically() {
        let mut names = ["10.jpg", "2.jpg", "b1", "a", "01.jpg", "1.jpg"];
        names.sort_by_key(|name| order(name));
        assert_eq!(names, ["1.jpg", "01.jpg", "2.jpg", "10.jpg", "a", "b1"]);
    }
}
