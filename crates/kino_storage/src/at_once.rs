//! Reads side by side, each on a thread: behind a URL they take one round trip instead of one each.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// More than this many are not on their way at once.
const MOST: usize = 64;

/// What `read` returns for each item, in their order.
pub fn at_once<T: Sync, R: Send + Sync>(items: &[T], read: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if let [only] = items {
        return vec![read(only)];
    }
    let results: Vec<OnceLock<R>> = items.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        // What is done first takes the next one: a slow read keeps none waiting.
        while let Some((item, result)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            items.get(at).zip(results.get(at))
        } {
            let _ = result.set(read(item));
        }
    };
    thread::scope(|scope| {
        let others = items.len().clamp(1, MOST) - 1;
        let others: Vec<_> = (0..others).map(|_| scope.spawn(work)).collect();
        work();
        for other in others {
            if let Err(panic) = other.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    results
        .into_iter()
        .filter_map(OnceLock::into_inner)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn all_are_begun_before_the_first_is_done_and_the_results_keep_their_order() {
        let barrier = Barrier::new(7);
        let read = |item: &u32| {
            barrier.wait();
            item * item
        };
        assert_eq!(
            at_once(&[3, 1, 4, 1, 5, 9, 2], read),
            [9, 1, 16, 1, 25, 81, 4]
        );
        assert!(at_once(&[], read).is_empty());
        let many: Vec<usize> = (0..1000).collect();
        assert_eq!(at_once(&many, |&item| item), many);
    }
}
