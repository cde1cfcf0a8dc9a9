//! `index.json`: the shards of a dataset, their columns, their lengths and hashes.
//!
//! ```text
//! {version: 2, shards: [{column_names, column_encodings, column_sizes, samples, compression,
//!                        raw_data: {basename, bytes, hashes}, zip_data: the same or null}]}
//! ```

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{ImportError, Result};
use crate::mds::column::Encoding;

/// One column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) encoding: Encoding,
    /// Bytes per value, where every value has as many.
    pub(crate) size: Option<usize>,
}

/// One file of a shard, as it should be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Promise {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// By the name of the algorithm.
    pub(crate) hashes: Vec<(String, String)>,
}

/// One shard.
#[derive(Debug)]
pub(crate) struct ShardInfo {
    pub(crate) columns: Vec<Column>,
    pub(crate) samples: usize,
    pub(crate) raw: Promise,
    pub(crate) packed: Option<Promise>,
    pub(crate) compression: Option<String>,
    /// Which file of the source it is, once that is known to be there.
    pub(crate) file: Option<usize>,
}

/// Parses an index.
pub(crate) fn parse(path: &Path, text: &[u8]) -> Result<Vec<ShardInfo>> {
    let index: Value = serde_json::from_slice(text)
        .map_err(|error| ImportError::corrupt(path, "/", "is not JSON").because(error))?;
    let shards = index["shards"].as_array();
    let shards = shards.ok_or_else(|| ImportError::corrupt(path, "/", "has no list `shards`"))?;
    let shard = |(number, shard): (usize, &Value)| {
        let object = format!("shards[{number}]");
        let format = (&shard["format"], shard["version"].as_u64());
        if format.0 != "mds" || format.1 != Some(2) {
            let what = format!(
                "is of the format {} {}, only mds 2 is read",
                shard["format"], shard["version"]
            );
            let next = "write it again with MDSWriter";
            return Err(ImportError::unsupported(path, &object, &what, next));
        }
        let found = parse_shard(path, shard);
        found.map_err(|what| ImportError::corrupt(path, &object, what))
    };
    shards.iter().enumerate().map(shard).collect()
}

fn parse_shard(path: &Path, shard: &Value) -> Result<ShardInfo, String> {
    let list = |name: &str| {
        shard[name]
            .as_array()
            .ok_or(format!("has no list `{name}`"))
    };
    let (names, encodings) = (list("column_names")?, list("column_encodings")?);
    let sizes = list("column_sizes")?;
    if names.len() != encodings.len() || names.len() != sizes.len() {
        return Err("has lists of columns of different lengths".to_owned());
    }
    let columns = names.iter().zip(encodings).zip(sizes);
    let columns = columns.map(|((name, encoding), size)| {
        let text = |value: &Value| {
            value
                .as_str()
                .map(str::to_owned)
                .ok_or("has a column without a name")
        };
        Ok(Column {
            name: text(name)?,
            encoding: Encoding::parse(&text(encoding)?),
            size: size
                .as_u64()
                .and_then(|size| usize::try_from(size).ok())
                .filter(|&size| size > 0),
        })
    });
    let samples = shard["samples"]
        .as_u64()
        .and_then(|count| usize::try_from(count).ok());
    Ok(ShardInfo {
        columns: columns.collect::<Result<_, String>>()?,
        samples: samples.ok_or("does not say how many samples it has")?,
        raw: promise(path, &shard["raw_data"])?,
        packed: match &shard["zip_data"] {
            Value::Null => None,
            packed => Some(promise(path, packed)?),
        },
        compression: shard["compression"].as_str().map(str::to_owned),
        file: None,
    })
}

fn promise(index: &Path, file: &Value) -> Result<Promise, String> {
    let name = file["basename"]
        .as_str()
        .ok_or("has a file without a name")?;
    // The name is the file's claim: it must not lead out of the folder.
    if name.contains(['/', '\\', '\0']) || matches!(name, "" | "." | "..") {
        return Err(format!(
            "names the file {name:?}, which is not beside the index"
        ));
    }
    let hashes = file["hashes"].as_object().into_iter().flatten();
    Ok(Promise {
        path: index.with_file_name(name),
        bytes: file["bytes"]
            .as_u64()
            .ok_or("has a file without a length")?,
        hashes: hashes
            .filter_map(|(name, hash)| Some((name.clone(), hash.as_str()?.to_owned())))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_out_of_the_folder_is_refused() {
        for name in ["../x.mds", "/etc/passwd", "..", "", "a\\b"] {
            let file = serde_json::json!({"basename": name, "bytes": 1});
            assert!(promise(Path::new("index.json"), &file).is_err(), "{name}");
        }
    }

    #[test]
    fn an_index_that_is_none_is_refused() {
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
