//! Repacking: a dataset into another one, or into its own next version, with another plan.
//!
//! ```text
//! Repack::new ─▶ which streams change: copied, encoded again, dropped, added changes.rs, found.rs, sample.rs, variants.rs
//! Repack::run ─▶ every episode, every stream ─▶ DatasetWriter ─▶ commit
//!                │ copied: its pages, bit for bit, with their statistics      read.rs, on several threads
//!                │ encoded: its frames, decoded, then as in a pack
//!                ▼
//!                ids, clocks, events, splits, labels, attributes and lineage stay
//! ```
//!
//! With a plan that says nothing, every page is copied: a copy is a repack in which no stream changes. It links to no
//! other files. Episodes keep their order in the table and, as far as the shards allow, on disk. A version is repacked,
//! not the history of the dataset.

mod changes;
mod events;
mod found;
mod generation_loss;
mod lineage;
mod parts;
mod read;
mod run;
mod sample;
mod variants;

use std::ops::ControlFlow;
use std::path::Path;

use kino_storage::Location;

use crate::commit::Committed;
use crate::dataset::Dataset;
use crate::error::{DatasetError, Result, invalid};
use crate::local::is_url;
use crate::part::Part;
use crate::writer_options::{Start, WriterOptions};

pub use changes::{Action, StreamChange};
pub(crate) use found::wanted_rows;
pub use generation_loss::GenerationLoss;
pub use parts::RepackedPart;
pub use sample::SampleSizes;

/// How to repack a dataset.
#[derive(Debug, Clone, Default)]
pub struct RepackOptions {
    /// The plan, and how to write.
    pub writer: WriterOptions,
    /// The streams and episodes to take.
    pub part: Part,
    /// Whether frames that were lossy already may lose more.
    pub generation_loss: GenerationLoss,
}

/// How far a repack has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RepackProgress {
    /// Episodes that are done, and all.
    pub episodes: (u64, u64),
    /// Bytes of decoded frames that are done, and all.
    pub bytes: (u64, u64),
}

/// A finished repack.
#[derive(Debug)]
pub struct Repacked {
    /// The new version, or the newest one if there was nothing to do.
    pub committed: Committed,
    /// Episodes that an interrupted repack had already finished.
    pub resumed: u64,
    /// Episodes that have none of the streams that were taken.
    pub skipped: u64,
    /// What happened to each stream.
    pub streams: Vec<StreamChange>,
}

/// A repack that was decided on: what would happen to each stream.
#[derive(Debug)]
pub struct Repack {
    dataset: Dataset,
    options: RepackOptions,
    rows: Vec<usize>,
    changes: Vec<StreamChange>,
}

impl Repack {
    /// Decides what happens to each stream of the open version. Reads the first frames of those that the plan is about.
    pub fn new(dataset: &Dataset, options: RepackOptions) -> Result<Self> {
        options.writer.plan.check()?;
        let rows = wanted_rows(dataset, &options.part)?;
        let found = found::find(dataset, &rows)?;
        let plan = &options.writer.plan;
        let changes = changes::decide(dataset, &found, plan, &options.part)?;
        Ok(Self {
            dataset: dataset.clone(),
            options,
            rows,
            changes,
        })
    }

    /// What happens to each stream of the dataset.
    pub fn streams(&self) -> &[StreamChange] {
        &self.changes
    }

    /// How many episodes are taken.
    pub fn episodes(&self) -> usize {
        self.rows.len()
    }

    /// Refuses a second lossy generation, unless the options allow it.
    pub fn check(&self) -> Result<()> {
        generation_loss::check_generations(&self.changes, self.options.generation_loss)
    }

    /// Writes the dataset into the folder `target`; `None` if `progress` stopped it.
    ///
    /// With [`Start::Resume`] an interrupted repack of the same version with the same plan is continued; if it had
    /// finished, nothing is done.
    pub fn run(
        self,
        target: &Path,
        start: Start,
        progress: &mut dyn FnMut(RepackProgress) -> ControlFlow<()>,
    ) -> Result<Option<Repacked>> {
        self.check()?;
        if same_folder(self.dataset.path(), target) {
            return Err(invalid(format!(
                "{} is the dataset itself; to make a new version of it, use `--in-place` (in Python `in_place=True`)",
                target.display()
            )));
        }
        if let (Start::Resume, Ok(made)) = (start, Dataset::open(target))
            && lineage::is_made(&self, &made)
        {
            return Ok(Some(self.nothing_to_do(&made)));
        }
        run::run(self, target, start, progress)
    }

    /// Writes a new version of the dataset itself, in which the episodes with a stream that changes take the places of
    /// the old ones; `None` if `progress` stopped it. The version before stays readable.
    ///
    /// What an interrupted call with the same plan had finished is taken up.
    pub fn run_in_place(
        self,
        progress: &mut dyn FnMut(RepackProgress) -> ControlFlow<()>,
    ) -> Result<Option<Repacked>> {
        self.check()?;
        self.check_in_place()?;
        if self.changes.iter().all(|one| one.action == Action::Copy) {
            let dataset = self.dataset.clone();
            return Ok(Some(self.nothing_to_do(&dataset)));
        }
        let path = self.dataset.path().to_owned();
        run::run(self, &path, Start::Replace, progress)
    }

    fn check_in_place(&self) -> Result<()> {
        let (dataset, root) = (&self.dataset, self.dataset.path().display());
        let version = dataset.manifest().version;
        if dataset.manifest().links.is_some() {
            return Err(invalid(format!(
                "{root} links to other files, so it cannot be repacked in place; name a target, and its pages are copied into it"
            )));
        }
        if !self.options.part.episodes.is_empty() {
            return Err(invalid(
                "`--episodes` cannot be combined with `--in-place` (in Python `in_place=True`): a new version keeps all episodes",
            ));
        }
        match dataset.versions()?.last() {
            Some(&newest) if newest != version => Err(DatasetError::Exists {
                what: format!(
                    "version {version} of {root} is not its newest, which is {newest}; repack that one in place, or name a target"
                ),
            }),
            _ => Ok(()),
        }
    }

    /// The result if the wanted version is there already.
    fn nothing_to_do(self, made: &Dataset) -> Repacked {
        Repacked {
            committed: Committed {
                version: made.manifest().version,
                id: made.id().to_owned(),
                episodes: 0,
                streams: Vec::new(),
            },
            resumed: 0,
            skipped: 0,
            streams: self.changes,
        }
    }
}

/// Whether two paths are one folder, as far as the system can tell.
fn same_folder(a: &Path, b: &Path) -> bool {
    if is_url(a) || is_url(b) {
        return Location::parse(a).ok() == Location::parse(b).ok();
    }
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}
