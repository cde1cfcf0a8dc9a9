//! Paths of files: the templates of `info.json`, restricted to the source's folder.
//!
//! ```text
//! videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4
//! videos/chunk-000/observation.images.front/episode_000003.mp4
//! ```
//!
//! A template is untrusted text, so the result is checked before it is opened: `..` or an absolute path could read any
//! of the user's files. Links are checked when the source is opened (`files.rs`).

use std::fs;
use std::path::{Component, Path, PathBuf};

/// The templates of v2.0 and v2.1, and those of v3.0.
pub(super) const DATA_V2: &str =
    "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet";
pub(super) const VIDEO_V2: &str =
    "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4";
pub(super) const DATA_V3: &str = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet";
pub(super) const VIDEO_V3: &str =
    "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4";

/// No number is padded to more digits than this.
const MAX_DIGITS: usize = 20;

/// No path is longer than this.
const MAX_PATH: usize = 4096;

/// The values of a template's fields.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fields<'a> {
    pub(super) episode_chunk: u64,
    pub(super) episode_index: u64,
    pub(super) chunk_index: u64,
    pub(super) file_index: u64,
    pub(super) video_key: &'a str,
}

/// Fills in a template; the error is a predicate of "the path `…`".
pub(super) fn fill(template: &str, fields: &Fields<'_>) -> Result<PathBuf, String> {
    let (mut path, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once('{') {
        let (field, tail) = after.split_once('}').ok_or("has a `{` without a `}`")?;
        path.push_str(before);
        path.push_str(&value(field, fields)?);
        rest = tail;
    }
    path.push_str(rest);
    check(&path)
}

fn value(field: &str, fields: &Fields<'_>) -> Result<String, String> {
    let (name, format) = field.split_once(':').unwrap_or((field, ""));
    let number = match name {
        "video_key" => return Ok(fields.video_key.to_owned()),
        "episode_chunk" => fields.episode_chunk,
        "episode_index" => fields.episode_index,
        "chunk_index" => fields.chunk_index,
        "file_index" => fields.file_index,
        _ => return Err(format!("has an unknown field `{name}`")),
    };
    let digits = format.trim_end_matches('d');
    let width = match digits {
        "" => 0,
        digits => digits
            .parse()
            .map_err(|_| format!("has an unknown format `{format}`"))?,
    };
    if width > MAX_DIGITS {
        return Err(format!("pads a number to {width} digits"));
    }
    Ok(format!("{number:0width$}"))
}

/// An untrusted path, or why it may not be opened.
pub(super) fn check(path: &str) -> Result<PathBuf, String> {
    if path.len() > MAX_PATH {
        return Err("is too long for a path".to_owned());
    }
    let path = Path::new(path);
    let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if !path.components().all(is_inside) || path.file_name().is_none() {
        return Err("leads out of the source's folder".to_owned());
    }
    Ok(path.components().collect())
}

/// Every file below a folder with this extension, relative to `root`, sorted.
pub(super) fn files_below(root: &Path, folder: &str, ending: &str) -> Vec<PathBuf> {
    /// `data/chunk/file` and `videos/key/chunk/file`, and one more.
    const DEPTH: usize = 5;
    let (mut found, mut waiting) = (Vec::new(), vec![(PathBuf::from(folder), 0)]);
    while let Some((folder, depth)) = waiting.pop() {
        for entry in fs::read_dir(root.join(&folder))
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = folder.join(entry.file_name());
            // Folders behind links are skipped: a link may form a cycle.
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && depth < DEPTH {
                waiting.push((path, depth + 1));
            } else if !is_folder && path.extension().is_some_and(|found| found == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str) -> Result<PathBuf, String> {
        let fields = Fields {
            episode_chunk: 1,
            episode_index: 1234,
            chunk_index: 2,
            file_index: 7,
            video_key: "observation.images.front",
        };
        fill(template, &fields)
    }

    #[test]
    fn templates_are_filled_like_in_python() {
        let path =
            filled("videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4");
        let expected = "videos/chunk-001/observation.images.front/episode_001234.mp4";
        assert_eq!(path.unwrap(), Path::new(expected));
        let path = filled("{chunk_index}/file-{file_index:3d}.parquet").unwrap();
        assert_eq!(path, Path::new("2/file-007.parquet"));
    }

    #[test]
    fn no_template_leads_out_of_the_folder_or_fills_memory() {
        for template in [
            "../../etc/passwd",
            "data/../../secret",
            "/etc/passwd",
            "",
            "data/..",
            "{video_key",
            "{home}",
            "{file_index:099999999999d}",
            "{file_index:9999d}",
            "{file_index:x}",
        ] {
            assert!(filled(template).is_err(), "{template}");
        }
        let fields = Fields {
            video_key: "../../up",
            ..Fields::default()
        };
        assert!(fill("videos/{video_key}/a.mp4", &fields).is_err());
        assert!(check(&"a".repeat(MAX_PATH + 1)).is_err());
    }
}
