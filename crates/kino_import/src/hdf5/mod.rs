//! HDF5 recordings: one file or several of the same layout, as one [`Source`].
//!
//! ```text
//! file.rs  walk.rs            robomimic.rs aloha.rs    spec.rs                 frames.rs
//! open  ─▶ groups, datasets ─▶ layout? episodes    ─▶ dataset → stream  ─▶  rows → frames
//!          follow.rs: links   generic.rs: any other, as mapping.rs says or guess.rs finds
//! ```
//!
//! The library `hdf5-pure` reads datasets and attributes. What it does not expose is read here: the links of a group
//! (`header.rs`, `links.rs`, `dense.rs`) and the bytes of strings (`heap.rs`), all through `raw.rs`.

mod aloha;
mod attributes;
mod clocks;
mod dense;
mod element;
mod episode_rows;
mod episodes;
pub(crate) mod export;
mod file;
mod follow;
mod frame_type;
mod frames;
mod generic;
mod guess;
mod header;
mod heap;
mod index;
mod labels;
mod link;
mod links;
mod mapped;
mod mapping;
mod objects;
mod raw;
mod robomimic;
mod rows;
mod setup;
mod spec;
mod suggest;
mod times;
mod tree;
mod walk;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result};
use crate::open::ImportOptions;
use crate::source::{EpisodeSpec, Source, SourceInfo};
use crate::specs;
use file::H5File;
use mapping::Mapping;
use objects::ancestors;
use setup::Setup;
pub(crate) use suggest::suggest;
use tree::Node;
use walk::Lost;

/// The contents of one file, before they are merged into the source.
#[derive(Debug, Default)]
struct Contents {
    attributes: Map<String, Value>,
    episodes: Vec<EpisodeSpec>,
    defects: Vec<Defect>,
}

impl Contents {
    fn note(&mut self, file: &H5File, object: &str, what: String, action: Action) {
        self.defects
            .push(Defect::new(file.place(object), what, action));
    }

    /// Adds the episode that `read` builds, if it has frames. Damage, and whatever `read` notes, are defects of it.
    fn add(
        &mut self,
        file: &H5File,
        id: &str,
        read: impl FnOnce(&mut Self) -> Result<Option<EpisodeSpec>>,
    ) -> Result<()> {
        let first = self.defects.len();
        match read(self) {
            Ok(episode) => self.episodes.extend(episode),
            Err(ImportError::Corrupt { object, what, .. }) => {
                self.note(file, &object, what, Action::Skipped);
            }
            Err(error) => return Err(error),
        }
        for defect in &mut self.defects[first..] {
            defect.episode = Some(id.to_owned());
        }
        Ok(())
    }

    /// Records that an episode is skipped because it is empty.
    fn note_empty(&mut self, file: &H5File, object: &str) {
        self.note(file, object, "has no frames".to_owned(), Action::Skipped);
    }

    /// Records what the walk lost, as defects of the episodes it would have been in.
    fn note_lost(
        &mut self,
        file: &H5File,
        lost: Vec<Lost>,
        episode_of: impl Fn(&str) -> Option<String>,
    ) {
        let defects = lost.into_iter().map(|(object, why)| Defect {
            episode: episode_of(&object),
            ..Defect::new(file.place(&object), why, Action::Skipped)
        });
        self.defects.splice(0..0, defects);
    }

    /// Puts the name of the file before the ids of its episodes.
    fn prefix_ids(&mut self, stem: &str) {
        let of_defects = self.defects.iter_mut();
        let of_defects = of_defects.filter_map(|defect| defect.episode.as_mut());
        let ids = self.episodes.iter_mut().map(|episode| &mut episode.id);
        for id in ids.chain(of_defects) {
            *id = format!("{stem}/{id}");
        }
    }

    /// Keeps the attributes of an object that is not an episode, as `<object>@<name>`.
    fn keep(&mut self, object: &str, attributes: Map<String, Value>) {
        for (name, value) in attributes {
            self.attributes.insert(format!("{object}@{name}"), value);
        }
    }
}

/// The layout of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Robomimic,
    Act,
    /// Any other, or as described by a mapping.
    Generic,
}

impl Layout {
    fn name(self) -> &'static str {
        match self {
            Self::Robomimic => "robomimic-hdf5",
            Self::Act => "act-hdf5",
            Self::Generic => "hdf5",
        }
    }

    /// The layout of a file; a mapping, if there is one, decides.
    fn of(root: &Node, mapping: Option<&Path>) -> Self {
        let is_demo = |demo: &Node| demo.leaf("actions").is_some();
        let is_robomimic = |data: &Node| {
            data.attributes.contains_key("env_args") || data.groups.iter().any(is_demo)
        };
        match mapping {
            Some(_) => Self::Generic,
            None if root.group("data").is_some_and(is_robomimic) => Self::Robomimic,
            None if root.leaf("action").is_some() && root.group("observations").is_some() => {
                Self::Act
            }
            None => Self::Generic,
        }
    }
}

/// Walks the files and builds their specs; reads metadata only.
pub(crate) fn open(paths: &[PathBuf], options: &ImportOptions) -> Result<Source> {
    let paths = in_order(paths);
    let mut source = Source::new(SourceInfo::new(""), Vec::new());
    let mapping = Mapping::read(options.mapping.as_deref())?;
    let mut setup = Setup::new(options, &mapping);
    for path in &paths {
        match add(&mut source, path, paths.len(), &mut setup) {
            // One unreadable file of many is a defect of the source.
            Err(ImportError::Corrupt { object, what, .. }) if paths.len() > 1 => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let defect = Defect::lost(format!("{name}:{object}"), what);
                source.info.defects.push(defect);
            }
            added => added?,
        }
    }
    setup.check_all_found()?;
    if source.episodes.is_empty() {
        let path = paths.first().map(PathBuf::as_path).unwrap_or(Path::new(""));
        let next = "check that this is the right recording";
        return Err(specs::nothing_left(path, &source.info.defects, next));
    }
    Ok(source)
}

fn add(source: &mut Source, path: &Path, files: usize, setup: &mut Setup<'_>) -> Result<()> {
    let options = setup.options;
    let file = Arc::new(H5File::open(path, options.memory_bytes)?);
    let (root, lost) = walk::walk(&file, options)?;
    let layout = Layout::of(&root, options.mapping.as_deref());
    let info = &mut source.info;
    if !info.format.is_empty() && info.format != layout.name() {
        let what = format!(
            "has the layout {}, but the files before it have {}",
            layout.name(),
            info.format
        );
        let next = "import files of one layout at a time";
        return Err(ImportError::unsupported(path, "/", &what, next));
    }
    info.format = layout.name();
    let mut contents = match layout {
        Layout::Robomimic => robomimic::read_episodes(&file, root, options)?,
        Layout::Act => aloha::read_episodes(&file, root, options)?,
        Layout::Generic => generic::read_episodes(&file, root, setup)?,
    };
    let stem = stem(path);
    let groups = contents.episodes.iter();
    let groups: HashMap<_, _> = groups
        .map(|episode| (episode.object.clone(), episode.id.clone()))
        .collect();
    contents.note_lost(&file, lost, |object| match layout {
        Layout::Robomimic => robomimic::demo_of(object),
        Layout::Act => Some(stem.clone()),
        Layout::Generic => {
            let object = object.split('@').next().unwrap_or(object);
            let mut above = ancestors(object);
            let group = above.find_map(|group| groups.get(group));
            group.or_else(|| groups.get("/")).cloned()
        }
    });
    // Every file starts at `demo_0` again, unless it is one episode named after the file.
    let is_file = groups.keys().all(|object| object == "/");
    if files > 1 && !is_file {
        contents.prefix_ids(&stem);
    }
    info.defects.append(&mut contents.defects);
    if files == 1 {
        info.attributes = contents.attributes;
    } else if !contents.attributes.is_empty() {
        let attributes = Value::Object(contents.attributes);
        info.attributes.insert(stem, attributes);
    }
    for episode in &mut contents.episodes {
        episode.file = info.files.len();
    }
    source.episodes.append(&mut contents.episodes);
    info.files.extend(file.to_source_files());
    Ok(())
}

/// A file's name without its extension.
fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// `a, b, c, …`.
fn first_three(names: impl IntoIterator<Item = String>) -> String {
    let mut names = names.into_iter();
    let mut shown: Vec<_> = names.by_ref().take(3).collect();
    shown.extend(names.next().map(|_| "…".to_owned()));
    shown.join(", ")
}

/// Files sorted by number, `episode_10` after `episode_9`; those without a number last.
fn in_order(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut paths = paths.to_vec();
    paths.sort_by_cached_key(|path| number_order(&stem(path), "episode_"));
    paths
}

/// The key that sorts `<prefix><number>` by number, and any other name after them.
fn number_order(name: &str, prefix: &str) -> (bool, u64, String) {
    let number = name
        .strip_prefix(prefix)
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|digits| digits.parse().ok());
    (
        number.is_none(),
        number.unwrap_or_default(),
        name.to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_names_sort_numerically_and_others_come_last() {
        let mut names = ["demo_10", "other", "demo_9", "demo_x", "demo_0", "demo_-1"];
        names.sort_by_key(|name| number_order(name, "demo_"));
        assert_eq!(
            names,
            ["demo_0", "demo_9", "demo_10", "demo_-1", "demo_x", "other"]
        );
    }
}
