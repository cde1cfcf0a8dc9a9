//! Where bytes are: one trait over local folders and object stores.
//!
//! ```text
//! "/data/lift.kino"      ┐                       ┌ LocalFolder
//! "s3://lab/lift.kino"   ├─ Location ─▶ open() ─▶┤ ObjectStorage: S3, GCS, Azure, HTTP, Hugging Face Hub
//! "hf://datasets/lab/x"  ┘                       └   retries, hedged reads, a meter
//! ```
//!
//! A storage holds objects under keys such as `shards/<hash>.kshard`. What the bytes mean, and whether they are the
//! right ones, is for the layers above: they verify a checksum of everything they read.
//!
//! | file | holds |
//! |---|---|
//! | `storage.rs` | the trait |
//! | `location.rs` | a path or a URL |
//! | `local.rs`, `durable.rs` | a folder whose files survive a crash |
//! | `remote/mod.rs` | object stores behind the trait; lists its files |
//! | `at_once.rs` | several reads side by side |
//! | `memory.rs` | objects in memory |
//! | `cache/` | remote shards on a local disk, shared by the processes of a host |
//! | `error.rs` | what can go wrong |

mod at_once;
mod cache;
mod durable;
mod error;
mod local;
mod location;
mod memory;
mod remote;
mod storage;

pub use at_once::at_once;
pub use cache::{
    CacheListing, CacheReport, Cached, CachedShard, clear_cache, limit_cache, list_cache,
};
pub use durable::{create_folder, sync_folder, sync_parent, write_beside};
pub use error::{ErrorKind, Result, StorageError};
pub use local::{LocalFolder, read_file};
pub use location::{Location, Scheme};
pub use memory::Memory;
pub use remote::{ObjectStorage, RequestMeter, RequestReport, Speed, jittered};
pub use storage::{Entry, Put, Storage, open};
