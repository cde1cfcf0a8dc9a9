//! One episode: its index, its streams, its attributes.

use std::ops::Range;
use std::sync::Arc;

use kino_codec::Scratch;
use kino_format::{
    DirectoryEntry, EpisodeIndex, PageRecord, Schema, Shard, StreamSchema, page_checksum,
};

use crate::attributes::{self, JsonMap, Kept};
use crate::dataset::Dataset;
use crate::error::{Result, corrupt, format_at, not_found};
use crate::events::Protected;
use crate::hash::Hash;
use crate::links::{Checksums, Fetch};
use crate::read_size::ReadSize;
use crate::stream::Stream;
use crate::window::suggest;

/// One episode of a dataset. Cheap to clone; holds its index but no frames.
#[derive(Debug, Clone)]
pub struct Episode {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    dataset: Dataset,
    row: usize,
    id: String,
    /// The shard's key and the episode's first byte in it.
    key: String,
    start: u64,
    index: EpisodeIndex,
    schema: Arc<Schema>,
    /// Those of linked pages that the index does not have.
    checksums: Checksums,
}

/// Where an episode is, by the directory of its shard.
#[derive(Debug)]
pub(crate) struct Found {
    row: usize,
    pub(crate) key: String,
    hash: Hash,
    slot: usize,
    shard: Arc<Shard>,
    entry: DirectoryEntry,
}

impl Found {
    /// Finds the episode at `row` of the table; opens its shard.
    pub(crate) fn find(dataset: &Dataset, row: usize) -> Result<Self> {
        let table = dataset.table();
        let hash = Hash::from(table.shard(row).copied().unwrap_or_default());
        let slot = table.slot(row).unwrap_or(u32::MAX) as usize;
        let (shard, key) = dataset.shard(&hash)?;
        let place = || {
            let id = table.id(row).unwrap_or_default();
            format!("{}, episode `{id}`", dataset.store().path(&key))
        };
        let Some(&entry) = shard.episodes().get(slot) else {
            let there = shard.episodes().len();
            return Err(corrupt(
                place(),
                format!("the table refers to slot {slot}, but the shard has {there} episodes"),
            ));
        };
        // Checksums only hold within a shard; this detects a shard in the place of another.
        if !table.has_hash(row, &entry.hash) {
            return Err(corrupt(
                place(),
                "its hash is not the one in the episode table",
            ));
        }
        Ok(Self {
            row,
            key,
            hash,
            slot,
            shard,
            entry,
        })
    }

    /// The bytes of its index in the shard.
    pub(crate) fn index_range(&self) -> Range<u64> {
        self.entry.index_range()
    }
}

impl Episode {
    pub(crate) fn open(dataset: &Dataset, row: usize) -> Result<Self> {
        let found = Found::find(dataset, row)?;
        let bytes = dataset
            .store()
            .read_range(&found.key, found.index_range())?;
        Self::of(dataset, found, &bytes)
    }

    /// An episode that was found, from the bytes of its index.
    pub(crate) fn of(dataset: &Dataset, found: Found, index: &[u8]) -> Result<Self> {
        let Found {
            row,
            key,
            hash,
            slot,
            shard,
            entry,
        } = found;
        let id = dataset.table().id(row).unwrap_or_default().to_owned();
        let place = || format!("{}, episode `{id}`", dataset.store().path(&key));
        let index = shard
            .episode_index(slot, index.to_vec())
            .map_err(|error| format_at(place())(error))?;
        let checksums = Checksums::open(dataset.store(), &hash, slot, &index);
        Ok(Self {
            inner: Arc::new(Inner {
                dataset: dataset.clone(),
                row,
                id,
                key,
                start: entry.start,
                index,
                schema: Arc::clone(shard.schema()),
                checksums,
            }),
        })
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Its row in the table.
    pub fn row(&self) -> usize {
        self.inner.row
    }

    /// The dataset it is part of.
    pub(crate) fn dataset(&self) -> &Dataset {
        &self.inner.dataset
    }

    /// Whether it has a frame of this stream.
    pub(crate) fn has_frames(&self, name: &str) -> bool {
        let position = self.streams().position(|stream| stream.name == name);
        position.is_some_and(|position| self.inner.index.stream(position).frames > 0)
    }

    /// Where its index says that pages lie.
    pub fn index(&self) -> &EpisodeIndex {
        &self.inner.index
    }

    /// Its streams, in stored order.
    pub fn streams(&self) -> impl Iterator<Item = &StreamSchema> {
        let positions = (0..self.inner.index.stream_count())
            .map(|idx| self.inner.index.stream(idx).stream as usize);
        positions.filter_map(|position| self.inner.schema.streams.get(position))
    }

    /// The stream with this name.
    pub fn stream(&self, name: &str) -> Result<Stream> {
        match self.streams().position(|stream| stream.name == name) {
            Some(position) => Stream::open(self.clone(), position),
            None => {
                let there: Vec<_> = self.streams().map(|stream| stream.name.as_str()).collect();
                Err(not_found(format!(
                    "episode `{}` has no stream `{name:.255}`; {}",
                    self.id(),
                    suggest(name, &there)
                )))
            }
        }
    }

    /// Its attributes, as given by the source.
    pub fn read_attributes(&self) -> Result<JsonMap> {
        Ok(self
            .read_kept()?
            .map(|kept| kept.attributes)
            .unwrap_or_default())
    }

    /// The time ranges around events, whose frames are bit-exact in the streams that protect them.
    pub fn read_protected(&self) -> Result<Vec<Protected>> {
        Ok(self
            .read_kept()?
            .map(|kept| kept.protected)
            .unwrap_or_default())
    }

    /// The rules by which events were detected, in the form of a plan.
    pub fn read_events(&self) -> Result<Vec<serde_json::Value>> {
        Ok(self
            .read_kept()?
            .map(|kept| kept.events)
            .unwrap_or_default())
    }

    fn read_kept(&self) -> Result<Option<Kept>> {
        let Some(page) = self.inner.index.attributes() else {
            return Ok(None);
        };
        let place = self.place("attributes");
        let bytes = self.read_page(&page, &place)?;
        let kept = attributes::decode(&place, &bytes, &mut Scratch::new())?;
        // An episode without an id was numbered by the commit; only the table has that number.
        if !kept.id.is_empty() && kept.id != self.id() {
            let what = format!("the attributes belong to episode `{}`", kept.id);
            return Err(corrupt(place, what));
        }
        Ok(Some(kept))
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.inner.schema
    }

    /// The earliest time of any stream: second 0 of the episode.
    pub fn start_ns(&self) -> i64 {
        self.inner
            .dataset
            .table()
            .start_ns(self.inner.row)
            .unwrap_or(0)
    }

    /// Shard, episode and `part`, for messages.
    pub(crate) fn place(&self, part: &str) -> String {
        format!(
            "{}, episode `{}`, {part}",
            self.inner.dataset.store().path(&self.inner.key),
            self.inner.id
        )
    }

    /// Reads consecutive pages, as one run of bytes from the first to the end of the last.
    pub(crate) fn read_pages(&self, first: &PageRecord, last: &PageRecord) -> Result<bytes::Bytes> {
        let range = first.offset()..last.offset() + u64::from(last.len);
        if range.start >= self.inner.index.linked_start() && !range.is_empty() {
            return self.fetch()?.read(range);
        }
        let start = self.inner.start + range.start;
        let end = self.inner.start + range.end;
        self.inner
            .dataset
            .store()
            .read_range(&self.inner.key, start..end)
    }

    /// How much of its pages is best read at once.
    pub(crate) fn read_size(&self) -> ReadSize {
        self.inner.dataset.store().read_size()
    }

    /// Bytes of a read that are not wanted: gaps between pages.
    pub(crate) fn count_unused(&self, bytes: u64) {
        self.inner.dataset.store().count_unused(bytes);
    }

    /// Whether its pages come over a network.
    pub(crate) fn is_remote(&self) -> bool {
        self.inner.dataset.is_remote()
    }

    /// Forgets what is cached of consecutive pages, because their bytes cannot be right.
    pub(crate) fn distrust(&self, first: &PageRecord, last: &PageRecord) {
        let range = self.inner.start + first.offset()
            ..self.inner.start + last.offset() + u64::from(last.len);
        self.inner.dataset.store().distrust(&self.inner.key, range);
    }

    /// Reads one page and checks it.
    pub(crate) fn read_page(&self, page: &PageRecord, place: &str) -> Result<bytes::Bytes> {
        let bytes = self.read_pages(page, page)?;
        self.check_page(page, &bytes, || place.to_owned())?;
        Ok(bytes)
    }

    /// Verifies a page's checksum; its place is only formatted on a mismatch.
    pub(crate) fn check_page(
        &self,
        page: &PageRecord,
        bytes: &[u8],
        place: impl FnOnce() -> String,
    ) -> Result<()> {
        let computed = page_checksum(bytes);
        if page.offset() >= self.inner.index.linked_start() && !bytes.is_empty() {
            return self.check_linked(page, computed, place);
        }
        if computed != page.crc {
            let start = self.inner.start + page.offset();
            let end = start + u64::from(page.len);
            let what = format!(
                "bytes {start}..{end} have checksum {computed:08x} instead of {:08x}",
                page.crc
            );
            return Err(corrupt(place(), what));
        }
        Ok(())
    }

    /// The same for a page that is in other files.
    fn check_linked(
        &self,
        page: &PageRecord,
        computed: u32,
        place: impl FnOnce() -> String,
    ) -> Result<()> {
        let Inner {
            index, checksums, ..
        } = &*self.inner;
        let expected = checksums.expected(index, page, computed);
        if computed == expected {
            return Ok(());
        }
        let file = self.fetch()?.place(page.offset()).unwrap_or_default();
        let since = if index.has_checksum(page) {
            "it was linked"
        } else {
            "it was first read"
        };
        let what = format!(
            "{} bytes of the linked file {file} were changed after {since}: their checksum is {computed:08x} instead of \
             {expected:08x}",
            page.len
        );
        Err(corrupt(place(), what))
    }

    fn fetch(&self) -> Result<Fetch<'_>> {
        let inner = &*self.inner;
        let unlisted = || corrupt(self.place("index"), "the manifest lists no linked files");
        Ok(Fetch {
            store: inner.dataset.store(),
            files: inner.dataset.links().ok_or_else(unlisted)?,
            index: &inner.index,
            schema: &inner.schema,
            checksums: &inner.checksums,
            key: &inner.key,
            start: inner.start,
        })
    }
}
