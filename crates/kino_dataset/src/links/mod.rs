//! Linked datasets: camera pages that are byte ranges of the user's own files.
//!
//! ```text
//! manifest     links: root, and path, size, time of modification and hash of every file      record.rs
//! shard        which pieces of which file make up a page                                     kino_format
//! a read       neighbouring pieces of a file in one request                                  fetch.rs
//! a file       opened below the root, if the manifest lists it and its size is the same      files.rs
//! links/       checksums of pages that were linked without reading them                      checksums.rs
//! ```
//!
//! A linked episode has the index that it would have if its pages were stored. Everything above the read of a byte
//! range (the loader, samples, exports, checks) works on it unchanged.

mod checksums;
mod fetch;
mod files;
mod record;

pub(crate) use checksums::Checksums;
pub(crate) use fetch::Fetch;
pub(crate) use files::{LinkedFiles, Modified};
pub use record::{LinkedFile, Links};
