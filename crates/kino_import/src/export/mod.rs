//! Export: a dataset, or some of its episodes, in a foreign format.
//!
//! ```text
//! dataset ─outline.rs─▶ episodes of streams ─prepare─▶ names there, defects ─policy─▶ write ─▶ sync, rename
//!                       (no frame is read)   what it cannot hold                        a block at a time
//! ```
//!
//! Everything is written into a private folder beside the target, then synced and renamed (publish.rs): a killed export
//! leaves nothing that looks complete. What a format cannot hold is a [`Defect`]; by default nothing is written then.

mod frame_reader;
mod outline;
mod parts;
mod publish;
mod zarr;

use std::error::Error;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use kino_dataset::{Dataset, Selection, check_local};
use serde_json::Value;

use crate::defect::{Defect, OnDefect};
use crate::error::{ImportError, Result, invalid};
use crate::files;
use crate::hdf5::export as hdf5;
use crate::lerobot::export as lerobot;
use crate::mcap::export as mcap;
use crate::progress::Progress;
use crate::rlds::export as rlds;
use crate::video::Videos;
use crate::webdataset::export as webdataset;
pub(crate) use frame_reader::{FrameReader, ImageForm};
pub(crate) use outline::{EpisodeOutline, Losses, Outline, StreamOutline, after};
pub use parts::{ExportProgress, commit_export, count_export_parts, export_part, export_progress};
use publish::Unpublished;

/// A format that can be exported to.
#[derive(Debug, Clone, Copy)]
pub struct Exporter {
    /// The value of `--to`.
    pub name: &'static str,
    /// What is written, for help texts.
    pub makes: &'static str,
    /// Assigns each stream its place in the format, and records what cannot be exported.
    prepare: fn(&mut Outline) -> Result<()>,
    /// Writes the outline to a path that does not exist yet.
    write: fn(&Outline, &mut FrameReader<'_>, &Path) -> Result<()>,
    /// Whether cameras may be video files.
    has_videos: bool,
    /// Whether each episode has files of its own, so that many processes can write them.
    has_parts: bool,
}

/// Every format that can be exported to.
pub const EXPORTERS: &[Exporter] = &[
    Exporter {
        name: "robomimic",
        makes: "one HDF5 file in robomimic's layout",
        prepare: hdf5::robomimic::prepare,
        write: hdf5::robomimic::write,
        has_videos: false,
        has_parts: false,
    },
    Exporter {
        name: "act",
        makes: "a folder of HDF5 files in the layout of ACT and ALOHA, one per episode",
        prepare: hdf5::act::prepare,
        write: hdf5::act::write,
        has_videos: false,
        has_parts: true,
    },
    Exporter {
        name: "lerobot-v2.1",
        makes: "a folder for LeRobot 0.2 and 0.3, one Parquet file per episode",
        prepare: lerobot::prepare,
        write: lerobot::v21::write,
        has_videos: true,
        has_parts: true,
    },
    Exporter {
        name: "lerobot-v3",
        makes: "a folder for LeRobot 0.4 and later, Parquet files of many episodes",
        prepare: lerobot::prepare,
        write: lerobot::v3::write,
        has_videos: true,
        has_parts: false,
    },
    Exporter {
        name: "zarr",
        makes: "a folder of arrays over all episodes, for diffusion_policy (zarr v2)",
        prepare: zarr::prepare,
        write: zarr::write,
        has_videos: false,
        has_parts: false,
    },
    Exporter {
        name: "webdataset",
        makes: "a folder of WebDataset tar shards, one sample per episode",
        prepare: webdataset::prepare,
        write: webdataset::write,
        has_videos: false,
        has_parts: false,
    },
    Exporter {
        name: "rlds",
        makes: "a folder of TFRecord files that TensorFlow Datasets opens, one Example per episode (RLDS)",
        prepare: rlds::prepare,
        write: rlds::write,
        has_videos: false,
        has_parts: false,
    },
    Exporter {
        name: "mcap",
        makes: "a folder of MCAP files of ROS 2 messages, one per episode",
        prepare: mcap::prepare,
        write: mcap::write,
        has_videos: false,
        has_parts: true,
    },
];

/// The options of an export.
#[derive(Debug, Clone)]
pub struct ExportOptions {
    /// The name of one of [`EXPORTERS`].
    pub to: String,
    /// Which episodes.
    pub selection: Selection,
    /// What to do if the format cannot hold something: `Error` or `Keep`.
    pub on_defect: OnDefect,
    /// How cameras are written.
    pub cameras: Cameras,
}

/// How an export writes cameras.
#[derive(Debug, Clone, Default)]
pub enum Cameras {
    /// As the dataset stores them: video as video with the same packets, if the format supports that, and everything
    /// else as images.
    #[default]
    Stored,
    /// Images, bit-identical to those of the dataset.
    Images,
    /// Video files, if the format supports them: video with the same packets; of other cameras pixels change.
    Video(Arc<dyn Videos>),
}

/// The result of an export.
#[derive(Debug)]
pub struct Exported {
    /// The number of episodes.
    pub episodes: u64,
    /// The number of frames of all streams together.
    pub frames: u64,
    /// What the format could not hold, and notes.
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
    refuse_existing(target)?;
    let (outline, defects) = prepare(dataset, target, options)?;
    let unpublished = Unpublished::beside(target, dataset.path())?;
    let mut reader = FrameReader::new(&outline, progress);
    (exporter.write)(&outline, &mut reader, &unpublished.data())?;
    unpublished.publish()?;
    Ok(Exported::of(&outline, defects))
}

impl Exported {
    /// What was written of an outline.
    fn of(outline: &Outline, defects: Vec<Defect>) -> Self {
        let episodes = outline.mine().map(|(_, episode)| episode);
        let streams = episodes.clone().flat_map(|found| &found.streams);
        Self {
            episodes: episodes.count() as u64,
            frames: streams.map(|stream| stream.frames as u64).sum(),
            defects,
        }
    }
}

/// Decides where everything goes, and what the format cannot hold; writes nothing.
fn prepare(
    dataset: &Dataset,
    target: &Path,
    options: &ExportOptions,
) -> Result<(Outline, Vec<Defect>)> {
    check_local(target)?;
    let exporter = find(&options.to)?;
    if options.on_defect == OnDefect::DropEpisode {
        return Err(invalid(
            "an export takes the policies `error` and `keep`; to skip episodes, select the others",
        ));
    }
    if matches!(options.cameras, Cameras::Video(_)) && !exporter.has_videos {
        return Err(invalid(format!(
            "{} does not support video files; remove --cameras (in Python cameras=)",
            exporter.name
        )));
    }
    let mut outline = Outline::of(dataset, &options.selection)?;
    outline.cameras = options.cameras.clone();
    outline.target = files::file_name(target);
    (exporter.prepare)(&mut outline)?;
    let defects = outline.losses.to_defects();
    if options.on_defect == OnDefect::Error && defects.iter().any(Defect::is_fault) {
        let format = exporter.name;
        return Err(ImportError::NoPlace { format, defects });
    }
    Ok((outline, defects))
}

impl Cameras {
    /// Every choice, by its user-facing name.
    pub const NAMES: [&'static str; 3] = ["stored", "images", "video"];

    fn name(&self) -> &'static str {
        match self {
            Self::Stored => Self::NAMES[0],
            Self::Images => Self::NAMES[1],
            Self::Video(_) => Self::NAMES[2],
        }
    }

    /// The choice of that name; `videos` encodes, if there is an encoder.
    pub fn from_name(name: &str, videos: Option<Arc<dyn Videos>>) -> Result<Self> {
        match (name, videos) {
            ("stored", _) => Ok(Self::Stored),
            ("images", _) => Ok(Self::Images),
            ("video", Some(videos)) => Ok(Self::Video(videos)),
            ("video", None) => Err(invalid(
                "this binary has no video encoder; install the Python package, whose `kinograph` command has one: pip install 'kinograph[video]'",
            )),
            _ => Err(invalid(format!(
                "cameras={name:?} is not a choice; use one of {}",
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
            "export format {name:?} is unknown; use one of {}",
            names.join(", ")
        ))
    })
}

/// An export never replaces anything.
fn refuse_existing(target: &Path) -> Result<()> {
    match target.symlink_metadata() {
        Ok(_) => Err(ImportError::Exists {
            what: format!(
                "{} already exists and an export never overwrites; choose another target, or remove it first",
                target.display()
            ),
        }),
        Err(_) => Ok(()),
    }
}

/// Creates a file that must not exist yet. Two names can be the same file if the file system ignores case or normalises
/// Unicode.
pub(crate) fn create_new(path: &Path) -> Result<File> {
    File::create_new(path).writing(path)
}

/// Writes a new file of JSON.
pub(crate) fn put_json(path: &Path, value: &Value) -> Result<()> {
    fs::write(path, format!("{value:#}\n")).writing(path)
}

/// Names the file or folder of a failed write.
pub(crate) trait WritingPath<T> {
    fn writing(self, path: &Path) -> Result<T>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> WritingPath<T> for Result<T, E> {
    fn writing(self, path: &Path) -> Result<T> {
        self.map_err(|error| unwritable(path, error))
    }
}

/// The error of a failed write.
pub(crate) fn unwritable(
    path: &Path,
    error: impl Into<Box<dyn Error + Send + Sync>>,
) -> ImportError {
    ImportError::Unwritable {
        path: path.to_owned(),
        source: error.into(),
    }
}
