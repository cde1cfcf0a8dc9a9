//! Plain folders: npz, npy and csv files and images, with a small mapping where names are not enough.
//!
//! ```text
//! mapping.rs  glob.rs              fields.rs                             spec.rs                         read.rs
//! table.rs
//! what is what? which episodes? ─▶ arrays, columns, images of one ─▶ streams, clocks, attributes ─▶ frames
//! ```

mod cell;
mod fields;
pub(crate) mod glob;
mod mapping;
mod read;
mod rows;
mod spec;
mod table;
mod times;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kino_codec::FrameType;
use parking_lot::Mutex;
use serde_json::Map;

use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result};
use crate::formats::{files_ending, has_ending};
use crate::open::ImportOptions;
use crate::part::NotOpened;
use crate::recent::Recent;
use crate::source::{BLOCK_BYTES, EpisodeSpec, FrameBuf, Source, SourceFile, SourceInfo};
use crate::specs;
use crate::zip::Forward;
use cell::Cell;
use fields::{Found, Place, Reading};
use mapping::Mapping;
use table::{Column, Group, GroupKey, Table};

/// Files that are an episode each.
const FILES: &[&str] = &["npz", "csv"];

/// Episodes of a plain folder.
#[derive(Debug)]
pub(crate) struct FolderSource {
    info: SourceInfo,
    episodes: Vec<EpisodeSpec>,
    /// For each episode, the location of each stream.
    places: Vec<Vec<Place>>,
    decoded: Recent<(usize, usize), Vec<u8>>,
    /// Slices of tables, by the table's address in memory.
    groups: Recent<(usize, GroupKey), Group>,
    /// Deflated arrays, with their read positions.
    forward: Recent<(usize, usize), Mutex<Forward>>,
    not_opened: NotOpened,
}

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

impl FolderSource {
    /// Lists the episodes and reads the headers of their arrays, the first of their images, and their tables.
    pub(crate) fn open(path: &Path, options: &ImportOptions) -> Result<Self> {
        let mapping = options.mapping.as_deref().map(Mapping::read).transpose()?;
        let mapping = mapping.unwrap_or_default();
        let (root, names) = list(path, &mapping);
        let mut defects = Vec::new();
        let mut found = Vec::new();
        let ids = ids(&names);
        let mut not_opened = NotOpened::default();
        // A mapping renames streams, and clocks may be files.
        let is_wanted = |field: &str| options.mapping.is_some() || options.part.takes_stream(field);
        for (name, id) in names.iter().zip(&ids) {
            match fields::find(&root.join(name), &is_wanted) {
                Ok(mut in_episode) => {
                    not_opened.streams.extend(in_episode.not_opened.drain(..));
                    found.push((name, id, in_episode));
                }
                Err(error) => {
                    let what = error.what();
                    defects.push(Defect::new(format!("{name}:/"), what, Action::Dropped).of(id));
                }
            }
        }
        agree(found.iter_mut().map(|(_, _, found)| found));
        let mut source = Self {
            info: SourceInfo {
                format: "folder",
                files: Vec::new(),
                attributes: Map::new(),
                defects,
            },
            episodes: Vec::new(),
            places: Vec::new(),
            decoded: Recent::by_bytes(Vec::len),
            groups: Recent::by_bytes(Group::len),
            forward: Recent::default(),
            not_opened,
        };
        let mut builder = spec::SpecBuilder::new(&mapping, options.rate_hz);
        for (name, id, found) in found {
            let (fields, faults) = found.finish();
            for (field, what, action) in faults {
                let place = format!("{name}:/{}", field.escape_debug());
                let defect = Defect::new(place, what, action).of(id);
                source.info.defects.push(defect);
            }
            let draft = builder.episode(name, id, fields, &mut source.info.defects)?;
            let Some((mut episode, places)) = draft else {
                continue;
            };
            episode.file = source.info.files.len();
            let place = root.join(name);
            let len =
                fs::metadata(&place).map_or(0, |file| if file.is_dir() { 0 } else { file.len() });
            let names = source.not_opened.streams.iter();
            let skipped: Vec<_> = names
                .flat_map(|name| [place.join(name), place.join(format!("{name}.npy"))])
                .collect();
            let file = SourceFile::new(place, len).without(skipped);
            source.info.files.push(file);
            source.episodes.push(episode);
            source.places.push(places);
        }
        builder.check_all_found()?;
        if source.episodes.is_empty() && source.not_opened.streams.is_empty() {
            let next = "pass a mapping with `--mapping` that says which files or folders are episodes: `episodes = \"take_*\"`";
            return Err(specs::nothing_left(path, &source.info.defects, next));
        }
        Ok(source)
    }
}

/// Ids: names without their extension, unless two would be equal.
fn ids(names: &[String]) -> Vec<String> {
    let stem = |name: &String| match name.rsplit_once('.') {
        Some((stem, ending)) if FILES.contains(&ending) || ending == "npy" => stem.to_owned(),
        _ => name.clone(),
    };
    let stems: Vec<_> = names.iter().map(stem).collect();
    match stems.iter().collect::<HashSet<_>>().len() == stems.len() {
        true => stems,
        false => names.to_vec(),
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

impl FolderSource {
    /// Reads columns of a table.
    fn read_columns(
        &self,
        (table, columns): (&Arc<Table>, &[usize]),
        cell: Cell,
        frames: Range<u64>,
    ) -> Result<FrameBuf> {
        let (mut values, mut texts) = (Vec::new(), Vec::new());
        let mut kept = |key: GroupKey, load: &dyn Fn() -> Result<Group>| {
            self.groups.get((Arc::as_ptr(table).addr(), key), load)
        };
        let mut text_bytes = 0;
        let mut push = |found: table::Found<'_>| {
            match found {
                table::Found::Text(text) => {
                    text_bytes += text.len();
                    texts.push(text.as_bytes().to_vec());
                }
                table::Found::Number(own, bytes) => values.extend(cell.widen(own, bytes)?),
            }
            // Texts may have any length: the rest is for the next read.
            Some(text_bytes < BLOCK_BYTES)
        };
        table.read(columns, frames, &mut kept, &mut push)?;
        Ok(match cell {
            Cell::Text => FrameBuf::Bytes(texts),
            _ => FrameBuf::Values(values),
        })
    }
}

impl Source for FolderSource {
    fn describe(&self) -> &SourceInfo {
        &self.info
    }

    fn episodes(&self) -> &[EpisodeSpec] {
        &self.episodes
    }

    fn not_opened(&self) -> &NotOpened {
        &self.not_opened
    }

    fn read(
        &self,
        episode: usize,
        stream: usize,
        frames: Range<u64>,
        out: &mut FrameBuf,
    ) -> Result<()> {
        let spec = specs::find(&self.episodes, (episode, stream), &frames)?;
        let place = &self.places[episode][stream];
        if matches!(place, Place::Images { .. }) {
            let images = place.read_images(frames)?;
            *out = match spec.carried {
                true => FrameBuf::Bytes(images),
                false => FrameBuf::Values(images.concat()),
            };
            return Ok(());
        }
        if let Place::Columns {
            table,
            columns,
            cell,
            ..
        } = place
        {
            *out = self.read_columns((table, columns), *cell, frames)?;
            return Ok(());
        }
        let row_bytes = match (place, &spec.frame) {
            (Place::Array { header, .. }, FrameType::Text) => header.element.size() as u64,
            (_, frame) => frame.as_values().map_or(1, |ty| ty.frame_bytes() as u64),
        };
        let values = match place.reading() {
            Reading::Rows => place.read_rows(frames, row_bytes, None)?,
            Reading::Forward => {
                let open = || place.forward().map(Mutex::new);
                let forward = self.forward.get((episode, stream), open)?;
                place.read_rows(frames, row_bytes, Some(&forward))?
            }
            Reading::Whole => {
                let whole = self.decoded.get((episode, stream), || place.read_whole())?;
                let at = |frame: u64| {
                    usize::try_from(frame.saturating_mul(row_bytes)).unwrap_or(usize::MAX)
                };
                let rows = whole.get(at(frames.start)..at(frames.end));
                let wrong = || {
                    let file = self.info.files[self.episodes[episode].file].path();
                    ImportError::corrupt(file, &spec.name, "has fewer rows than before")
                };
                rows.ok_or_else(wrong)?.to_vec()
            }
        };
        *out = match (&spec.frame, place) {
            (FrameType::Text, Place::Array { header, path, .. }) => {
                let texts = header.element.texts(&values);
                let texts = texts.map_err(|what| ImportError::corrupt(path, &spec.name, what))?;
                FrameBuf::Bytes(texts.into_iter().map(String::into_bytes).collect())
            }
            _ => FrameBuf::Values(values),
        };
        Ok(())
    }
}
