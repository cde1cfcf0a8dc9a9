//! Files that match a pattern, and natural sort order.

use std::fs;
use std::path::Path;

pub(crate) use kino_dataset::matches_pattern as matches;

/// Files and folders below `root` that match a pattern, sorted. Each part of it is matched with one level of folders, so
/// `**` is the same as `*`.
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
    fn numbers_sort_numerically() {
        let mut names = ["10.jpg", "2.jpg", "b1", "a", "01.jpg", "1.jpg"];
        names.sort_by_key(|name| order(name));
        assert_eq!(names, ["1.jpg", "01.jpg", "2.jpg", "10.jpg", "a", "b1"]);
    }
}
