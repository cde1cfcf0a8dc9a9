//! Taking up what interrupted writers have finished, and removing the folders of those that had finished nothing.
//!
//! Only under the same settings: half a dataset at 20 Hz and half at 55 is worse than none. What is there already (the
//! commit came through, and the kill after it) is not taken up twice.

use std::collections::HashSet;

use crate::commit::Base;
use crate::error::{DatasetError, Result};
use crate::lease::Holder;
use crate::receipts::{Receipt, Receipts, shards_of};
use crate::staging::{FoundArea, Settings};
use crate::store::Turn;

/// Longer values are named, not shown.
const MAX_SHOWN: usize = 40;

/// How many finished episodes writers have left that are gone, as far as a look can tell.
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

/// What a writer takes up from those before it.
#[derive(Debug, Default)]
pub(crate) struct TakenUp {
    /// Areas whose work is all in `work` or in the dataset: the commit removes them.
    pub(crate) areas: Vec<Receipts>,
    /// Finished shards.
    pub(crate) work: Vec<Receipt>,
    /// Finished episodes that stay where they are, because others have their ids.
    pub(crate) left: u64,
}

/// Takes over the areas of interrupted writers with these settings, and reads what they have finished.
pub(crate) fn take_up(found: Vec<FoundArea>, settings: &Settings, base: &Base) -> Result<TakenUp> {
    let (mut areas, mut other) = (Vec::new(), None);
    for area in found {
        let there = area.settings()?;
        if there.as_ref() == Some(settings) {
            areas.extend(area.take_over()?.map(Receipts::of).transpose()?);
        } else if episodes(&area)? > 0 && !is_alive(&area) {
            other = other.or(there.map(|there| (area, there)));
        }
    }
    let mut taken = TakenUp::default();
    let mut known = base.ids()?;
    for area in areas {
        let left = taken.left;
        for receipt in area.read()? {
            if !base.has_shard(&receipt.shard) {
                taken.add(receipt, &mut known);
            }
        }
        taken.areas.extend((taken.left == left).then_some(area));
    }
    match other.filter(|_| taken.work.is_empty()) {
        Some((area, there)) => Err(DatasetError::Exists {
            what: format!(
                "{} holds work that was interrupted under other settings ({}); repeat those to resume it, or look at it with `kinograph gc` and remove it",
                area.path().display(),
                differences(settings, &there)
            ),
        }),
        None => Ok(taken),
    }
}

impl TakenUp {
    /// Takes up a shard, unless the dataset or another shard has an episode of the same id.
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
fn differences(here: &Settings, there: &Settings) -> String {
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
        match here == there {
            true => format!("{name} differs"),
            false => format!("{name}: {there} there, {here} here"),
        }
    });
    shown.collect::<Vec<_>>().join("; ")
}

fn episodes(area: &FoundArea) -> Result<u64> {
    let shards = shards_of(&area.path())?;
    Ok(shards.iter().map(|shard| shard.episodes).sum())
}

/// Whether its writer is at work; one that cannot be looked at is left alone.
fn is_alive(area: &FoundArea) -> bool {
    area.holder()
        .map_or(true, |holder| matches!(holder, Holder::Alive))
}
