//! Turns of the writers of one dataset: one registers, commits or collects garbage at a time.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a writer waits for another writer's turn before it continues without.
const TURN_WAIT: Duration = Duration::from_secs(30);

/// How often it checks.
const TURN_STEP: Duration = Duration::from_millis(5);

/// The right to change the contents of a dataset's folder.
///
/// Correctness does not depend on it, since a manifest is only created if absent: it saves other writers the work of a lost
/// attempt. So a file system without locks, or a process that is stopped during its turn, never blocks anyone forever.
#[derive(Debug)]
pub(crate) struct Turn(Option<File>);

impl Turn {
    /// Waits for the turn; others wait meanwhile.
    pub(crate) fn wait(folder: &Path) -> Self {
        let deadline = Instant::now() + TURN_WAIT;
        let Ok(folder) = File::open(folder) else {
            return Self(None);
        };
        loop {
            match folder.try_lock() {
                Ok(()) => return Self(Some(folder)),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(TURN_STEP);
                }
                Err(_) => return Self(None),
            }
        }
    }

    /// Whether the turn is exclusive: it is not on a file system without locks, or after waiting too long.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.0.is_some()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Unlocked explicitly: a process forked in the meantime may hold the same file open.
        let _ = self.0.as_ref().map(File::unlock);
    }
}
