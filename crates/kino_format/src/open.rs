//! Opening a shard: a state machine that requests byte ranges and is fed bytes.
//!
//! ```text
//! directory entry  56 B  u64 start | u64 pages_len | u32 index_len | u32 index_crc | 32 B blake3
//! ```
//!
//! One read from the end usually contains footer, directory and schema; a large directory takes a second read.
//!
//! ```
//! use kino_format::{OpenShard, Step};
//! # let mut bytes = Vec::new();
//! # let writer = kino_format::ShardWriter::new(&mut bytes);
//! # let schema = kino_format::Schema { clock_codec: "raw".into(), ..Default::default() };
//! # writer.finish(&schema, &mut bytes)?;
//! let mut opening = OpenShard::new(bytes.len() as u64)?;
//! let shard = loop {
//!     match opening.step()? {
//!         Step::Need(range) => opening.feed(&bytes[range.start as usize..range.end as usize]),
//!         Step::Ready(shard) => break shard,
//!     }
//! };
//! assert_eq!(shard.episodes().len(), 0);
//! # Ok::<(), kino_format::FormatError>(())
//! ```

use std::ops::Range;
use std::sync::Arc;

use crate::ends::{Footer, Versions};
use crate::error::{FormatError, Result, invalid};
use crate::index::EpisodeIndex;
use crate::layout::{Cursor, DIRECTORY_ENTRY_LEN, FOOTER_LEN, HEADER_LEN, PACKED_VERSION, verify};
use crate::schema::Schema;

/// Size of the first read: enough for about a thousand episodes.
const SUFFIX: u64 = 64 << 10;

/// What an opening shard needs next.
#[derive(Debug)]
pub enum Step {
    /// The bytes of this range of the file, to be passed to [`OpenShard::feed`].
    Need(Range<u64>),
    /// Nothing: the shard is open.
    Ready(Shard),
}

/// A shard that is being opened.
#[derive(Debug)]
pub struct OpenShard {
    file_len: u64,
    asked: Range<u64>,
    bytes: Option<Vec<u8>>,
}

/// An open shard: its schema and the location of its episodes. Holds no pages.
#[derive(Debug, Clone)]
pub struct Shard {
    schema: Arc<Schema>,
    episodes: Vec<DirectoryEntry>,
    tail_start: u64,
    file_len: u64,
    pub(crate) versions: Versions,
}

/// Where one episode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// First byte of the episode.
    pub start: u64,
    /// Bytes of pages, a multiple of 8; the index follows them.
    pub pages_len: u64,
    /// Bytes of index.
    pub index_len: u32,
    /// CRC32C of the index.
    pub index_crc: u32,
    /// BLAKE3 of pages and index: the identity of the episode, wherever it is stored.
    pub hash: [u8; 32],
}

impl DirectoryEntry {
    /// The byte range of the index in the shard.
    pub fn index_range(&self) -> Range<u64> {
        let start = self.start + self.pages_len;
        start..start + u64::from(self.index_len)
    }

    /// The byte range of pages and index in the shard.
    pub fn range(&self) -> Range<u64> {
        self.start..self.index_range().end
    }

    fn parse(bytes: &[u8]) -> Self {
        let mut cursor = Cursor::new(bytes);
        Self {
            start: cursor.u64(),
            pages_len: cursor.u64(),
            index_len: cursor.u32(),
            index_crc: cursor.u32(),
            hash: cursor.array(),
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.start.to_le_bytes());
        out.extend(self.pages_len.to_le_bytes());
        out.extend(self.index_len.to_le_bytes());
        out.extend(self.index_crc.to_le_bytes());
        out.extend(self.hash);
    }

    /// One past the episode's last byte, with every addition checked: the fields are untrusted.
    fn checked_end(&self) -> Option<u64> {
        self.start
            .checked_add(self.pages_len)?
            .checked_add(u64::from(self.index_len))
    }
}

impl OpenShard {
    /// Starts to open a shard of `file_len` bytes.
    pub fn new(file_len: u64) -> Result<Self> {
        let need = (HEADER_LEN + FOOTER_LEN) as u64;
        if file_len < need {
            return Err(FormatError::Truncated {
                part: "header and footer",
                need,
                have: file_len,
            });
        }
        let asked = file_len.saturating_sub(SUFFIX)..file_len;
        Ok(Self {
            file_len,
            asked,
            bytes: None,
        })
    }

    /// Supplies the bytes of the range that [`step`](Self::step) requested.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes = Some(bytes.to_vec());
    }

    /// The next request, or the open shard.
    pub fn step(&mut self) -> Result<Step> {
        let Some(bytes) = self.bytes.take() else {
            return Ok(Step::Need(self.asked.clone()));
        };
        let need = self.asked.end - self.asked.start;
        let have = bytes.len() as u64;
        if have < need {
            let part = "tail";
            return Err(FormatError::Truncated { part, need, have });
        }
        if have > need {
            let what = format!("received {have} bytes, more than the {need} requested");
            return Err(invalid("tail", what));
        }
        let footer = Footer::parse(&bytes, self.file_len)?;
        if footer.schema.start < self.asked.start {
            self.asked = footer.schema.start..self.file_len;
            return Ok(Step::Need(self.asked.clone()));
        }
        let part = |range: &Range<u64>| {
            let start = usize::try_from(range.start - self.asked.start).unwrap_or(usize::MAX);
            let end = usize::try_from(range.end - self.asked.start).unwrap_or(usize::MAX);
            bytes.get(start..end).unwrap_or_default()
        };
        let (schema, directory) = (part(&footer.schema), part(&footer.directory));
        verify(
            "directory",
            footer.directory.start,
            directory,
            footer.directory_crc,
        )?;
        verify("schema", footer.schema.start, schema, footer.schema_crc)?;
        if part(&(footer.schema.end..footer.directory.start))
            .iter()
            .any(|&byte| byte != 0)
        {
            return Err(invalid("schema", "its padding is not zero"));
        }
        let episodes: Vec<_> = directory
            .chunks_exact(DIRECTORY_ENTRY_LEN)
            .map(DirectoryEntry::parse)
            .collect();
        check_tiling(&episodes, footer.schema.start)?;
        let schema = Arc::new(Schema::parse(schema)?);
        Ok(Step::Ready(Shard {
            schema,
            episodes,
            tail_start: footer.schema.start,
            file_len: self.file_len,
            versions: footer.versions,
        }))
    }
}

/// Episodes follow each other from the header to the schema.
fn check_tiling(episodes: &[DirectoryEntry], schema_start: u64) -> Result<()> {
    let mut position = HEADER_LEN as u64;
    for (idx, episode) in episodes.iter().enumerate() {
        let end = episode.checked_end().filter(|&end| end <= schema_start);
        let aligned = episode.pages_len % 8 == 0 && episode.index_len % 8 == 0;
        match end {
            Some(end) if episode.start == position && aligned => position = end,
            _ => {
                return Err(invalid(
                    "directory",
                    format!(
                        "episode {idx} does not start at byte {position}, or ends after the last"
                    ),
                ));
            }
        }
    }
    if position != schema_start {
        return Err(invalid(
            "directory",
            format!("episodes end at byte {position}, the schema starts at {schema_start}"),
        ));
    }
    Ok(())
}

impl Shard {
    /// The streams of the shard.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The locations of the episodes.
    pub fn episodes(&self) -> &[DirectoryEntry] {
        &self.episodes
    }

    /// The byte range of schema, directory and footer.
    pub fn tail_range(&self) -> Range<u64> {
        self.tail_start..self.file_len
    }

    /// The index of the episode at `slot`, from the bytes of its [`index_range`](DirectoryEntry::index_range).
    pub fn episode_index(&self, slot: usize, bytes: Vec<u8>) -> Result<EpisodeIndex> {
        let entry = self.episodes.get(slot).ok_or_else(|| {
            invalid(
                "directory",
                format!(
                    "there is no episode at slot {slot}, the shard has {}",
                    self.episodes.len()
                ),
            )
        })?;
        if bytes.len() as u64 != u64::from(entry.index_len) {
            let (need, have) = (u64::from(entry.index_len), bytes.len() as u64);
            return Err(FormatError::Truncated {
                part: "episode index",
                need,
                have,
            });
        }
        verify(
            "episode index",
            entry.index_range().start,
            &bytes,
            entry.index_crc,
        )?;
        let index = EpisodeIndex::parse(bytes, entry.pages_len, &self.schema)?;
        if index.is_linked() && self.versions.min_reader <= PACKED_VERSION {
            let what = "it has linked pages, which readers of the shard's version do not know";
            return Err(invalid("episode index", what));
        }
        Ok(index)
    }

    /// Whether its pages may be linked: the version says so.
    pub fn is_linked(&self) -> bool {
        self.versions.min_reader > PACKED_VERSION
    }

    /// The header's length, for callers of [`verify_header`](Self::verify_header): opening does not read it.
    pub const HEADER_LEN: u64 = HEADER_LEN as u64;
}
