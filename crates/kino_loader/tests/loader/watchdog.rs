//! A test that hangs says so, instead of standing still until somebody looks.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Runs `test` on a thread of its own; fails with `what` if it takes longer than `limit`.
pub(crate) fn within(limit: Duration, what: &str, test: impl FnOnce() + Send + 'static) {
    let (done, wait) = sync_channel::<()>(1);
    let thread = std::thread::Builder::new().name("watched".to_owned());
    let thread = thread.spawn(move || {
        // Dropped at the end, also by a panic.
        let _done = done;
        test();
    });
    let thread = thread.unwrap();
    if wait.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
        panic!("{what}: no end after {limit:?}");
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
