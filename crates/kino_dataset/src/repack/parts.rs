//! A repack by many processes: each writes some portions of the new dataset, and one commits them
//! (`portions/mod.rs`).

use std::ops::{ControlFlow, Range};
use std::path::Path;

use serde_json::Value;

use super::lineage::{message, new_attributes, writer_options};
use super::read::Reading;
use super::run::{Report, Work, cut, limits, tell_known};
use super::{Action, Repack, RepackProgress, found};
use crate::error::Result;
use crate::portions::{EpisodePlan, PackPlan, PartOf, PortionPlan, PortionWork, Portions};
use crate::table::EpisodeRow;
use crate::writer_options::{Start, to_time};

/// What one part of a repack has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepackedPart {
    /// Portions of the whole repack.
    pub portions: usize,
    /// Portions that this part has made.
    pub made: usize,
    /// Portions of this part that were there already.
    pub found: usize,
    /// Portions of all parts that still have no receipt.
    pub missing: usize,
}

/// The episodes of a repack.
struct Cut {
    table: Vec<EpisodeRow>,
    /// Their rows, in the order of writing.
    wanted: Vec<usize>,
    /// The portions, as ranges of `wanted`.
    ranges: Vec<Range<usize>>,
}

impl Cut {
    fn rows(&self, portion: usize) -> &[usize] {
        &self.wanted[self.ranges[portion].clone()]
    }

    fn raw_bytes(&self, portion: usize) -> u64 {
        let bytes = self
            .rows(portion)
            .iter()
            .map(|&row| self.table[row].raw_bytes);
        bytes.fold(0, u64::saturating_add)
    }
}

impl Repack {
    /// How many portions there are: more parts than that have nothing to do.
    pub fn count_portions(&self) -> Result<usize> {
        Ok(self.cut()?.ranges.len())
    }

    /// Writes the portions of one part into the folder `target`, except those that are there already; `None` if `progress`
    /// stopped it. Nothing is visible before all parts are committed.
    pub fn run_part(
        self,
        target: &Path,
        part: PartOf,
        progress: &mut dyn FnMut(RepackProgress) -> ControlFlow<()>,
    ) -> Result<Option<RepackedPart>> {
        self.check()?;
        let cut = self.cut()?;
        let plan = self.pack_plan(&cut);
        let portions = Portions::begin(target, plan, self.options.writer.created)?;
        let finished = portions.finished()?;
        let mine = (0..cut.ranges.len()).filter(|&portion| part.has(portion));
        let mine: Vec<usize> = mine.collect();
        let open = mine
            .iter()
            .copied()
            .filter(|portion| !finished.contains(portion));
        let open: Vec<usize> = open.collect();
        let episodes: usize = open.iter().map(|&portion| cut.rows(portion).len()).sum();
        let bytes = open.iter().map(|&portion| cut.raw_bytes(portion));
        let all = (episodes as u64, bytes.fold(0, u64::saturating_add));
        let mut done = (0, 0);
        for &portion in &open {
            let mut report = |at: RepackProgress| {
                progress(RepackProgress {
                    episodes: (done.0 + at.episodes.0, all.0),
                    bytes: (done.1 + at.bytes.0, all.1),
                })
            };
            if self
                .portion(&portions, portion, &cut, &mut report)?
                .is_break()
            {
                return Ok(None);
            }
            done.0 += cut.rows(portion).len() as u64;
            done.1 += cut.raw_bytes(portion);
        }
        Ok(Some(RepackedPart {
            portions: cut.ranges.len(),
            made: open.len(),
            found: mine.len() - open.len(),
            missing: portions.missing()?.len(),
        }))
    }

    fn cut(&self) -> Result<Cut> {
        let table = self.dataset.table().rows()?;
        let wanted = found::on_disk(&self.dataset, &table, &self.rows);
        let ranges = cut(&table, &wanted, self.options.writer.shard_bytes);
        Ok(Cut {
            table,
            wanted,
            ranges,
        })
    }

    /// Writes one portion from the beginning.
    fn portion(
        &self,
        portions: &Portions,
        portion: usize,
        cut: &Cut,
        progress: Report<'_>,
    ) -> Result<ControlFlow<()>> {
        let (dataset, changes) = (&self.dataset, &self.changes);
        let plan = &self.options.writer.plan;
        let mut options = writer_options(self);
        let limits = limits(&mut options);
        let mut writer = portions.writer(options)?;
        let is_part = self.rows.len() < dataset.len();
        let has_stats = tell_known(dataset, changes, plan, is_part, &mut writer)?;
        let reading = Reading::new(dataset, changes, has_stats);
        let mut work = Work::new(&reading, plan, &cut.table, progress);
        let rows = cut.rows(portion);
        work.expect(rows);
        if work.episodes(&mut writer, rows, limits)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let mut episodes = self.planned(&cut.table, rows);
        for (planned, row) in episodes.iter_mut().zip(rows) {
            planned.dropped = work.skipped.contains(row);
        }
        let notes = Value::Null;
        portions.finish(portion, writer, PortionWork { episodes, notes })?;
        Ok(ControlFlow::Continue(()))
    }

    fn pack_plan(&self, cut: &Cut) -> PackPlan {
        let options = writer_options(self);
        let mut settings = options.settings();
        settings.insert("shard_size".to_owned(), options.shard_bytes.to_string());
        if let Some(created) = options.created {
            settings.insert("created".to_owned(), to_time(created));
        }
        let portions = (0..cut.ranges.len()).map(|portion| {
            let episodes = self.planned(&cut.table, cut.rows(portion));
            PortionPlan::of(&episodes, cut.raw_bytes(portion))
        });
        let (portions, attributes) = (portions.collect(), new_attributes(self));
        let message = message(&self.dataset, Start::New);
        PackPlan::new(settings, portions, attributes, message, Value::Null)
    }

    /// Episodes as receipts list them. If streams are left out, their frames are not known before they are read.
    fn planned(&self, table: &[EpisodeRow], rows: &[usize]) -> Vec<EpisodePlan> {
        let mut changes = self.changes.iter();
        let is_whole = changes.all(|change| change.action != Action::Drop);
        let planned = |&row: &usize| EpisodePlan {
            id: table[row].id.clone(),
            frames: if is_whole { table[row].frames } else { 0 },
            dropped: false,
        };
        rows.iter().map(planned).collect()
    }
}
