//! A shard that is opened when it is needed, by one of the threads that need it: behind a URL its directory is 64 KiB and a
//! round trip, and many threads need it at once when a loader starts.

use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::Duration;

use kino_format::Shard;
use kino_sync::Mutex;

use crate::error::Result;

/// How often a thread looks whether another one has opened the shard…
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// … and how many times, before it opens the shard itself: in a forked process the other thread may not be there.
const LOOKS: usize = 2000;

/// A shard, once it is open.
#[derive(Debug, Default)]
pub(crate) struct ShardSlot {
    shard: OnceLock<Arc<Shard>>,
    /// Held by the thread that opens it.
    opening: Mutex<()>,
}

impl ShardSlot {
    /// The shard; `open` is called unless another thread opens it.
    pub(crate) fn get(&self, open: impl FnOnce() -> Result<Shard>) -> Result<Arc<Shard>> {
        let mut looks = 0;
        let _opening = loop {
            if let Some(shard) = self.shard.get() {
                return Ok(Arc::clone(shard));
            }
            match self.opening.try_lock() {
                None if looks < LOOKS => sleep(LOOK_EVERY),
                guard => break guard,
            }
            looks += 1;
        };
        // Another thread may have finished between the look and the lock.
        if let Some(shard) = self.shard.get() {
            return Ok(Arc::clone(shard));
        }
        let shard = Arc::new(open()?);
        Ok(Arc::clone(self.shard.get_or_init(|| shard)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use kino_format::{OpenShard, Schema, ShardWriter, Step};

    use super::*;
    use crate::error::invalid;
    use kino_storage::at_once;

    fn empty_shard() -> Shard {
        let mut bytes = Vec::new();
        let schema = Schema {
            clock_codec: "raw".into(),
            ..Schema::default()
        };
        let writer = ShardWriter::new(&mut bytes);
        writer.finish(&schema, &mut bytes).unwrap();
        let mut opening = OpenShard::new(bytes.len() as u64).unwrap();
        opening.step().unwrap();
        opening.feed(&bytes);
        match opening.step().unwrap() {
            Step::Ready(shard) => shard,
            Step::Need(range) => panic!("{range:?}"),
        }
    }

    #[test]
    fn many_threads_read_a_shard_once_and_a_failed_read_is_repeated() {
        let (slot, reads) = (ShardSlot::default(), AtomicU32::new(0));
        assert!(slot.get(|| Err(invalid("no connection"))).is_err());
        let opened = at_once(&[0; 16], |_| {
            slot.get(|| {
                reads.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(20));
                Ok(empty_shard())
            })
        });
        assert!(opened.iter().all(Result::is_ok));
        assert_eq!(reads.into_inner(), 1);
    }

    #[test]
    fn a_lock_that_is_never_released_is_not_waited_for_for_ever() {
        let slot = ShardSlot::default();
        let _lost = slot.opening.lock();
        assert!(slot.get(|| Ok(empty_shard())).is_ok());
    }
}
