//! Linking: a dataset whose camera pages stay in the files of the source.
//!
//! ```text
//! ReadFrames::link_codec   can the frames be linked, and which codec are they in already?     each format
//! ReadFrames::link         where their pages are                                              each format
//! files.rs                 the files: below the root, with size, time and hash
//! pages.rs                 the bytes of pages, to be checked, unless the files are trusted
//! ```
//!
//! A link is a pack in which some streams hand over pages instead of frames: order, checks, resuming and the commit are
//! the same. Only cameras are linked; vectors are small, and packed they are read in one run.

mod files;
mod pages;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kino_dataset::{Dataset, Kind, Plan};

pub(crate) use files::LinkFiles;
pub(crate) use pages::LinkedStream;

use crate::defect::Defect;
use crate::error::{ImportError, Result, invalid};
use crate::files::cannot_read;
use crate::fit::Fitted;
use crate::source::StreamSpec;

/// How to link.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// The folder that the paths of the files are relative to, without links and `..`; see [`link_root`].
    pub root: PathBuf,
    /// Whether the files are linked without reading them.
    pub trust: bool,
    /// Whether cameras that cannot be linked are packed; otherwise they are an error.
    pub pack_rest: bool,
}

/// A page of a stream, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageExtent {
    /// How many frames it holds.
    pub frames: u32,
    /// What it consists of, in order.
    pub pieces: Vec<Extent>,
}

/// A piece of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extent {
    /// Bytes that are in no file, such as a header that a decoder needs.
    Stored(Vec<u8>),
    /// A range of a file.
    File {
        /// The file.
        path: Arc<Path>,
        /// Its first byte.
        offset: u64,
        /// Its length.
        len: u64,
    },
}

/// The folder that the paths of a source's files are relative to: `root`, or that of the source.
pub fn link_root(source: &Path, root: Option<&Path>) -> Result<PathBuf> {
    let folder = match root {
        Some(root) => root,
        None if source.is_dir() => source,
        None => match source.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        },
    };
    let canonical = folder.canonicalize();
    let root = canonical.map_err(|error| cannot_read(folder, error))?;
    if root.to_str().is_none() {
        return Err(invalid(format!(
            "{} is not a name in UTF-8, which a dataset can refer to",
            root.display()
        )));
    }
    Ok(root)
}

/// Refuses to link with a plan that resizes streams: what is linked stays as it is.
pub(crate) fn check_plan(link: Option<&LinkOptions>, plan: &Plan) -> Result<()> {
    let mut rules = plan.rules.iter().filter(|_| link.is_some());
    match rules.find_map(|rule| rule.resize) {
        Some(size) => Err(invalid(format!(
            "the plan resizes streams to {size}, but linked images stay in their files as they are; use `kinograph pack` with this \
             plan, or remove `resize` from it and let the loader resize (`images.size`)"
        ))),
        None => Ok(()),
    }
}

/// Decides which streams are linked. Cameras that cannot be are refused, or noted if the rest is packed. `target` is the
/// dataset that episodes are added to.
pub(crate) fn choose(
    source: &mut Fitted<'_>,
    options: &LinkOptions,
    target: Option<&Dataset>,
) -> Result<Vec<Defect>> {
    check_root(options, target)?;
    let mut refused: Vec<(String, String)> = Vec::new();
    let mut linked = 0_usize;
    for idx in 0..source.episodes.len() {
        for at in 0..source.episodes[idx].streams.len() {
            let stream = &source.episodes[idx].streams[at];
            if !is_camera(stream) {
                continue;
            }
            match stream.reader.link_codec(stream) {
                Ok(codec) => {
                    let stream = &mut source.episodes.to_mut()[idx].streams[at];
                    stream.link = Some(codec);
                    // Frames of another stream need not be compared to be shared: nothing is stored.
                    stream.shift_of = None;
                    linked += 1;
                }
                Err(why) => {
                    let name = &stream.name;
                    if !refused.iter().any(|(known, _)| known == name) {
                        refused.push((name.clone(), why));
                    }
                }
            }
        }
    }
    check_choice(&refused, linked, options)?;
    let note = |(name, why): (String, String)| {
        let place = format!("stream `{}`", name.escape_debug());
        Defect::noted(place, format!("is packed instead of linked: {why}"))
    };
    Ok(refused.into_iter().map(note).collect())
}

/// Refuses another root than that of the dataset before anything is read; the commit would do so at the end.
fn check_root(options: &LinkOptions, target: Option<&Dataset>) -> Result<()> {
    let links = target.and_then(|target| target.manifest().links.as_ref());
    match links.filter(|links| Path::new(&links.root) != options.root) {
        Some(links) => Err(invalid(format!(
            "the dataset links to files below {}, not below {}; pass its root as `--root` (in Python `root=`) if it contains \
             the source, or link into another dataset",
            links.root,
            options.root.display()
        ))),
        None => Ok(()),
    }
}

fn check_choice(refused: &[(String, String)], linked: usize, options: &LinkOptions) -> Result<()> {
    let streams = refused.iter().map(|(name, why)| format!("`{name}` {why}"));
    let streams = streams.collect::<Vec<_>>().join("; ");
    if linked == 0 {
        let why = if refused.is_empty() {
            String::new()
        } else {
            format!(" ({streams})")
        };
        return Err(invalid(format!(
            "the source has no camera that can be linked{why}; use `kinograph pack` instead"
        )));
    }
    if !refused.is_empty() && !options.pack_rest {
        return Err(invalid(format!(
            "not every camera can be linked: {streams}; add `--pack-rest` (in Python `pack_rest=True`) to store such \
             streams in the dataset, or `--exclude` them"
        )));
    }
    Ok(())
}

fn is_camera(stream: &StreamSpec) -> bool {
    let is_image = matches!(stream.kind, Kind::Image | Kind::Depth);
    is_image && stream.bytes() > 0
}

/// The error for frames that turn out not to be linkable after all.
pub(crate) fn cannot_link(file: &Path, object: &str, why: &str) -> ImportError {
    let next = "pack this recording, or exclude the stream";
    ImportError::unsupported(file, object, &format!("cannot be linked: {why}"), next)
}
