//! Packing: every episode of a source into one new version of a dataset.
//!
//! ```text
//! Source ─▶ fit, survey ─▶ order of episodes ─▶ order of streams ─▶ blocks of frames ─▶ DatasetWriter ─▶ commit
//!           defects        seeded, random       small, then          read ahead; a shift
//!                                               images             stores its last frame only
//! ```
//!
//! Episodes are written in a seeded random order, so that a loader that reads neighbouring episodes reads unrelated
//! ones; the episode table keeps the source's order. Nothing is visible before the commit, and an interrupted pack can
//! be resumed.

use std::collections::HashSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use kino_dataset::{
    Committed, Dataset, DatasetWriter, ReadLimits, Start, WriterOptions, check_writable, is_url,
};

use crate::defect::{Action, Defect, OnDefect};
use crate::error::{ImportError, Result};
use crate::fit::{Fitted, Target, fit};
use crate::lineage::{names, settings, to_record};
use crate::link::{self, LinkFiles, LinkOptions};
use crate::needless_loss;
use crate::packing::{Hashes, Packing};
use crate::portions::Cut;
use crate::preview::disk_bytes;
use crate::progress::{Progress, Reporter};
use crate::reencode::{apply_plan, unshare_resized};
use crate::settle::settle;
use crate::shuffle::shuffled;
use crate::source::{EpisodeSpec, Source};
use crate::source_file::SourceFile;
use crate::survey::{Looked, Looking, cores, look};
use crate::variants::add_variants;

/// The options of a pack.
#[derive(Debug, Clone)]
pub struct PackOptions {
    /// Writer options; their settings are extended with the source and these options.
    pub writer: WriterOptions,
    /// What the target may already hold.
    pub start: Start,
    /// Seed for the on-disk episode order.
    pub seed: u64,
    /// Prefix of the episode ids, so that two sources with a `demo_0` fit into one dataset.
    pub prefix: String,
    /// What to do with a source that has defects.
    pub on_defect: OnDefect,
    /// Leaves the images of cameras in the source's files; `None` packs everything.
    pub link: Option<LinkOptions>,
}

impl Default for PackOptions {
    fn default() -> Self {
        Self {
            writer: WriterOptions::default(),
            start: Start::New,
            seed: 0,
            prefix: String::new(),
            on_defect: OnDefect::Error,
            link: None,
        }
    }
}

/// The result of a pack.
#[derive(Debug, Clone)]
pub struct Packed {
    /// The new version.
    pub committed: Committed,
    /// Episodes that an interrupted pack had already finished.
    pub resumed: u64,
    /// Episodes finished by other interrupted writers, which were left in place.
    pub interrupted: u64,
    /// Streams that store only their last frame, because the others are frames of another stream.
    pub shifts: u64,
    /// All defects and notes, with what was done about each.
    pub defects: Vec<Defect>,
    /// The bytes of the source's files on disk.
    pub source_bytes: u64,
}

/// Packs a source into the folder `target`.
///
/// `progress` is called after every block of frames; [`ControlFlow::Break`] stops the pack, which can be
/// resumed.
pub fn pack(
    source: &Source,
    target: &Path,
    options: PackOptions,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Packed> {
    let PackOptions {
        mut writer,
        start,
        seed,
        prefix,
        on_defect,
        link,
    } = options;
    check_writable(target)?;
    link::check_plan(link.as_ref(), &writer.plan)?;
    let known = (start == Start::Append).then(|| Dataset::open(target));
    let known = known.transpose()?;
    let room = Target::new(&prefix, known.as_ref()).with_plan(&writer.plan);
    let info = source.describe();
    let (mut fitted, cut) = fit_and_cut(source, &room, seed, writer.shard_bytes)?;
    let mut reencoded = apply_plan(&mut fitted, &writer.plan)?;
    let looking = Looking::at_all(cores(writer.threads));
    let looked = look_while(&mut fitted, &looking, progress)?;
    let mut defects = on_defect.judge(looked.into_defects())?;
    unshare_resized(&mut fitted, &writer.plan);
    if let Some(link) = &link {
        defects.extend(link::choose(&mut fitted, link, known.as_ref())?);
        writer.link_root = link.root.to_str().map(str::to_owned);
    }
    add_variants(&mut fitted, &writer.plan, &mut reencoded)?;
    let wanted = wanted(&fitted, &defects, &cut.order);
    if wanted.is_empty() {
        return Err(ImportError::NothingLeft { defects });
    }
    let own = settings(info, &prefix, seed, on_defect, link.as_ref())?;
    writer.settings.extend(own);
    let links = link.as_ref().map(|link| LinkFiles::new(link, &info.files));
    let limits = read_limits(&mut writer);
    let is_new = !is_url(target) && !target.exists();
    let packed = || -> Result<Packed> {
        let mut writer = DatasetWriter::open(target, start, writer)?;
        reencoded.tell(&mut writer);
        let decided = settle(&fitted, &cut.order, &writer)?;
        decided.iter().for_each(|one| one.tell(&mut writer));
        let resumed = writer.resumed().clone();
        let interrupted = writer.interrupted();
        let bytes = wanted.iter().map(|&idx| fitted.episodes[idx].bytes());
        let mut packing = Packing {
            source: &fitted,
            reporter: Reporter::new(progress, wanted.len(), bytes),
            passed: 0,
            shifts: 0,
            written: 0,
            on_defect,
            defects,
            lost: Vec::new(),
            links: links.as_ref(),
            portion_of: &cut.portion_of,
            hashes: Hashes::Here,
        };
        packing.episodes(&mut writer, &wanted, &resumed, limits)?;
        let (shifts, written) = (packing.shifts, packing.written);
        let mut defects = packing.defects;
        if written == 0 && resumed.is_empty() {
            return Err(ImportError::NothingLeft { defects });
        }
        let committed = commit(source, writer, &defects, links.as_ref())?;
        defects.extend(needless_loss::notes(&committed.streams));
        defects.extend(reencoded.notes);
        Ok(Packed {
            committed,
            resumed: resumed.len() as u64,
            interrupted,
            shifts,
            defects,
            source_bytes: disk_bytes(info),
        })
    };
    let packed = packed();
    if packed.is_err() && is_new {
        remove_if_empty(target);
    }
    packed
}

/// The episodes as they can be written, in on-disk order and cut into portions.
pub(crate) fn fit_and_cut<'a>(
    source: &'a Source,
    room: &Target,
    seed: u64,
    shard_bytes: u64,
) -> Result<(Fitted<'a>, Cut)> {
    let fitted = fit(source, room)?;
    let order = shuffled(fitted.episodes.len(), seed);
    let source_bytes = disk_bytes(source.describe());
    let cut = Cut::new(&fitted, order, shard_bytes, source_bytes);
    Ok((fitted, cut))
}

/// A quarter of the memory is for frames read ahead, the rest for frames being encoded.
pub(crate) fn read_limits(options: &mut WriterOptions) -> ReadLimits {
    let bytes = options.memory_bytes / 4;
    options.memory_bytes -= bytes;
    ReadLimits {
        threads: cores(options.threads),
        bytes,
    }
}

/// Makes what was written visible, if the source is still the same.
fn commit(
    source: &Source,
    mut writer: DatasetWriter,
    defects: &[Defect],
    links: Option<&LinkFiles<'_>>,
) -> Result<Committed> {
    let info = source.describe();
    let mut files = info.files.iter();
    files.try_for_each(SourceFile::check_unchanged)?;
    links.map_or(Ok(()), LinkFiles::check_unchanged)?;
    let is_trusted = links.is_some_and(LinkFiles::are_trusted);
    writer.add_source(to_record(source, defects, is_trusted)?);
    let verb = if links.is_some() { "link" } else { "pack" };
    let message = format!("{verb} {} from {}", info.format, names(info));
    Ok(writer.commit(&message)?)
}

/// Surveys the source; the caller may stop it.
pub(crate) fn look_while(
    fitted: &mut Fitted<'_>,
    looking: &Looking<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Looked> {
    let bytes: Vec<_> = fitted.episodes.iter().map(EpisodeSpec::bytes).collect();
    let mut reporter = Reporter::new(progress, fitted.episodes.len(), bytes.into_iter());
    let mut checked = |episodes: usize| {
        reporter.progress.episodes_checked = episodes as u64;
        reporter.tell()
    };
    look(fitted, looking, &mut checked)
}

/// Of these episodes those to import, in the same order.
pub(crate) fn wanted(source: &Fitted<'_>, defects: &[Defect], order: &[usize]) -> Vec<usize> {
    let dropped = defects
        .iter()
        .filter(|defect| defect.action == Action::Dropped);
    let dropped: HashSet<_> = dropped
        .filter_map(|defect| defect.episode.as_deref())
        .collect();
    let episodes = &source.episodes;
    let is_wanted = |&episode: &usize| {
        let spec: &EpisodeSpec = &episodes[episode];
        !spec.streams.is_empty() && !dropped.contains(spec.id.as_str())
    };
    order.iter().copied().filter(is_wanted).collect()
}

/// Removes the folder of a pack that left nothing to resume.
pub(crate) fn remove_if_empty(target: &Path) {
    // Only empty folders can be removed this way; anything else stays.
    for folder in [
        "staging", "shards", "episodes", "stats", "versions", "portions", "",
    ] {
        let _ = fs::remove_dir(target.join(folder));
    }
}
