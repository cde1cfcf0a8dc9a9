//! Writing a shard: pages as they arrive, an index after each episode, the directory at the end.
//!
//! The writer appends to a buffer that its caller may drain to a file at any time; positions are
//! counted here, so the buffer may be emptied between any two calls.
//!
//! ```text
//! new ─▶ ( page* ─▶ linked_page* ─▶ end_episode )* ─▶ finish
//! ```
//!
//! Linked pages come last in an episode, and only in a shard that [`ShardWriter::linked`] began.

use crate::error::{Result, limit};
use crate::index::{EpisodeIndex, to_u32};
use crate::layout::{
    ALIGN, DIRECTORY_ENTRY_LEN, FOOTER_LEN, FOOTER_MAGIC, FORMAT_VERSION, HEADER_LEN, HEADER_MAGIC,
    INDEX_MAGIC, MAX_EPISODES, MAX_PAGE_BYTES, MAX_SCHEMA_BYTES, PACKED_VERSION, align_up,
    page_checksum,
};
use crate::open::DirectoryEntry;
use crate::pieces::{self, PieceRecord};
use crate::records::{ClockRecord, NONE, PageRecord, StreamRecord};
use crate::schema::Schema;

/// A shard that is being written.
#[derive(Debug)]
pub struct ShardWriter {
    /// The format version, and the lowest reader version: there is no reason to state a higher one.
    version: u16,
    position: u64,
    directory: Vec<DirectoryEntry>,
    episode_start: u64,
    pages: Vec<PageRecord>,
    links: Links,
    hasher: blake3::Hasher,
    /// The schema of the last episode, which later ones may only extend: indexes refer to it by position.
    schema: Option<Schema>,
}

/// The linked pages of the current episode.
#[derive(Debug, Default)]
struct Links {
    pages: usize,
    pieces: Vec<PieceRecord>,
    is_unchecked: bool,
    /// Where the next one would be if it were stored, from the episode's start.
    next: u64,
}

/// A page whose bytes are elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct LinkedPage<'a> {
    /// What it consists of, in order.
    pub pieces: &'a [PieceBytes<'a>],
    /// Its first frame.
    pub first_frame: u32,
    /// The CRC32C of its bytes, if they were read. An episode knows it of all its linked pages or of none.
    pub crc: Option<u32>,
}

/// A piece of a linked page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PieceBytes<'a> {
    /// Bytes that are stored in the shard.
    Stored(&'a [u8]),
    /// A range of a file.
    File {
        /// Position among the files of the schema.
        file: u32,
        /// Its first byte.
        offset: u64,
        /// Its length.
        len: u32,
    },
}

impl PieceBytes<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Stored(bytes) => bytes.len() as u64,
            Self::File { len, .. } => u64::from(*len),
        }
    }
}

/// A finished episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpisodeSummary {
    /// Its position in the shard.
    pub slot: usize,
    /// Its pages and index, in bytes.
    pub bytes: u64,
    /// BLAKE3 of these bytes.
    pub hash: [u8; 32],
}

/// What the index of an episode says about its clocks and streams.
#[derive(Debug, Clone, Copy)]
pub struct EpisodeRecords<'a> {
    /// Its clocks.
    pub clocks: &'a [ClockRecord],
    /// Its streams.
    pub streams: &'a [StreamRecord],
    /// The page of its attributes, or [`NONE`].
    pub attributes_page: u32,
}

impl<'a> EpisodeRecords<'a> {
    /// Records of an episode without attributes.
    pub fn new(clocks: &'a [ClockRecord], streams: &'a [StreamRecord]) -> Self {
        Self {
            clocks,
            streams,
            attributes_page: NONE,
        }
    }
}

impl ShardWriter {
    /// Starts a shard: appends the header to `out`.
    pub fn new(out: &mut Vec<u8>) -> Self {
        Self::start(PACKED_VERSION, out)
    }

    /// Starts a shard in which pages may be linked, for readers of a higher version.
    pub fn linked(out: &mut Vec<u8>) -> Self {
        Self::start(FORMAT_VERSION, out)
    }

    fn start(version: u16, out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend(HEADER_MAGIC);
        out.extend(version.to_le_bytes());
        out.extend(version.to_le_bytes());
        out.extend([0; 16]);
        let crc = page_checksum(&out[start..]);
        out.extend(crc.to_le_bytes());
        Self {
            version,
            position: HEADER_LEN as u64,
            directory: Vec::new(),
            episode_start: HEADER_LEN as u64,
            pages: Vec::new(),
            links: Links::default(),
            hasher: blake3::Hasher::new(),
            schema: None,
        }
    }

    /// Bytes written so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Episodes finished so far.
    pub fn episodes(&self) -> usize {
        self.directory.len()
    }

    /// Appends a page of the current episode to `out` and returns its number.
    pub fn page(&mut self, bytes: &[u8], first_frame: u32, out: &mut Vec<u8>) -> Result<u32> {
        if self.links.pages > 0 {
            return Err(limit("a page follows linked ones, which must be the last"));
        }
        let offset = self.position - self.episode_start;
        let record = page_record(offset, bytes.len() as u64, first_frame)?;
        let crc = page_checksum(bytes);
        let number = self.add_page(PageRecord { crc, ..record })?;
        self.append(bytes, out);
        Ok(number)
    }

    /// Adds a page of the current episode whose bytes are elsewhere, after all others, and returns its number. Pieces
    /// that are stored are appended to `out`.
    pub fn linked_page(&mut self, page: &LinkedPage<'_>, out: &mut Vec<u8>) -> Result<u32> {
        if self.version < FORMAT_VERSION {
            return Err(limit("readers of this shard do not know linked pages"));
        }
        let is_unchecked = page.crc.is_none();
        if self.links.pages == 0 {
            self.links.next = self.position - self.episode_start;
            self.links.is_unchecked = is_unchecked;
        } else if self.links.is_unchecked != is_unchecked {
            return Err(limit("only some linked pages of an episode have checksums"));
        }
        let lens = page.pieces.iter().map(PieceBytes::len);
        let len = lens.fold(0, u64::saturating_add);
        let record = page_record(self.links.next, len, page.first_frame)?;
        let crc = page.crc.unwrap_or(0);
        let number = self.add_page(PageRecord { crc, ..record })?;
        for piece in page.pieces {
            let record = match *piece {
                PieceBytes::File { file, offset, len } => PieceRecord { offset, len, file },
                PieceBytes::Stored(bytes) => {
                    let offset = self.position - self.episode_start;
                    let len = to_u32(bytes.len())?;
                    self.append(bytes, out);
                    let file = NONE;
                    PieceRecord { offset, len, file }
                }
            };
            self.links.pieces.push(record);
        }
        self.links.pages += 1;
        // It cannot overflow: the offset of the page was below 32 GiB.
        self.links.next = align_up(self.links.next + len).unwrap_or(u64::MAX);
        Ok(number)
    }

    fn add_page(&mut self, record: PageRecord) -> Result<u32> {
        let number = to_u32(self.pages.len())?;
        self.pages.push(record);
        Ok(number)
    }

    /// Ends the current episode: appends its index to `out`. The schema may still grow afterwards.
    ///
    /// An error leaves everything unchanged: fix the records, or abandon the episode.
    pub fn end_episode(
        &mut self,
        records: &EpisodeRecords<'_>,
        schema: &Schema,
        out: &mut Vec<u8>,
    ) -> Result<EpisodeSummary> {
        if self.directory.len() >= MAX_EPISODES {
            return Err(limit(format!(
                "a shard holds at most {MAX_EPISODES} episodes; start a new shard"
            )));
        }
        self.check_growth(schema)?;
        let EpisodeRecords {
            clocks,
            streams,
            attributes_page,
        } = records;
        let mut index = Vec::new();
        index.extend(INDEX_MAGIC);
        for count in [clocks.len(), streams.len(), self.pages.len()] {
            index.extend(to_u32(count)?.to_le_bytes());
        }
        index.extend(attributes_page.to_le_bytes());
        let links = &self.links;
        pieces::counts(links.pages, links.pieces.len(), links.is_unchecked)?.write(&mut index);
        clocks.iter().for_each(|clock| clock.write(&mut index));
        streams.iter().for_each(|stream| stream.write(&mut index));
        self.pages.iter().for_each(|page| page.write(&mut index));
        links
            .pieces
            .iter()
            .for_each(|piece| piece.write(&mut index));

        let pages_len = self.position - self.episode_start;
        let index_len = u32::try_from(index.len())
            .map_err(|_| limit("an episode index exceeds 4 GiB; split the episode"))?;
        // The reader's own checks, before anything depends on the episode.
        let index = EpisodeIndex::parse(index, pages_len, schema)?;
        let index_crc = page_checksum(index.as_bytes());
        self.append(index.as_bytes(), out);
        let hash = *self.hasher.finalize().as_bytes();
        let entry = DirectoryEntry {
            start: self.episode_start,
            pages_len,
            index_len,
            index_crc,
            hash,
        };
        let summary = EpisodeSummary {
            slot: self.directory.len(),
            bytes: self.position - entry.start,
            hash,
        };
        self.directory.push(entry);
        if self.schema.as_ref() != Some(schema) {
            self.schema = Some(schema.clone());
        }
        self.episode_start = self.position;
        self.pages.clear();
        self.links = Links::default();
        self.hasher.reset();
        Ok(summary)
    }

    /// Takes over the unfinished episode of `other`, which then has none; the caller moves its bytes, which are the
    /// same in any shard. This shard must not have an unfinished episode.
    pub fn take_episode(&mut self, other: &mut Self) {
        debug_assert!(self.pages.is_empty(), "two unfinished episodes");
        self.position += other.position - other.episode_start;
        std::mem::swap(&mut self.pages, &mut other.pages);
        std::mem::swap(&mut self.links, &mut other.links);
        std::mem::swap(&mut self.hasher, &mut other.hasher);
        other.abandon_episode();
    }

    /// Rolls back to the end of the last episode; the caller truncates its file to [`position`](Self::position).
    pub fn abandon_episode(&mut self) {
        self.position = self.episode_start;
        self.pages.clear();
        self.links = Links::default();
        self.hasher.reset();
    }

    /// Ends the shard: appends schema, directory and footer to `out` and returns the file's length.
    pub fn finish(mut self, schema: &Schema, out: &mut Vec<u8>) -> Result<u64> {
        if !self.pages.is_empty() {
            return Err(limit(
                "an episode was neither ended nor abandoned; its pages would be lost",
            ));
        }
        self.check_growth(schema)?;
        let text = schema.to_bytes()?;
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(limit(format!(
                "a schema has {} bytes, at most {MAX_SCHEMA_BYTES} are allowed",
                text.len()
            )));
        }
        let mut directory = Vec::with_capacity(self.directory.len() * DIRECTORY_ENTRY_LEN);
        self.directory
            .iter()
            .for_each(|entry| entry.write(&mut directory));
        let schema_start = self.position;
        self.append(&text, out);
        self.append(&directory, out);
        let file_len = self.position + FOOTER_LEN as u64;

        let start = out.len();
        out.extend(file_len.to_le_bytes());
        out.extend(schema_start.to_le_bytes());
        out.extend(to_u32(text.len())?.to_le_bytes());
        out.extend(page_checksum(&text).to_le_bytes());
        out.extend(to_u32(self.directory.len())?.to_le_bytes());
        out.extend(page_checksum(&directory).to_le_bytes());
        out.extend(self.version.to_le_bytes());
        out.extend(self.version.to_le_bytes());
        out.extend([0; 16]);
        let crc = page_checksum(&out[start..]);
        out.extend(crc.to_le_bytes());
        out.extend(FOOTER_MAGIC);
        debug_assert_eq!(
            out.len() - start,
            FOOTER_LEN,
            "the footer has its fixed length"
        );
        Ok(file_len)
    }

    /// Rejects a schema that readers would reject, or that would change the meaning of earlier episodes.
    fn check_growth(&self, schema: &Schema) -> Result<()> {
        if self.schema.as_ref() == Some(schema) {
            return Ok(());
        }
        schema.check()?;
        let extends = self.schema.as_ref().is_none_or(|known| {
            known.clock_codec == schema.clock_codec
                && schema.streams.starts_with(&known.streams)
                && schema.files.starts_with(&known.files)
        });
        if extends {
            Ok(())
        } else {
            Err(limit(
                "the schema of earlier episodes was changed; streams may only be appended",
            ))
        }
    }

    /// Appends a part and its zero padding.
    fn append(&mut self, part: &[u8], out: &mut Vec<u8>) {
        const ZEROS: [u8; 8] = [0; 8];
        let padding = part.len().next_multiple_of(ZEROS.len()) - part.len();
        for bytes in [part, &ZEROS[..padding]] {
            out.extend_from_slice(bytes);
            self.hasher.update(bytes);
        }
        self.position += (part.len() + padding) as u64;
    }
}

/// The record of a page of this length, without its checksum.
fn page_record(offset: u64, len: u64, first_frame: u32) -> Result<PageRecord> {
    let stored = u32::try_from(len).ok();
    let stored = stored.filter(|&len| len as usize <= MAX_PAGE_BYTES);
    let len = stored.ok_or_else(|| {
        limit(format!(
            "a page has {len} bytes, at most {MAX_PAGE_BYTES} are allowed"
        ))
    })?;
    let offset_units = u32::try_from(offset / ALIGN)
        .map_err(|_| limit("an episode exceeds 32 GiB; split it into several"))?;
    Ok(PageRecord {
        offset_units,
        len,
        first_frame,
        crc: 0,
    })
}
