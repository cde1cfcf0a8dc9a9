//! Objects in memory, for tests and for programs that embed the library.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::ops::Range;

use bytes::Bytes;
use kino_sync::Mutex;
use tempfile::NamedTempFile;

use crate::error::{Result, StorageError, io_at};
use crate::local::too_long;
use crate::storage::{Entry, Put, Storage};

/// A storage that is gone when it is dropped.
#[derive(Debug, Default)]
pub struct Memory {
    objects: Mutex<BTreeMap<String, Bytes>>,
}

impl Memory {
    fn get(&self, key: &str) -> Result<Bytes> {
        let found = self.objects.lock().get(key).cloned();
        found.ok_or_else(|| StorageError::NotFound {
            place: self.place(key),
        })
    }
}

impl Storage for Memory {
    fn place(&self, key: &str) -> String {
        format!("memory/{key}")
    }

    fn size(&self, key: &str) -> Result<u64> {
        Ok(self.get(key)?.len() as u64)
    }

    fn read(&self, key: &str, limit: u64) -> Result<Bytes> {
        let bytes = self.get(key)?;
        match bytes.len() as u64 {
            size if size > limit => Err(too_long(self.place(key), size, limit)),
            _ => Ok(bytes),
        }
    }

    fn read_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let bytes = self.get(key)?;
        let at =
            |offset: u64| usize::try_from(offset).map_or(bytes.len(), |at| at.min(bytes.len()));
        let (start, end) = (at(range.start), at(range.end));
        if start >= end {
            let what = format!(
                "byte {} was requested, but it has {}",
                range.start,
                bytes.len()
            );
            let error = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, what);
            return Err(io_at("read", self.place(key))(error));
        }
        Ok(bytes.slice(start..end))
    }

    fn list(&self, folder: &str) -> Result<Option<Vec<Entry>>> {
        let objects = self.objects.lock();
        let entry = |(key, bytes): (&String, &Bytes)| {
            let name = key.strip_prefix(folder)?.strip_prefix('/')?;
            (!name.contains('/')).then(|| Entry {
                name: name.to_owned(),
                bytes: bytes.len() as u64,
                modified: None,
            })
        };
        Ok(Some(objects.iter().filter_map(entry).collect()))
    }

    fn check_writable(&self) -> Result<()> {
        Ok(())
    }

    fn put_new(&self, key: &str, bytes: &[u8]) -> Result<Put> {
        let mut objects = self.objects.lock();
        if objects.contains_key(key) {
            return Ok(Put::AlreadyThere(None));
        }
        objects.insert(key.to_owned(), Bytes::copy_from_slice(bytes));
        Ok(Put::Created)
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        let bytes = Bytes::copy_from_slice(bytes);
        self.objects.lock().insert(key.to_owned(), bytes);
        Ok(())
    }

    fn publish(&self, key: &str, mut file: NamedTempFile) -> Result<()> {
        let mut bytes = Vec::new();
        let file: &mut File = file.as_file_mut();
        let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
        read.map_err(io_at("write", self.place(key)))?;
        self.put(key, &bytes)
    }

    fn remove(&self, key: &str) -> Result<()> {
        self.objects.lock().remove(key);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_keeps_the_contract_of_the_trait() {
        let storage = Memory::default();
        assert_eq!(storage.put_new("a/1", b"one").unwrap(), Put::Created);
        let rival = storage.put_new("a/1", b"two").unwrap();
        assert_eq!(rival, Put::AlreadyThere(None));
        storage.put("a/b/2", b"two").unwrap();
        assert_eq!(&storage.read("a/1", 3).unwrap()[..], b"one");
        assert!(storage.read("a/1", 2).is_err());
        assert_eq!(&storage.read_range("a/1", 1..9).unwrap()[..], b"ne");
        assert!(storage.read_range("a/1", 3..4).is_err());
        let names = |folder: &str| {
            let entries = storage.list(folder).unwrap().unwrap();
            entries
                .into_iter()
                .map(|entry| entry.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names("a"), ["1"]);
        assert_eq!(names("a/b"), ["2"]);
        let after = |after| storage.list_after("a", after).unwrap().unwrap().len();
        assert_eq!((after("0"), after("1"), after("2")), (1, 0, 0));
        storage.remove("a/1").unwrap();
        assert!(matches!(
            storage.size("a/1"),
            Err(StorageError::NotFound { .. })
        ));
    }
}
