//! Which blocks are being fetched, so that a block that several threads need at once is fetched by one of them.
//!
//! ```text
//! thread 1   begin(block 3) ─▶ Landing ─▶ fetched, kept ─▶ dropped
//! thread 2   begin(block 3) ─ waits ──────────────────────▶ none: it looks for the block again
//! ```

use std::collections::HashSet;
use std::time::{Duration, Instant};

use kino_sync::{Condvar, Mutex};

/// No thread waits longer: a process may have been forked while another thread fetched, and does not have that thread.
const LONGEST: Duration = Duration::from_secs(5);

/// A file by its hash, and the number of a block.
type Block = (String, u64);

/// Blocks on their way.
#[derive(Debug, Default)]
pub(super) struct Flights {
    blocks: Mutex<HashSet<Block>>,
    landed: Condvar,
}

/// A block that this thread fetches; dropped once it is kept.
#[derive(Debug)]
pub(super) struct Landing<'f> {
    flights: &'f Flights,
    block: Block,
}

impl Flights {
    /// Says that a block is fetched by this thread; if another one does, waits until it has, or has tried to, and gives nothing.
    pub(super) fn begin(&self, shard: &str, block: u64) -> Option<Landing<'_>> {
        let block = (shard.to_owned(), block);
        let mut blocks = self.blocks.lock();
        if blocks.insert(block.clone()) {
            drop(blocks);
            return Some(Landing {
                flights: self,
                block,
            });
        }
        let until = Instant::now() + LONGEST;
        while blocks.contains(&block) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            blocks = self.landed.wait_for(blocks, left);
        }
        None
    }
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        self.flights.blocks.lock().remove(&self.block);
        self.flights.landed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn of_threads_that_need_a_block_one_fetches_it_and_the_others_wait_until_it_is_kept() {
        let (flights, is_kept) = (Flights::default(), AtomicBool::new(false));
        let landing = flights.begin("shard", 3);
        assert!(landing.is_some(), "nobody fetches it yet");
        assert!(flights.begin("shard", 4).is_some());
        assert!(flights.begin("other", 3).is_some());
        thread::scope(|scope| {
            let wait = || {
                assert!(flights.begin("shard", 3).is_none());
                assert!(is_kept.load(Ordering::Acquire), "it did not wait");
            };
            let waiting: Vec<_> = (0..4).map(|_| scope.spawn(wait)).collect();
            thread::sleep(Duration::from_millis(20));
            is_kept.store(true, Ordering::Release);
            drop(landing);
            waiting.into_iter().for_each(|one| one.join().unwrap());
        });
        assert!(flights.begin("shard", 3).is_some());
    }
}
