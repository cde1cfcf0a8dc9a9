//! A few reads side by side, each on a thread of its own: behind a URL they take one round trip instead of one each.

use std::thread;

/// More than this many are not begun at once.
const MOST: usize = 32;

/// What `read` returns for each item, in their order.
pub fn at_once<T: Sync, R: Send>(items: &[T], read: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let mut results = Vec::with_capacity(items.len());
    for items in items.chunks(MOST) {
        thread::scope(|scope| {
            let (first, others) = items.split_at(1);
            let others: Vec<_> = others
                .iter()
                .map(|item| scope.spawn(|| read(item)))
                .collect();
            results.extend(first.iter().map(&read));
            for other in others {
                match other.join() {
                    Ok(result) => results.push(result),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
    }
    results
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
        let many: Vec<usize> = (0..100).collect();
        assert_eq!(at_once(&many, |&item| item), many);
    }
}
