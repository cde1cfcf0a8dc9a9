//! Portions of a pack: made by any number of processes on any number of machines, and committed once.
//!
//! ```text
//! demos.kino/
//!   portions/pack.json                    which pack this folder is for, and when its first process began
//!   portions/<pack>.json                  the plan of the pack: its settings, and the episodes of every portion
//!   portions/<pack>-000012-<hash>.json    the receipt of portion 12: all that a commit needs to know of its shards
//!   shards/<hash>.kshard                  its shards, which no version lists yet
//! ```
//!
//! `<pack>` is a hash of the plan of the pack, and `pack.json` is only created if absent. So processes that were given the
//! same source and options find each other's receipts, in a folder or below a URL, and those that were not are refused with
//! what differs. A portion is a function of that plan: every process that writes it, however often, writes the same shards
//! and the same receipt. Nothing coordinates the processes, and nothing is renewed; one that dies leaves its portion to the
//! next.
//!
//! The commit needs the receipts alone. It compares them with the plan and the shards, adds up what was counted in the
//! order of the portions, and makes one version. Nothing here is removed but by
//! [`collect_garbage`](crate::collect_garbage): a commit whose reply was lost can be repeated.

mod commit;
mod cut;
mod pack_plan;
mod receipt;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::commit::Base;
use crate::error::{DatasetError, Result, corrupt, invalid};
use crate::hash::Hash;
use crate::manifest::ShardRef;
use crate::store::Store;
use crate::target::has_other_files;
use crate::writer::DatasetWriter;
use crate::writer_options::{WriterOptions, parse_time, to_time};

pub use commit::{CommittedPortions, PortionsProgress, Received, portions_progress};
pub use cut::cut_portions;
pub use pack_plan::{EpisodePlan, PackPlan, PortionPlan};
pub use receipt::PortionWork;
use receipt::{Receipt, to_name};

/// The folder of plans and receipts.
pub(crate) const FOLDER: &str = "portions";

/// The file that says which pack the folder is for.
const BEGUN: &str = "pack.json";

/// Upper limit of the size of a plan or a receipt.
const MAX_BYTES: u64 = 1 << 30;

/// A pack in portions, in progress or committed.
#[derive(Debug)]
pub struct Portions {
    store: Store,
    /// The hash of its plan.
    pack: String,
    plan: PackPlan,
    begun: SystemTime,
}

/// The contents of `pack.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Begun {
    pack: String,
    created: String,
}

impl Portions {
    /// Begins a pack in the folder `path`, or joins those who have begun it. Another pack, or a dataset that this one did
    /// not make, is refused.
    pub fn begin(path: &Path, plan: PackPlan, created: Option<SystemTime>) -> Result<Self> {
        let store = Store::create(path)?;
        let (text, pack) = plan.to_text()?;
        let begun = match Begun::read(&store)? {
            Some(begun) => begun,
            None => {
                check_empty(&store)?;
                // The plan first: a process that finds its hash finds the plan.
                store.put_new(&format!("{FOLDER}/{pack}.json"), text.as_bytes())?;
                let begun = Begun {
                    pack: pack.clone(),
                    created: to_time(created.unwrap_or_else(SystemTime::now)),
                };
                let text = serde_json::to_vec(&begun).map_err(to_invalid)?;
                // Of two processes that begin at once one creates it.
                store.put_new(&format!("{FOLDER}/{BEGUN}"), &text)?;
                Begun::read(&store)?.unwrap_or(begun)
            }
        };
        if begun.pack != pack {
            let other = PackPlan::read(&store, &begun.pack)?;
            return Err(DatasetError::Exists {
                what: format!(
                    "{} has parts of another pack ({}); pack every part with the same source, options and version of kinograph, or list and \
                     remove what is there with `kinograph gc`",
                    store.root().display(),
                    other.differences(&plan)
                ),
            });
        }
        Self::read(store, &begun)
    }

    /// The pack in portions that a folder holds; `None` if there is none.
    pub fn find(path: &Path) -> Result<Option<Self>> {
        let store = Store::open(path)?;
        let begun = Begun::read(&store)?;
        begun.map(|begun| Self::read(store, &begun)).transpose()
    }

    fn read(store: Store, begun: &Begun) -> Result<Self> {
        Ok(Self {
            plan: PackPlan::read(&store, &begun.pack)?,
            pack: begun.pack.clone(),
            begun: parse_time(&begun.created)?,
            store,
        })
    }

    /// What is packed, and how.
    pub fn plan(&self) -> &PackPlan {
        &self.plan
    }

    /// The portions that have a receipt, from names alone.
    pub fn finished(&self) -> Result<BTreeSet<usize>> {
        let names = names(&self.store)?;
        let receipts = names.iter().filter_map(|name| receipt_of(name, &self.pack));
        Ok(receipts.map(|(portion, _)| portion).collect())
    }

    /// A writer for one portion, which no reader sees.
    pub fn writer(&self, options: WriterOptions) -> Result<DatasetWriter> {
        options.check()?;
        DatasetWriter::open_portion(self.store.clone(), options)
    }

    /// Closes the shards of a portion and writes its receipt; `work` says what became of its episodes.
    pub fn finish(&self, portion: usize, writer: DatasetWriter, work: PortionWork) -> Result<()> {
        let (finished, known) = writer.finish_portion()?;
        let receipt = Receipt::new(&self.pack, portion, (finished, known), work)?;
        receipt
            .check(self.plan.portion(portion)?)
            .map_err(|what| invalid(format!("portion {portion} differs from its plan: {what}")))?;
        let text = serde_json::to_vec(&receipt).map_err(to_invalid)?;
        let name = to_name(&self.pack, portion, &Hash::of(&text));
        self.store.put_new(&format!("{FOLDER}/{name}"), &text)?;
        Ok(())
    }

    /// Which portions have no receipt.
    pub fn missing(&self) -> Result<Vec<usize>> {
        let finished = self.finished()?;
        let all = 0..self.plan.portions.len();
        Ok(all.filter(|portion| !finished.contains(portion)).collect())
    }
}

impl Begun {
    fn read(store: &Store) -> Result<Option<Self>> {
        let key = format!("{FOLDER}/{BEGUN}");
        let text = match store.read(&key, MAX_BYTES) {
            Err(DatasetError::NotFound { .. }) => return Ok(None),
            text => text?,
        };
        let wrong = |what: String| {
            let what = format!("{what}; list and remove the parts here with `kinograph gc`");
            corrupt(store.path(&key), what)
        };
        let begun: Self =
            serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        // It becomes part of a file name.
        if is_hex(&begun.pack, 16) {
            Ok(Some(begun))
        } else {
            Err(wrong("it names no pack".to_owned()))
        }
    }
}

/// Refuses a folder with a dataset, or with other files.
fn check_empty(store: &Store) -> Result<()> {
    let (base, root) = (Base::read(store)?, store.root().display());
    let what = if !base.is_new() {
        format!(
            "{root} already contains a dataset of {} episodes, and a pack in parts makes a new one; choose another path",
            base.len()
        )
    } else if !store.is_remote() && has_other_files(store.root())? {
        format!("{root} is not empty and is not a dataset; choose another path")
    } else {
        return Ok(());
    };
    Err(DatasetError::Exists { what })
}

/// A process's share of the portions: `--part 3/64` writes portions 2, 66, 130, …
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartOf {
    part: usize,
    parts: usize,
}

impl PartOf {
    /// Part `part` of `parts`, counted from 1.
    pub fn new(part: usize, parts: usize) -> Result<Self> {
        if part == 0 || part > parts {
            return Err(invalid(format!(
                "part {part}/{parts} does not exist; parts are 1/{parts} to {parts}/{parts}, counted from 1"
            )));
        }
        Ok(Self { part, parts })
    }

    /// How many parts there are.
    pub fn parts(self) -> usize {
        self.parts
    }

    /// Whether it is the first.
    pub fn is_first(self) -> bool {
        self.part == 1
    }

    /// Whether this process writes that portion.
    pub fn has(self, portion: usize) -> bool {
        portion % self.parts == self.part - 1
    }
}

impl std::fmt::Display for PartOf {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.part, self.parts)
    }
}

impl std::str::FromStr for PartOf {
    type Err = DatasetError;

    fn from_str(text: &str) -> Result<Self> {
        let numbers = text.split_once('/');
        let numbers =
            numbers.and_then(|(part, parts)| Some((part.parse().ok()?, parts.parse().ok()?)));
        let (part, parts) = numbers.ok_or_else(|| {
            invalid(format!(
                "{text:?} is not a part; write it as 3/64, the third of 64"
            ))
        })?;
        Self::new(part, parts)
    }
}

/// What collecting garbage must know about a pack in portions.
#[derive(Debug)]
pub(crate) struct BegunPack {
    pub(crate) settings: BTreeMap<String, String>,
    /// The shards of its receipts.
    pub(crate) shards: Vec<ShardRef>,
    /// Its files below the root.
    pub(crate) keys: Vec<String>,
}

/// The pack in portions of a dataset; receipts that are damaged are skipped.
pub(crate) fn begun_pack(store: &Store) -> Result<Option<BegunPack>> {
    // One that is damaged is garbage.
    let Some(Begun { pack, .. }) = Begun::read(store).ok().flatten() else {
        return Ok(None);
    };
    let names = names(store)?;
    let own = names
        .iter()
        .filter(|name| name.starts_with(&pack) || *name == BEGUN);
    let receipts = names
        .iter()
        .filter(|name| receipt_of(name, &pack).is_some());
    let receipts = receipts.filter_map(|name| Receipt::read(store, name).ok());
    let plan = PackPlan::read(store, &pack);
    Ok(Some(BegunPack {
        settings: plan.map_or_else(|_| BTreeMap::new(), |plan| plan.settings),
        shards: receipts.flat_map(|receipt| receipt.shards).collect(),
        keys: own.map(|name| format!("{FOLDER}/{name}")).collect(),
    }))
}

/// Whether a folder holds parts of a pack.
pub(crate) fn has_parts(store: &Store) -> Result<bool> {
    Ok(Begun::read(store)?.is_some())
}

/// The names in the folder, sorted.
fn names(store: &Store) -> Result<Vec<String>> {
    let entries = store.list(FOLDER)?;
    let mut names: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort_unstable();
    Ok(names)
}

/// The portion and the hash in the name of a receipt of this pack.
fn receipt_of<'n>(name: &'n str, pack: &str) -> Option<(usize, &'n str)> {
    let rest = name.strip_prefix(pack)?.strip_prefix('-')?;
    let (portion, hash) = rest.strip_suffix(".json")?.split_once('-')?;
    let portion = portion.parse().ok()?;
    is_hex(hash, 32).then_some((portion, hash))
}

/// Whether a file of this name is made here.
pub(crate) fn is_portion_file(name: &str) -> bool {
    let pack = name.get(..16).unwrap_or_default();
    let is_plan = name.get(16..) == Some(".json");
    name == BEGUN || is_hex(pack, 16) && (is_plan || receipt_of(name, pack).is_some())
}

fn is_hex(text: &str, len: usize) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == len && text.bytes().all(is_digit)
}

fn to_invalid(error: serde_json::Error) -> DatasetError {
    invalid(error.to_string())
}

/// What an importer keeps in a receipt for the commit: dropped episodes, defects, hashes of files.
pub type Notes = Value;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_any_number_share_the_portions_without_rest() {
        for parts in 1..9 {
            for portion in 0..40 {
                let all = (1..=parts).map(|part| PartOf::new(part, parts).unwrap());
                assert_eq!(all.filter(|part| part.has(portion)).count(), 1);
            }
        }
        assert_eq!(
            "3/64".parse::<PartOf>().unwrap(),
            PartOf::new(3, 64).unwrap()
        );
        for text in ["0/3", "4/3", "3", "3/", "/3", "a/b", "-1/3", "1/0"] {
            assert!(text.parse::<PartOf>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_names_of_receipts_are_receipts() {
        let (pack, hash) = ("0123456789abcdef", "0123456789abcdef0123456789abcdef");
        let name = format!("{pack}-000012-{hash}.json");
        assert_eq!(receipt_of(&name, pack), Some((12, hash)));
        for name in [
            format!("{pack}.json"),
            BEGUN.to_owned(),
            format!("{pack}-000012-{hash}.json#1"),
            format!("{pack}-x-{hash}.json"),
            format!("{pack}-000012-{}.json", &hash[1..]),
        ] {
            assert_eq!(receipt_of(&name, pack), None, "{name}");
        }
    }
}
