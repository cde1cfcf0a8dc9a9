//! Errors of reading and writing another tool's files.
//!
//! The variants are the kinds that Python sees. Each names the file and the object in it, what is wrong, and what to do
//! next.

use std::collections::HashSet;
use std::error::Error;
use std::path::{Path, PathBuf};

use kino_dataset::{DatasetError, ErrorKind};

use crate::defect::Defect;
use crate::group::{Group, group_defects};

/// The result of an import.
pub type Result<T, E = ImportError> = std::result::Result<T, E>;

/// An error of an import.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// There is no such file or folder, or nothing to import in it.
    #[error("{}: {what}; {next}", path.display())]
    NotFound {
        /// The path that was to be opened.
        path: PathBuf,
        /// What is missing.
        what: String,
        /// What to do next.
        next: String,
    },
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The file is damaged, or a recorder stopped in the middle of it.
    #[error("{}{what}; {next}", at(file, object))]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// The object in it, by its path.
        object: String,
        /// What is wrong.
        what: String,
        /// What to do next.
        next: String,
        /// The error of the format's reader.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The file is valid but uses an unsupported feature.
    #[error("{}{what}; {next}", at(file, object))]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The object in it, by its path.
        object: String,
        /// What is not supported.
        what: String,
        /// What to do next.
        next: String,
        /// The error of the format's reader.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The request itself is invalid or incomplete.
    #[error("{what}")]
    InvalidArgument {
        /// What is wrong, and what would be valid.
        what: String,
    },
    /// The source has defects and the policy allows none.
    #[error("{}", list(defects))]
    Defects {
        /// All of them.
        defects: Vec<Defect>,
    },
    /// Every episode of the source was dropped because of a defect.
    #[error("{}", list_dropped(defects))]
    NothingLeft {
        /// All of them.
        defects: Vec<Defect>,
    },
    /// An episode cannot be imported.
    #[error("episode `{}` cannot be imported", episode.escape_debug())]
    Episode {
        /// Its id.
        episode: String,
        /// Why, and where.
        source: Box<ImportError>,
    },
    /// The dataset has something that the format of an export cannot hold.
    #[error("{}", list_no_place(format, defects))]
    NoPlace {
        /// The format.
        format: &'static str,
        /// What it cannot hold.
        defects: Vec<Defect>,
    },
    /// An export cannot be written.
    #[error("{}: cannot be written; check free space and permissions there", path.display())]
    Unwritable {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The target of an export already exists, perhaps only since a moment ago.
    #[error("{what}")]
    Exists {
        /// What exists, and what to do next.
        what: String,
    },
    /// The caller asked to stop.
    #[error(
        "stopped on request; the same call with `--resume` (in Python mode=\"resume\") continues it"
    )]
    Stopped,
    /// The dataset cannot be written.
    #[error(transparent)]
    Dataset {
        /// The writer's error.
        #[from]
        source: DatasetError,
    },
}

impl ImportError {
    /// The kind of this error; `None` if the caller asked to stop.
    pub fn kind(&self) -> Option<ErrorKind> {
        Some(match self {
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Io { .. } | Self::Unwritable { .. } => ErrorKind::Io,
            Self::Corrupt { .. } | Self::Defects { .. } | Self::NothingLeft { .. } => {
                ErrorKind::Corrupt
            }
            Self::Episode { source, .. } => return source.kind(),
            Self::Unsupported { .. } | Self::NoPlace { .. } => ErrorKind::Unsupported,
            Self::InvalidArgument { .. } => ErrorKind::Invalid,
            Self::Exists { .. } => ErrorKind::Conflict,
            Self::Dataset { source } => source.kind(),
            Self::Stopped => return None,
        })
    }

    /// What is wrong, without the location: a [`Defect`] has a place of its own.
    pub(crate) fn what(&self) -> String {
        match self {
            Self::Corrupt { what, source, .. } | Self::Unsupported { what, source, .. } => {
                match source {
                    Some(cause) => format!("{what} ({cause})"),
                    None => what.clone(),
                }
            }
            Self::Io { path, source } => format!("cannot read {}: {source}", path.display()),
            Self::Dataset { source } => match Error::source(source) {
                Some(cause) => format!("{source}: {cause}"),
                None => source.to_string(),
            },
            other => other.to_string(),
        }
    }

    /// Whether a single episode is to blame, so that the others can still be imported.
    pub(crate) fn is_of_episode(&self) -> bool {
        match self {
            Self::Corrupt { .. }
            | Self::Unsupported { .. }
            | Self::NotFound { .. }
            | Self::Io { .. }
            | Self::InvalidArgument { .. } => true,
            // If the writer refuses, the episode is at fault; if the disk refuses, it is not.
            Self::Dataset { source } => matches!(
                source,
                DatasetError::Codec { .. }
                    | DatasetError::Format { .. }
                    | DatasetError::Invalid { .. }
            ),
            _ => false,
        }
    }

    /// The defects it lists.
    pub fn defects(&self) -> &[Defect] {
        match self {
            Self::Defects { defects }
            | Self::NothingLeft { defects }
            | Self::NoPlace { defects, .. } => defects,
            _ => &[],
        }
    }

    /// A damaged object.
    pub(crate) fn corrupt(file: &Path, object: &str, what: impl Into<String>) -> Self {
        let next = "copy the file again from where it was recorded, or remove it";
        Self::corrupt_with(file, object, what, next)
    }

    /// An incomplete recording.
    pub(crate) fn incomplete(file: &Path, object: &str, what: impl Into<String>) -> Self {
        let next = "fix or delete it in the source, or import the others with `--on-defect keep`";
        Self::corrupt_with(file, object, what, next)
    }

    /// A damaged object, and what to do next.
    pub(crate) fn corrupt_with(
        file: &Path,
        object: &str,
        what: impl Into<String>,
        next: &str,
    ) -> Self {
        Self::Corrupt {
            file: file.to_owned(),
            object: object.to_owned(),
            what: what.into(),
            next: next.to_owned(),
            source: None,
        }
    }

    /// A valid but unsupported feature.
    pub(crate) fn unsupported(file: &Path, object: &str, what: &str, next: &str) -> Self {
        Self::Unsupported {
            file: file.to_owned(),
            object: object.to_owned(),
            what: what.to_owned(),
            next: next.to_owned(),
            source: None,
        }
    }

    /// The same error with its cause attached.
    pub(crate) fn because(mut self, error: impl Error + Send + Sync + 'static) -> Self {
        if let Self::Corrupt { source, .. } | Self::Unsupported { source, .. } = &mut self {
            *source = Some(Box::new(error));
        }
        self
    }
}

impl From<kino_parquet::Error> for ImportError {
    fn from(error: kino_parquet::Error) -> Self {
        use kino_parquet::Error;
        match error {
            Error::Damaged { file, column, what } => {
                Self::corrupt(&file, &column, format!("cannot be read ({what})"))
            }
            Error::Unwritable { file, source } => Self::Unwritable {
                path: file,
                source: source.into(),
            },
            Error::Panicked { file, column } => {
                Self::corrupt(&file, &column, "made the Parquet reader panic")
            }
        }
    }
}

/// An `InvalidArgument` error.
pub(crate) fn invalid(what: impl Into<String>) -> ImportError {
    ImportError::InvalidArgument { what: what.into() }
}

/// The location: the file, and the object in it unless that is the file itself.
fn at(file: &Path, object: &str) -> String {
    match object {
        "" | "/" => format!("{}: ", file.display()),
        object => format!("{}: `{object}` ", file.display()),
    }
}

/// Of more kinds of defects, the first are listed if there is nothing to choose between.
const LISTED: usize = 20;

/// The faults among some defects, grouped, each in a line of its own.
fn lines(defects: &[Defect]) -> String {
    let groups = group_defects(defects.iter().filter(|defect| defect.is_fault()));
    let line = |group: &Group<'_>| format!("\n  {}", group.text());
    groups.iter().map(line).collect()
}

/// All defects, and what to do about them.
fn list(defects: &[Defect]) -> String {
    let count = match defects.iter().filter(|defect| defect.is_fault()).count() {
        1 => "a defect".to_owned(),
        count => format!("{count} defects"),
    };
    format!(
        "the source has {count}; nothing was written{}\nfix them, or import the rest: `--on-defect drop-episode` skips \
         every episode with a defect, `--on-defect keep` imports everything readable (in Python on_defect=)",
        lines(defects)
    )
}

/// Why no episode is left: how many defects, and the first kinds of them.
fn list_dropped(defects: &[Defect]) -> String {
    let faults = || defects.iter().filter(|defect| defect.is_fault());
    let episodes: HashSet<_> = faults().filter_map(|one| one.episode.as_ref()).collect();
    let count = match faults().count() {
        0 => String::new(),
        1 => " because of a defect".to_owned(),
        count => format!(" because of {count} defects in {} episodes", episodes.len()),
    };
    let groups = group_defects(faults());
    let first = groups.iter().take(LISTED);
    let lines: String = first.map(|group| format!("\n  {}", group.text())).collect();
    let more = match groups.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!("\n  and {more} more"),
    };
    format!("no episode can be imported{count}; nothing was written{lines}{more}")
}

/// What a format cannot hold, and what to do about it.
fn list_no_place(format: &str, defects: &[Defect]) -> String {
    format!(
        "{format} cannot hold all of the dataset; nothing was written{}\n`--on-defect keep` skips these and writes the \
         rest (in Python on_defect=\"keep\")",
        lines(defects)
    )
}
