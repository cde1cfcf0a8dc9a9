//! Export in parts: many processes write the files of their episodes, and one makes them the target.
//!
//! ```text
//! TARGET.parts/export.json          what is exported, and how: the same for all parts
//!              part-3-of-64/        what part 3 has written; it appears in one step
//! TARGET                            the files of all parts; it appears in one step
//! ```
//!
//! Every part reads the outline of all episodes, so names, numbers and what the format cannot hold are those of an export by one
//! process. A file about all episodes is written by every part, and is the same in all, or has a line per episode (`.jsonl`).
//! Frames are read by one part alone.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use kino_dataset::{Dataset, PartOf, check_local};
use serde::{Deserialize, Serialize};

use super::publish::Unpublished;
use super::{
    EXPORTERS, ExportOptions, Exported, Exporter, FrameReader, WritingPath, find, prepare,
    put_json, refuse_existing,
};
use crate::defect::Defect;
use crate::error::{ImportError, Result, invalid};
use crate::files;
use crate::progress::Progress;

/// What all parts of an export have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Common {
    kinograph: String,
    /// The id of the dataset's version.
    dataset: String,
    /// The options, as text.
    options: String,
    parts: usize,
    episodes: u64,
    frames: u64,
    defects: Vec<Defect>,
}

/// How far an export in parts is.
#[derive(Debug)]
pub struct ExportProgress {
    /// How many parts there are.
    pub parts: usize,
    /// Those that are not written yet, counted from 1.
    pub missing: Vec<usize>,
}

/// Writes the files of one part of an export; [`commit_export`] makes all parts the target. A part that is there already is not
/// written again.
pub fn export_part(
    dataset: &Dataset,
    target: &Path,
    options: &ExportOptions,
    part: PartOf,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Exported> {
    check_local(target)?;
    let exporter = find_in_parts(&options.to)?;
    refuse_existing(target)?;
    let (mut outline, defects) = prepare(dataset, target, options)?;
    let all = Exported::of(&outline, defects);
    let common = Common {
        kinograph: env!("CARGO_PKG_VERSION").to_owned(),
        dataset: dataset.id().to_owned(),
        options: format!(
            "to {}, {:?}, cameras {}",
            options.to,
            options.selection,
            options.cameras.name()
        ),
        parts: part.parts(),
        episodes: all.episodes,
        frames: all.frames,
        defects: all.defects,
    };
    agree(dataset, target, &common)?;
    outline.part = Some(part);
    let done = Exported::of(&outline, common.defects);
    let place = part_folder(target, &part.to_string());
    if place.exists() {
        return Ok(done);
    }
    let unpublished = Unpublished::beside(&place, dataset.path())?;
    let mut reader = FrameReader::new(&outline, progress);
    (exporter.write)(&outline, &mut reader, &unpublished.data())?;
    match unpublished.publish() {
        // Another process has written the same part meanwhile.
        Err(ImportError::Exists { .. }) => Ok(done),
        published => published.map(|()| done),
    }
}

/// How many parts can have something to write: one per episode.
pub fn count_export_parts(dataset: &Dataset, options: &ExportOptions) -> Result<usize> {
    find_in_parts(&options.to)?;
    Ok(options.selection.rows(dataset)?.len())
}

/// The exporter of that name, if it can write parts.
fn find_in_parts(name: &str) -> Result<&'static Exporter> {
    let exporter = find(name)?;
    if exporter.has_parts {
        return Ok(exporter);
    }
    let others = EXPORTERS.iter().filter(|one| one.has_parts);
    let others: Vec<_> = others.map(|one| one.name).collect();
    Err(invalid(format!(
        "an export to {name} cannot be made in parts, because its files hold several episodes; these formats can: {}",
        others.join(", ")
    )))
}

/// Makes the parts of an export its target, in one step.
pub fn commit_export(target: &Path) -> Result<Exported> {
    let (common, missing) = progress_of(target)?.ok_or_else(|| {
        invalid(format!(
            "{} has no parts of an export; write them with `kinograph export DATASET {} --part 1/N` to `--part N/N`",
            target.display(),
            target.display()
        ))
    })?;
    if !missing.is_empty() {
        let names: Vec<_> = missing
            .iter()
            .map(|part| format!("{part}/{}", common.parts))
            .collect();
        return Err(ImportError::NotFound {
            path: target.to_owned(),
            what: format!("{} of {} parts are missing", missing.len(), common.parts),
            next: format!("run the export with `--part` {}", names.join(", ")),
        });
    }
    refuse_existing(target)?;
    let parts: Vec<_> = (1..=common.parts)
        .map(|part| part_folder(target, &format!("{part}/{}", common.parts)))
        .collect();
    let unpublished = Unpublished::beside(target, &folder(target))?;
    join(&parts, &unpublished.data())?;
    unpublished.publish()?;
    // What is left takes no space: its files are those of the target.
    let _ = fs::remove_dir_all(folder(target));
    Ok(Exported {
        episodes: common.episodes,
        frames: common.frames,
        defects: common.defects,
    })
}

/// How far an export in parts is; `None` if none has begun.
pub fn export_progress(target: &Path) -> Result<Option<ExportProgress>> {
    let found = progress_of(target)?;
    Ok(found.map(|(common, missing)| ExportProgress {
        parts: common.parts,
        missing,
    }))
}

fn progress_of(target: &Path) -> Result<Option<(Common, Vec<usize>)>> {
    if check_local(target).is_err() {
        return Ok(None);
    }
    let path = folder(target).join(COMMON);
    let Some(text) = files::read_limited_if_there(&path, MOST_SHARED)? else {
        return Ok(None);
    };
    let common: Common = serde_json::from_slice(&text)
        .map_err(|error| invalid(format!("{} cannot be read: {error}", path.display())))?;
    let is_missing =
        |part: &usize| !part_folder(target, &format!("{part}/{}", common.parts)).exists();
    let missing = (1..=common.parts).filter(is_missing).collect();
    Ok(Some((common, missing)))
}

/// The file with what all parts have in common.
const COMMON: &str = "export.json";

/// Files that several parts have in common are metadata: more is not ours.
const MOST_SHARED: u64 = 1 << 30;

/// Where parts wait.
fn folder(target: &Path) -> PathBuf {
    files::parent(target).join(format!("{}.parts", files::file_name(target)))
}

fn part_folder(target: &Path, part: &str) -> PathBuf {
    folder(target).join(format!("part-{}", part.replace('/', "-of-")))
}

/// Records what the first part does, and refuses parts of another export.
fn agree(dataset: &Dataset, target: &Path, common: &Common) -> Result<()> {
    let path = folder(target).join(COMMON);
    if !path.exists() {
        let unpublished = Unpublished::beside(&path, dataset.path())?;
        put_json(&unpublished.data(), &serde_json::json!(common))?;
        match unpublished.publish() {
            Err(ImportError::Exists { .. }) => {}
            published => return published,
        }
    }
    let (there, _) = progress_of(target)?.ok_or_else(|| {
        invalid(format!(
            "{} was removed while this part was exported",
            path.display()
        ))
    })?;
    let differs = [
        (
            "the version of Kinograph",
            there.kinograph != common.kinograph,
        ),
        ("the dataset", there.dataset != common.dataset),
        ("the options", there.options != common.options),
        ("the number of parts", there.parts != common.parts),
    ];
    match differs.iter().find(|(_, differs)| *differs) {
        None => Ok(()),
        Some((what, _)) => Err(ImportError::Exists {
            what: format!(
                "{} has parts of another export: {what} differs; run this part as the others, or remove that folder",
                folder(target).display()
            ),
        }),
    }
}

/// Puts the files of all parts into one folder, without copying them where the file system has hard links.
fn join(parts: &[PathBuf], to: &Path) -> Result<()> {
    let mut found: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for part in parts {
        list(part, Path::new(""), &mut found)?;
    }
    fs::create_dir(to).writing(to)?;
    for (name, sources) in found {
        let place = to.join(&name);
        let parent = files::parent(&place);
        fs::create_dir_all(parent).writing(parent)?;
        if let [source] = sources.as_slice() {
            if fs::hard_link(source, &place).is_err() {
                fs::copy(source, &place).writing(&place)?;
            }
            continue;
        }
        let contents = sources
            .iter()
            .map(|source| files::read_limited(source, MOST_SHARED));
        let contents: Vec<_> = contents.collect::<Result<_>>()?;
        let is_same = contents.windows(2).all(|pair| pair[0] == pair[1]);
        let is_lines = name
            .extension()
            .is_some_and(|extension| extension == "jsonl");
        match contents.first() {
            Some(first) if is_same => fs::write(&place, first).writing(&place)?,
            _ if is_lines => fs::write(&place, in_turns(&contents)).writing(&place)?,
            _ => {
                return Err(invalid(format!(
                    "{} differs between parts; remove {} and export again",
                    name.display(),
                    files::parent(files::parent(&sources[0])).display()
                )));
            }
        }
    }
    Ok(())
}

/// The files of a part, by their paths in it.
fn list(part: &Path, below: &Path, found: &mut BTreeMap<PathBuf, Vec<PathBuf>>) -> Result<()> {
    let folder = part.join(below);
    let failed = |source| ImportError::Io {
        path: folder.clone(),
        source,
    };
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = below.join(entry.file_name());
        if entry.file_type().map_err(failed)?.is_dir() {
            list(part, &name, found)?;
        } else {
            found.entry(name).or_default().push(entry.path());
        }
    }
    Ok(())
}

/// Lines per episode, in the order of the episodes: part I has those of episodes I, I + N, I + 2 N, and so on.
fn in_turns(contents: &[Vec<u8>]) -> Vec<u8> {
    let mut lines: Vec<_> = contents
        .iter()
        .map(|content| content.split_inclusive(|&byte| byte == b'\n'))
        .collect();
    let mut all = Vec::with_capacity(contents.iter().map(Vec::len).sum());
    loop {
        let before = all.len();
        for lines in &mut lines {
            all.extend_from_slice(lines.next().unwrap_or_default());
        }
        if all.len() == before {
            return all;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_parts_are_in_the_order_of_the_episodes() {
        let parts = ["1\n4\n7\n", "2\n5\n", "3\n6\n"].map(|part| part.as_bytes().to_vec());
        assert_eq!(in_turns(&parts), b"1\n2\n3\n4\n5\n6\n7\n");
        assert_eq!(in_turns(&[Vec::new(), Vec::new()]), b"");
    }
}
