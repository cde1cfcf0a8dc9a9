//! Who is writing in a staging area, and whether they are still alive.
//!
//! ```text
//! staging/<area>/lock     locked while the writer is alive; the system releases it when the writer dies, however it dies
//! staging/<area>/lease    {"boot": "5e1f…", "pid": 4711, "renewed": 17}   rewritten every few seconds
//! ```
//!
//! The lock is reliable for writers on this machine. On a network file system it may not reach other machines, so a
//! lease of another machine (or of this one before a reboot) is also watched: a live writer renews it. Only the
//! watcher's own clock counts, and only for how long it watches: clocks of other machines and file times are never
//! used.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How often a writer renews its lease.
const RENEW: Duration = Duration::from_secs(5);

/// A lease that is not renewed while it is watched for this long has lost its writer.
const WATCH: Duration = Duration::from_secs(20);

const LOCK: &str = "lock";
const LEASE: &str = "lease";

/// The contents of the lease file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Text {
    /// The boot id of the kernel that the process runs on; empty if it has none.
    boot: String,
    pid: u32,
    renewed: u64,
}

/// A writer's claim on its staging area, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    lock: File,
    /// Dropped to stop the thread.
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lease {
    /// Claims a folder that is not claimed.
    pub(crate) fn take(folder: &Path) -> io::Result<Self> {
        let lock = open_lock(folder)?;
        match lock.try_lock() {
            // Without locks the lease alone must do.
            Ok(()) | Err(TryLockError::Error(_)) => Self::renewing(lock, folder.join(LEASE)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Claims a folder if its writer is gone; slow if only the lease can tell.
    pub(crate) fn take_over(folder: &Path) -> io::Result<Option<Self>> {
        match find(folder)?.watched() {
            Holder::Gone(lock) => Self::renewing(lock, folder.join(LEASE)).map(Some),
            _ => Ok(None),
        }
    }

    fn renewing(lock: File, path: PathBuf) -> io::Result<Self> {
        let mut text = Text {
            boot: boot(),
            pid: std::process::id(),
            renewed: 0,
        };
        write(&path, &text)?;
        let (stop, stopped) = sync_channel(1);
        let thread = thread::Builder::new()
            .name("kino-lease".to_owned())
            .spawn(move || {
                while stopped.recv_timeout(RENEW) == Err(RecvTimeoutError::Timeout) {
                    text.renewed += 1;
                    // A full disk is not a reason to stop: the lock is still held.
                    let _ = write(&path, &text);
                }
            })?;
        Ok(Self {
            lock,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.stop = None;
        let _ = self.thread.take().map(JoinHandle::join);
        // Unlocked explicitly: a process forked in the meantime may hold the same file open.
        let _ = self.lock.unlock();
    }
}

/// Who holds a folder.
#[derive(Debug)]
pub(crate) enum Holder {
    /// A live writer, or no one because the folder is gone.
    Alive,
    /// A writer on another machine, or on this one before a reboot, which may be alive or not.
    Elsewhere(Unwatched),
    /// A dead writer. The lock is ours as long as this value exists.
    Gone(File),
}

/// A lease that must be watched to tell.
#[derive(Debug)]
pub(crate) struct Unwatched {
    lock: File,
    path: PathBuf,
    seen: Option<Vec<u8>>,
}

/// Who holds a folder, as far as one look can tell.
pub(crate) fn find(folder: &Path) -> io::Result<Holder> {
    let lock = match open_lock(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Holder::Alive),
        lock => lock?,
    };
    let has_locks = match lock.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => return Ok(Holder::Alive),
        Err(TryLockError::Error(_)) => false,
    };
    let path = folder.join(LEASE);
    let seen = fs::read(&path).ok();
    let is_here = seen
        .as_deref()
        .and_then(|seen| serde_json::from_slice::<Text>(seen).ok())
        .is_some_and(|text| !text.boot.is_empty() && text.boot == boot());
    Ok(if has_locks && is_here {
        Holder::Gone(lock)
    } else {
        Holder::Elsewhere(Unwatched { lock, path, seen })
    })
}

impl Holder {
    /// The answer after watching the lease, if that is necessary.
    pub(crate) fn watched(self) -> Self {
        self.after(WATCH)
    }

    fn after(self, watch: Duration) -> Self {
        let Self::Elsewhere(lease) = self else {
            return self;
        };
        thread::sleep(watch);
        if fs::read(&lease.path).ok() == lease.seen {
            Self::Gone(lease.lock)
        } else {
            Self::Alive
        }
    }
}

fn open_lock(folder: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(folder.join(LOCK))
}

fn write(path: &Path, text: &Text) -> io::Result<()> {
    fs::write(path, serde_json::to_vec(text)?)
}

/// Identifies the running kernel: locks are only valid within it.
fn boot() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_held_until_its_writer_releases_it_whatever_the_clock_says() {
        let folder = tempfile::tempdir().unwrap();
        let lease = Lease::take(folder.path()).unwrap();
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        for name in [LOCK, LEASE] {
            let file = File::options().write(true).open(folder.path().join(name));
            file.unwrap().set_modified(long_ago).unwrap();
        }
        assert!(matches!(find(folder.path()).unwrap(), Holder::Alive));
        assert!(Lease::take(folder.path()).is_err());
        assert!(Lease::take_over(folder.path()).unwrap().is_none());
        drop(lease);
        let taken = Lease::take_over(folder.path()).unwrap();
        assert!(taken.is_some() && matches!(find(folder.path()).unwrap(), Holder::Alive));
    }

    #[test]
    fn a_writer_on_another_machine_is_alive_as_long_as_it_renews_its_lease() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = |renewed: u64| Text {
            boot: "another machine".to_owned(),
            pid: 1,
            renewed,
        };
        let path = folder.path().join(LEASE);
        write(&path, &elsewhere(1)).unwrap();
        let look = || find(folder.path()).unwrap();
        assert!(matches!(look(), Holder::Elsewhere(_)));
        assert!(matches!(look().after(Duration::ZERO), Holder::Gone(_)));
        let before = look();
        write(&path, &elsewhere(2)).unwrap();
        assert!(matches!(before.after(Duration::ZERO), Holder::Alive));
    }
}
