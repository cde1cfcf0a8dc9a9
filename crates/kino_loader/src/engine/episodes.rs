//! Episodes that were opened: their indices and clocks are read once, as long as they are in use.
//!
//! ```text
//! wanted 7 2 9 4 …  ──ask──▶ kino-read threads ──▶ opened 7 2 9    taken by the scheduler in their turn
//! ```
//!
//! Opening reads from storage. The scheduler would stand still for each, so what it will need soon is opened by the
//! threads that read, a bounded number ahead. What nobody has begun when its turn comes, it opens itself.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kino_dataset::{DatasetError, EpisodeSamples};

use super::frame_cache::EpisodeKey;
use super::shared::Shared;
use super::worker::Read;
use crate::order::SampleRef;

/// Opened episodes that are kept, beyond those of the cache.
const KEPT_EPISODES: usize = 1024;

/// Episodes that are being opened, or were and wait to be used.
pub(super) const OPEN_AHEAD: usize = 64;

/// What came of opening an episode.
type Opened = Result<Arc<EpisodeSamples>, DatasetError>;

/// Opened episodes, the oldest let go first.
#[derive(Debug, Default)]
pub(super) struct Episodes {
    open: HashMap<EpisodeKey, Arc<EpisodeSamples>>,
    age: VecDeque<EpisodeKey>,
}

impl Episodes {
    /// Whether it has an episode.
    pub(super) fn has(&self, key: EpisodeKey) -> bool {
        self.open.contains_key(&key)
    }

    /// The episode; waits for storage unless it was opened ahead.
    pub(super) fn open(&mut self, shared: &Shared, key: EpisodeKey) -> Opened {
        if let Some(windows) = self.open.get(&key) {
            return Ok(Arc::clone(windows));
        }
        let windows = match shared.opening.take(key, || shared.is_stopped()) {
            Some(opened) => opened?,
            None => open(shared, key)?,
        };
        if self.age.len() >= KEPT_EPISODES
            && let Some(oldest) = self.age.pop_front()
        {
            self.open.remove(&oldest);
        }
        self.age.push_back(key);
        self.open.insert(key, Arc::clone(&windows));
        Ok(windows)
    }
}

/// Episodes that are opened ahead of the scheduler.
#[derive(Debug, Default)]
pub(super) struct Opening {
    state: Mutex<Ahead>,
    /// Told when one was opened.
    opened: Condvar,
}

#[derive(Debug, Default)]
struct Ahead {
    steps: HashMap<EpisodeKey, Step>,
    /// In the order in which they were asked for.
    asked: VecDeque<EpisodeKey>,
}

#[derive(Debug)]
enum Step {
    /// Nobody has begun.
    Asked,
    /// A thread opens it, and will tell.
    Begun,
    /// It is there, or why not.
    Done(Opened),
}

impl Opening {
    /// Which of these are to be opened: those that nobody was asked for yet, as far as there is room.
    fn ask(&self, keys: impl Iterator<Item = EpisodeKey>) -> Vec<EpisodeKey> {
        let mut state = self.lock();
        let mut new = Vec::new();
        for key in keys {
            if state.steps.contains_key(&key) {
                continue;
            }
            if !state.has_room() {
                break;
            }
            state.steps.insert(key, Step::Asked);
            state.asked.push_back(key);
            new.push(key);
        }
        new
    }

    /// Whether an episode is still to be opened; from now on the caller does.
    pub(super) fn begin(&self, key: EpisodeKey) -> bool {
        match self.lock().steps.get_mut(&key) {
            Some(step @ Step::Asked) => {
                *step = Step::Begun;
                true
            }
            _ => false,
        }
    }

    /// Puts what came of it.
    pub(super) fn finish(&self, key: EpisodeKey, opened: Opened) {
        if let Some(step) = self.lock().steps.get_mut(&key) {
            *step = Step::Done(opened);
        }
        self.opened.notify_all();
    }

    /// An episode that was opened, or is just being opened; `None` if the caller has to do it.
    fn take(&self, key: EpisodeKey, is_stopped: impl Fn() -> bool) -> Option<Opened> {
        let mut state = self.lock();
        while matches!(state.steps.get(&key)?, Step::Begun) {
            if is_stopped() {
                return None;
            }
            // Whoever has begun tells; a thread that panicked does not, and stops the loader.
            let waited = self.opened.wait_timeout(state, Duration::from_millis(50));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.asked.retain(|&asked| asked != key);
        match state.steps.remove(&key)? {
            Step::Done(opened) => Some(opened),
            Step::Asked | Step::Begun => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ahead> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ahead {
    /// Room for one more; what was opened longest ago and not used gives way, because its batch may have failed.
    fn has_room(&mut self) -> bool {
        if self.asked.len() < OPEN_AHEAD {
            return true;
        }
        let oldest = self.asked.front().copied();
        match oldest.and_then(|key| Some((key, self.steps.get(&key)?))) {
            Some((key, Step::Done(_))) => {
                self.steps.remove(&key);
                self.asked.pop_front();
                true
            }
            _ => false,
        }
    }
}

/// Has episodes opened ahead, for a batch.
pub(super) fn ask_to_open(shared: &Shared, keys: impl Iterator<Item = EpisodeKey>, batch: u64) {
    let new = shared.opening.ask(keys);
    // Before the batch's own reads, which cannot be known without it.
    let tasks = new.into_iter().map(|key| (u64::MAX, Read::Episode(key)));
    shared.reads.push(batch * 2, tasks);
}

/// Opens an episode: reads from storage.
pub(super) fn open(shared: &Shared, key: EpisodeKey) -> Opened {
    let windows = &shared.windows[key.source as usize][key.variant as usize];
    Ok(Arc::new(windows.episode(key.episode as usize)?))
}

pub(super) fn key_of(sample: &SampleRef) -> EpisodeKey {
    EpisodeKey {
        source: sample.source,
        variant: sample.variant,
        episode: sample.episode,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(episode: u32) -> EpisodeKey {
        EpisodeKey {
            source: 0,
            variant: 0,
            episode,
        }
    }

    fn missing() -> Opened {
        Err(DatasetError::NotFound {
            what: "test".to_owned(),
        })
    }

    #[test]
    fn what_was_opened_is_taken_once_and_what_nobody_began_is_left_to_the_taker() {
        let opening = Opening::default();
        assert_eq!(
            opening.ask([key(1), key(2), key(1)].into_iter()),
            [key(1), key(2)]
        );
        assert!(opening.begin(key(1)) && !opening.begin(key(1)) && !opening.begin(key(9)));
        opening.finish(key(1), missing());
        assert!(opening.take(key(1), || false).unwrap().is_err());
        assert!(opening.take(key(1), || false).is_none());
        assert!(opening.take(key(2), || false).is_none());
        assert!(!opening.begin(key(2)), "the taker opens it");
    }

    #[test]
    fn a_taker_waits_for_whoever_has_begun_unless_the_loader_stops() {
        let opening = Opening::default();
        opening.ask([key(1)].into_iter());
        assert!(opening.begin(key(1)));
        assert!(opening.take(key(1), || true).is_none());
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| opening.take(key(1), || false));
            opening.finish(key(1), missing());
            assert!(taker.join().unwrap().unwrap().is_err());
        });
    }

    #[test]
    fn no_more_are_open_than_there_is_room_for_and_the_oldest_gives_way() {
        let opening = Opening::default();
        let most = u32::try_from(OPEN_AHEAD).unwrap();
        assert_eq!(opening.ask((0..2 * most).map(key)).len(), OPEN_AHEAD);
        assert!(
            opening.ask([key(500)].into_iter()).is_empty(),
            "nobody has begun"
        );
        assert!(opening.begin(key(0)));
        opening.finish(key(0), missing());
        assert_eq!(opening.ask([key(500), key(501)].into_iter()), [key(500)]);
        assert!(opening.take(key(0), || false).is_none());
        let state = opening.lock();
        assert_eq!(
            (state.steps.len(), state.asked.len()),
            (OPEN_AHEAD, OPEN_AHEAD)
        );
    }
}
