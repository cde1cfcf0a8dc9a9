//! Which blocks are being fetched, so that a block that several threads need at once is fetched by one of them.
//!
//! ```text
//! thread 1   begin(block 3) ─▶ Mine ─▶ fetched, kept ─▶ dropped
//! thread 2   begin(block 3) ─ waits ───────────────────▶ Waited: it looks for the block again
//! ```

use std::collections::HashSet;
use std::time::{Duration, Instant};

use kino_sync::{Condvar, Mutex};

/// Nobody waits longer: a process may have been forked while another thread fetched, and does not have that thread.
const LONGEST: Duration = Duration::from_secs(5);

/// A file by its hash, and the number of a block.
type Block = (String, u64);

/// Blocks on their way.
#[derive(Debug, Default)]
pub(super) struct Flights {
    blocks: Mutex<HashSet<Block>>,
    landed: Condvar,
}

/// What became of a block that is to be fetched.
#[derive(Debug)]
pub(super) enum Flight<'f> {
    /// This thread fetches it, and drops this when it is kept.
    Mine(#[expect(dead_code, reason = "held for its `Drop`")] Landing<'f>),
    /// Another thread fetched it meanwhile, or tried to.
    Waited,
}

/// Ends a flight when it is dropped.
#[derive(Debug)]
pub(super) struct Landing<'f> {
    flights: &'f Flights,
    block: Block,
}

impl Flights {
    /// Says that a block is fetched by this thread, or waits for the one that does.
    pub(super) fn begin(&self, shard: &str, block: u64) -> Flight<'_> {
        let block = (shard.to_owned(), block);
        let mut blocks = self.blocks.lock();
        if blocks.insert(block.clone()) {
            drop(blocks);
            return Flight::Mine(Landing {
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
        Flight::Waited
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
        let Flight::Mine(landing) = flights.begin("shard", 3) else {
            panic!("nobody fetches it yet");
        };
        assert!(matches!(flights.begin("shard", 4), Flight::Mine(_)));
        assert!(matches!(flights.begin("other", 3), Flight::Mine(_)));
        thread::scope(|scope| {
            let wait = || {
                assert!(matches!(flights.begin("shard", 3), Flight::Waited));
                assert!(is_kept.load(Ordering::Acquire), "it did not wait");
            };
            let waiting: Vec<_> = (0..4).map(|_| scope.spawn(wait)).collect();
            thread::sleep(Duration::from_millis(20));
            is_kept.store(true, Ordering::Release);
            drop(landing);
            waiting.into_iter().for_each(|one| one.join().unwrap());
        });
        assert!(matches!(flights.begin("shard", 3), Flight::Mine(_)));
    }
}
