//! The commit of a pack in portions: receipts in, one version out, however often it is run.

use std::collections::BTreeMap;
use std::path::Path;

use rayon::prelude::*;

use super::receipt::Receipt;
use super::{Notes, Portions, names, receipt_of};
use crate::assembler::Finished;
use crate::commit::{Additions, Base, Committed, Known, Made, SourceRecord, commit};
use crate::error::{DatasetError, ErrorKind, Result, corrupt, invalid, not_found};
use crate::manifest::ShardRef;
use crate::read_version::read_head;
use crate::store::{FileKind, Store};
use crate::table::EpisodeRow;
use crate::usage::StreamUsage;
use crate::writer_options::Start;

/// Of missing portions at most this many are listed.
const MOST_LISTED: usize = 20;

/// A version made of portions.
#[derive(Debug, Clone)]
pub struct CommittedPortions {
    /// The version.
    pub committed: Committed,
    /// Whether it had been committed before.
    pub is_repeated: bool,
}

/// What was received of a portion: the importer completes its rows.
#[derive(Debug)]
pub struct Received {
    receipt: Receipt,
    /// Rows of the table, with their positions in the source's order.
    pub rows: Vec<(u64, EpisodeRow)>,
}

impl Received {
    /// What the importer had to say about it.
    pub fn notes(&self) -> &Notes {
        &self.receipt.notes
    }
}

impl Portions {
    /// Reads the receipt of every portion and compares it with the plan. Missing ones are an error that names them.
    pub fn receive(&self) -> Result<Vec<Received>> {
        let missing = self.missing()?;
        if !missing.is_empty() {
            return Err(self.incomplete(&missing));
        }
        let mut first: BTreeMap<usize, String> = BTreeMap::new();
        for name in names(&self.store)? {
            if let Some((portion, _)) = receipt_of(&name, &self.pack) {
                first.entry(portion).or_insert(name);
            }
        }
        let read = |(portion, name): (usize, String)| {
            let receipt = Receipt::read(&self.store, &name)?;
            let plan = self.plan.portion(portion)?;
            let place = || self.store.path(&format!("{}/{name}", super::FOLDER));
            receipt.check(plan).map_err(|what| corrupt(place(), what))?;
            let rows = receipt.rows.read()?;
            Ok(Received { receipt, rows })
        };
        first.into_iter().map(read).collect()
    }

    fn incomplete(&self, missing: &[usize]) -> DatasetError {
        let all = self.plan.portions.len();
        let listed = missing.iter().take(MOST_LISTED);
        let listed: Vec<_> = listed.map(|one| format!("{}/{all}", one + 1)).collect();
        let more = match missing.len().checked_sub(MOST_LISTED) {
            Some(more @ 1..) => format!(" and {more} more"),
            _ => String::new(),
        };
        not_found(format!(
            "{} has no receipt of {} of its {all} portions, and nothing was committed; run the parts that failed again, with the same \
             options, or each missing portion by itself: `--part` {}{more}",
            self.store.root().display(),
            missing.len(),
            listed.join(", "),
        ))
    }

    /// Makes the portions visible as one version; `progress` gets shards checked and shards in all.
    ///
    /// It can be repeated, at the same time or later: the version is made once.
    pub fn commit(
        &self,
        received: Vec<Received>,
        source: Option<SourceRecord>,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<CommittedPortions> {
        let (mut all, mut known) = (Finished::default(), Known::default());
        for Received { receipt, rows } in received {
            let place = self.store.root().display().to_string();
            let parts = receipt.into_finished(rows);
            let damaged = || corrupt(place, "a receipt has statistics that cannot be read");
            let (finished, more) = parts.ok_or_else(damaged)?;
            known.merge(more);
            all.merge(finished);
        }
        if all.rows.is_empty() {
            return Err(invalid(
                "none of the episodes could be stored; a dataset needs at least one",
            ));
        }
        let streams = all.usage.streams().to_vec();
        if let Some(done) = self.committed(&all.shards, &streams)? {
            return Ok(done);
        }
        check_shards(&self.store, &all.shards, progress)?;
        let additions = Additions {
            finished: &all,
            attributes: &self.plan.attributes,
            sources: source.as_slice(),
            known: &known,
            root: None,
            made: Made {
                message: &self.plan.message,
                created: self.begun,
            },
        };
        match commit(&self.store, Base::none(), Start::New, &additions) {
            Ok(committed) => Ok(CommittedPortions {
                committed: Committed {
                    streams,
                    ..committed
                },
                is_repeated: false,
            }),
            // Another process may have committed the same, or this one, if the reply was lost.
            Err(error) => self.committed(&all.shards, &streams)?.ok_or(error),
        }
    }

    /// The version that has exactly these shards, if it is there.
    fn committed(
        &self,
        shards: &[ShardRef],
        streams: &[StreamUsage],
    ) -> Result<Option<CommittedPortions>> {
        let Some(head) = read_head(&self.store)? else {
            return Ok(None);
        };
        let manifest = &head.manifest;
        if !shards.iter().all(|shard| manifest.shards.contains(shard)) {
            return Err(DatasetError::Exists {
                what: format!(
                    "{} already contains another dataset of {} episodes, so these parts cannot become one there; pack them to another path",
                    self.store.root().display(),
                    head.table.len()
                ),
            });
        }
        Ok(Some(CommittedPortions {
            committed: Committed {
                version: manifest.version,
                id: head.id.clone(),
                episodes: shards.iter().map(|shard| shard.episodes).sum(),
                streams: streams.to_vec(),
            },
            is_repeated: true,
        }))
    }
}

/// Reads every shard again and compares it with its hash, several at a time.
fn check_shards(
    store: &Store,
    shards: &[ShardRef],
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<()> {
    let checked = std::sync::atomic::AtomicUsize::new(0);
    shards.par_iter().try_for_each(|shard| {
        let key = FileKind::Shard.key(&shard.blake3);
        let lost = |what: &str| {
            corrupt(
                store.path(&key),
                format!("{what}; remove it and the receipt in {} that names {}, pack that part again, and commit again",
                    super::FOLDER, shard.blake3.to_hex()),
            )
        };
        match store.size(&key) {
            Ok(bytes) if bytes == shard.bytes => {}
            Ok(_) => return Err(lost("it has another length than its receipt says")),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(lost("it is missing, although its receipt is there"));
            }
            Err(error) => return Err(error),
        }
        if store.hash(&key, shard.bytes)? != shard.blake3 {
            return Err(lost("its bytes are not those it was written with"));
        }
        let done = checked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        progress(done, shards.len());
        Ok(())
    })
}

/// The number of portions in a folder, finished and in all, with their bytes before encoding; `None` if there are none.
///
/// From names alone: for progress over many machines.
pub fn portions_progress(path: &Path) -> Result<Option<PortionsProgress>> {
    let Some(portions) = Portions::find(path)? else {
        return Ok(None);
    };
    let finished = portions.finished()?;
    let plans = portions.plan.portions.iter();
    let done = finished
        .iter()
        .filter_map(|&one| portions.plan.portions.get(one));
    let bytes = |sum: u64, plan: &super::PortionPlan| sum.saturating_add(plan.bytes);
    Ok(Some(PortionsProgress {
        portions: (finished.len(), plans.len()),
        bytes: (done.fold(0, bytes), plans.fold(0, bytes)),
        missing: portions.missing()?,
    }))
}

/// How far a pack in portions is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortionsProgress {
    /// Portions finished, and in all.
    pub portions: (usize, usize),
    /// Their bytes before encoding.
    pub bytes: (u64, u64),
    /// Those that are missing, counted from 0.
    pub missing: Vec<usize>,
}
