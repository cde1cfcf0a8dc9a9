//! Lineage: what the manifest records about a source, and how an interrupted pack recognises it again.

use std::collections::BTreeMap;

use kino_dataset::SourceRecord;
use serde_json::{Value, json};

use crate::defect::{Defect, OnDefect};
use crate::error::Result;
use crate::files;
use crate::link::LinkOptions;
use crate::preview::disk_bytes;
use crate::source::{Source, SourceInfo};

/// What the manifest records about a source; files that are trusted are not read for their hash.
pub(crate) fn to_record(
    source: &Source,
    defects: &[Defect],
    is_trusted: bool,
) -> Result<SourceRecord> {
    let info = source.describe();
    let mut record = begin_record(source);
    if !is_trusted {
        for (idx, file) in info.files.iter().enumerate() {
            record["files"][idx]["blake3"] = file.read_blake3()?.into();
        }
    }
    add_defects(&mut record, defects);
    Ok(SourceRecord {
        name: names(info),
        attributes: info.attributes.clone(),
        record,
    })
}

/// The record without what takes reading: hashes of files, and defects.
pub(crate) fn begin_record(source: &Source) -> Value {
    let info = source.describe();
    let files = info.files.iter().map(|file| {
        json!({
            "path": file.path().to_string_lossy(),
            "bytes": file.len(),
        })
    });
    json!({
        "format": info.format,
        "importer": format!("kinograph {}", env!("CARGO_PKG_VERSION")),
        "files": files.collect::<Vec<_>>(),
        "bytes": disk_bytes(info),
        "is_part": source.is_part,
    })
}

/// Completes a record.
pub(crate) fn add_defects(record: &mut Value, defects: &[Defect]) {
    record["defects"] = defects.iter().map(Defect::to_json).collect();
}

/// The name of the file, or of the first with the number of others.
pub(crate) fn names(info: &SourceInfo) -> String {
    let first = info.files.first();
    let name = first.map_or(String::new(), |file| files::file_name(file.path()));
    match info.files.len() {
        0 | 1 => name,
        files => format!("{name} and {} more", files - 1),
    }
}

/// What parts of a pack must share, besides the codec plan and how the source was opened: files of the same name, length
/// and time of modification, because no part reads all of them, and every option that decides what is written.
pub(crate) fn part_settings(
    info: &SourceInfo,
    prefix: &str,
    seed: u64,
    on_defect: OnDefect,
) -> BTreeMap<String, String> {
    let mut hasher = blake3::Hasher::new();
    for file in &info.files {
        hasher.update(file.look().as_bytes());
    }
    let hash = hasher.finalize().to_hex();
    to_settings(info, &hash, (prefix, seed, on_defect))
}

fn to_settings(
    info: &SourceInfo,
    hash: &str,
    (prefix, seed, on_defect): (&str, u64, OnDefect),
) -> BTreeMap<String, String> {
    let settings = [
        ("source", format!("{} {}", names(info), &hash[..16])),
        ("format", info.format.to_owned()),
        ("prefix", prefix.to_owned()),
        ("seed", seed.to_string()),
        ("on_defect", on_defect.name().to_owned()),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value));
    settings.into()
}

/// What an interrupted pack must share with the one that resumes it, besides the codec plan and how the source was
/// opened: files of the same content, and every option that decides what is written.
pub(crate) fn settings(
    info: &SourceInfo,
    prefix: &str,
    seed: u64,
    on_defect: OnDefect,
    link: Option<&LinkOptions>,
) -> Result<BTreeMap<String, String>> {
    let mut hasher = blake3::Hasher::new();
    for file in &info.files {
        match link {
            None => hasher.update(file.read_blake3()?.as_bytes()),
            // Reading terabytes before the first episode would double the time of a link.
            Some(_) => hasher.update(file.look().as_bytes()),
        };
    }
    let hash = hasher.finalize().to_hex();
    let linked = link.map(|link| {
        let how = if link.trust { "trusted" } else { "read" };
        let rest = if link.pack_rest { ", rest packed" } else { "" };
        let root = link.root.display();
        ("link".to_owned(), format!("{how} below {root}{rest}"))
    });
    let settings = to_settings(info, &hash, (prefix, seed, on_defect));
    Ok(settings.into_iter().chain(linked).collect())
}
