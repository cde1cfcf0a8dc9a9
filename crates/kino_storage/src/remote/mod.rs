//! Object stores behind the trait: S3, GCS, Azure, HTTP and the Hugging Face Hub.
//!
//! ```text
//! loader's read threads ─▶ ObjectStorage ─▶ read.rs: repeated, resumed, hedged ─▶ object_store: signed ─▶ network
//!                              └─ meter.rs counts                        connect.rs makes it from the URL
//! ```
//!
//! Calls block. `runtime.rs` has the few threads of a process that wait for the network, and is why a forked child
//! works: it makes its own.

mod aws_profile;
mod connect;
mod errors;
mod hedge;
mod hub;
mod meter;
mod read;
mod runtime;
mod speed;
mod write;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};
use tempfile::NamedTempFile;
use url::Url;

use crate::error::{Result, io_at};
use crate::local::too_long;
use crate::storage::{Entry, Put, Storage};
use connect::{Connection, Listing};
use errors::failed;
use meter::add;
pub use meter::{RequestMeter, RequestReport};
pub use read::jittered;
use read::{Found, Reads, Wanted};
use runtime::{PerProcess, runtime};
pub use speed::Speed;

/// The longest answer of the Hub to a request for a listing.
const MAX_LISTING_BYTES: u64 = 64 << 20;

/// Ranges that are requested at once by one call.
const MOST_AT_ONCE: usize = 256;

/// Objects below a URL.
#[derive(Debug)]
pub struct ObjectStorage {
    url: Url,
    /// Made again in a forked child.
    connection: PerProcess<Connection>,
    reads: Reads,
    meter: RequestMeter,
}

impl ObjectStorage {
    /// The storage at a URL. Reads credentials, and sends nothing.
    pub fn open(url: &Url) -> Result<Self> {
        let storage = Self {
            url: url.clone(),
            connection: PerProcess::new(),
            reads: Reads::default(),
            meter: RequestMeter::default(),
        };
        storage.connection()?;
        Ok(storage)
    }

    fn connection(&self) -> Result<Arc<Connection>> {
        let runtime = runtime().map_err(io_at("start threads for", self.url.as_str()))?;
        let _inside = runtime.enter();
        self.connection.get(|| connect::connect(&self.url))
    }

    /// Waits for something that needs the network.
    fn wait<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let runtime = runtime().map_err(io_at("start threads for", self.url.as_str()))?;
        runtime.block_on(work)
    }

    fn read_wanted(&self, key: &str, wanted: Wanted) -> Result<Found> {
        let connection = self.connection()?;
        self.wait(self.read_one(&connection, key, wanted))
    }

    async fn read_one(&self, connection: &Connection, key: &str, wanted: Wanted) -> Result<Found> {
        let path = connection.key(key)?;
        let store = &*connection.reads;
        let found = self.reads.read(store, &self.meter, &path, wanted).await;
        found.map_err(|error| failed("read", self.place(key), error))
    }

    fn bytes_of(&self, key: &str, found: Found, limit: u64) -> Result<Bytes> {
        match found {
            Found::Bytes(bytes) => Ok(bytes),
            Found::TooLong(size) => Err(too_long(self.place(key), size, limit)),
        }
    }

    /// The listing that a service has.
    async fn list_native(&self, connection: &Connection, prefix: &Path) -> Result<Vec<Entry>> {
        let mut pauses = read::pauses();
        let listed = loop {
            add(&self.meter.lists, 1);
            // The client repeats what was answered with a status, but not an answer that breaks off.
            match connection.store.list_with_delimiter(Some(prefix)).await {
                Ok(listed) => break listed,
                Err(error) => match pauses.next().filter(|_| read::is_broken(&error)) {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(failed("list", self.url.to_string(), error)),
                },
            }
        };
        Ok(listed.objects.into_iter().filter_map(entry).collect())
    }

    /// The listing that a service has, of what comes after a key.
    async fn list_later(
        &self,
        connection: &Connection,
        prefix: &Path,
        after: &Path,
    ) -> Result<Vec<Entry>> {
        let mut pauses = read::pauses();
        loop {
            add(&self.meter.lists, 1);
            let listed = connection.store.list_with_offset(Some(prefix), after);
            match listed.try_collect::<Vec<_>>().await {
                Ok(listed) => {
                    let depth = prefix.parts_count() + 1;
                    let is_direct =
                        |object: &object_store::ObjectMeta| object.location.parts_count() == depth;
                    return Ok(listed
                        .into_iter()
                        .filter(is_direct)
                        .filter_map(entry)
                        .collect());
                }
                Err(error) => match pauses.next().filter(|_| read::is_broken(&error)) {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(failed("list", self.url.to_string(), error)),
                },
            }
        }
    }

    /// The listing of the Hub.
    async fn list_hub(&self, connection: &Connection, path: &Path) -> Result<Vec<Entry>> {
        add(&self.meter.lists, 1);
        let wanted = Wanted {
            range: None,
            limit: MAX_LISTING_BYTES,
        };
        let store = &*connection.reads;
        match self.reads.read(store, &self.meter, path, wanted).await {
            Ok(Found::Bytes(json)) => hub::parse_listing(&json),
            Ok(Found::TooLong(size)) => {
                Err(too_long(self.url.to_string(), size, MAX_LISTING_BYTES))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(failed("list", self.url.to_string(), error)),
        }
    }
}

fn entry(object: object_store::ObjectMeta) -> Option<Entry> {
    Some(Entry {
        name: object.location.filename()?.to_owned(),
        bytes: object.size,
        modified: Some(object.last_modified.into()),
    })
}

impl Connection {
    /// The key of an object in the service.
    fn key(&self, key: &str) -> Result<Path> {
        let below = Path::parse(key).map_err(|error| crate::error::invalid(error.to_string()))?;
        Ok(below
            .parts()
            .fold(self.prefix.clone(), |path, part| path.join(part)))
    }
}

impl Storage for ObjectStorage {
    fn place(&self, key: &str) -> String {
        match key {
            "" => self.url.to_string(),
            key => format!("{}/{key}", self.url),
        }
    }

    fn size(&self, key: &str) -> Result<u64> {
        let connection = self.connection()?;
        let path = connection.key(key)?;
        self.wait(async {
            let size = read::head(&*connection.store, &self.meter, &path).await;
            size.map_err(|error| failed("read", self.place(key), error))
        })
    }

    fn read(&self, key: &str, limit: u64) -> Result<Bytes> {
        let found = self.read_wanted(key, Wanted { range: None, limit })?;
        self.bytes_of(key, found, limit)
    }

    fn read_range(&self, key: &str, range: Range<u64>) -> Result<Bytes> {
        let found = self.read_wanted(key, Wanted::range(range))?;
        self.bytes_of(key, found, u64::MAX)
    }

    /// By one thread, which waits for all of them.
    fn read_ranges(&self, ranges: &[(&str, Range<u64>)]) -> Vec<Result<Bytes>> {
        if ranges.len() < 2 {
            let one = ranges.iter();
            return one
                .map(|(key, range)| self.read_range(key, range.clone()))
                .collect();
        }
        let one = async |key: &str, range: Range<u64>| {
            let connection = self.connection()?;
            let found = self
                .read_one(&connection, key, Wanted::range(range))
                .await?;
            self.bytes_of(key, found, u64::MAX)
        };
        let all = ranges.iter().map(|(key, range)| one(key, range.clone()));
        let all = futures_util::stream::iter(all).buffered(MOST_AT_ONCE);
        let read = self.wait(async { Ok(all.collect::<Vec<_>>().await) });
        // Without a runtime each of them fails by itself.
        read.unwrap_or_else(|_| {
            let each = ranges.iter();
            each.map(|(key, range)| self.read_range(key, range.clone()))
                .collect()
        })
    }

    fn list(&self, folder: &str) -> Result<Option<Vec<Entry>>> {
        let connection = self.connection()?;
        self.wait(async {
            match &connection.listing {
                Listing::Native => {
                    let path = connection.key(folder)?;
                    self.list_native(&connection, &path).await.map(Some)
                }
                Listing::Hub(api) => {
                    let path = folder
                        .split('/')
                        .fold(api.clone(), |path, part| path.join(part));
                    self.list_hub(&connection, &path).await.map(Some)
                }
                Listing::Missing => Ok(None),
            }
        })
    }

    fn list_after(&self, folder: &str, after: &str) -> Result<Option<Vec<Entry>>> {
        let connection = self.connection()?;
        if connection.listing == Listing::Native {
            let path = connection.key(folder)?;
            let after = path.clone().join(after);
            let listed = self.list_later(&connection, &path, &after);
            return self.wait(listed).map(Some);
        }
        let mut entries = self.list(folder)?;
        if let Some(entries) = &mut entries {
            entries.retain(|entry| entry.name.as_str() > after);
        }
        Ok(entries)
    }

    fn check_writable(&self) -> Result<()> {
        self.writable().map(|_| ())
    }

    fn put_new(&self, key: &str, bytes: &[u8]) -> Result<Put> {
        self.wait(self.write_new(key, bytes))
    }

    fn ignores_conditions(&self, key: &str, bytes: &[u8]) -> Result<bool> {
        self.wait(self.overwrites(key, bytes))
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<()> {
        self.wait(self.write(key, bytes))
    }

    fn publish(&self, key: &str, mut file: NamedTempFile) -> Result<()> {
        self.wait(self.upload(key, file.as_file_mut()))
    }

    fn remove(&self, key: &str) -> Result<()> {
        let connection = self.writable()?;
        let path = connection.key(key)?;
        self.wait(async {
            match connection.store.delete(&path).await {
                Err(object_store::Error::NotFound { .. }) | Ok(()) => Ok(()),
                Err(error) => Err(failed("remove", self.place(key), error)),
            }
        })
    }

    fn speed(&self) -> Option<Speed> {
        Some(self.reads.speed())
    }

    fn requests(&self) -> Option<RequestReport> {
        let times = self.reads.percentiles();
        Some(RequestReport {
            first_byte_s: times.half.as_secs_f64(),
            first_byte_p95_s: times.most.as_secs_f64(),
            answer_bytes_per_s: self.reads.speed().bytes_per_s,
            ..self.meter.report()
        })
    }
}
