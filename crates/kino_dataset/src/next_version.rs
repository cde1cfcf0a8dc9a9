//! The contents of the version that a commit is about to publish: rows, statistics, streams and shards.
//!
//! What a new version says depends on the head alone and on what was written, so a commit that was overtaken prepares it
//! again on top of the new head.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::assembler::{Finished, merge_stats};
use crate::attributes::JsonMap;
use crate::commit::{Additions, Head, SourceRecord, label_types};
use crate::error::{DatasetError, Result, invalid};
use crate::hash::Hash;
use crate::links::Links;
use crate::manifest::{FileRef, Manifest, TableRef};
use crate::stats::StreamStats;
use crate::store::{FileKind, Store};
use crate::table::{EpisodeRow, write_table};
use crate::writer_options::Start;
use kino_storage::at_once;

/// Writes the table and the statistics, and returns the manifest that would make them visible.
pub(crate) fn prepare(
    store: &Store,
    head: Option<&Head>,
    start: Start,
    additions: &Additions<'_>,
) -> Result<(Manifest, Vec<u8>, String)> {
    let (finished, known) = (additions.finished, additions.known);
    let replaced = head.filter(|_| start == Start::Replace);
    // A stream that is replaced wherever it is may get another type.
    let is_free = |name: &str| replaced.is_some() && known.changed.contains(name);
    check_types(head, finished, is_free)?;
    let rows = match replaced {
        Some(head) => replaced_rows(head, finished)?,
        None => all_rows(head, finished)?,
    };
    let mut stats = head.map(|head| head.stats.clone()).unwrap_or_default();
    if replaced.is_some() {
        stats.retain(|name, _| !known.changed.contains(name));
    }
    merge_stats(&mut stats, known.stats.clone());
    merge_stats(&mut stats, finished.resumed_stats.clone());
    merge_stats(
        &mut stats,
        finished
            .parts
            .iter()
            .map(|(name, part)| (name.clone(), part.finish()))
            .collect(),
    );
    let (table, stats) = put_files(store, &rows, &stats)?;
    let parent = head.map(|head| (head.manifest.clone(), head.id.clone()));
    let mut manifest = Manifest::next(parent.as_ref(), table, stats, additions.made);
    for source in additions.sources {
        add_source(&mut manifest.attributes, source);
    }
    manifest.attributes.extend(additions.attributes.clone());
    add_streams(&mut manifest, head, start, additions);
    for shard in &finished.shards {
        if !manifest.shards.contains(shard) {
            manifest.shards.push(shard.clone());
        }
    }
    if replaced.is_some() {
        let used: HashSet<Hash> = rows.iter().map(|row| Hash::from(row.shard)).collect();
        manifest.shards.retain(|shard| used.contains(&shard.blake3));
    }
    if let Some(root) = additions.root.filter(|_| !finished.files.is_empty()) {
        let new = |files| Links {
            root: root.to_owned(),
            files,
        };
        let mut links = manifest.links.take();
        let links = links.get_or_insert_with(|| new(Vec::new()));
        links.add(&new(finished.files.clone()))?;
        manifest.link(links.clone());
    }
    let (bytes, id) = manifest.to_bytes()?;
    Ok((manifest, bytes, id))
}

/// Writes the table and the statistics, side by side.
fn put_files(
    store: &Store,
    rows: &[EpisodeRow],
    stats: &BTreeMap<String, StreamStats>,
) -> Result<(TableRef, FileRef)> {
    let table = write_table(rows)?;
    let json = serde_json::to_vec(stats).map_err(|error| invalid(error.to_string()))?;
    let files = [(FileKind::Episodes, &table), (FileKind::Stats, &json)];
    let mut put = at_once(&files, |(kind, bytes)| store.put_hashed(*kind, bytes)).into_iter();
    let mut next = || {
        put.next()
            .unwrap_or_else(|| Err(invalid("nothing was written")))
    };
    let ((table, table_bytes), (stats, stats_bytes)) = (next()?, next()?);
    store.check_conditional_once(&FileKind::Stats.key(&stats), &json)?;
    let table = TableRef {
        blake3: table,
        bytes: table_bytes,
        count: rows.len() as u64,
    };
    let stats = FileRef {
        blake3: stats,
        bytes: stats_bytes,
    };
    Ok((table, stats))
}

/// What the manifest says of the streams: those of the head, and what is new.
fn add_streams(
    manifest: &mut Manifest,
    head: Option<&Head>,
    start: Start,
    additions: &Additions<'_>,
) {
    let known = additions.known;
    let is_counted = |name: &str| start != Start::Replace || known.changed.contains(name);
    let streams = head.iter().flat_map(|head| &head.manifest.streams);
    let mut streams: Vec<_> = streams.cloned().collect();
    let order: Vec<_> = streams.iter().map(|stream| stream.name.clone()).collect();
    if start == Start::Replace {
        streams.retain(|stream| !known.changed.contains(&stream.name));
    }
    additions.finished.usage.add_to(&mut streams, is_counted);
    for stream in &mut streams {
        let protected = known.protected_frames.get(&stream.name);
        stream.protected_frames += protected.copied().unwrap_or(0);
        let encoders = known.encoders.get(&stream.name).into_iter().flatten();
        stream.add_encoders(encoders.cloned());
        if let Some(earlier) = known.resized_from.get(&stream.name) {
            stream.add_earlier_sizes(earlier);
        }
        if let Some(evidence) = known.signal.get(&stream.name) {
            stream.signal = Some(evidence.clone());
        }
        // Episodes may differ: the longest history counts.
        let earlier = known.generations.get(&stream.name);
        if let Some(earlier) = earlier.filter(|earlier| earlier.len() > stream.generations.len()) {
            stream.generations.clone_from(earlier);
        }
    }
    let place = |name: &str| order.iter().position(|known| known == name);
    streams.sort_by_key(|stream| place(&stream.name).unwrap_or(usize::MAX));
    manifest.streams = streams;
}

/// The head's rows, each replaced by the new one with its id if there is one.
fn replaced_rows(head: &Head, finished: &Finished) -> Result<Vec<EpisodeRow>> {
    let rows = finished.rows.iter();
    let mut new: HashMap<&str, &EpisodeRow> = rows.map(|(_, row)| (row.id.as_str(), row)).collect();
    let mut rows = head.table.rows()?;
    for row in &mut rows {
        if let Some(new) = new.remove(row.id.as_str()) {
            *row = new.clone();
        }
    }
    match new.keys().next() {
        None => Ok(rows),
        Some(id) => Err(invalid(format!(
            "episode `{id}` has no place in version {}, whose episodes are replaced",
            head.manifest.version
        ))),
    }
}

/// Refuses streams and labels whose types differ from the head's, which may be newer than the version the writer
/// checked against.
fn check_types(
    head: Option<&Head>,
    finished: &Finished,
    is_free: impl Fn(&str) -> bool,
) -> Result<()> {
    let Some(head) = head else { return Ok(()) };
    let rivals = |what: String| {
        invalid(format!(
            "{what} in version {}, which another writer committed in the meantime; nothing was added. The episodes written here stay in `staging/`; \
             list or remove them with `kinograph gc`",
            head.manifest.version
        ))
    };
    for (name, (kind, frame)) in finished.usage.types()? {
        let mut known = head.manifest.streams.iter();
        if let Some(known) = known.find(|known| known.name == name)
            && !is_free(&name)
            && (known.kind, known.frame_type()?) != (kind, frame.clone())
        {
            let (there, kind_there) = (known.frame_type()?, known.kind.name());
            let kind = kind.name();
            return Err(rivals(format!(
                "stream `{name}` is {kind} {frame} here and {kind_there} {there}"
            )));
        }
    }
    let known = label_types(head)?;
    for (_, row) in &finished.rows {
        for (name, label) in &row.labels {
            let here = label.column_type();
            if let Some(there) = known.get(name).filter(|there| **there != here) {
                return Err(rivals(format!(
                    "label `{name}` is a {here} here and a {there}"
                )));
            }
        }
    }
    Ok(())
}

/// The head's rows, then the new ones; rows without an id get a number.
fn all_rows(head: Option<&Head>, finished: &Finished) -> Result<Vec<EpisodeRow>> {
    let mut new_rows = finished.rows.clone();
    new_rows.sort_by_key(|(position, _)| *position);
    let mut rows = head
        .map(|head| head.table.rows())
        .transpose()?
        .unwrap_or_default();
    let mut ids: HashSet<_> = rows.iter().map(|row| row.id.clone()).collect();
    let given = new_rows.iter().map(|(_, row)| &row.id);
    for id in given.filter(|id| !id.is_empty()) {
        if !ids.insert(id.clone()) {
            return Err(DatasetError::Exists {
                what: format!(
                    "another writer added episode `{id}` in the meantime, and ids must be unique; nothing was added. The episodes written here \
                     stay in `staging/`; list or remove them with `kinograph gc`"
                ),
            });
        }
    }
    for (_, mut row) in new_rows {
        // Its row in the table, or the next free number.
        let mut number = rows.len();
        while row.id.is_empty() {
            let id = format!("episode_{number}");
            number += 1;
            if ids.insert(id.clone()) {
                row.id = id;
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Adds the metadata of a source to the attributes of the dataset.
fn add_source(attributes: &mut JsonMap, source: &SourceRecord) {
    for (name, value) in &source.attributes {
        let is_taken = attributes.get(name).is_some_and(|known| known != value);
        let name = if is_taken {
            format!("{name}@{}", source.name)
        } else {
            name.clone()
        };
        attributes.insert(name, value.clone());
    }
    let sources = attributes
        .entry("sources")
        .or_insert_with(|| serde_json::Value::Array(Vec::new()));
    if let Some(sources) = sources.as_array_mut() {
        sources.push(source.record.clone());
    }
}
