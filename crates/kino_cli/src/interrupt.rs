//! Ctrl-C in a command that has something to keep: the first one asks it to stop, a second one ends it at once.

#![allow(
    unsafe_code,
    reason = "a signal handler can only be set through the C library; it is set and removed in this file alone"
)]

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether Ctrl-C was pressed.
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// What the user sees at once: the command may be in the middle of a file.
const NOTE: &[u8] = b"\nstopping; press Ctrl-C again to end at once\n";

/// While it lives, Ctrl-C is noted instead of ending the process.
pub(crate) struct Watch {
    before: libc::sigaction,
}

impl Watch {
    /// Begins to watch; `None` if the system refuses, and then Ctrl-C ends the process as before.
    pub(crate) fn start() -> Option<Self> {
        REQUESTED.store(false, Ordering::Relaxed);
        // SAFETY: a `sigaction` is plain numbers, a function address and a set of bits, of which zeros are valid.
        let (mut action, mut before): (libc::sigaction, libc::sigaction) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        action.sa_sigaction = request as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // After the first signal the default comes back, which ends the process.
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        // SAFETY: both pointers are to values that live through the call, and `request` does only what a handler may.
        let result = unsafe { libc::sigaction(libc::SIGINT, &action, &mut before) };
        (result == 0).then_some(Self { before })
    }

    /// Whether Ctrl-C was pressed since the start.
    pub(crate) fn is_requested(&self) -> bool {
        REQUESTED.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: `before` is what the system gave at the start; where the old one goes may be null.
        let _ = unsafe { libc::sigaction(libc::SIGINT, &self.before, std::ptr::null_mut()) };
    }
}

/// The handler: only what may be done in the middle of anything, an atomic store and a `write`.
extern "C" fn request(_: libc::c_int) {
    REQUESTED.store(true, Ordering::Relaxed);
    // SAFETY: `write` may be called in a handler, and the bytes are static.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, NOTE.as_ptr().cast(), NOTE.len()) };
}
