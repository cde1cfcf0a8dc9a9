//! `index.json`: the shards of a dataset, their columns, their lengths and hashes.
//!
//! ```text
//! {version: 2, shards: [{column_names, column_encodings, column_sizes, samples, compression,
//!                        raw_data: {basename, bytes, hashes}, zip_data: the same or null}]}
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{ImportError, Result};
use crate::mds::column::Encoding;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) encoding: Encoding,
    /// Bytes per value, if fixed.
    pub(crate) size: Option<usize>,
}

/// One file of a shard, as the index describes it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Promise {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// By the name of the algorithm.
    pub(crate) hashes: Vec<(String, String)>,
}

#[derive(Debug)]
pub(crate) struct ShardInfo {
    pub(crate) columns: Vec<Column>,
    pub(crate) samples: usize,
    pub(crate) raw: Promise,
    pub(crate) packed: Option<Promise>,
    pub(crate) compression: Option<String>,
    /// Its number among the shards of the source.
    pub(crate) number: usize,
    /// The index of its source file, once it is known to exist.
    pub(crate) file: Option<usize>,
}

/// The index file. Only used fields are kept: generic JSON values of a long index would take many times its size.
#[derive(Deserialize)]
struct Index {
    shards: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    format: String,
    version: u64,
    #[serde(default)]
    column_names: Vec<String>,
    #[serde(default)]
    column_encodings: Vec<String>,
    #[serde(default)]
    column_sizes: Vec<Option<u64>>,
    samples: Option<usize>,
    raw_data: Option<FileEntry>,
    zip_data: Option<FileEntry>,
    compression: Option<String>,
}

#[derive(Deserialize)]
struct FileEntry {
    basename: String,
    bytes: u64,
    #[serde(default)]
    hashes: BTreeMap<String, String>,
}

pub(crate) fn parse(path: &Path, text: &[u8]) -> Result<Vec<ShardInfo>> {
    let index: Result<Index, _> = serde_json::from_slice(text);
    let what = "is not an MDS index";
    let index = index.map_err(|error| ImportError::corrupt(path, "/", what).because(error))?;
    let shard = |(number, shard): (usize, Entry)| {
        let object = format!("shards[{number}]");
        if shard.format != "mds" || shard.version != 2 {
            let what = format!(
                "has the format {:?} {}; only mds 2 is supported",
                shard.format, shard.version
            );
            let next = "rewrite it with MDSWriter";
            return Err(ImportError::unsupported(path, &object, &what, next));
        }
        let found = parse_shard(path, shard);
        found.map_err(|what| ImportError::corrupt(path, &object, what))
    };
    index.shards.into_iter().enumerate().map(shard).collect()
}

fn parse_shard(path: &Path, shard: Entry) -> Result<ShardInfo, String> {
    let (names, sizes) = (shard.column_names, shard.column_sizes);
    let encodings = shard.column_encodings;
    if names.len() != encodings.len() || names.len() != sizes.len() {
        return Err("has lists of columns of different lengths".to_owned());
    }
    let columns = names.into_iter().zip(encodings).zip(sizes);
    let columns = columns.map(|((name, encoding), size)| Column {
        name,
        encoding: Encoding::parse(&encoding),
        size: size
            .and_then(|size| usize::try_from(size).ok())
            .filter(|&size| size > 0),
    });
    let samples = shard.samples;
    let raw = shard.raw_data.ok_or("has no `raw_data`")?;
    Ok(ShardInfo {
        columns: columns.collect(),
        samples: samples.ok_or("does not specify its number of samples")?,
        raw: promise(path, raw)?,
        packed: shard
            .zip_data
            .map(|packed| promise(path, packed))
            .transpose()?,
        compression: shard.compression,
        number: 0,
        file: None,
    })
}

fn promise(index: &Path, file: FileEntry) -> Result<Promise, String> {
    let name = file.basename;
    // The name is untrusted: it must not lead out of the folder.
    if name.contains(['/', '\\', '\0']) || matches!(&*name, "" | "." | "..") {
        return Err(format!(
            "names the file {name:?}, which is not beside the index"
        ));
    }
    Ok(Promise {
        path: index.with_file_name(name),
        bytes: file.bytes,
        hashes: file.hashes.into_iter().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_out_of_the_folder_is_refused() {
        for name in ["../x.mds", "/etc/passwd", "..", "", "a\\b"] {
            let file = FileEntry {
                basename: name.to_owned(),
                bytes: 1,
                hashes: BTreeMap::new(),
            };
            assert!(promise(Path::new("index.json"), file).is_err(), "{name}");
        }
    }

    #[test]
    fn an_invalid_index_is_refused() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"shards": [1]}"#,
            r#"{"shards": [{"format": "mds", "version": 2}]}"#,
        ] {
            assert!(
                parse(Path::new("index.json"), text.as_bytes()).is_err(),
                "{text}"
            );
        }
    }
}
