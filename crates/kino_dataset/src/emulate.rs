//! Emulated storage, for measurements: slower than the real one, or as fast as memory. The bytes read never differ.
//!
//! ```text
//! read ──▶ kept in memory? ──no──▶ slowed down? ──▶ the storage below
//!                └── yes: at once
//! ```
//!
//! It is a layer over any other storage, local or remote. Reads of linked files, which are in no storage, share its
//! bandwidth.
//!
//! Slow storage sleeps, so it is equally slow on a busy and on an idle machine. All reads in flight share the
//! bandwidth, each has its own latency, and a stall delays one read in every few while the others continue.

use std::collections::HashMap;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kino_format::ByteSize;
use kino_storage::{CacheReport, Put, RequestReport, Result as Stored};
use kino_sync::Mutex;
use tempfile::NamedTempFile;

use crate::error::{DatasetError, Result, invalid};

/// A stall delays one read in this many, by default.
const STALL_EVERY: u64 = 64;

/// Emulated storage characteristics; the default emulates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Storage {
    /// How to slow it down.
    pub slow: Option<SlowStorage>,
    /// Bytes to keep in memory once they have been read.
    pub keep_bytes: u64,
}

/// Characteristics of slow storage.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SlowStorage {
    /// Bandwidth of all reads together, in bytes per second; `None` does not limit it.
    pub bytes_per_s: Option<f64>,
    /// Minimum duration of each read.
    pub latency: Duration,
    /// Occasional reads that take longer.
    pub stall: Option<Stall>,
}

/// Delays one read in `every` by `pause`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// One read in this many is delayed.
    pub every: u64,
    /// For how long.
    pub pause: Duration,
}

impl FromStr for SlowStorage {
    type Err = DatasetError;

    /// Parses `100MB/s,5ms,stall=200ms`: bandwidth, latency and stalls, each optional.
    fn from_str(text: &str) -> Result<Self> {
        let mut slow = Self::default();
        let wrong = |part: &str| {
            invalid(format!(
                "cannot parse `{part}`: expected a bandwidth (100MB/s), a latency (5ms) or stalls (stall=200ms), separated by commas"
            ))
        };
        for part in text.split(',').map(str::trim) {
            if let Some(rate) = part.strip_suffix("/s") {
                let rate: ByteSize = rate.parse().map_err(|_| wrong(part))?;
                let rate = Some(rate.bytes() as f64).filter(|&rate| rate > 0.0);
                slow.bytes_per_s = Some(rate.ok_or_else(|| wrong(part))?);
            } else if let Some(pause) = part.strip_prefix("stall=") {
                slow.stall = Some(Stall {
                    every: STALL_EVERY,
                    pause: humantime::parse_duration(pause).map_err(|_| wrong(part))?,
                });
            } else {
                slow.latency = humantime::parse_duration(part).map_err(|_| wrong(part))?;
            }
        }
        Ok(slow)
    }
}

/// A duration such as `7d`, `5ms` or `1h 30min`.
pub fn parse_duration(text: &str) -> Result<Duration> {
    humantime::parse_duration(text).map_err(|error| {
        invalid(format!(
            "cannot parse the duration `{text}`: {error}; write 0s, 90s, 5min, 12h or 7d"
        ))
    })
}

/// State of a store that emulates a [`Storage`].
#[derive(Debug)]
pub(crate) struct Emulated {
    storage: Storage,
    started: Instant,
    /// When the bandwidth used by the reads so far becomes free, since the start.
    free_at: Mutex<Duration>,
    reads: AtomicU64,
    kept: Mutex<Kept>,
}

/// Bytes that were read, by file and range.
#[derive(Debug, Default)]
struct Kept {
    bytes: u64,
    ranges: HashMap<(String, Range<u64>), Bytes>,
}

impl Emulated {
    pub(crate) fn new(storage: Storage) -> Self {
        Self {
            storage,
            started: Instant::now(),
            free_at: Mutex::new(Duration::ZERO),
            reads: AtomicU64::new(0),
            kept: Mutex::default(),
        }
    }

    /// Reads a range: from memory if it is kept there, otherwise with the emulated delay.
    pub(crate) fn read<E>(
        &self,
        key: &str,
        range: Range<u64>,
        read: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        if self.storage.keep_bytes == 0 {
            return self.read_slowly(read);
        }
        let place = (key.to_owned(), range);
        let found = self.kept.lock().ranges.get(&place).cloned();
        if let Some(bytes) = found {
            return Ok(bytes);
        }
        let bytes = self.read_slowly(read)?;
        let mut kept = self.kept.lock();
        let len = bytes.len() as u64;
        // What does not fit is read again each time: evicting something else would only move the miss.
        if kept.bytes.saturating_add(len) <= self.storage.keep_bytes {
            kept.bytes += len;
            kept.ranges.insert(place, bytes.clone());
        }
        Ok(bytes)
    }

    fn read_slowly<E>(&self, read: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        let Some(slow) = self.storage.slow else {
            return read();
        };
        let began = self.started.elapsed();
        let bytes = read()?;
        let number = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        let stall = slow
            .stall
            .filter(|stall| number.is_multiple_of(stall.every.max(1)));
        let own = slow.latency + stall.map_or(Duration::ZERO, |stall| stall.pause);
        let until = self.transferred(slow, began, bytes.len()) + own;
        std::thread::sleep(until.saturating_sub(self.started.elapsed()));
        Ok(bytes)
    }

    /// When these bytes have been transferred, if earlier requests go first.
    fn transferred(&self, slow: SlowStorage, began: Duration, bytes: usize) -> Duration {
        let Some(rate) = slow.bytes_per_s else {
            return began;
        };
        #[expect(clippy::cast_precision_loss, reason = "a read is under 2⁵³ bytes")]
        let takes = bytes as f64 / rate;
        let takes = Duration::try_from_secs_f64(takes).unwrap_or(Duration::MAX);
        let mut free_at = self.free_at.lock();
        *free_at = began.max(*free_at).saturating_add(takes);
        *free_at
    }
}

/// A storage that is read as [`Emulated`] says.
#[derive(Debug)]
pub(crate) struct EmulatedStorage {
    pub(crate) inner: Arc<dyn kino_storage::Storage>,
    pub(crate) emulated: Arc<Emulated>,
}

/// Only reads of ranges are emulated: nothing is written to a storage that is measured.
impl kino_storage::Storage for EmulatedStorage {
    fn place(&self, key: &str) -> String {
        self.inner.place(key)
    }

    fn size(&self, key: &str) -> Stored<u64> {
        self.inner.size(key)
    }

    fn read(&self, key: &str, limit: u64) -> Stored<Bytes> {
        self.inner.read(key, limit)
    }

    fn read_range(&self, key: &str, range: Range<u64>) -> Stored<Bytes> {
        let read = || self.inner.read_range(key, range.clone());
        self.emulated.read(key, range.clone(), read)
    }

    fn list(&self, folder: &str) -> Stored<Option<Vec<kino_storage::Entry>>> {
        self.inner.list(folder)
    }

    fn list_after(&self, folder: &str, after: &str) -> Stored<Option<Vec<kino_storage::Entry>>> {
        self.inner.list_after(folder, after)
    }

    fn check_writable(&self) -> Stored<()> {
        self.inner.check_writable()
    }

    fn put_new(&self, key: &str, bytes: &[u8]) -> Stored<Put> {
        self.inner.put_new(key, bytes)
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Stored<()> {
        self.inner.put(key, bytes)
    }

    fn publish(&self, key: &str, file: NamedTempFile) -> Stored<()> {
        self.inner.publish(key, file)
    }

    fn remove(&self, key: &str) -> Stored<()> {
        self.inner.remove(key)
    }

    fn distrust(&self, key: &str, range: Range<u64>) {
        self.inner.distrust(key, range);
    }

    fn cache(&self) -> Option<CacheReport> {
        self.inner.cache()
    }

    fn requests(&self) -> Option<RequestReport> {
        self.inner.requests()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(emulated: &Emulated, start: u64, len: usize) -> Bytes {
        let source = || Ok::<_, DatasetError>(Bytes::from(vec![7; len]));
        emulated
            .read("a", start..start + len as u64, source)
            .unwrap()
    }

    #[test]
    fn storage_is_parsed_and_errors_quote_the_grammar() {
        let slow: SlowStorage = "100MB/s, 5ms,stall=200ms".parse().unwrap();
        assert_eq!(slow.bytes_per_s, Some(1e8));
        assert_eq!(slow.latency, Duration::from_millis(5));
        assert_eq!(slow.stall.unwrap().pause, Duration::from_millis(200));
        let only: SlowStorage = "2.5GB/s".parse().unwrap();
        assert_eq!(
            (only.bytes_per_s, only.latency),
            (Some(2.5e9), Duration::ZERO)
        );
        for wrong in ["", "fast", "0MB/s", "-1MB/s", "100/s", "5", "stall=x"] {
            let error = wrong.parse::<SlowStorage>().unwrap_err().to_string();
            assert!(error.contains("100MB/s"), "{wrong}: {error}");
        }
    }

    #[test]
    fn concurrent_reads_share_the_bandwidth_and_each_has_its_latency() {
        let slow = SlowStorage {
            bytes_per_s: Some(1e6),
            latency: Duration::from_millis(20),
            stall: None,
        };
        let storage = Storage {
            slow: Some(slow),
            keep_bytes: 0,
        };
        let emulated = Emulated::new(storage);
        let began = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let emulated = &emulated;
                scope.spawn(move || read(emulated, thread * 100_000, 10_000));
            }
        });
        // A sleep is never shorter than requested.
        assert!(began.elapsed() >= Duration::from_millis(4 * 10 + 20));
    }

    #[test]
    fn a_range_read_once_comes_from_memory_if_there_is_room() {
        let storage = Storage {
            slow: None,
            keep_bytes: 250,
        };
        let emulated = Emulated::new(storage);
        for start in [0, 100, 200] {
            read(&emulated, start, 100);
        }
        let mut asked = 0;
        for start in [0, 100, 200] {
            let bytes = emulated.read("a", start..start + 100, || {
                asked += 1;
                Ok::<_, DatasetError>(Bytes::from(vec![7; 100]))
            });
            assert_eq!(bytes.unwrap(), vec![7; 100]);
        }
        assert_eq!(asked, 1, "two of three fit");
        let other = emulated.read("b", 0..100, || {
            Ok::<_, DatasetError>(Bytes::from_static(b"else"))
        });
        assert_eq!(other.unwrap(), "else", "another file");
    }

    #[test]
    fn one_read_in_every_few_stalls() {
        let stall = Stall {
            every: 3,
            pause: Duration::from_millis(30),
        };
        let slow = SlowStorage {
            stall: Some(stall),
            ..SlowStorage::default()
        };
        let storage = Storage {
            slow: Some(slow),
            keep_bytes: 0,
        };
        let emulated = Emulated::new(storage);
        let began = Instant::now();
        for start in 0..6 {
            read(&emulated, start, 1);
        }
        assert!(began.elapsed() >= Duration::from_millis(60));
    }
}
