//! Independent work on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::machine::cores;

/// The results of `work` on 0, 1, … `count − 1`, in this order.
pub(super) fn map<R: Send>(count: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let threads = cores().min(count);
    if threads <= 1 {
        return (0..count).map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(count));
    let run = || {
        loop {
            let idx = next.fetch_add(1, Ordering::Relaxed);
            if idx >= count {
                return;
            }
            let result = work(idx);
            if let Ok(mut done) = done.lock() {
                done.push((idx, result));
            }
        }
    };
    std::thread::scope(|scope| {
        for number in 1..threads {
            // A thread that cannot be started is one fewer: this one does the work alone if need be.
            let _ = std::thread::Builder::new()
                .name(format!("kino-probe-{number}"))
                .spawn_scoped(scope, run);
        }
        run();
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_unstable_by_key(|(idx, _)| *idx);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::map;

    #[test]
    fn results_are_in_order() {
        assert_eq!(
            map(100, |idx| idx * idx),
            (0..100).map(|idx| idx * idx).collect::<Vec<_>>()
        );
        assert!(map(0, |idx| idx).is_empty());
    }
}
