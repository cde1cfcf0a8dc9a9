//! Locks: those of the standard library, without poisoning.
//!
//! A thread that panics here ends its pack or its loader, which reports it; what it had locked is still consistent,
//! because no lock is held across a call that may panic halfway through a change. So poisoning would only add an
//! `unwrap` to every use.
//!
//! Why not `parking_lot`: it keeps the waiting threads of the whole process in one table. A forked child inherits that
//! table without the threads in it, and a loader that is started in the child (a torch `DataLoader` worker) then follows
//! dangling pointers. Locks of the standard library are independent of each other, so locks made after the fork work.

use std::sync::{self, PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Duration;

pub use std::sync::MutexGuard;

/// A [`std::sync::Mutex`] that cannot be poisoned.
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Blocks until the lock is free.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it if it is free now.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Its value, without locking: nobody else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A [`std::sync::RwLock`] that cannot be poisoned.
#[derive(Debug, Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// Blocks until nobody writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until nobody reads or writes.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A [`std::sync::Condvar`] for these mutexes.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// A condition that nothing waits for.
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Unlocks, blocks until notified, and locks again. May also wake up without a reason.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// [`wait`](Self::wait), but no longer than `time`.
    pub fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, time: Duration) -> MutexGuard<'a, T> {
        let woken = self.0.wait_timeout(guard, time);
        woken.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes one thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_panic_while_it_is_locked_leaves_a_lock_usable() {
        let (mut mutex, lock) = (Mutex::new(1), RwLock::new(1));
        let both = || {
            let (mut value, mut other) = (mutex.lock(), lock.write());
            (*value, *other) = (2, 2);
            panic!("while both are locked");
        };
        assert!(thread::scope(|scope| scope.spawn(both).join()).is_err());
        assert_eq!((*mutex.lock(), *lock.read()), (2, 2));
        assert_eq!(mutex.try_lock().as_deref(), Some(&2));
        *mutex.get_mut() += 1;
        assert_eq!(mutex.into_inner(), 3);
    }

    #[test]
    fn a_locked_mutex_is_not_locked_again() {
        let mutex = Mutex::new(());
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(guard);
        assert!(mutex.try_lock().is_some());
    }

    #[test]
    fn a_condition_wakes_the_waiting_thread_or_gives_up() {
        let (is_set, changed) = (Mutex::new(false), Condvar::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut is_set = is_set.lock();
                while !*is_set {
                    is_set = changed.wait(is_set);
                }
            });
            *is_set.lock() = true;
            changed.notify_all();
        });
        assert!(*changed.wait_for(is_set.lock(), Duration::ZERO));
    }
}
