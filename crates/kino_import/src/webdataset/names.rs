//! Names in a tar: sample, field, step and episode.
//!
//! ```text
//! ep0002_t0003.front.jpg        sample ep0002_t0003, field front.jpg     ─▶ episode ep0002, step 3, stream front
//! ep0002.front.00003.jpg        sample ep0002, field front.00003.jpg     ─▶ episode ep0002, stream front, frame 3
//! demo_2.npz                    sample demo_2, field npz                 ─▶ episode demo_2, a stream per array
//! ```
//!
//! WebDataset only defines samples. A sample is a step if the episode part of its name has a number too.

/// The encoding of a field, by its extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Npy,
    Npz,
    Json,
    Text,
    Image,
    /// An integer as decimal text.
    Class,
}

/// The sample and the field of a member; the field is lower case, as in webdataset.
pub(crate) fn split(name: &str) -> Option<(&str, String)> {
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = base + name[base..].find('.')?;
    let (key, field) = (&name[..dot], &name[dot + 1..]);
    (dot > base && !field.is_empty()).then(|| (key, field.to_lowercase()))
}

/// The extension of a field, if it is known.
pub(crate) fn ending(field: &str) -> Option<Ending> {
    Some(match field.rsplit('.').next()? {
        "npy" => Ending::Npy,
        "npz" => Ending::Npz,
        "json" => Ending::Json,
        "txt" | "text" => Ending::Text,
        "jpg" | "jpeg" | "png" => Ending::Image,
        "cls" | "cls2" | "class" | "count" | "index" | "inx" | "id" => Ending::Class,
        _ => return None,
    })
}

/// A field without its extension, or the extension alone if nothing precedes it.
pub(crate) fn stem(field: &str) -> &str {
    field.rsplit_once('.').map_or(field, |(stem, _)| stem)
}

/// The stream and number of a field that is one frame: `front.00003.jpg`.
pub(crate) fn numbered(field: &str) -> Option<(&str, u64)> {
    let (stream, number) = stem(field).rsplit_once('.')?;
    let is_number = !stream.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    Some((stream, number.parse().ok().filter(|_| is_number)?))
}

/// The episode and the number of a sample that is one step: `ep0002_t0003`, `demo_7/12`.
pub(crate) fn step(key: &str) -> Option<(&str, u64)> {
    let rest = key.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = key[rest.len()..].parse().ok()?;
    let words = ["step", "frame", "t", "f"];
    let rest = words.iter().find_map(|word| {
        let rest = rest.trim_end_matches(['_', '-']);
        let rest = rest.strip_suffix(word)?;
        rest.ends_with(['_', '-', '/']).then_some(rest)
    });
    let rest = rest.unwrap_or(key.trim_end_matches(|c: char| c.is_ascii_digit()));
    let episode = rest.trim_end_matches(['_', '-', '/']);
    let has_number = episode.bytes().any(|byte| byte.is_ascii_digit());
    (episode.len() < rest.len() && has_number).then_some((episode, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_at_the_first_dot_of_the_last_part() {
        let split = |name| split(name).map(|(key, field)| format!("{key} {field}"));
        assert_eq!(
            split("a/b.c/ep1.Front.JPG").as_deref(),
            Some("a/b.c/ep1 front.jpg")
        );
        assert_eq!(split("ep1.npz").as_deref(), Some("ep1 npz"));
        assert_eq!(split("folder.x/readme"), None);
        assert_eq!(split(".hidden"), None);
        assert_eq!(split("ep1."), None);
    }

    #[test]
    fn steps_and_episodes_are_distinguished() {
        for (key, expected) in [
            ("ep0002_t0003", Some(("ep0002", 3))),
            ("demo_7/12", Some(("demo_7", 12))),
            ("demo_7/frame_0012", Some(("demo_7", 12))),
            ("kitchen-3-step-9", Some(("kitchen-3", 9))),
            ("0003_0004", Some(("0003", 4))),
            ("ep0002", None),
            ("episode_0002", None),
            ("demo_2", None),
            ("000123", None),
            ("a/b/c", None),
            ("x_99999999999999999999999", None),
        ] {
            assert_eq!(step(key), expected, "{key}");
        }
    }

    #[test]
    fn fields_have_endings_and_may_be_numbered() {
        assert_eq!(numbered("front.00003.jpg"), Some(("front", 3)));
        assert_eq!(numbered("a.b.7.png"), Some(("a.b", 7)));
        assert_eq!(numbered("front.jpg"), None);
        assert_eq!(numbered("00003.jpg"), None);
        assert_eq!((stem("front.jpg"), stem("npz")), ("front", "npz"));
        assert_eq!(ending("x.mp4"), None);
        assert_eq!(ending("x.cls"), Some(Ending::Class));
    }
}
