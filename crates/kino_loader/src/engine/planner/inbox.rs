//! The planner's inbox: what other threads tell it, and how it waits for them.
//!
//! ```text
//! training loop   a batch was taken          ─┐
//! kino-decode     a sample could not be read  ├─▶ inbox ──▶ planner
//! kino-decode     frames were given back     ─┘   (only if it asked for room)
//! ```
//!
//! The planner marks where the inbox stands, looks at the frame store and the assembler, and waits for what came after
//! the mark. So it holds no lock while it looks, and misses nothing that happens meanwhile. Nothing queues up here but
//! samples that could not be read, and there are at most as many as are in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kino_dataset::DatasetError;
use kino_sync::{Condvar, Mutex};

use crate::engine::store::SlotId;

/// What other threads tell the planner.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    letters: Mutex<Letters>,
    came: Condvar,
    /// Whether the planner waits for room in the frame store, and not only for a batch to be taken.
    wants_room: AtomicBool,
}

#[derive(Debug, Default)]
struct Letters {
    /// How many came.
    count: u64,
    failed: Vec<FailedSample>,
    is_stopped: bool,
}

/// A sample that could not be read, for the planner to replace.
#[derive(Debug)]
pub(crate) struct FailedSample {
    pub(crate) slot: SlotId,
    /// How many samples were tried in this slot before it.
    pub(crate) attempt: u64,
    /// The number of steps in each of its windows, if its batch has memory already: a longer sample would not fit.
    pub(crate) steps: Option<Vec<usize>>,
    /// Why it could not be read.
    pub(crate) error: Arc<DatasetError>,
}

/// Where the inbox stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(u64);

impl Inbox {
    /// Something changed that the planner may wait for.
    pub(crate) fn tell(&self) {
        let mut letters = self.letters.lock();
        letters.count += 1;
        drop(letters);
        self.came.notify_all();
    }

    /// Frames were given back. Waking a thread costs as much as a small sample, so it is only told if it asked.
    pub(crate) fn tell_of_room(&self) {
        if self.wants_room.swap(false, Ordering::SeqCst) {
            self.tell();
        }
    }

    /// Asks for a substitute.
    pub(crate) fn replace(&self, sample: FailedSample) {
        self.letters.lock().failed.push(sample);
        self.tell();
    }

    /// The loader stops.
    pub(crate) fn stop(&self) {
        self.letters.lock().is_stopped = true;
        self.tell();
    }

    /// Where the inbox stands; `None` if the loader stops.
    pub(crate) fn mark(&self) -> Option<Mark> {
        let letters = self.letters.lock();
        (!letters.is_stopped).then_some(Mark(letters.count))
    }

    /// Takes the samples that could not be read.
    pub(crate) fn take_failed(&self) -> Vec<FailedSample> {
        std::mem::take(&mut self.letters.lock().failed)
    }

    /// Has the planner told of frames that are given back from now on. First asked, then looked: what is given back in
    /// between is heard.
    pub(crate) fn ask_for_room(&self) {
        self.wants_room.store(true, Ordering::SeqCst);
    }

    /// Waits for what came after a mark.
    pub(crate) fn wait(&self, mark: Mark) {
        let mut letters = self.letters.lock();
        while letters.count == mark.0 {
            letters = self.came.wait(letters);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_a_mark_is_not_missed() {
        let inbox = Inbox::default();
        let mark = inbox.mark().unwrap();
        inbox.tell();
        inbox.wait(mark);
        assert_ne!(inbox.mark(), Some(mark));
        let (told, mark) = (&inbox, inbox.mark().unwrap());
        std::thread::scope(|scope| {
            let planner = scope.spawn(|| told.wait(mark));
            told.tell();
            planner.join().unwrap();
        });
    }

    #[test]
    fn room_is_told_once_to_a_planner_that_asked() {
        let inbox = Inbox::default();
        let mark = inbox.mark();
        inbox.tell_of_room();
        assert_eq!(inbox.mark(), mark, "it did not ask");
        inbox.ask_for_room();
        inbox.tell_of_room();
        let told = inbox.mark();
        assert_ne!(told, mark);
        inbox.tell_of_room();
        assert_eq!(inbox.mark(), told);
    }

    #[test]
    fn failed_samples_are_taken_once_and_a_stop_is_seen() {
        let inbox = Inbox::default();
        let mark = inbox.mark().unwrap();
        inbox.replace(FailedSample {
            slot: SlotId { batch: 7, slot: 3 },
            attempt: 0,
            steps: None,
            error: Arc::new(DatasetError::NotFound {
                what: "test".to_owned(),
            }),
        });
        inbox.wait(mark);
        let failed = inbox.take_failed();
        assert_eq!(failed[0].slot, SlotId { batch: 7, slot: 3 });
        assert!(failed.len() == 1 && inbox.take_failed().is_empty());
        inbox.stop();
        inbox.wait(mark);
        assert!(inbox.mark().is_none());
    }
}
