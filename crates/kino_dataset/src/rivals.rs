//! What this process has seen of a remote dataset and of its other writers: how far they are, and how long to wait for
//! one's turn.
//!
//! ```text
//! lost ─▶ wait up to 2 attempts ─▶ lost ─▶ up to 4 ─▶ … ─▶ won      the next commit begins with the last of these
//!                                                 won at once ─▶ it begins with half of it, at the end with none
//! ```
//!
//! Of writers that commit at the same time one wins, and what the others have read and written for it was for nothing.
//! How many there are shows only in how often one loses, so the wait follows that, and is remembered: each commit of a
//! process that appends episode after episode would find it out again otherwise.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use kino_storage::jittered;
use kino_sync::Mutex;

use crate::error::Result;
use crate::store::{Store, version_key};

/// The shortest attempt that counts, and the longest wait.
const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(30);

/// Names of versions from here on do not sort by number.
const MOST_SORTED: u64 = 9_999_999;

/// What was seen of the datasets of this process, by their URLs.
static SEEN: LazyLock<Mutex<HashMap<PathBuf, Seen>>> = LazyLock::new(Mutex::default);

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// The newest version, which may not be the newest any more.
    newest: Option<u64>,
    /// How long commits wait, at most.
    window: Duration,
    /// Whether the storage was seen to refuse what it should.
    keeps_conditions: bool,
}

fn seen(root: &Path) -> Seen {
    SEEN.lock().get(root).copied().unwrap_or_default()
}

fn note(store: &Store, change: impl FnOnce(&mut Seen)) {
    if store.is_remote() {
        let mut all = SEEN.lock();
        change(all.entry(store.root().to_owned()).or_default());
    }
}

impl Store {
    /// The newest version, if there is one.
    ///
    /// Listing thousands of versions takes many requests. If this process has seen one of them, only what comes after it
    /// is listed; a dataset in which that version is not there any more is another one, and is listed whole.
    pub(crate) fn newest(&self) -> Result<Option<u64>> {
        let known = seen(self.root())
            .newest
            .filter(|known| *known <= MOST_SORTED);
        let newest = match known {
            Some(known) => match self.versions_after(&version_key(known - 1))? {
                Some(versions) if versions.first() == Some(&known) => versions.last().copied(),
                _ => self.versions()?.last().copied(),
            },
            None => self.versions()?.last().copied(),
        };
        note(self, |seen| seen.newest = newest);
        Ok(newest)
    }

    /// Refuses a storage that ignores the conditions of conditional writes, which is asked once: an object that is
    /// certainly there is needed for it.
    pub(crate) fn check_conditional_once(&self, key: &str, bytes: &[u8]) -> Result<()> {
        if !seen(self.root()).keeps_conditions {
            self.check_conditional(key, bytes)?;
            note(self, |seen| seen.keeps_conditions = true);
        }
        Ok(())
    }
}

/// One commit among rivals.
#[derive(Debug)]
pub(crate) struct Rivals<'a> {
    store: &'a Store,
    window: Duration,
    began: Instant,
    losses: u32,
}

impl<'a> Rivals<'a> {
    /// A commit to this dataset.
    pub(crate) fn of(store: &'a Store) -> Self {
        Self {
            store,
            window: seen(store.root()).window,
            began: Instant::now(),
            losses: 0,
        }
    }

    /// Waits before the next attempt.
    pub(crate) fn wait(&mut self) {
        // From nothing to the whole window: rivals that lost together come back at different times.
        let wait = jittered(2 * self.window).saturating_sub(self.window);
        if !wait.is_zero() {
            thread::sleep(wait);
        }
        self.began = Instant::now();
    }

    /// The attempt was too late.
    pub(crate) fn lost(&mut self) {
        let attempt = self.began.elapsed().max(SHORTEST);
        self.window = (2 * self.window.max(attempt)).min(LONGEST);
        self.losses += 1;
        note(self.store, |seen| seen.window = self.window);
    }

    /// The attempt made this version.
    pub(crate) fn won(self, version: u64) {
        let half = self.window / 2;
        let window = match self.losses {
            0 if half < self.began.elapsed() => Duration::ZERO,
            0 => half,
            _ => self.window,
        };
        note(self.store, |seen| {
            seen.window = window;
            seen.newest = Some(version);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_with_every_loss_and_are_forgotten_when_nobody_else_commits() {
        let url = Path::new("http://127.0.0.1:9/waits.kino");
        let store = Store::open(url).unwrap();
        let mut rivals = Rivals::of(&store);
        let mut windows = Vec::new();
        for _ in 0..4 {
            rivals.lost();
            windows.push(rivals.window);
        }
        assert!(windows[0] >= 2 * SHORTEST, "{windows:?}");
        assert!(
            windows.windows(2).all(|two| two[1] == 2 * two[0]),
            "{windows:?}"
        );
        rivals.won(7);
        assert_eq!(
            seen(store.root()).window,
            windows[3],
            "the next one begins with it"
        );
        assert_eq!(seen(store.root()).newest, Some(7));
        let commits = (0..64).take_while(|_| {
            let mut rivals = Rivals::of(&store);
            rivals.began = Instant::now();
            let had_window = !rivals.window.is_zero();
            rivals.won(8);
            had_window
        });
        let commits = commits.count();
        assert!((4..64).contains(&commits), "{commits}");
        rivals_lose_for_long(&store);
    }

    fn rivals_lose_for_long(store: &Store) {
        let mut rivals = Rivals::of(store);
        (0..100).for_each(|_| rivals.lost());
        assert_eq!(rivals.window, LONGEST);
    }

    #[test]
    fn nothing_is_remembered_of_a_folder_whose_path_may_soon_be_another_dataset() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        let mut rivals = Rivals::of(&store);
        rivals.lost();
        rivals.won(3);
        assert_eq!(seen(store.root()).newest, None);
        assert_eq!(Rivals::of(&store).window, Duration::ZERO);
    }
}
