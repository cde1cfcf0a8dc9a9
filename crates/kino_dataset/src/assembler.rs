//! Appends pages to shards in the order they arrive, and counts what the finished shards hold. Every finished shard
//! gets a receipt.
//!
//! ```text
//! portion 0                  portion 1           …      no shard holds episodes of two portions
//! shard  shard  small shard  shard  small shard
//! └───── counted ──────────┘ └─── counted ────┘ …      then added up, portion by portion
//! ```
//!
//! What is counted of a portion depends on its episodes alone, so it may be counted on another machine
//! (`portions/mod.rs`) and the sums are the same to the last bit. A writer that is told of no portions has one.

use std::collections::BTreeMap;

use crate::draft::EpisodeDraft;
use crate::encode::Packed;
use crate::encode_queue::Run;
use crate::error::Result;
use crate::links::LinkedFile;
use crate::manifest::ShardRef;
use crate::receipts::{Receipt, Receipts};
use crate::shard_file::{Contents, RunPages, ShardFile, ShardKind};
use crate::staging::Area;
use crate::stats::{StatsPart, StreamStats};
use crate::table::EpisodeRow;
use crate::usage::Usage;

/// Appends pages to shards in the order they arrive.
#[derive(Debug)]
pub(crate) struct Assembler {
    shard_bytes: u64,
    /// Whether pages of new shards may be linked.
    kind: ShardKind,
    file: Option<ShardFile>,
    runs: Vec<(Run, RunPages)>,
    /// The portion of the last episode, and what its finished shards hold.
    portion: u64,
    current: Finished,
    /// What the portions before hold.
    finished: Finished,
    /// The last field, so that its folder is removed after the file in it.
    receipts: Receipts,
}

/// Everything that was written: what a commit makes visible.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    pub(crate) shards: Vec<ShardRef>,
    /// Rows with their position in the source's order.
    pub(crate) rows: Vec<(u64, EpisodeRow)>,
    pub(crate) usage: Usage,
    /// Statistics of newly written shards, mergeable without loss.
    pub(crate) parts: BTreeMap<String, StatsPart>,
    /// Statistics of shards resumed from an interrupted pack.
    pub(crate) resumed_stats: BTreeMap<String, StreamStats>,
    /// The files that pages are linked to; a file may be listed once per shard.
    pub(crate) files: Vec<LinkedFile>,
}

impl Assembler {
    pub(crate) fn new(receipts: Receipts, shard_bytes: u64, kind: ShardKind) -> Self {
        Self {
            shard_bytes,
            kind,
            file: None,
            runs: Vec::new(),
            portion: 0,
            current: Finished::default(),
            finished: Finished::default(),
            receipts,
        }
    }

    /// The folder for unfinished work.
    pub(crate) fn area(&self) -> &Area {
        self.receipts.area()
    }

    /// Counts a shard that an interrupted pack had finished.
    pub(crate) fn resume(&mut self, receipt: Receipt) {
        self.finished.shards.push(receipt.shard);
        self.finished.rows.extend(receipt.rows);
        self.finished.usage.merge(receipt.usage);
        merge_stats(&mut self.finished.resumed_stats, receipt.stats);
        self.finished.files.extend(receipt.files);
    }

    /// Appends the pages of a block.
    pub(crate) fn pages(&mut self, run: Run, first_frame: u32, packed: Packed) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(ShardFile::new(self.receipts.area(), self.kind)?),
        };
        if self.runs.last().is_none_or(|(last, _)| *last != run) {
            self.runs.push((run, RunPages::default()));
        }
        let Some((_, pages)) = self.runs.last_mut() else {
            return Ok(());
        };
        if !packed.encoded.shared.is_empty() {
            pages.shared_page = file.page(&packed.encoded.shared, 0)?;
            pages.bytes += packed.encoded.shared.len() as u64;
        }
        let (first_linked, mut first_frame) = (first_frame, first_frame);
        for page in &packed.encoded.pages {
            let number = file.page(&page.bytes, first_frame)?;
            if pages.page_count == 0 {
                pages.first_page = number;
            }
            pages.page_count += 1;
            pages.bytes += page.bytes.len() as u64;
            first_frame += u32::try_from(page.frames).unwrap_or(u32::MAX);
        }
        pages.first_frame.get_or_insert(first_linked);
        for page in packed.linked {
            pages.bytes += page.bytes();
            pages.linked_bytes += page.bytes();
            pages.linked.push(page);
        }
        pages.error.merge(packed.error);
        pages.encoder = packed.encoder.or(pages.encoder.take());
        pages.encode_time += packed.encode_time;
        pages.decode_time += packed.decode_time;
        match (&mut pages.stats, packed.stats) {
            (Some(stats), Some(more)) => stats.merge(more),
            (stats, more) => *stats = stats.take().or(more),
        }
        Ok(())
    }

    /// Ends the episode: its index follows its pages, and a full shard is closed.
    pub(crate) fn end_episode(&mut self, draft: EpisodeDraft) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(ShardFile::new(self.receipts.area(), self.kind)?),
        };
        let portion = draft.info.portion;
        // The number of streams in a schema is limited, and a shard is of one portion: start the next shard with this
        // episode.
        let is_full = portion != self.portion || !file.has_room_for(&draft);
        if is_full && !file.is_empty() {
            let next = file.move_episode(self.receipts.area())?;
            self.finish_shard()?;
            self.file = Some(next);
        }
        if portion != self.portion {
            self.finished.merge(std::mem::take(&mut self.current));
            self.portion = portion;
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        file.end_episode(draft, std::mem::take(&mut self.runs))?;
        if file.position() >= self.shard_bytes {
            self.finish_shard()?;
        }
        Ok(())
    }

    /// Rolls back to the end of the last complete episode.
    pub(crate) fn abandon_episode(&mut self) -> Result<()> {
        self.runs.clear();
        self.file
            .as_mut()
            .map_or(Ok(()), ShardFile::abandon_episode)
    }

    /// Closes the last shard and returns everything that was written, and the receipts, to be removed after the commit.
    pub(crate) fn finish(mut self) -> Result<(Finished, Receipts)> {
        self.finish_shard()?;
        self.finished.merge(self.current);
        Ok((self.finished, self.receipts))
    }

    fn finish_shard(&mut self) -> Result<()> {
        let Some(file) = self.file.take().filter(|file| !file.is_empty()) else {
            return Ok(());
        };
        let (shard, contents) = file.publish(self.receipts.area().store())?;
        let Contents {
            mut rows,
            usage,
            parts,
            files,
        } = contents;
        for (_, row) in &mut rows {
            row.shard = *shard.blake3.as_bytes();
        }
        let stats = parts
            .iter()
            .map(|(name, part)| (name.clone(), part.finish()))
            .collect();
        let receipt = Receipt {
            shard: shard.clone(),
            rows,
            usage: usage.clone(),
            stats,
            files,
        };
        self.receipts.write(&receipt)?;
        self.current.merge(Finished {
            shards: vec![shard],
            rows: receipt.rows,
            usage,
            parts,
            resumed_stats: BTreeMap::new(),
            files: receipt.files,
        });
        Ok(())
    }
}

impl Finished {
    /// Adds what comes after it.
    pub(crate) fn merge(&mut self, later: Self) {
        self.shards.extend(later.shards);
        self.rows.extend(later.rows);
        self.files.extend(later.files);
        self.usage.merge(later.usage);
        merge_stats(&mut self.resumed_stats, later.resumed_stats);
        for (name, part) in later.parts {
            match self.parts.get_mut(&name) {
                Some(known) => known.merge(part),
                None => drop(self.parts.insert(name, part)),
            }
        }
    }
}

/// Merges the statistics of streams by name.
pub(crate) fn merge_stats(
    into: &mut BTreeMap<String, StreamStats>,
    from: BTreeMap<String, StreamStats>,
) {
    for (name, stats) in from {
        let merged = into
            .get(&name)
            .and_then(|known| known.merge(&stats))
            .unwrap_or(stats);
        into.insert(name, merged);
    }
}
