//! Resumes what interrupted writers have finished, and removes the folders of those that had finished nothing.
//!
//! Only with the same settings: half a dataset at 20 Hz and half at 55 is worse than none. Work that is already in
//! the dataset (the writer was killed after the commit) is not added twice.

use std::collections::HashSet;

use crate::commit::Base;
use crate::error::{DatasetError, Result};
use crate::lease::Holder;
use crate::receipts::{Receipt, Receipts, shards_of};
use crate::staging::{FoundArea, Settings};
use crate::turn::Turn;

/// Longer values are named but not shown.
const MAX_SHOWN: usize = 40;

/// The number of finished episodes that dead writers have left, as far as one look can tell.
pub(crate) fn interrupted(found: &[FoundArea]) -> u64 {
    let gone = found.iter().filter(|area| !is_alive(area));
    gone.map(|area| episodes(area).unwrap_or(0)).sum()
}

/// Removes the areas of writers that are gone and had finished nothing, and gives the others.
pub(crate) fn sweep(found: Vec<FoundArea>, turn: &Turn) -> Vec<FoundArea> {
    let is_needed = |area: &FoundArea| {
        let is_gone = matches!(area.holder(), Ok(Holder::Gone(_)));
        !(turn.is_exclusive() && is_gone && episodes(area).is_ok_and(|count| count == 0))
    };
    let (needed, empty): (Vec<_>, Vec<_>) = found.into_iter().partition(is_needed);
    for area in empty {
        // What cannot be taken over is left to `kinograph gc`.
        if let Ok(Some(area)) = area.take_over() {
            area.remove();
        }
    }
    needed
}

/// Whether a writer is certainly at work.
pub(crate) fn is_at_work(found: &[FoundArea]) -> bool {
    let has_begun = |area: &FoundArea| area.settings().is_ok_and(|settings| settings.is_some());
    found.iter().any(|area| has_begun(area) && is_alive(area))
}

/// What a writer resumes from others.
#[derive(Debug, Default)]
pub(crate) struct Resumed {
    /// Areas whose work is all in `work` or in the dataset: the commit removes them.
    pub(crate) areas: Vec<Receipts>,
    /// Finished shards.
    pub(crate) work: Vec<Receipt>,
    /// Finished episodes that stay where they are, because their ids are taken.
    pub(crate) left: u64,
}

/// Takes over the areas of interrupted writers with these settings, and reads what they have finished.
pub(crate) fn resume(found: Vec<FoundArea>, settings: &Settings, base: &Base) -> Result<Resumed> {
    let (mut areas, mut other) = (Vec::new(), None);
    for area in found {
        let there = area.settings()?;
        if there.as_ref() == Some(settings) {
            areas.extend(area.take_over()?.map(Receipts::of).transpose()?);
        } else if episodes(&area)? > 0 && !is_alive(&area) {
            other = other.or(there.map(|there| (area, there)));
        }
    }
    let taken = Resumed::of(areas, base.ids()?, base)?;
    match other.filter(|_| taken.work.is_empty()) {
        Some((area, there)) => Err(DatasetError::Exists {
            what: format!(
                "{} holds interrupted work with other settings ({}); use the same settings to resume it, or list and remove it with `kinograph gc`",
                area.path().display(),
                differences(settings, &there)
            ),
        }),
        None => Ok(taken),
    }
}

/// The same for a writer whose episodes take the places of others: their ids are not taken, and what is left of other
/// writers does not matter to it.
pub(crate) fn resume_replacing(
    found: Vec<FoundArea>,
    settings: &Settings,
    base: &Base,
) -> Result<Resumed> {
    let left = interrupted(&found);
    let mut areas = Vec::new();
    for area in found {
        if area.settings()?.as_ref() == Some(settings) {
            areas.extend(area.take_over()?.map(Receipts::of).transpose()?);
        }
    }
    let mut taken = Resumed::of(areas, HashSet::new(), base)?;
    let work = taken.work.iter().map(|receipt| receipt.rows.len() as u64);
    taken.left = left.saturating_sub(work.sum());
    Ok(taken)
}

impl Resumed {
    /// What these areas hold, except for episodes whose ids are known.
    fn of(areas: Vec<Receipts>, mut known: HashSet<String>, base: &Base) -> Result<Self> {
        let mut taken = Self::default();
        for area in areas {
            let left = taken.left;
            for receipt in area.read()? {
                if !base.has_shard(&receipt.shard) {
                    taken.add(receipt, &mut known);
                }
            }
            taken.areas.extend((taken.left == left).then_some(area));
        }
        Ok(taken)
    }

    /// Adds a shard, unless the dataset or another shard has an episode with the same id.
    fn add(&mut self, receipt: Receipt, known: &mut HashSet<String>) {
        let ids = receipt.rows.iter().map(|(_, row)| &row.id);
        let mut ids = ids.filter(|id| !id.is_empty());
        if ids.clone().any(|id| known.contains(id)) {
            self.left += receipt.rows.len() as u64;
        } else {
            known.extend(ids.by_ref().cloned());
            self.work.push(receipt);
        }
    }
}

/// Which settings differ, and how.
pub(crate) fn differences(here: &Settings, there: &Settings) -> String {
    let names: std::collections::BTreeSet<_> = here.keys().chain(there.keys()).collect();
    let show = |value: Option<&String>| match value {
        None => "none".to_owned(),
        Some(value) if value.len() > MAX_SHOWN => "another".to_owned(),
        Some(value) => format!("{value:?}"),
    };
    let differing = names
        .into_iter()
        .filter(|name| here.get(*name) != there.get(*name));
    let shown = differing.map(|name| {
        let (here, there) = (show(here.get(name)), show(there.get(name)));
        if here == there {
            format!("{name} differs")
        } else {
            format!("{name} was {there}, now it is {here}")
        }
    });
    shown.collect::<Vec<_>>().join("; ")
}

fn episodes(area: &FoundArea) -> Result<u64> {
    let shards = shards_of(&area.path())?;
    Ok(shards.iter().map(|shard| shard.episodes).sum())
}

/// Whether its writer is running; if that cannot be determined, it is left alone.
fn is_alive(area: &FoundArea) -> bool {
    area.holder()
        .map_or(true, |holder| matches!(holder, Holder::Alive))
}
