//! Which episodes: by split, by row or id, and by a filter on the episode table.
//!
//! ```text
//! {"splits": ["train"], "episodes": ["ep-03", "ep-01"], "filter": "success and has(\"wrist\")"}
//!   in any of them        in this order                  every condition holds
//! ```
//!
//! What is not given does not restrict. The order is that of `episodes`, otherwise that of the table.

mod condition;
mod filter;

use std::collections::{BTreeSet, HashSet};

use serde::{Deserialize, Deserializer, Serialize};

use crate::dataset::Dataset;
use crate::error::{Result, invalid, not_found};
use crate::table::{Column, EpisodeTable};

/// How many values an error lists.
const LISTED: usize = 20;

/// A choice of episodes; the default is all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Selection {
    /// Episodes in any of these splits; empty for all. In JSON a list or one name.
    #[serde(alias = "split", deserialize_with = "one_or_many")]
    pub splits: Vec<String>,
    /// These episodes, in this order.
    pub episodes: Option<Episodes>,
    /// Conditions on columns of the table and on streams, joined by `and`.
    pub filter: Option<String>,
}

/// A list of episodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "`episodes` is a list of rows or a list of ids")]
pub enum Episodes {
    /// By row of the table.
    Rows(Vec<u64>),
    /// By id.
    Ids(Vec<String>),
}

impl Selection {
    /// Parses a selection from JSON; unknown options are refused.
    pub fn from_json(json: &str) -> Result<Self> {
        serde_json::from_str(json)
            .map_err(|error| invalid(format!("cannot parse the selection: {error}")))
    }

    /// The rows of the selected episodes; no row is an error that says which condition removed the last.
    pub fn rows(&self, dataset: &Dataset) -> Result<Vec<u32>> {
        let table = dataset.table();
        let mut rows = match &self.episodes {
            None => (0..table.len())
                .filter_map(|row| u32::try_from(row).ok())
                .collect(),
            Some(episodes) => listed(episodes, table)?,
        };
        if rows.is_empty() {
            let what = if table.is_empty() {
                "the dataset has no episode"
            } else {
                "`episodes` is an empty list; omit it to select all"
            };
            return Err(invalid(what));
        }
        if !self.splits.is_empty() {
            self.keep_splits(table, &mut rows)?;
        }
        if let Some(filter) = &self.filter {
            filter::keep(filter, dataset, &mut rows)?;
        }
        Ok(rows)
    }

    fn keep_splits(&self, table: &EpisodeTable, rows: &mut Vec<u32>) -> Result<()> {
        let Column::TextList(splits) = table.column("splits")? else {
            return Err(invalid("column `splits` does not hold lists"));
        };
        let known: BTreeSet<&str> = splits.iter().flatten().map(String::as_str).collect();
        if let Some(unknown) = self
            .splits
            .iter()
            .find(|name| !known.contains(name.as_str()))
        {
            let known: Vec<&str> = known.into_iter().collect();
            let there = crate::window::suggest(unknown, &known);
            return Err(not_found(format!(
                "there is no split `{unknown:.255}`; {there}"
            )));
        }
        let is_in = |row: &u32| {
            let of_row = splits.get(*row as usize);
            of_row.is_some_and(|of_row| of_row.iter().any(|split| self.splits.contains(split)))
        };
        rows.retain(is_in);
        if rows.is_empty() {
            Err(invalid(format!(
                "none of the listed episodes is in split {}",
                self.splits.join(", ")
            )))
        } else {
            Ok(())
        }
    }
}

/// The rows of a list; unknown and repeated ones are refused.
fn listed(episodes: &Episodes, table: &EpisodeTable) -> Result<Vec<u32>> {
    let mut seen = HashSet::new();
    let mut rows = Vec::new();
    let mut add = |row: usize, name: &dyn Fn() -> String| {
        if !seen.insert(row) {
            let name = name();
            return Err(invalid(format!(
                "episode {name} is listed twice; list each episode once"
            )));
        }
        rows.extend(u32::try_from(row));
        Ok(())
    };
    match episodes {
        Episodes::Rows(wanted) => {
            for &wanted in wanted {
                let row = usize::try_from(wanted)
                    .ok()
                    .filter(|&row| row < table.len());
                let row = row.ok_or_else(|| {
                    not_found(format!(
                        "there is no episode {wanted}; the dataset has {} episodes, the nearest valid index is {}",
                        table.len(),
                        table.len().saturating_sub(1)
                    ))
                })?;
                add(row, &|| wanted.to_string())?;
            }
        }
        Episodes::Ids(wanted) => {
            for id in wanted {
                let row = table.find(id).ok_or_else(|| {
                    let some: Vec<&str> = (0..table.len().min(LISTED))
                        .filter_map(|row| table.id(row))
                        .collect();
                    not_found(format!(
                        "there is no episode `{id:.255}`; {} of {} ids",
                        crate::window::suggest(id, &some),
                        table.len()
                    ))
                })?;
                add(row, &|| format!("`{id}`"))?;
            }
        }
    }
    Ok(rows)
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a split is a name or a list of names")]
    enum SplitsJson {
        One(String),
        Many(Vec<String>),
    }
    Ok(match SplitsJson::deserialize(deserializer)? {
        SplitsJson::One(name) => vec![name],
        SplitsJson::Many(names) => names,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_parsed_from_short_json() {
        let parse = Selection::from_json;
        assert_eq!(parse("{}").unwrap(), Selection::default());
        let full =
            parse(r#"{"split": "train", "episodes": ["b", "a"], "filter": "success"}"#).unwrap();
        assert_eq!(full.splits, ["train"]);
        assert_eq!(
            full.episodes,
            Some(Episodes::Ids(vec!["b".to_owned(), "a".to_owned()]))
        );
        let rows = parse(r#"{"splits": ["train", "valid"], "episodes": [3, 1]}"#).unwrap();
        assert_eq!(rows.episodes, Some(Episodes::Rows(vec![3, 1])));
        for (json, says) in [
            (r#"{"spilt": "train"}"#, "spilt"),
            (r#"{"episodes": [-1]}"#, "list of rows or a list of ids"),
            (r#"{"splits": 3}"#, "a split is a name"),
        ] {
            let error = parse(json).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
