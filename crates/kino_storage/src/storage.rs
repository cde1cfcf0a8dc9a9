//! The trait: objects under keys, written whole and read in ranges.
//!
//! Every call blocks until it is done; for several reads at once use several threads, as the loader does, or `read_ranges`.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use tempfile::NamedTempFile;

use crate::at_once::at_once;
use crate::cache::CacheReport;
use crate::error::Result;
use crate::local::LocalFolder;
use crate::location::Location;
use crate::remote::{ObjectStorage, RequestReport, Speed};

/// Objects under keys such as `shards/<hash>.kshard`. Keys are made by the caller, and never from a file's contents.
pub trait Storage: Debug + Send + Sync {
    /// The path or URL of a key, for messages; of the storage itself, if the key is empty.
    fn place(&self, key: &str) -> String;

    /// The object's length.
    fn size(&self, key: &str) -> Result<u64>;

    /// The whole object, if it has at most `limit` bytes.
    fn read(&self, key: &str, limit: u64) -> Result<Bytes>;

    /// Bytes `range` of the object, or fewer if it ends before; an error if it ends before the first of them.
    fn read_range(&self, key: &str, range: Range<u64>) -> Result<Bytes>;

    /// Several ranges of objects, each as by [`read_range`](Self::read_range), in their order. Behind a network they are on their
    /// way together: a round trip for all of them, not for each.
    fn read_ranges(&self, ranges: &[(&str, Range<u64>)]) -> Vec<Result<Bytes>> {
        at_once(ranges, |(key, range)| self.read_range(key, range.clone()))
    }

    /// The objects directly below `folder`, in no order; none if it is missing. `None` if this storage cannot list.
    fn list(&self, folder: &str) -> Result<Option<Vec<Entry>>>;

    /// Those of them whose names come after `after`, byte by byte: one request however many come before.
    fn list_after(&self, folder: &str, after: &str) -> Result<Option<Vec<Entry>>> {
        let mut entries = self.list(folder)?;
        if let Some(entries) = &mut entries {
            entries.retain(|entry| entry.name.as_str() > after);
        }
        Ok(entries)
    }

    /// An error if nothing can be written here, whatever the credentials.
    fn check_writable(&self) -> Result<()>;

    /// Creates the object unless it exists: of two rivals exactly one creates it.
    ///
    /// An object with the same bytes counts as created if it cannot be told whether an earlier try of this call made it.
    fn put_new(&self, key: &str, bytes: &[u8]) -> Result<Put>;

    /// Whether a conditional put of an object that is there, with the bytes that it has, is carried out all the same.
    fn ignores_conditions(&self, key: &str, bytes: &[u8]) -> Result<bool> {
        let _ = (key, bytes);
        Ok(false)
    }

    /// Creates or replaces the object.
    fn put(&self, key: &str, bytes: &[u8]) -> Result<()>;

    /// Moves a finished file to its place; an object that is there has the same bytes.
    fn publish(&self, key: &str, file: NamedTempFile) -> Result<()>;

    /// Removes the object, if it is there. Only garbage collection does that.
    fn remove(&self, key: &str) -> Result<()>;

    /// Forgets what is kept of this range, because its bytes cannot be right.
    fn distrust(&self, key: &str, range: Range<u64>) {
        let _ = (key, range);
    }

    /// What a cache did so far; `None` if there is none.
    fn cache(&self) -> Option<CacheReport> {
        None
    }

    /// How fast reads are answered; `None` if there is no network between.
    fn speed(&self) -> Option<Speed> {
        None
    }

    /// What requests were made so far; `None` if there are no requests to count.
    fn requests(&self) -> Option<RequestReport> {
        None
    }
}

/// Whether a conditional put created the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Put {
    /// It did.
    Created,
    /// Another one was there: its bytes, if they were read to find that out.
    AlreadyThere(Option<Bytes>),
}

/// An object of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name below the folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// When it was last written, if the storage knows.
    pub modified: Option<SystemTime>,
}

/// The storage at a location. Nothing is read yet, and a missing folder is an error of the first read.
pub fn open(location: &Location) -> Result<Arc<dyn Storage>> {
    Ok(match location {
        Location::Local(folder) => Arc::new(LocalFolder::new(folder)),
        Location::Remote(url) => Arc::new(ObjectStorage::open(url)?),
    })
}
