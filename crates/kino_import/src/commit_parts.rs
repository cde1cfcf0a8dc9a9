//! The commit of a pack in parts: what every portion noted about the source becomes what the manifest says about it.

use std::collections::BTreeMap;
use std::path::Path;

use kino_dataset::{Portions, SourceRecord};

use crate::error::{Result, invalid};
use crate::lineage::add_defects;
use crate::needless_loss;
use crate::pack::Packed;
use crate::pack_parts::{PortionNotes, SourcePlan};
use crate::survey::Looked;

/// Makes all parts of a pack visible as one version, once; `progress` gets shards checked and shards in all. The flag says
/// whether it had been committed before.
pub fn commit_parts(
    target: &Path,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<(Packed, bool)> {
    let portions = Portions::find(target)?.ok_or_else(|| {
        invalid(format!(
            "{} has no parts to commit; pack them with `kinograph pack SOURCE {} --part 1/N` to `--part N/N`",
            target.display(),
            target.display()
        ))
    })?;
    let damaged = |error: serde_json::Error| {
        invalid(format!(
            "{}: its parts cannot be read: {error}",
            target.display()
        ))
    };
    if portions.plan().source.is_null() {
        return commit_repack(&portions, progress);
    }
    let plan: SourcePlan =
        serde_json::from_value(portions.plan().source.clone()).map_err(damaged)?;
    let mut received = portions.receive()?;
    let notes = received.iter().map(|one| one.notes().clone());
    let mut notes: Vec<PortionNotes> = notes
        .map(serde_json::from_value)
        .collect::<Result<_, _>>()
        .map_err(damaged)?;
    let mut hashes: BTreeMap<usize, String> = BTreeMap::new();
    for note in &mut notes {
        hashes.append(&mut note.hashes);
    }
    for (one, note) in received.iter_mut().zip(&notes) {
        for ((_, row), file) in one.rows.iter_mut().zip(&note.files) {
            row.source_hash = hashes.get(file).cloned();
        }
    }
    let mut found: Vec<_> = notes
        .iter_mut()
        .flat_map(|note| note.found.drain(..))
        .collect();
    found.sort_by_key(|(episode, _)| *episode);
    let mut defects = Looked {
        before: plan.before,
        found,
        after: plan.after,
    }
    .into_defects();
    defects.extend(notes.into_iter().flat_map(|note| note.dropped));
    let mut record = plan.record;
    for (idx, hash) in hashes {
        record["files"][idx]["blake3"] = hash.into();
    }
    add_defects(&mut record, &defects);
    let source_bytes = record["bytes"].as_u64().unwrap_or(0);
    let source = SourceRecord {
        name: plan.name,
        attributes: plan.attributes,
        record,
    };
    let done = portions.commit(received, Some(source), progress)?;
    defects.extend(needless_loss::notes(&done.committed.streams));
    defects.extend(plan.notes);
    let packed = Packed {
        committed: done.committed,
        resumed: 0,
        interrupted: 0,
        shifts: 0,
        defects,
        source_bytes,
    };
    Ok((packed, done.is_repeated))
}

/// The same for parts of a repack, which has no source but a dataset.
fn commit_repack(
    portions: &Portions,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<(Packed, bool)> {
    let done = portions.commit(portions.receive()?, None, progress)?;
    let packed = Packed {
        committed: done.committed,
        resumed: 0,
        interrupted: 0,
        shifts: 0,
        defects: Vec::new(),
        source_bytes: 0,
    };
    Ok((packed, done.is_repeated))
}
