//! Plain folders: npz, npy and csv files and images, with a small mapping where names are not enough.
//!
//! ```text
//! mapping.rs  glob.rs              fields.rs, table.rs               spec.rs                         frames.rs, read.rs
//! what is what? which episodes? ─▶ arrays, columns, images of one ─▶ streams, clocks, attributes ─▶ frames
//! ```

mod cell;
mod fields;
mod frames;
pub(crate) mod glob;
mod mapping;
mod read;
mod rows;
mod spec;
mod table;
mod times;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::defect::{Action, Defect};
use crate::error::Result;
use crate::formats::{files_ending, has_ending};
use crate::open::ImportOptions;
use crate::source::{Source, SourceInfo};
use crate::source_file::SourceFile;
use crate::specs;
use cell::Cell;
use fields::Found;
use mapping::Mapping;
use table::Column;

/// Files that are an episode each.
const FILES: &[&str] = &["npz", "csv"];

/// Whether a path looks like a plain folder of recordings, or one file of them.
pub(crate) fn is_folder(path: &Path) -> bool {
    if path.is_file() {
        return has_ending(path, FILES);
    }
    !files_ending(path, FILES).is_empty() || !folders_of_frames(path).is_empty()
}

/// The folders below `path` that hold arrays, tables or folders of images.
fn folders_of_frames(path: &Path) -> Vec<String> {
    const ENDINGS: &[&str] = &["npy", "npz", "csv"];
    const IMAGES: &[&str] = &["png", "jpg", "jpeg"];
    let mut folders = glob::find(path, "*");
    folders.retain(|name| {
        let folder = path.join(name);
        let has_images = |inner: &String| !files_ending(&folder.join(inner), IMAGES).is_empty();
        folder.is_dir()
            && (!files_ending(&folder, ENDINGS).is_empty()
                || glob::find(&folder, "*").iter().any(has_images))
    });
    folders
}

/// The folder that names are relative to, and the names of the episodes in it.
fn list(path: &Path, mapping: &Mapping) -> (PathBuf, Vec<String>) {
    if !path.is_dir() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        return (folder, vec![name.into_owned()]);
    }
    let names = match &mapping.episodes {
        Some(pattern) => glob::find(path, pattern),
        None => {
            let of_ending = |ending: &str| glob::find(path, &format!("*.{ending}"));
            let found = FILES.iter().map(|ending| of_ending(ending));
            let found = found.into_iter().find(|found| !found.is_empty());
            found.unwrap_or_else(|| folders_of_frames(path))
        }
    };
    (path.to_owned(), names)
}

/// Lists the episodes and reads the headers of their arrays, the first of their images, and their tables.
pub(crate) fn open(path: &Path, options: &ImportOptions) -> Result<Source> {
    let mapping = options.mapping.as_deref().map(Mapping::read).transpose()?;
    let mapping = mapping.unwrap_or_default();
    let (root, names) = list(path, &mapping);
    let mut source = Source::new(SourceInfo::new("folder"), Vec::new());
    let mut found = Vec::new();
    let ids = ids(&names);
    // A mapping renames streams, and clocks may be files.
    let is_wanted = |field: &str| options.mapping.is_some() || options.part.takes_stream(field);
    for (name, id) in names.iter().zip(&ids) {
        match fields::find(&root.join(name), &is_wanted) {
            Ok(mut in_episode) => {
                let not_opened = in_episode.not_opened.drain(..);
                source.not_opened.streams.extend(not_opened);
                found.push((name, id, in_episode));
            }
            Err(error) => {
                let defect = Defect::new(format!("{name}:/"), error.what(), Action::Dropped);
                source.info.defects.push(defect.of(id));
            }
        }
    }
    agree(found.iter_mut().map(|(_, _, found)| found));
    let mut builder = spec::SpecBuilder::new(&mapping, options.rate_hz);
    for (name, id, found) in found {
        let (fields, faults) = found.finish();
        for (field, what, action) in faults {
            let place = format!("{name}:/{}", field.escape_debug());
            let defect = Defect::new(place, what, action).of(id);
            source.info.defects.push(defect);
        }
        let episode = builder.episode(name, id, fields, &mut source.info.defects)?;
        let Some(mut episode) = episode else {
            continue;
        };
        episode.file = source.info.files.len();
        let place = root.join(name);
        let len = fs::metadata(&place).map_or(0, |file| if file.is_dir() { 0 } else { file.len() });
        let names = source.not_opened.streams.iter();
        let skipped: Vec<_> = names
            .flat_map(|name| [place.join(name), place.join(format!("{name}.npy"))])
            .collect();
        let file = SourceFile::new(place, len).without(skipped);
        source.info.files.push(file);
        source.episodes.push(episode);
    }
    builder.check_all_found()?;
    if source.episodes.is_empty() && source.not_opened.streams.is_empty() {
        let next = "pass a mapping with `--mapping` that says which files or folders are episodes: `episodes = \"take_*\"`";
        return Err(specs::nothing_left(path, &source.info.defects, next));
    }
    Ok(source)
}

/// Ids: names without their extension, unless two would be equal.
fn ids(names: &[String]) -> Vec<String> {
    let stem = |name: &String| match name.rsplit_once('.') {
        Some((stem, ending)) if FILES.contains(&ending) || ending == "npy" => stem.to_owned(),
        _ => name.clone(),
    };
    let stems: Vec<_> = names.iter().map(stem).collect();
    if stems.iter().collect::<HashSet<_>>().len() == stems.len() {
        stems
    } else {
        names.to_vec()
    }
}

/// Gives numeric columns of the same name the same type in every episode, if that is exact: integers become floats or
/// unsigned if they are elsewhere. Columns that cannot agree are reported by the fitting.
fn agree<'a>(found: impl Iterator<Item = &'a mut Found>) {
    let mut columns: HashMap<String, Vec<&mut Column>> = HashMap::new();
    for (name, column) in found.flat_map(Found::table_columns) {
        if !matches!(column.cell, Cell::Bool | Cell::Text) {
            columns.entry(name).or_default().push(column);
        }
    }
    for mut columns in columns.into_values() {
        let wanted = [Cell::Float, Cell::Unsigned];
        let mut wanted = wanted.iter();
        let wanted = wanted.find(|&&cell| columns.iter().any(|column| column.cell == cell));
        let all_fit = |cell: &&Cell| {
            let mut others = columns.iter().filter(|column| column.cell != **cell);
            others.all(|column| column.seen.fits(**cell))
        };
        if let Some(&cell) = wanted.filter(all_fit) {
            columns.iter_mut().for_each(|column| column.cell = cell);
        }
    }
}
