//! HDF5 recordings: one file or several of the same layout, as one [`Source`].
//!
//! ```text
//! file.rs  walk.rs            robomimic.rs aloha.rs   plan.rs                  frames.rs
//! open  ─▶ groups, datasets ─▶ whose layout? episodes ─▶ dataset → stream  ─▶  rows → frames
//!          follow.rs: links
//! ```
//!
//! The library `hdf5-pure` reads datasets and attributes. What it does not show is read here: which links a group
//! has (`header.rs`, `links.rs`, `dense.rs`) and the bytes of strings (`heap.rs`), all through `raw.rs`.

mod aloha;
pub(crate) mod attributes;
mod dense;
mod element;
pub(crate) mod export;
mod file;
mod follow;
pub(crate) mod frames;
mod header;
mod heap;
mod links;
pub(crate) mod plan;
mod raw;
mod robomimic;
mod tree;
mod walk;

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::defect::{Action, Defect};
use crate::error::{ImportError, Result};
use crate::open::ImportOptions;
use crate::plans;
use crate::source::{EpisodePlan, FrameBuf, Source, SourceInfo};
use file::H5File;
use follow::Reach;
pub(crate) use frames::{nest, number};
pub(crate) use plan::kind_of;
use tree::{Leaf, Node};
use walk::Lost;

/// Episodes of HDF5 files.
#[derive(Debug)]
pub(crate) struct Hdf5Source {
    info: SourceInfo,
    episodes: Vec<EpisodePlan>,
    /// For each episode, which of the files it is in, and the dataset behind each stream.
    leaves: Vec<(usize, Vec<Leaf>)>,
    files: Vec<H5File>,
}

/// What one file holds, in the words of its layout.
#[derive(Debug, Default)]
struct Contents {
    attributes: Map<String, Value>,
    episodes: Vec<(EpisodePlan, Vec<Leaf>)>,
    defects: Vec<Defect>,
}

impl Contents {
    /// Lists a defect.
    fn note(&mut self, file: &H5File, object: &str, what: String, action: Action) {
        self.defects
            .push(Defect::new(file.place(object), what, action));
    }

    /// Says which episode the defects from `first` on are in.
    fn blame(&mut self, first: usize, episode: &str) {
        for defect in &mut self.defects[first..] {
            defect.episode = Some(episode.to_owned());
        }
    }

    /// Lists what the walk lost, as defects of the episodes that it would have been in.
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

    /// Keeps the attributes of an object that is no episode, by `<object>@<name>`.
    fn keep(&mut self, object: &str, attributes: Map<String, Value>) {
        for (name, value) in attributes {
            self.attributes.insert(format!("{object}@{name}"), value);
        }
    }
}

/// Whose layout a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Robomimic,
    Act,
}

impl Layout {
    fn name(self) -> &'static str {
        match self {
            Self::Robomimic => "robomimic-hdf5",
            Self::Act => "act-hdf5",
        }
    }

    fn of(file: &H5File, root: &Node) -> Result<Self> {
        if root.group("data").is_some() {
            return Ok(Self::Robomimic);
        }
        if root.leaf("action").is_some() && root.group("observations").is_some() {
            return Ok(Self::Act);
        }
        let names = |found: Vec<&str>| match found.as_slice() {
            [] => "nothing".to_owned(),
            found => format!("`{}`", found.join("`, `")),
        };
        let found: Vec<_> = root.member_names().take(12).collect();
        Err(ImportError::unsupported(
            file.path(),
            "/",
            &format!(
                "has no known layout: looked for a group `data` (robomimic, LIBERO) and for a dataset `action` \
                 beside a group `observations` (ACT, ALOHA), found {}",
                names(found)
            ),
            "bring it into one of these layouts, or write its episodes with kinograph's writer",
        ))
    }
}

impl Hdf5Source {
    /// Walks the files and plans their episodes; reads metadata only.
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
            leaves: Vec::new(),
            files: Vec::new(),
        };
        for path in &paths {
            match source.add(path, paths.len(), options) {
                // One file of many that cannot be read is a defect of the source.
                Err(ImportError::Corrupt { object, what, .. }) if paths.len() > 1 => {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    let place = format!("{name}:{object}");
                    let defect = Defect::new(place, what, Action::Skipped);
                    source.info.defects.push(defect);
                }
                added => added?,
            }
        }
        if source.episodes.is_empty() {
            let path = paths.first().map(PathBuf::as_path).unwrap_or(Path::new(""));
            let next = "check that this is the recording";
            return Err(plans::nothing_left(path, &source.info.defects, next));
        }
        Ok(source)
    }

    fn add(&mut self, path: &Path, files: usize, options: &ImportOptions) -> Result<()> {
        let file = H5File::open(path, options.memory_bytes)?;
        let reach = match options.follow_links {
            true => Reach::Anywhere,
            false => Reach::Folder,
        };
        let (root, lost) = walk::walk(&file, reach)?;
        let layout = Layout::of(&file, &root)?;
        if !self.info.format.is_empty() && self.info.format != layout.name() {
            let what = format!(
                "has the layout {}, the files before it have {}",
                layout.name(),
                self.info.format
            );
            let next = "import folders of one layout at a time";
            return Err(ImportError::unsupported(path, "/", &what, next));
        }
        self.info.format = layout.name();
        let mut contents = match layout {
            Layout::Robomimic => robomimic::plan(&file, root, options)?,
            Layout::Act => aloha::plan(&file, root, options)?,
        };
        let stem = stem(path);
        contents.note_lost(&file, lost, |object| match layout {
            Layout::Robomimic => robomimic::demo_of(object),
            Layout::Act => Some(stem.clone()),
        });
        // Every file starts at `demo_0` again.
        let is_prefixed = files > 1 && layout == Layout::Robomimic;
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
        for (mut episode, leaves) in contents.episodes {
            episode.file = self.info.files.len();
            if is_prefixed {
                episode.id = format!("{stem}/{}", episode.id);
            }
            self.episodes.push(episode);
            self.leaves.push((self.files.len(), leaves));
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

    fn episodes(&self) -> &[EpisodePlan] {
        &self.episodes
    }

    fn read(
        &self,
        episode: usize,
        stream: usize,
        frames: Range<u64>,
        out: &mut FrameBuf,
    ) -> Result<()> {
        let plan = plans::find(&self.episodes, (episode, stream), &frames)?;
        let (file, leaves) = &self.leaves[episode];
        frames::read(&self.files[*file], &leaves[stream], plan, frames, out)
    }
}

/// A file's name without its extension.
fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// Files in the order of their numbers, `episode_10` after `episode_9`; those without a number last.
fn in_order(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut paths = paths.to_vec();
    paths.sort_by_cached_key(|path| number_order(&stem(path), "episode_"));
    paths
}

/// The key that sorts `<prefix><number>` by number and puts any other name behind, by name.
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
    fn numbers_are_ordered_as_numbers_and_other_names_come_last() {
        let mut names = ["demo_10", "other", "demo_9", "demo_x", "demo_0", "demo_-1"];
        names.sort_by_key(|name| number_order(name, "demo_"));
        assert_eq!(
            names,
            ["demo_0", "demo_9", "demo_10", "demo_-1", "demo_x", "other"]
        );
    }
}
