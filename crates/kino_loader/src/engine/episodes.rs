//! Episodes that were opened: their indices and clocks are read once, as long as they are in use.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use kino_dataset::{DatasetError, EpisodeWindows, Windows};

use super::pool::EpisodeKey;
use super::shared::Shared;
use crate::order::SampleRef;

/// Opened episodes that are kept, beyond those of the pool.
const KEPT_EPISODES: usize = 1024;

/// Opened episodes, the oldest let go first.
#[derive(Debug, Default)]
pub(super) struct Episodes {
    open: HashMap<EpisodeKey, Arc<EpisodeWindows>>,
    age: VecDeque<EpisodeKey>,
}

impl Episodes {
    pub(super) fn open(
        &mut self,
        shared: &Shared,
        key: EpisodeKey,
    ) -> Result<Arc<EpisodeWindows>, DatasetError> {
        if let Some(windows) = self.open.get(&key) {
            return Ok(Arc::clone(windows));
        }
        let windows = windows_of(shared, key);
        let windows = Arc::new(windows.episode(key.episode as usize)?);
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

fn windows_of(shared: &Shared, key: EpisodeKey) -> &Windows {
    &shared.windows[key.source as usize][key.variant as usize]
}

pub(super) fn key_of(sample: &SampleRef) -> EpisodeKey {
    EpisodeKey {
        source: sample.source,
        variant: sample.variant,
        episode: sample.episode,
    }
}
