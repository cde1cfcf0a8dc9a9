//! Patterns for stream names: `*` within a path segment, `**` across segments.

/// Whether the name of a stream matches `pattern`, in which `*` stays inside a path part and `**` crosses them.
///
/// ```
/// assert!(kino_dataset::matches_pattern("obs/*_image", "obs/front_image"));
/// assert!(!kino_dataset::matches_pattern("*", "obs/front_image"));
/// ```
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    glob(pattern.as_bytes(), name.as_bytes())
}

/// Whether `name` matches `pattern`, in which `*` stands for any bytes but `/` and `**` for any bytes.
///
/// Keeps one position to backtrack to per kind of star, so hostile patterns take at most len(pattern) × len(name)
/// steps twice over, never exponentially many.
pub(crate) fn glob(pattern: &[u8], name: &[u8]) -> bool {
    // reachable[i]: the pattern so far can have consumed name[..i].
    let mut reachable = vec![false; name.len() + 1];
    reachable[0] = true;
    let mut rest = pattern;
    while let Some((&byte, tail)) = rest.split_first() {
        let mut next = vec![false; name.len() + 1];
        if byte == b'*' {
            let crosses = tail.first() == Some(&b'*');
            rest = if crosses { &tail[1..] } else { tail };
            let mut on = false;
            for idx in 0..=name.len() {
                on = reachable[idx] || (on && (crosses || name[idx - 1] != b'/'));
                next[idx] = on;
            }
        } else {
            rest = tail;
            for idx in 0..name.len() {
                next[idx + 1] = reachable[idx] && name[idx] == byte;
            }
        }
        reachable = next;
    }
    reachable[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_as_documented() {
        for (pattern, name, expected) in [
            ("obs/*_image", "obs/agentview_image", true),
            ("obs/*_image", "obs/a/b_image", false),
            ("obs/**_image", "obs/a/b_image", true),
            ("**", "anything/at/all", true),
            ("*", "a/b", false),
            ("actions", "actions", true),
            ("actions", "actions2", false),
            ("*a*a*a*", "aaaa", true),
            ("", "", true),
            ("*", "", true),
        ] {
            assert_eq!(
                glob(pattern.as_bytes(), name.as_bytes()),
                expected,
                "{pattern} {name}"
            );
        }
    }
}
