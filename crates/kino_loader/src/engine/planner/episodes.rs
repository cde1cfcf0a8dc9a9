//! Open episodes: the index and clock of an episode are read once while it is in use.
//!
//! ```text
//! wanted 7 2 9 4 …  ──request──▶ kino-read threads ──▶ opened 7 2 9    taken by the planner in order
//! ```
//!
//! Opening an episode reads from storage, which would block the planner. So read threads open the episodes that it
//! will need soon, a bounded number ahead; those of a remote dataset many together, in as many round trips as one. If an episode is needed before any thread has started on it, the planner
//! opens it itself.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kino_dataset::{DatasetError, EpisodeSamples, Samples};
use kino_sync::{Condvar, Mutex};

use crate::engine::store::EpisodeKey;
use crate::engine::threads::Engine;
use crate::order::SampleRef;

/// Open episodes kept, in addition to those of the cache.
const KEPT_EPISODES: usize = 1024;

/// Limit on episodes that are being opened, or are open and not yet used…
pub(crate) const OPEN_AHEAD: usize = 64;

/// … and if they come over a network: as many are opened in one round trip as a batch of very short ones may need.
const REMOTE_OPEN_AHEAD: usize = 512;

/// Episodes that are opened together. Others are requested meanwhile, by other threads.
const TOGETHER: usize = 256;

/// The result of opening an episode.
type Opened = Result<Arc<EpisodeSamples>, DatasetError>;

/// Open episodes, first in first out.
#[derive(Debug, Default)]
pub(crate) struct Episodes {
    open: HashMap<EpisodeKey, Arc<EpisodeSamples>>,
    age: VecDeque<EpisodeKey>,
}

impl Episodes {
    /// Whether an episode is open.
    pub(crate) fn has(&self, key: EpisodeKey) -> bool {
        self.open.contains_key(&key)
    }

    /// The episode; reads from storage unless it was opened ahead.
    pub(crate) fn open(&mut self, engine: &Engine, key: EpisodeKey) -> Opened {
        if let Some(windows) = self.open.get(&key) {
            return Ok(Arc::clone(windows));
        }
        let windows = match engine.opening.take(key, || engine.crew.is_stopped()) {
            Some(opened) => opened?,
            None => engine.opening.open(key)?,
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

/// Episodes that are opened ahead of the planner.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    /// Per source, per variant.
    windows: Arc<[Vec<Samples>]>,
    is_remote: bool,
    state: Mutex<Ahead>,
    /// Notified when episodes were opened.
    opened: Condvar,
}

#[derive(Debug, Default)]
struct Ahead {
    most: usize,
    steps: HashMap<EpisodeKey, Step>,
    /// In the order of the requests.
    requested: VecDeque<EpisodeKey>,
}

#[derive(Debug)]
enum Step {
    /// No thread has started on it.
    Requested,
    /// A thread is opening it, and will notify.
    Started,
    /// It is open, or opening it failed.
    Done(Opened),
}

impl Opening {
    /// Of these sources, each with its variants.
    pub(crate) fn new(windows: Arc<[Vec<Samples>]>) -> Self {
        let mut samples = windows.iter().flatten();
        let is_remote = samples.any(|samples| samples.dataset().is_remote());
        let state = Ahead {
            most: if is_remote {
                REMOTE_OPEN_AHEAD
            } else {
                OPEN_AHEAD
            },
            ..Ahead::default()
        };
        Self {
            windows,
            is_remote,
            state: Mutex::new(state),
            opened: Condvar::new(),
        }
    }

    /// Whether some episodes come over a network.
    pub(crate) fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// How many episodes may be open ahead.
    pub(crate) fn most(&self) -> usize {
        self.state.lock().most
    }

    /// How many are being opened, or are open and not yet used.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().requested.len()
    }

    /// Whether an episode is open and can be taken without waiting.
    pub(crate) fn has(&self, key: EpisodeKey) -> bool {
        matches!(self.state.lock().steps.get(&key), Some(Step::Done(_)))
    }

    /// Opens episodes, those of a dataset together: reads from storage.
    pub(crate) fn open_all(&self, keys: &[EpisodeKey]) -> Vec<(EpisodeKey, Opened)> {
        let mut opened = Vec::with_capacity(keys.len());
        let mut sorted = keys.to_vec();
        sorted.sort_unstable_by_key(|key| (key.source, key.variant));
        for keys in sorted.chunk_by(|a, b| (a.source, a.variant) == (b.source, b.variant)) {
            let samples = &self.windows[keys[0].source as usize][keys[0].variant as usize];
            let positions: Vec<usize> = keys.iter().map(|key| key.episode as usize).collect();
            let found = samples.episodes_at(&positions).into_iter();
            let found = found.map(|episode| episode.map(Arc::new));
            opened.extend(keys.iter().copied().zip(found));
        }
        opened
    }

    /// Opens an episode: reads from storage.
    pub(crate) fn open(&self, key: EpisodeKey) -> Opened {
        let windows = &self.windows[key.source as usize][key.variant as usize];
        Ok(Arc::new(windows.episode(key.episode as usize)?))
    }

    /// Requests episodes, as far as there is room; returns those that were not requested before.
    fn request(&self, keys: impl Iterator<Item = EpisodeKey>) -> Vec<EpisodeKey> {
        let mut state = self.state.lock();
        let mut new = Vec::new();
        for key in keys {
            if state.steps.contains_key(&key) {
                continue;
            }
            if !state.has_room() {
                break;
            }
            state.steps.insert(key, Step::Requested);
            state.requested.push_back(key);
            new.push(key);
        }
        new
    }

    /// Claims an episode for the caller to open; `false` if it is claimed or no longer wanted.
    pub(crate) fn begin(&self, key: EpisodeKey) -> bool {
        match self.state.lock().steps.get_mut(&key) {
            Some(step @ Step::Requested) => {
                *step = Step::Started;
                true
            }
            _ => false,
        }
    }

    /// Stores the results.
    pub(crate) fn finish(&self, opened: Vec<(EpisodeKey, Opened)>) {
        let mut state = self.state.lock();
        for (key, opened) in opened {
            if let Some(step) = state.steps.get_mut(&key) {
                *step = Step::Done(opened);
            }
        }
        drop(state);
        self.opened.notify_all();
    }

    /// Takes an episode that is open, or waits if a thread is opening it; `None` if the caller must open it.
    fn take(&self, key: EpisodeKey, is_stopped: impl Fn() -> bool) -> Option<Opened> {
        let mut state = self.state.lock();
        while matches!(state.steps.get(&key)?, Step::Started) {
            if is_stopped() {
                return None;
            }
            // The thread that opens it notifies. If it panics it does not, but then the loader stops.
            state = self.opened.wait_for(state, Duration::from_millis(50));
        }
        state.requested.retain(|&requested| requested != key);
        match state.steps.remove(&key)? {
            Step::Done(opened) => Some(opened),
            Step::Requested | Step::Started => None,
        }
    }
}

impl Ahead {
    /// Whether there is room for another episode. The oldest one gives way if it is open: if it is still unused, its
    /// batch may have failed.
    fn has_room(&mut self) -> bool {
        if self.requested.len() < self.most {
            return true;
        }
        let oldest = self.requested.front().copied();
        match oldest.and_then(|key| Some((key, self.steps.get(&key)?))) {
            Some((key, Step::Done(_))) => {
                self.steps.remove(&key);
                self.requested.pop_front();
                true
            }
            _ => false,
        }
    }
}

/// Queues episodes to be opened ahead, for a batch.
pub(crate) fn ask_to_open(engine: &Engine, keys: impl Iterator<Item = EpisodeKey>, batch: u64) {
    let new = engine.opening.request(keys);
    let together = if engine.opening.is_remote() {
        TOGETHER
    } else {
        1
    };
    let groups = new.chunks(together).map(<[EpisodeKey]>::to_vec);
    engine.crew.open(groups, batch);
}

pub(crate) fn key_of(sample: &SampleRef) -> EpisodeKey {
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
    fn an_open_episode_is_taken_once_and_one_not_started_is_left_to_the_caller() {
        let opening = Opening::new(Arc::default());
        assert_eq!(
            opening.request([key(1), key(2), key(1)].into_iter()),
            [key(1), key(2)]
        );
        assert!(opening.begin(key(1)) && !opening.begin(key(1)) && !opening.begin(key(9)));
        assert!(!opening.has(key(1)));
        opening.finish(vec![(key(1), missing())]);
        assert!(opening.has(key(1)));
        assert!(opening.take(key(1), || false).unwrap().is_err());
        assert!(opening.take(key(1), || false).is_none());
        assert!(opening.take(key(2), || false).is_none());
        assert!(!opening.begin(key(2)), "the caller of `take` opens it");
    }

    #[test]
    fn take_waits_for_the_thread_that_opens_the_episode_unless_the_loader_stops() {
        let opening = Opening::new(Arc::default());
        opening.request([key(1)].into_iter());
        assert!(opening.begin(key(1)));
        assert!(opening.take(key(1), || true).is_none());
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| opening.take(key(1), || false));
            opening.finish(vec![(key(1), missing())]);
            assert!(taker.join().unwrap().unwrap().is_err());
        });
    }

    #[test]
    fn requests_are_bounded_and_the_oldest_open_episode_gives_way() {
        let opening = Opening::new(Arc::default());
        let most = u32::try_from(OPEN_AHEAD).unwrap();
        assert_eq!(opening.request((0..2 * most).map(key)).len(), OPEN_AHEAD);
        assert!(
            opening.request([key(500)].into_iter()).is_empty(),
            "none has been opened"
        );
        assert!(opening.begin(key(0)));
        opening.finish(vec![(key(0), missing())]);
        assert_eq!(
            opening.request([key(500), key(501)].into_iter()),
            [key(500)]
        );
        assert!(opening.take(key(0), || false).is_none());
        let state = opening.state.lock();
        assert_eq!(
            (state.steps.len(), state.requested.len()),
            (OPEN_AHEAD, OPEN_AHEAD)
        );
    }
}
