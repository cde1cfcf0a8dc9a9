//! How commands that read a recording open it, and which part of it they take: `pack`, `link` and `plan`; parts of datasets
//! too.

use std::path::PathBuf;
use std::sync::Arc;

use kino_dataset::{ByteSize, Part};
use kino_import::{FORMATS, ImportOptions, Videos};

/// Which streams and episodes are taken.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PartArgs {
    /// Only streams that match: `actions`, `obs/*`, `**` crosses `/`, `?` is one character (repeat, or list several)
    #[arg(long, value_name = "PATTERN", num_args = 1..)]
    streams: Vec<String>,
    /// Exclude streams that match; files of a recording that hold nothing else are neither needed nor opened
    #[arg(long, value_name = "PATTERN", num_args = 1..)]
    exclude: Vec<String>,
    /// Only these episodes, by number, range or id: `0-9,17`, `demo_40`
    #[arg(long, value_name = "LIST", num_args = 1..)]
    episodes: Vec<String>,
}

impl PartArgs {
    pub(crate) fn read(&self) -> Part {
        Part {
            streams: self.streams.clone(),
            exclude: self.exclude.clone(),
            episodes: self.episodes.clone(),
        }
    }
}

/// How a recording is read.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SourceArgs {
    /// The source's format [default: detected]
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(FORMATS.iter().map(|format| format.name)))]
    format: Option<String>,
    /// A TOML file that says which object of the source becomes which stream (docs/guide/import.md)
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
    /// Frames per second [default: the source's own rate]
    #[arg(long, value_name = "HZ")]
    rate: Option<f64>,
    #[command(flatten)]
    part: PartArgs,
    /// Follow links that lead out of the source, such as those of the Hugging Face cache; only for sources you trust
    #[arg(long)]
    follow_links: bool,
}

impl SourceArgs {
    /// The part of the source that is taken.
    pub(crate) fn part(&self) -> Part {
        self.part.read()
    }

    /// The options of the import, with `memory` for frames in flight.
    pub(crate) fn import(
        &self,
        memory: Option<ByteSize>,
        videos: Option<Arc<dyn Videos>>,
    ) -> ImportOptions {
        ImportOptions {
            format: self.format.clone(),
            rate_hz: self.rate,
            mapping: self.mapping.clone(),
            memory_bytes: memory.map(ByteSize::bytes),
            videos,
            follow_links: self.follow_links,
            part: self.part(),
            keep_dtype: false,
        }
    }
}

/// How a recording is read that is packed, not linked.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PackedSourceArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Import float images of whole numbers from 0 to 255 as they are [default: as uint8 images, without loss]
    #[arg(long)]
    keep_dtype: bool,
}

impl PackedSourceArgs {
    /// The part of the source that is taken.
    pub(crate) fn part(&self) -> Part {
        self.source.part()
    }

    /// The first option given that a dataset as source does not take, because it is about recordings.
    pub(crate) fn of_recordings(&self) -> Option<&'static str> {
        let source = &self.source;
        let given = [
            ("--format", source.format.is_some()),
            ("--mapping", source.mapping.is_some()),
            ("--rate", source.rate.is_some()),
            ("--follow-links", source.follow_links),
            ("--keep-dtype", self.keep_dtype),
        ];
        let given = given.into_iter().find(|(_, is_given)| *is_given);
        given.map(|(name, _)| name)
    }

    /// The options of the import, with `memory` for frames in flight.
    pub(crate) fn import(
        &self,
        memory: Option<ByteSize>,
        videos: Option<Arc<dyn Videos>>,
    ) -> ImportOptions {
        ImportOptions {
            keep_dtype: self.keep_dtype,
            ..self.source.import(memory, videos)
        }
    }
}
