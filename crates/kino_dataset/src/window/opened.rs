//! Episodes that were opened to read samples one by one: each is opened once, for as long as it is kept.
//!
//! ```text
//! position of an episode ──► its index and clocks        the oldest of KEPT is let go for a new one
//! ```
//!
//! Opening reads an episode's index and makes its decoders; that costs more than most samples. The scheduler, which looks far ahead, keeps
//! its own, see [`Samples::episode`](super::samples::Samples::episode).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use kino_sync::{Mutex, MutexGuard};

use super::episode::EpisodeSamples;
use crate::error::Result;

/// How many are kept. An index takes some kilobytes, in long episodes of many cameras a hundred.
const KEPT: usize = 256;

/// Opened episodes by their position among the selected ones.
#[derive(Debug, Default)]
pub(super) struct OpenedEpisodes {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    open: HashMap<usize, Arc<EpisodeSamples>>,
    age: VecDeque<usize>,
}

impl OpenedEpisodes {
    /// The episode at `position`; `open` is called if it is not kept.
    pub(super) fn get(
        &self,
        position: usize,
        open: impl FnOnce() -> Result<EpisodeSamples>,
    ) -> Result<Arc<EpisodeSamples>> {
        let kept = self
            .lock()
            .and_then(|kept| kept.open.get(&position).cloned());
        if let Some(kept) = kept {
            return Ok(kept);
        }
        // Without the lock, so that no thread waits for another one's disk.
        let opened = Arc::new(open()?);
        if let Some(mut kept) = self.lock() {
            kept.put(position, &opened);
        }
        Ok(opened)
    }

    /// The lock, if it is free. It is never waited for: in a forked process it may be held for ever by a thread that is not
    /// there, and to open an episode once more does no harm.
    fn lock(&self) -> Option<MutexGuard<'_, Kept>> {
        self.kept.try_lock()
    }
}

impl Kept {
    fn put(&mut self, position: usize, opened: &Arc<EpisodeSamples>) {
        if self.open.insert(position, Arc::clone(opened)).is_some() {
            return;
        }
        self.age.push_back(position);
        if self.age.len() > KEPT
            && let Some(oldest) = self.age.pop_front()
        {
            self.open.remove(&oldest);
        }
    }
}
