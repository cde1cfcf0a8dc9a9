//! Patterns for names with `/` between their parts: streams, episodes, and what a mapping names.
//!
//! ```text
//! *    any number of characters of one part     obs/*_image   obs/front_image, not obs/left/front_image
//! **   any number of characters                 obs/**_image  both of them
//! ?    one character of a part                  take_?        take_7, not take_12
//! ```

/// Whether a name matches `pattern`: `*` stays inside a part of the name, `**` crosses `/`, `?` is one character.
///
/// ```
/// assert!(kino_dataset::matches_pattern("obs/*_image", "obs/front_image"));
/// assert!(!kino_dataset::matches_pattern("*", "obs/front_image"));
/// ```
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    // reachable[i]: the pattern so far can have consumed name[..i]. So a hostile pattern takes at most
    // len(pattern) × len(name) steps.
    let mut reachable = vec![false; name.len() + 1];
    reachable[0] = true;
    let mut rest = pattern.chars().peekable();
    while let Some(letter) = rest.next() {
        let mut next = vec![false; name.len() + 1];
        if letter == '*' {
            let crosses = rest.next_if_eq(&'*').is_some();
            let mut on = false;
            for idx in 0..=name.len() {
                on = reachable[idx] || (on && (crosses || name[idx - 1] != '/'));
                next[idx] = on;
            }
        } else {
            for (idx, &found) in name.iter().enumerate() {
                let is_same = letter == found || letter == '?' && found != '/';
                next[idx + 1] = reachable[idx] && is_same;
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
    fn stars_and_question_marks_match_as_documented() {
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
            ("", "x", false),
            ("*", "", true),
            ("episode_*.npz", "episode_12.npz", true),
            ("episode_?.npz", "episode_1.npz", true),
            ("episode_?.npz", "episode_12.npz", false),
            ("obs?front", "obs/front", false),
            ("ö?", "öx", true),
            ("?x", "öx", true),
            ("*a*b", "xaxxbxb", true),
            ("*a*b", "xaxxbx", false),
        ] {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        }
        assert!(!matches_pattern(&"*a".repeat(200), &"a".repeat(199)));
    }
}
