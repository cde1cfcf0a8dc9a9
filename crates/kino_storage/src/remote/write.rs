//! Writing objects: whole, conditional, or in parts.
//!
//! A reply can be lost after the object was made. So a conditional put that does not clearly succeed is decided by
//! reading back: if the object has our bytes, it counts as made by us. For a commit that is right even if a rival wrote
//! the same bytes, because then both committed the same version.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    Error, MultipartUpload, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload,
};
use tokio::time::timeout;

use super::ObjectStorage;
use super::connect::Connection;
use super::errors::failed;
use super::meter::add;
use crate::error::{Result, invalid, io_at};
use crate::storage::{Put, Storage as _};

/// Files are uploaded in parts of this size, several at once; S3 allows 10,000 parts.
const PART_BYTES: usize = 16 << 20;
const PARTS_AT_ONCE: usize = 4;

/// A part of a file on a slow line takes no longer than this.
const PATIENCE: Duration = Duration::from_secs(300);

/// An object of twice the length of ours and so much more is not read back.
const MUCH_LONGER: u64 = 1 << 20;

/// Tries to read back what a put whose reply was lost has left.
const LOOKS: u32 = 3;

impl ObjectStorage {
    /// The connection, if objects can be written.
    pub(super) fn writable(&self) -> Result<Arc<Connection>> {
        let connection = self.connection()?;
        if connection.listing.is_writable() {
            return Ok(connection);
        }
        Err(invalid(format!(
            "{} can only be read; write a local folder and upload it with the service's own tool, or write to s3://, gs:// or az://",
            self.url
        )))
    }

    /// Creates an object if it is not there.
    pub(super) async fn write_new(&self, key: &str, bytes: &[u8]) -> Result<Put> {
        let connection = self.writable()?;
        let path = connection.key(key)?;
        let options = PutOptions::from(PutMode::Create);
        let payload = PutPayload::from(Bytes::copy_from_slice(bytes));
        add(&self.meter.puts, 1);
        add(&self.meter.bytes_written, bytes.len() as u64);
        let put = connection.store.put_opts(&path, payload, options);
        match timeout(PATIENCE, put).await {
            Ok(Ok(_)) => Ok(Put::Created),
            // The client may have sent it twice because the first reply was lost.
            Ok(Err(error @ (Error::AlreadyExists { .. } | Error::Precondition { .. }))) => {
                match self.look(&connection, &path, bytes).await {
                    Ok(None) => Ok(Put::AlreadyThere(None)),
                    Ok(Some(put)) => Ok(put),
                    Err(_) => Err(failed("write", self.place(key), error)),
                }
            }
            Ok(Err(error)) => self.settle(&connection, key, bytes, error).await,
            Err(_) => {
                let source = "no answer came".into();
                let store = "network";
                let error = Error::Generic { store, source };
                self.settle(&connection, key, bytes, error).await
            }
        }
    }

    /// Whether the server creates an object that is there.
    pub(super) async fn overwrites(&self, key: &str, bytes: &[u8]) -> Result<bool> {
        let connection = self.writable()?;
        let path = connection.key(key)?;
        let payload = PutPayload::from(Bytes::copy_from_slice(bytes));
        add(&self.meter.puts, 1);
        match connection
            .store
            .put_opts(&path, payload, PutMode::Create.into())
            .await
        {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
            Err(error) => Err(failed("write", self.place(key), error)),
        }
    }

    /// Decides whether a put that failed without a clear answer has made the object.
    async fn settle(
        &self,
        connection: &Connection,
        key: &str,
        bytes: &[u8],
        error: Error,
    ) -> Result<Put> {
        let is_final = matches!(
            error,
            Error::PermissionDenied { .. }
                | Error::Unauthenticated { .. }
                | Error::NotSupported { .. }
        );
        if is_final {
            return Err(failed("write", self.place(key), error));
        }
        let path = connection.key(key)?;
        match self.look(connection, &path, bytes).await {
            Ok(Some(put)) => Ok(put),
            _ => Err(failed("write", self.place(key), error)),
        }
    }

    /// What an object that is there says about a put without a clear answer; `None` if none is there.
    async fn look(
        &self,
        connection: &Connection,
        path: &Path,
        ours: &[u8],
    ) -> Result<Option<Put>, Error> {
        let mut left = LOOKS;
        loop {
            left -= 1;
            match self.there(connection, path, ours).await {
                Ok(Some(there)) if there == ours => return Ok(Some(Put::Created)),
                Ok(there) => return Ok(Some(Put::AlreadyThere(there))),
                Err(Error::NotFound { .. }) => return Ok(None),
                Err(error) if left == 0 => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }

    /// The bytes of an object; `None` if it is much longer than ours, so that it is neither ours nor a rival's.
    async fn there(
        &self,
        connection: &Connection,
        path: &Path,
        ours: &[u8],
    ) -> Result<Option<Bytes>, Error> {
        add(&self.meter.gets, 1);
        let found = connection.store.get(path).await?;
        if found.meta.size
            > (ours.len() as u64)
                .saturating_mul(2)
                .saturating_add(MUCH_LONGER)
        {
            return Ok(None);
        }
        found.bytes().await.map(Some)
    }

    /// Creates or replaces an object.
    pub(super) async fn write(&self, key: &str, bytes: &[u8]) -> Result<()> {
        let connection = self.writable()?;
        let path = connection.key(key)?;
        let payload = PutPayload::from(Bytes::copy_from_slice(bytes));
        add(&self.meter.puts, 1);
        add(&self.meter.bytes_written, bytes.len() as u64);
        let put = connection.store.put(&path, payload).await;
        put.map(|_| ())
            .map_err(|error| failed("write", self.place(key), error))
    }

    /// Creates or replaces an object with the bytes of a file, in parts if it is large.
    pub(super) async fn upload(&self, key: &str, file: &mut File) -> Result<()> {
        let at = || io_at("upload", self.place(key));
        let len = file.metadata().map_err(at())?.len();
        file.rewind().map_err(at())?;
        if len <= PART_BYTES as u64 {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map_err(at())?;
            return self.write(key, &bytes).await;
        }
        let connection = self.writable()?;
        let path = connection.key(key)?;
        let begun = connection.store.put_multipart(&path).await;
        let mut upload = begun.map_err(|error| failed("write", self.place(key), error))?;
        let sent = self.send_parts(key, file, upload.as_mut()).await;
        let done = match sent {
            Ok(()) => upload.complete().await.map(|_| ()),
            Err(error) => {
                // Parts that are not put together cost money until they are removed.
                let _ = upload.abort().await;
                return Err(error);
            }
        };
        done.map_err(|error| failed("write", self.place(key), error))
    }

    async fn send_parts(
        &self,
        key: &str,
        file: &mut File,
        upload: &mut dyn MultipartUpload,
    ) -> Result<()> {
        let mut parts = tokio::task::JoinSet::new();
        loop {
            let mut part = Vec::with_capacity(PART_BYTES);
            let read = file.by_ref().take(PART_BYTES as u64).read_to_end(&mut part);
            let len = read.map_err(io_at("upload", self.place(key)))?;
            if len > 0 {
                add(&self.meter.puts, 1);
                add(&self.meter.bytes_written, len as u64);
                parts.spawn(upload.put_part(PutPayload::from(part)));
            }
            while parts.len() >= PARTS_AT_ONCE || (len == 0 && !parts.is_empty()) {
                let sent = timeout(PATIENCE, parts.join_next()).await;
                let sent = sent.map_err(|_| Error::Generic {
                    store: "network",
                    source: "a part was not sent in time".into(),
                });
                let sent = sent.and_then(|sent| match sent {
                    Some(Err(error)) => Err(Error::from(error)),
                    Some(Ok(Err(error))) => Err(error),
                    Some(Ok(Ok(()))) | None => Ok(()),
                });
                sent.map_err(|error| failed("write", self.place(key), error))?;
            }
            if len == 0 {
                return Ok(());
            }
        }
    }
}
