//! Export: a dataset, or some of its episodes, in somebody else's format.
//!
//! ```text
//! dataset ─outline.rs─▶ episodes of streams ─plan of the format─▶ names there, defects ─policy─▶ write ─▶ sync, rename
//!                       (no frame is read)   what it cannot hold                        a block at a time
//! ```
//!
//! Everything is written in a private folder beside the target, synced and renamed at the end (publish.rs): a kill leaves
//! nothing that looks whole. What a format cannot hold is a [`Defect`]; by default nothing is written then.

mod outline;
mod pen;
mod publish;
mod zarr;

use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use kino_dataset::{Dataset, Selection, check_local};

use crate::defect::{Defect, OnDefect};
use crate::error::{ImportError, Result, invalid};
use crate::hdf5::export as hdf5;
use crate::lerobot::export as lerobot;
use crate::mcap::export as mcap;
use crate::pack::Progress;
use crate::rlds::export as rlds;
use crate::video::Videos;
use crate::webdataset::export as webdataset;
pub(crate) use outline::{EpisodeOutline, Outline, StreamOutline, after};
pub(crate) use pen::{ImageForm, Pen};
use publish::Unpublished;

/// A format that can be exported to.
#[derive(Debug, Clone, Copy)]
pub struct Exporter {
    /// What `--to` takes.
    pub name: &'static str,
    /// What is written, for people.
    pub makes: &'static str,
    /// Says which stream goes where, and what cannot go.
    plan: fn(&mut Outline) -> Result<()>,
    /// Writes the outline to a path that does not exist yet.
    write: fn(&Outline, &mut Pen<'_>, &Path) -> Result<()>,
    /// Whether cameras may be video files.
    has_videos: bool,
}

/// Every format that can be exported to.
pub const EXPORTERS: &[Exporter] = &[
    Exporter {
        name: "robomimic",
        makes: "one HDF5 file in robomimic's layout",
        plan: hdf5::robomimic::plan,
        write: hdf5::robomimic::write,
        has_videos: false,
    },
    Exporter {
        name: "act",
        makes: "a folder of HDF5 files in the layout of ACT and ALOHA, one per episode",
        plan: hdf5::act::plan,
        write: hdf5::act::write,
        has_videos: false,
    },
    Exporter {
        name: "lerobot-v2.1",
        makes: "a folder as LeRobot 0.2 and 0.3 read it, a parquet file per episode",
        plan: lerobot::plan,
        write: lerobot::v21::write,
        has_videos: true,
    },
    Exporter {
        name: "lerobot-v3",
        makes: "a folder as LeRobot from 0.4 on reads it, parquet files of many episodes",
        plan: lerobot::plan,
        write: lerobot::v3::write,
        has_videos: true,
    },
    Exporter {
        name: "zarr",
        makes: "a folder of arrays over all episodes, as diffusion_policy reads them (zarr version 2)",
        plan: zarr::plan,
        write: zarr::write,
        has_videos: false,
    },
    Exporter {
        name: "webdataset",
        makes: "a folder of tars of WebDataset, one sample per episode",
        plan: webdataset::plan,
        write: webdataset::write,
        has_videos: false,
    },
    Exporter {
        name: "rlds",
        makes: "a folder of TFRecord files that TensorFlow Datasets opens, one Example per episode (RLDS)",
        plan: rlds::plan,
        write: rlds::write,
        has_videos: false,
    },
    Exporter {
        name: "mcap",
        makes: "a folder of MCAP files of ROS 2 messages, one per episode",
        plan: mcap::plan,
        write: mcap::write,
        has_videos: false,
    },
];

/// What a user can say about an export.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// The name of one of [`EXPORTERS`].
    pub to: String,
    /// Which episodes.
    pub selection: Selection,
    /// Whether to write what can be held when something cannot: `Error` or `Keep`.
    pub on_defect: OnDefect,
    /// How cameras are written.
    pub cameras: Cameras,
}

/// How an export writes cameras.
#[derive(Debug, Clone, Default)]
pub enum Cameras {
    /// Images that are equal to those of the dataset.
    #[default]
    Images,
    /// Video files, where the format has them; pixels change.
    Video(Arc<dyn Videos>),
}

/// What an export wrote.
#[derive(Debug)]
pub struct Exported {
    /// How many episodes.
    pub episodes: u64,
    /// How many frames, of all streams together.
    pub frames: u64,
    /// What the format could not hold, and what is worth knowing.
    pub defects: Vec<Defect>,
}

/// Writes a dataset, or the selected episodes, to `target`, which must not exist.
pub fn export(
    dataset: &Dataset,
    target: &Path,
    options: &ExportOptions,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Exported> {
    check_local(target)?;
    let exporter = find(&options.to)?;
    if options.on_defect == OnDefect::DropEpisode {
        return Err(invalid(
            "an export has the policies `error` and `keep`; to skip episodes, select the others",
        ));
    }
    if matches!(options.cameras, Cameras::Video(_)) && !exporter.has_videos {
        return Err(invalid(format!(
            "{} has no video files; remove --cameras (in Python cameras=)",
            exporter.name
        )));
    }
    refuse_existing(target)?;
    let mut outline = Outline::of(dataset, &options.selection)?;
    outline.cameras = options.cameras.clone();
    let name = target.file_name().unwrap_or_default();
    outline.target = name.to_string_lossy().into_owned();
    (exporter.plan)(&mut outline)?;
    let defects = outline.take_defects();
    if options.on_defect == OnDefect::Error && defects.iter().any(Defect::is_fault) {
        let format = exporter.name;
        return Err(ImportError::NoPlace { format, defects });
    }
    let unpublished = Unpublished::beside(target, dataset.path())?;
    let mut pen = Pen::new(&outline, progress);
    (exporter.write)(&outline, &mut pen, &unpublished.data())?;
    unpublished.publish()?;
    let streams = outline.episodes.iter().flat_map(|found| &found.streams);
    Ok(Exported {
        episodes: outline.episodes.len() as u64,
        frames: streams.map(|stream| stream.frames as u64).sum(),
        defects,
    })
}

impl Cameras {
    /// Every way, by the name that users give it.
    pub const NAMES: [&'static str; 2] = ["images", "video"];

    /// The way of that name; `videos` encodes, where there is an encoder.
    pub fn from_name(name: &str, videos: Option<Arc<dyn Videos>>) -> Result<Self> {
        match (name, videos) {
            ("images", _) => Ok(Self::Images),
            ("video", Some(videos)) => Ok(Self::Video(videos)),
            ("video", None) => Err(invalid(
                "this program has no encoder of video; the command of the Python package has one: pip install 'kinograph[video]'",
            )),
            _ => Err(invalid(format!(
                "cameras {name:?} is none of {}",
                Self::NAMES.join(", ")
            ))),
        }
    }
}

fn find(name: &str) -> Result<&'static Exporter> {
    let found = EXPORTERS.iter().find(|exporter| exporter.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = EXPORTERS.iter().map(|exporter| exporter.name).collect();
        invalid(format!(
            "there is no exporter {name:?}; there are {}",
            names.join(", ")
        ))
    })
}

/// An export never replaces anything.
fn refuse_existing(target: &Path) -> Result<()> {
    match target.symlink_metadata() {
        Ok(_) => Err(ImportError::Exists {
            what: format!(
                "{} exists already; an export replaces nothing: name another target, or remove it first",
                target.display()
            ),
        }),
        Err(_) => Ok(()),
    }
}

/// Makes an empty file for a writer that would replace a file that is there. Two names can be the same file where the file
/// system ignores case or normalises Unicode.
pub(crate) fn create_new(path: &Path) -> Result<()> {
    let made = File::create_new(path);
    made.map(drop).map_err(|error| unwritable(path, error))
}

/// An error of writing.
pub(crate) fn unwritable(
    path: &Path,
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> ImportError {
    ImportError::Unwritable {
        path: path.to_owned(),
        source: error.into(),
    }
}
