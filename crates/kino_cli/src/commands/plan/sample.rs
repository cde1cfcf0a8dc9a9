//! Measuring: a recording by packing a sample of it, a dataset as it is.
//!
//! ```text
//! recording ─▶ a few complete episodes, packed by default ─▶ choice ─▶ the same episodes, packed with it ─▶ measured
//! dataset   ─▶ choice ─▶ a few complete episodes, repacked with it ─▶ measured
//!                        samples are in a folder that is removed afterwards      the last steps with --verify
//! ```

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kino_advisor::{AdvisorError, Host, Planned, PlannerOptions, Whole, Workload, choose_plan};
use kino_dataset::{
    Dataset, GenerationLoss, Part, Plan, Repack, RepackOptions, Start, WriterOptions,
    sample_episodes,
};
use kino_import::{ImportError, ImportOptions, SampleOptions, pack_sample};
use kino_loader::Batch;

use crate::interrupt::Watch;
use crate::output::note;
use crate::progress::watched;
use crate::writing::warn_of_unused_rules;

/// Whether to measure what was predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verify {
    Nothing,
    /// The chosen plan.
    Chosen,
}

/// What is measured, and for what.
pub(crate) struct Planner<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) options: &'a PlannerOptions,
    /// Where samples are packed; they are removed afterwards.
    pub(crate) folder: &'a Path,
    /// Decoded bytes of a sample.
    pub(crate) sample_bytes: u64,
    pub(crate) verify: Verify,
}

/// Reports progress on stderr, and ends the measurement at Ctrl-C.
struct Shown(Option<Watch>);

impl Host for Shown {
    fn step(&mut self, batch: Batch) -> kino_advisor::Result<()> {
        drop(batch);
        Ok(())
    }

    fn look_up(&mut self) -> kino_advisor::Result<()> {
        match &self.0 {
            Some(watch) if watch.is_requested() => Err(AdvisorError::Interrupted),
            _ => Ok(()),
        }
    }

    fn begins(&mut self, what: &str) {
        note(&format!("measuring {what}"));
    }
}

/// Whether Ctrl-C ended the measurement. Its samples are removed by then.
pub(crate) fn is_interrupted(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(AdvisorError::Interrupted))
        || matches!(error.downcast_ref(), Some(ImportError::Stopped))
}

impl Planner<'_> {
    /// Packs a sample of a recording, measures it, and chooses a plan.
    pub(crate) fn plan_recording(&self, source: &Path, import: &ImportOptions) -> Result<Planned> {
        let folder = sample_folder(self.folder)?;
        let requested = self.workload.windows.iter();
        let requested: Vec<String> = requested.map(|(name, _)| name.clone()).collect();
        let pack = |name: &str, plan: Plan| {
            note(&format!("packing a sample with {name}"));
            let target = folder.path().join(name);
            let sample = SampleOptions {
                max_bytes: self.sample_bytes,
                requested: requested.clone(),
                plan,
            };
            let sampled = watched("sample", |report| {
                pack_sample(source, import, &target, &sample, report)
            })?;
            anyhow::Ok((self.workload.subject(&Dataset::open(&target)?)?, sampled))
        };
        let (subject, sampled) = pack("default codecs", Plan::lossless())?;
        self.warn(&Dataset::open(&folder.path().join("default codecs"))?);
        let whole = Whole {
            name: source.display().to_string(),
            is_packed: false,
            source_bytes: sampled.source_bytes,
            counts: sampled.counts,
        };
        let mut planned = choose_plan(&subject, &whole, self.options, &mut shown())?;
        if self.verify == Verify::Chosen {
            let (subject, _) = pack("the chosen plan", Plan::from_toml(&planned.to_toml())?)?;
            let verified = planned.verify(planned.chosen, &subject, &mut shown())?;
            planned.verified.push(verified);
        }
        Ok(planned)
    }

    /// Measures a part of a dataset as it is; to verify the choice, a sample of it is packed again.
    pub(crate) fn plan_dataset(&self, dataset: &Dataset, part: &Part) -> Result<Planned> {
        let (subject, rows, counts) = self.workload.subject_of_part(dataset, part)?;
        self.warn(dataset);
        let whole = Whole::of(dataset, counts);
        let mut planned = choose_plan(&subject, &whole, self.options, &mut shown())?;
        if self.verify == Verify::Nothing {
            return Ok(planned);
        }
        let folder = sample_folder(self.folder)?;
        note("packing a sample with the chosen plan");
        let options = RepackOptions {
            writer: WriterOptions {
                plan: Plan::from_toml(&planned.to_toml())?,
                ..WriterOptions::default()
            },
            part: Part {
                episodes: self.sample_ids(dataset, &rows)?,
                ..part.clone()
            },
            generation_loss: GenerationLoss::Allow,
        };
        let repack = Repack::new(dataset, options)?;
        let target = folder.path().join("planned.kino");
        let repacked = watched("sample", |report| {
            repack.run(&target, Start::New, &mut |at| report(at.into()))
        })?;
        repacked.ok_or(AdvisorError::Interrupted)?;
        let subject = self.workload.subject(&Dataset::open(&target)?)?;
        let verified = planned.verify(planned.chosen, &subject, &mut shown())?;
        planned.verified.push(verified);
        Ok(planned)
    }

    /// Says which options change nothing: most likely something was mistyped or forgotten.
    fn warn(&self, dataset: &Dataset) {
        let streams = dataset.manifest().streams.iter();
        let streams = streams.filter(|one| one.variant_of.is_none());
        let kinds = streams.clone().map(|one| (one.name.as_str(), one.kind));
        warn_of_unused_rules(&self.options.bounds, kinds);
        let images = &self.workload.options.images;
        let is_resized = streams
            .clone()
            .any(|one| images.size_of(&one.name).is_some());
        if self.options.allow_resize && !is_resized {
            note("note: --allow-resize changes nothing without --image-size");
        }
    }

    /// Ids of a sample of the episodes in `rows`.
    fn sample_ids(&self, dataset: &Dataset, rows: &[usize]) -> Result<Vec<String>> {
        let table = dataset.table();
        let bytes = rows.iter().filter_map(|&row| table.raw_bytes(row)).sum();
        let chosen = sample_episodes(rows.len(), bytes, self.sample_bytes);
        let ids = chosen.filter_map(|at| table.id(rows[at]).map(str::to_owned));
        Ok(ids.collect())
    }
}

/// A folder for samples, which is removed afterwards.
pub(crate) fn sample_folder(folder: &Path) -> Result<tempfile::TempDir> {
    let made = tempfile::Builder::new()
        .prefix(".kinograph-sample-")
        .tempdir_in(folder);
    made.with_context(|| format!("cannot write a sample to {}", folder.display()))
}

fn shown() -> Shown {
    Shown(Watch::start())
}

/// The folder that a new dataset lies in.
pub(crate) fn folder_of(target: &Path) -> PathBuf {
    let parent = target.parent().map(Path::to_owned);
    parent
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or_else(|| PathBuf::from("."))
}
