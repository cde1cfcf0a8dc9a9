//! A pack by many processes: each packs some portions, and one commits what all of them have made.
//!
//! ```text
//! kinograph pack SOURCE TARGET --part 1/3 ─▶ portions 0, 3, 6 … ─▶ shards and receipts ─┐
//! kinograph pack SOURCE TARGET --part 2/3 ─▶ portions 1, 4, 7 … ─▶ shards and receipts ─┼▶ kinograph commit TARGET
//! kinograph pack SOURCE TARGET --part 3/3 ─▶ portions 2, 5, 8 … ─▶ shards and receipts ─┘
//! ```
//!
//! Every process opens the source and decides for itself, from the same metadata and the same first frames, what all of
//! them decide: the order of episodes, the portions, the codecs. It reads the values of its own episodes only. Each file
//! of the source is hashed by one of them.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::path::Path;

use kino_dataset::{PackPlan, PartOf, PortionWork, Portions, Start, to_time};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::defect::Defect;
use crate::error::{Result, invalid};
use crate::fit::{Fitted, Target};
use crate::lineage::{begin_record, names, part_settings};
use crate::pack::{PackOptions, fit_and_cut, look_while, read_limits, remove_if_empty, wanted};
use crate::packing::{Hashes, Packing};
use crate::portions::Cut;
use crate::progress::{Progress, Reporter};
use crate::reencode::{Reencoded, apply_plan, unshare_resized};
use crate::settle::settle;
use crate::source::{EpisodeSpec, Source};
use crate::survey::{Looked, Looking, cores};
use crate::variants::add_variants;

/// What one part of a pack has done.
#[derive(Debug, Clone)]
pub struct PackedPart {
    /// Portions of the whole pack.
    pub portions: usize,
    /// Portions that this part has made.
    pub made: usize,
    /// Portions of this part that were there already.
    pub found: usize,
    /// Portions of all parts that still have no receipt.
    pub missing: usize,
    /// Defects of the source as far as this part has seen it.
    pub defects: Vec<Defect>,
}

/// What the plan of a pack says about its source.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SourcePlan {
    pub(crate) name: String,
    pub(crate) attributes: Map<String, Value>,
    pub(crate) record: Value,
    pub(crate) before: Vec<Defect>,
    pub(crate) after: Vec<Defect>,
    pub(crate) notes: Vec<Defect>,
}

/// What the receipt of a portion says besides.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct PortionNotes {
    /// Defects of values, by episode.
    pub(crate) found: Vec<(usize, Vec<Defect>)>,
    /// Episodes that could not be stored.
    pub(crate) dropped: Vec<Defect>,
    /// Hashes of the source's files, by number.
    pub(crate) hashes: BTreeMap<usize, String>,
    /// The file of each row.
    pub(crate) files: Vec<usize>,
}

/// A source as every part sees it.
struct Prepared<'a> {
    fitted: Fitted<'a>,
    cut: Cut,
    reencoded: Reencoded,
    looked: Looked,
}

/// How many portions a pack with these options has: more parts than that have nothing to do.
pub fn count_portions(source: &Source, options: &PackOptions) -> Result<usize> {
    let shard_bytes = options.writer.shard_bytes;
    let (_, cut) = fit_and_cut(source, &room(options), options.seed, shard_bytes)?;
    Ok(cut.ranges.len())
}

/// Packs the portions of one part into the folder `target`, except those that are there already. Nothing is visible before
/// [`commit_parts`](crate::commit_parts).
pub fn pack_part(
    source: &Source,
    target: &Path,
    options: PackOptions,
    part: PartOf,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<PackedPart> {
    check_options(&options)?;
    let is_new = !target.exists();
    let packed = prepare(source, &options, part, progress)
        .and_then(|prepared| pack_prepared(source, target, (&options, &prepared, part), progress));
    if packed.is_err() && is_new {
        remove_if_empty(target);
    }
    packed
}

fn check_options(options: &PackOptions) -> Result<()> {
    if options.start != Start::New {
        return Err(invalid(
            "parts make a new dataset; pack without `--append`, `--resume` and `--overwrite` (in Python `mode`). A part that was \
             interrupted is run again as it was",
        ));
    }
    match options.link {
        Some(_) => Err(invalid(
            "linking cannot be done in parts; it reads little and takes one machine",
        )),
        None => Ok(()),
    }
}

/// What a new dataset has room for.
fn room(options: &PackOptions) -> Target {
    Target::new(&options.prefix, None).with_plan(&options.writer.plan)
}

/// Everything up to the first frame: the same steps as in a pack by one process, except that the values of other parts are
/// not looked at.
fn prepare<'a>(
    source: &'a Source,
    options: &PackOptions,
    part: PartOf,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Prepared<'a>> {
    let plan = &options.writer.plan;
    let shard_bytes = options.writer.shard_bytes;
    let (mut fitted, cut) = fit_and_cut(source, &room(options), options.seed, shard_bytes)?;
    let mut reencoded = apply_plan(&mut fitted, plan)?;
    let is_mine = |episode: usize| {
        usize::try_from(cut.portion_of[episode]).is_ok_and(|portion| part.has(portion))
    };
    let looking = Looking {
        is_wanted: &is_mine,
        threads: cores(options.writer.threads),
    };
    let looked = look_while(&mut fitted, &looking, progress)?;
    // The error lists all of them.
    options.on_defect.judge(looked.clone().into_defects())?;
    let judge = |defects| options.on_defect.judge(defects);
    let found = looked.found.into_iter();
    let looked = Looked {
        before: judge(looked.before)?,
        found: found
            .map(|(idx, defects)| Ok((idx, judge(defects)?)))
            .collect::<Result<_>>()?,
        after: judge(looked.after)?,
    };
    unshare_resized(&mut fitted, plan);
    add_variants(&mut fitted, plan, &mut reencoded)?;
    Ok(Prepared {
        fitted,
        cut,
        reencoded,
        looked,
    })
}

fn to_plan(source: &Source, options: &PackOptions, prepared: &Prepared<'_>) -> Result<PackPlan> {
    let info = source.describe();
    let writer = &options.writer;
    let (prefix, seed) = (&options.prefix, options.seed);
    let mut settings = writer.settings();
    settings.extend(part_settings(info, prefix, seed, options.on_defect));
    settings.insert("shard_size".to_owned(), writer.shard_bytes.to_string());
    if let Some(created) = writer.created {
        settings.insert("created".to_owned(), to_time(created));
    }
    let portions = 0..prepared.cut.ranges.len();
    let portions = portions.map(|portion| prepared.cut.plan(&prepared.fitted, portion));
    let source = SourcePlan {
        name: names(info),
        attributes: info.attributes.clone(),
        record: begin_record(source),
        before: prepared.looked.before.clone(),
        after: prepared.looked.after.clone(),
        notes: prepared.reencoded.notes.clone(),
    };
    let source = serde_json::to_value(source).map_err(|error| invalid(error.to_string()))?;
    let message = format!("pack {} from {}", info.format, names(info));
    let attributes = writer.attributes.clone();
    let portions = portions.collect();
    Ok(PackPlan::new(
        settings, portions, attributes, message, source,
    ))
}

fn pack_prepared(
    source: &Source,
    target: &Path,
    (options, prepared, part): (&PackOptions, &Prepared<'_>, PartOf),
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<PackedPart> {
    let Prepared {
        fitted,
        cut,
        looked,
        ..
    } = prepared;
    let all = cut.ranges.len();
    let plan = to_plan(source, options, prepared)?;
    let portions = Portions::begin(target, plan, options.writer.created)?;
    let finished = portions.finished()?;
    let mine: Vec<usize> = (0..all).filter(|&portion| part.has(portion)).collect();
    let defects = looked.clone().into_defects();
    let episodes = mine
        .iter()
        .flat_map(|&portion| cut.episodes(fitted, portion));
    let bytes: Vec<u64> = episodes.map(|idx| fitted.episodes[idx].bytes()).collect();
    let mut work = PartWork {
        source,
        options,
        prepared,
        portions: &portions,
        decided: None,
        reporter: Reporter::new(progress, bytes.len(), bytes.into_iter()),
        passed: 0,
        dropped: Vec::new(),
    };
    let mut made = 0;
    for &portion in &mine {
        if finished.contains(&portion) {
            work.pass(portion)?;
        } else {
            work.portion(portion, &defects)?;
            made += 1;
        }
    }
    let dropped = work.dropped;
    Ok(PackedPart {
        portions: all,
        made,
        found: mine.len() - made,
        missing: portions.missing()?.len(),
        defects: defects.into_iter().chain(dropped).collect(),
    })
}

/// A part under way.
struct PartWork<'a> {
    source: &'a Source,
    options: &'a PackOptions,
    prepared: &'a Prepared<'a>,
    portions: &'a Portions,
    /// The codecs that were chosen by first frames, once that is done.
    decided: Option<Vec<crate::settle::Decided>>,
    reporter: Reporter<'a>,
    passed: u64,
    pub(crate) dropped: Vec<Defect>,
}

impl PartWork<'_> {
    /// Leaves out a portion that is there already.
    fn pass(&mut self, portion: usize) -> Result<()> {
        let Prepared { fitted, cut, .. } = self.prepared;
        for idx in cut.episodes(fitted, portion) {
            self.passed += fitted.episodes[idx].bytes();
            self.reporter.progress.episodes_done += 1;
        }
        self.reporter.progress.bytes_done = self.passed;
        self.reporter.tell()
    }

    /// Packs a portion from the beginning: its files are read anew, whatever an earlier attempt had read.
    fn portion(&mut self, portion: usize, defects: &[Defect]) -> Result<()> {
        let Prepared {
            fitted,
            cut,
            reencoded,
            ..
        } = self.prepared;
        let mut options = self.options.writer.clone();
        let limits = read_limits(&mut options);
        let mut writer = self.portions.writer(options)?;
        reencoded.tell(&mut writer);
        let decided = match self.decided.take() {
            Some(decided) => decided,
            None => settle(fitted, &cut.order, &writer)?,
        };
        decided.iter().for_each(|one| one.tell(&mut writer));
        self.decided = Some(decided);
        let all: Vec<usize> = cut.episodes(fitted, portion).collect();
        let wanted = wanted(fitted, defects, &all);
        let reporter = Reporter {
            progress: self.reporter.progress,
            report: &mut *self.reporter.report,
        };
        let mut packing = Packing {
            source: fitted,
            reporter,
            passed: self.passed,
            shifts: 0,
            written: 0,
            on_defect: self.options.on_defect,
            defects: Vec::new(),
            lost: Vec::new(),
            links: None,
            portion_of: &cut.portion_of,
            hashes: Hashes::AtCommit,
        };
        packing.episodes(&mut writer, &wanted, &HashSet::new(), limits)?;
        let Packing {
            defects: dropped,
            lost,
            reporter: Reporter { progress, .. },
            ..
        } = packing;
        self.passed = progress.bytes_done;
        self.reporter.progress = progress;
        let stored = wanted.into_iter().filter(|idx| !lost.contains(idx));
        let work = self.work(portion, stored.collect(), &dropped)?;
        self.dropped.extend(dropped);
        self.portions.finish(portion, writer, work)?;
        Ok(())
    }

    /// What became of the episodes of a portion, if the source is still the same.
    fn work(&self, portion: usize, stored: Vec<usize>, dropped: &[Defect]) -> Result<PortionWork> {
        let Prepared {
            fitted,
            cut,
            looked,
            ..
        } = self.prepared;
        let files = &self.source.describe().files;
        let kept: HashSet<usize> = stored.iter().copied().collect();
        let mut hashes = BTreeMap::new();
        for idx in self.hashed_files(portion) {
            let hash = files[idx].read_blake3()?.to_owned();
            hashes.insert(idx, hash);
        }
        let is_here = |idx: usize| cut.portion_of[idx] == portion as u64;
        let found = looked.found.iter().filter(|(idx, _)| is_here(*idx));
        let notes = PortionNotes {
            found: found.cloned().collect(),
            dropped: dropped.to_vec(),
            files: stored
                .iter()
                .map(|&idx| fitted.episodes[idx].file)
                .collect(),
            hashes,
        };
        let read = notes.files.iter().chain(notes.hashes.keys());
        let read: HashSet<usize> = read.copied().collect();
        let mut read = read.into_iter().filter_map(|idx| files.get(idx));
        read.try_for_each(crate::source_file::SourceFile::check_unchanged)?;
        let mut episodes = cut.planned(fitted, portion);
        for (planned, idx) in episodes.iter_mut().zip(cut.episodes(fitted, portion)) {
            planned.dropped = !kept.contains(&idx);
        }
        let notes = serde_json::to_value(notes).map_err(|error| invalid(error.to_string()))?;
        Ok(PortionWork { episodes, notes })
    }

    /// The files that this portion hashes: those of whose episodes it has the first, and portion 0 those without any.
    fn hashed_files(&self, portion: usize) -> Vec<usize> {
        let Prepared { fitted, cut, .. } = self.prepared;
        let mut first = vec![0; self.source.describe().files.len()];
        let mut is_seen = vec![false; first.len()];
        for &idx in &cut.order {
            let EpisodeSpec { file, .. } = fitted.episodes[idx];
            if let Some(seen) = is_seen.get_mut(file).filter(|seen| !**seen) {
                *seen = true;
                first[file] = cut.portion_of[idx];
            }
        }
        let all = first.into_iter().enumerate();
        let mine = all.filter(|(_, first)| *first == portion as u64);
        mine.map(|(idx, _)| idx).collect()
    }
}
