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
pub(crate) mod attributes;
mod clocks;
mod dense;
mod element;
mod episode_rows;
mod episodes;
pub(crate) mod export;
mod file;
mod follow;
mod frame_type;
pub(crate) mod frames;
mod generic;
mod guess;
mod header;
mod heap;
mod index;
mod labels;
mod links;
mod mapped;
mod mapping;
mod objects;
mod raw;
mod robomimic;
mod rows;
mod setup;
pub(crate) mod spec;
mod suggest;
mod times;
mod tree;
mod walk;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result};
use crate::open::ImportOptions;
use crate::source::{EpisodeSpec, FrameBuf, Source, SourceInfo};
use crate::specs;
use file::H5File;
use follow::Reach;
pub(crate) use frame_type::{is_kind, kind_of};
pub(crate) use frames::{nest, number};
use mapping::Mapping;
use objects::ancestors;
use rows::Rows;
use setup::Setup;
pub(crate) use suggest::suggest;
use tree::Node;
use walk::Lost;

/// Episodes of HDF5 files.
#[derive(Debug)]
pub(crate) struct Hdf5Source {
    info: SourceInfo,
    episodes: Vec<EpisodeSpec>,
    /// For each episode, its file, and what each stream reads there.
    rows: Vec<(usize, Vec<Rows>)>,
    files: Vec<H5File>,
}

/// The contents of one file, before they are merged into the source.
#[derive(Debug, Default)]
struct Contents {
    attributes: Map<String, Value>,
    episodes: Vec<(EpisodeSpec, Vec<Rows>)>,
    defects: Vec<Defect>,
}

impl Contents {
    /// Records a defect.
    fn note(&mut self, file: &H5File, object: &str, what: String, action: Action) {
        self.defects
            .push(Defect::new(file.place(object), what, action));
    }

    /// Attributes the defects from `first` on to an episode.
    fn blame(&mut self, first: usize, episode: &str) {
        for defect in &mut self.defects[first..] {
            defect.episode = Some(episode.to_owned());
        }
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

impl Hdf5Source {
    /// Walks the files and builds their specs; reads metadata only.
    pub(crate) fn open(paths: &[PathBuf], options: &ImportOptions) -> Result<Self> {
        let paths = in_order(paths);
        let mut source = Self {
            info: SourceInfo {
                format: "",
                files: Vec::new(),
                attributes: Map::new(),
                defects: Vec::new(),
            },
            episodes: Vec::new(),
            rows: Vec::new(),
            files: Vec::new(),
        };
        let mapping = Mapping::read(options.mapping.as_deref())?;
        let mut setup = Setup::new(options, &mapping);
        for path in &paths {
            match source.add(path, paths.len(), &mut setup) {
                // One unreadable file of many is a defect of the source.
                Err(ImportError::Corrupt { object, what, .. }) if paths.len() > 1 => {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    let place = format!("{name}:{object}");
                    let defect = Defect::new(place, what, Action::Skipped);
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

    fn add(&mut self, path: &Path, files: usize, setup: &mut Setup<'_>) -> Result<()> {
        let options = setup.options;
        let file = H5File::open(path, options.memory_bytes)?;
        let (root, lost) = walk::walk(&file, Reach::of(options))?;
        let layout = Layout::of(&root, options.mapping.as_deref());
        if !self.info.format.is_empty() && self.info.format != layout.name() {
            let what = format!(
                "has the layout {}, but the files before it have {}",
                layout.name(),
                self.info.format
            );
            let next = "import files of one layout at a time";
            return Err(ImportError::unsupported(path, "/", &what, next));
        }
        self.info.format = layout.name();
        let mut contents = match layout {
            Layout::Robomimic => robomimic::read_episodes(&file, root, options)?,
            Layout::Act => aloha::read_episodes(&file, root, options)?,
            Layout::Generic => generic::read_episodes(&file, root, setup)?,
        };
        let stem = stem(path);
        let groups = contents.episodes.iter();
        let groups: HashMap<_, _> = groups
            .map(|(episode, _)| (episode.object.clone(), episode.id.clone()))
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
        let is_prefixed = files > 1 && !is_file;
        if is_prefixed {
            let ids = contents.defects.iter_mut();
            for id in ids.filter_map(|defect| defect.episode.as_mut()) {
                *id = format!("{stem}/{id}");
            }
        }
        self.info.defects.append(&mut contents.defects);
        if files == 1 {
            self.info.attributes = contents.attributes;
        } else if !contents.attributes.is_empty() {
            let attributes = Value::Object(contents.attributes);
            self.info.attributes.insert(stem.clone(), attributes);
        }
        for (mut episode, rows) in contents.episodes {
            episode.file = self.info.files.len();
            if is_prefixed {
                episode.id = format!("{stem}/{}", episode.id);
            }
            self.episodes.push(episode);
            self.rows.push((self.files.len(), rows));
        }
        self.info.files.extend(file.to_source_files());
        self.files.push(file);
        Ok(())
    }
}

impl Source for Hdf5Source {
    fn describe(&self) -> &SourceInfo {
        &self.info
    }

    fn episodes(&self) -> &[EpisodeSpec] {
        &self.episodes
    }

    fn read(
        &self,
        episode: usize,
        stream: usize,
        frames: Range<u64>,
        out: &mut FrameBuf,
    ) -> Result<()> {
        let spec = specs::find(&self.episodes, (episode, stream), &frames)?;
        let (file, rows) = &self.rows[episode];
        frames::read(&self.files[*file], &rows[stream], spec, frames, out)
    }
}

/// A file's name without its extension.
fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
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
