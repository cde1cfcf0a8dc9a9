//! Lineage: what the manifest records about a source, and how an interrupted pack recognises it again.

use std::collections::BTreeMap;

use kino_dataset::SourceRecord;
use serde_json::json;

use crate::defect::{Defect, OnDefect};
use crate::error::Result;
use crate::files;
use crate::preview::disk_bytes;
use crate::source::{Source, SourceInfo};

/// What the manifest records about a source.
pub(crate) fn to_record(source: &Source, defects: &[Defect]) -> Result<SourceRecord> {
    let info = source.describe();
    let mut files = Vec::new();
    for file in &info.files {
        files.push(json!({
            "path": file.path().to_string_lossy(),
            "bytes": file.len(),
            "blake3": file.read_blake3()?,
        }));
    }
    let defects: Vec<_> = defects.iter().map(Defect::to_json).collect();
    Ok(SourceRecord {
        name: names(info),
        attributes: info.attributes.clone(),
        record: json!({
            "format": info.format,
            "importer": format!("kinograph {}", env!("CARGO_PKG_VERSION")),
            "files": files,
            "bytes": disk_bytes(info),
            "is_part": source.is_part,
            "defects": defects,
        }),
    })
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

/// What an interrupted pack must share with the one that resumes it, besides the codec plan and how the source was
/// opened: files of the same content, and every option that decides what is written.
pub(crate) fn settings(
    info: &SourceInfo,
    prefix: &str,
    seed: u64,
    on_defect: OnDefect,
) -> Result<BTreeMap<String, String>> {
    let mut hasher = blake3::Hasher::new();
    for file in &info.files {
        hasher.update(file.read_blake3()?.as_bytes());
    }
    let hash = hasher.finalize().to_hex();
    let settings = [
        ("source", format!("{} {}", names(info), &hash[..16])),
        ("format", info.format.to_owned()),
        ("prefix", prefix.to_owned()),
        ("seed", seed.to_string()),
        ("on_defect", on_defect.name().to_owned()),
    ];
    Ok(settings
        .map(|(name, value)| (name.to_owned(), value))
        .into())
}
