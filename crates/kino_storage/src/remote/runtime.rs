//! The threads that talk to the network: a few per process, shared by everything that is open.
//!
//! A forked child has none of its parent's threads. So runtime and connections belong to the process that made them: a
//! child makes its own, and never drops the parent's, which would wait for threads that do not exist here.

use std::io;
use std::mem::ManuallyDrop;
use std::process;
use std::sync::Arc;

use kino_sync::Mutex;
use tokio::runtime::{Builder, Runtime};

/// Enough for several gigabytes per second: what is received is only copied, and decrypted for `https`.
const MOST_THREADS: usize = 4;

static RUNTIME: PerProcess<Runtime> = PerProcess::new();

/// A value that each process makes for itself.
#[derive(Debug)]
pub(super) struct PerProcess<T>(Mutex<Option<(u32, ManuallyDrop<Arc<T>>)>>);

impl<T> PerProcess<T> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The value of this process, which is made first if necessary.
    pub(super) fn get<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let process = process::id();
        let mut slot = self.0.lock();
        if let Some((owner, value)) = &*slot
            && *owner == process
        {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(make()?);
        // What a parent made is forgotten, not dropped.
        *slot = Some((process, ManuallyDrop::new(Arc::clone(&value))));
        Ok(value)
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        if let Some((owner, value)) = self.0.get_mut().take()
            && owner == process::id()
        {
            drop(ManuallyDrop::into_inner(value));
        }
    }
}

/// The runtime of this process.
pub(super) fn runtime() -> io::Result<Arc<Runtime>> {
    RUNTIME.get(|| {
        // The first provider that is installed is used by all TLS of the process: ours is only one if there is none.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Builder::new_multi_thread()
            .worker_threads(cores.min(MOST_THREADS))
            .thread_name("kino-net")
            .enable_all()
            .build()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_made_once_per_process() {
        let slot = PerProcess::new();
        let made = slot.get(|| Ok::<_, io::Error>(1)).unwrap();
        let again = slot.get(|| Ok::<_, io::Error>(2)).unwrap();
        assert!(Arc::ptr_eq(&made, &again));
        slot.0.lock().as_mut().unwrap().0 = 0;
        let child = slot.get(|| Ok::<_, io::Error>(3)).unwrap();
        assert_eq!(*child, 3, "made by another process before");
    }
}
