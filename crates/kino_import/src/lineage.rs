//! Where a dataset comes from: what the manifest keeps of a source, and by what an interrupted pack knows it again.

use serde_json::{Map, Value, json};

use crate::defect::Defect;
use crate::error::Result;
use crate::source::SourceInfo;

/// What the manifest keeps of a source. Where the dataset has another value of the same name already, that
/// stays and this one is kept as `<name>@<file>`.
pub(crate) fn to_attributes(
    info: &SourceInfo,
    known: Option<&Map<String, Value>>,
    defects: &[Defect],
) -> Result<Map<String, Value>> {
    let known = |name: &str| known.and_then(|known| known.get(name));
    let mut attributes = Map::new();
    for (name, value) in &info.attributes {
        let is_taken = known(name).is_some_and(|known| known != value);
        let name = match is_taken {
            true => format!("{name}@{}", names(info)),
            false => name.clone(),
        };
        attributes.insert(name, value.clone());
    }
    let mut files = Vec::new();
    for file in &info.files {
        files.push(json!({
            "path": file.path().to_string_lossy(),
            "bytes": file.len(),
            "blake3": file.read_blake3()?,
        }));
    }
    let defects: Vec<_> = defects.iter().map(Defect::to_json).collect();
    let mut sources = match known("sources") {
        Some(Value::Array(sources)) => sources.clone(),
        _ => Vec::new(),
    };
    sources.push(json!({
        "format": info.format,
        "importer": format!("kinograph {}", env!("CARGO_PKG_VERSION")),
        "files": files,
        "defects": defects,
    }));
    attributes.insert("sources".to_owned(), Value::Array(sources));
    Ok(attributes)
}

/// The name of the file, or of the first and how many more there are.
pub(crate) fn names(info: &SourceInfo) -> String {
    let name = info.files.first().and_then(|file| file.path().file_name());
    let name = name.unwrap_or_default().to_string_lossy();
    match info.files.len() {
        0 | 1 => name.into_owned(),
        files => format!("{name} and {} more", files - 1),
    }
}

/// An interrupted pack is taken up only for files of the same content.
pub(crate) fn resume_key(info: &SourceInfo, key: &str) -> Result<String> {
    let mut parts = vec![key, info.format];
    for file in &info.files {
        parts.push(file.read_blake3()?);
    }
    Ok(parts.join(" "))
}
