//! Ctrl-C in a command that has work to save: the first one asks it to stop, a second one kills it.

#![allow(
    unsafe_code,
    reason = "a signal handler can only be set through the C library; it is set and removed only in this file"
)]

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether Ctrl-C was pressed.
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Shown immediately: the command may be in the middle of a file.
const NOTE: &[u8] = b"\nstopping; press Ctrl-C again to end at once\n";

/// While it lives, Ctrl-C sets a flag instead of ending the process.
pub(crate) struct Watch {
    before: libc::sigaction,
}

impl Watch {
    /// Installs the handler; `None` if the system refuses, and then Ctrl-C ends the process as usual.
    pub(crate) fn start() -> Option<Self> {
        REQUESTED.store(false, Ordering::Relaxed);
        // SAFETY: a `sigaction` is plain integers, a function address and a bit set, for which zeros are valid.
        let (mut action, mut before): (libc::sigaction, libc::sigaction) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        action.sa_sigaction = request as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // After the first signal the default action returns, which ends the process.
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        // SAFETY: both pointers are to values that outlive the call, and `request` is async-signal-safe.
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
        // SAFETY: `before` is what the system returned at the start; the pointer for the old action may be null.
        let _ = unsafe { libc::sigaction(libc::SIGINT, &self.before, std::ptr::null_mut()) };
    }
}

/// The handler: only async-signal-safe operations, an atomic store and a `write`.
extern "C" fn request(_: libc::c_int) {
    REQUESTED.store(true, Ordering::Relaxed);
    // SAFETY: `write` may be called in a handler, and the bytes are static.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, NOTE.as_ptr().cast(), NOTE.len()) };
}
