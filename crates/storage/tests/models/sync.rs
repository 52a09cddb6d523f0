//! The atomics and locks of loom, with the methods that the counters use.
//!
//! loom treats sequentially consistent accesses as acquire and release. Here they have a fence on both sides. This also
//! orders relaxed accesses next to them, which the language does not guarantee. So a model may accept an access that is
//! too weak if all others around it are `SeqCst`.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use loom::sync::atomic;
pub(crate) use loom::sync::atomic::Ordering;
pub(crate) use loom::thread::yield_now;

fn ordered<T>(order: Ordering, access: impl FnOnce() -> T) -> T {
    let is_total = matches!(order, Ordering::SeqCst);
    if is_total {
        atomic::fence(Ordering::SeqCst);
    }
    let done = access();
    if is_total {
        atomic::fence(Ordering::SeqCst);
    }
    done
}

macro_rules! atomic {
    ($name:ident, $value:ty) => {
        #[derive(Debug, Default)]
        pub(crate) struct $name(atomic::$name);

        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                ordered(order, || self.0.load(order))
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                ordered(order, || self.0.store(value, order));
            }

            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                ordered(order, || self.0.swap(value, order))
            }
        }
    };
}

macro_rules! numbers {
    ($name:ident, $value:ty, $($access:ident)*) => {
        atomic!($name, $value);

        impl $name {
            $(pub(crate) fn $access(&self, value: $value, order: Ordering) -> $value {
                ordered(order, || self.0.$access(value, order))
            })*

            pub(crate) fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                ordered(success, || self.0.compare_exchange(old, new, success, failure))
            }

            pub(crate) fn try_update(
                &self,
                success: Ordering,
                failure: Ordering,
                update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                ordered(success, || self.0.fetch_update(success, failure, update))
            }
        }
    };
}

atomic!(AtomicBool, bool);
numbers!(AtomicI64, i64, fetch_add);
numbers!(AtomicU64, u64, fetch_add fetch_sub fetch_max fetch_min fetch_or fetch_and);

/// A lock with the interface of parking_lot.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

pub(crate) struct MutexGuard<'m, T> {
    of: &'m Mutex<T>,
    held: Option<loom::sync::MutexGuard<'m, T>>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            of: self,
            held: Some(self.0.lock().unwrap()),
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().unwrap()
    }
}

/// A read-write lock with the interface of parking_lot.
#[derive(Debug)]
pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> RwLock<T> {
        RwLock(loom::sync::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
        self.0.read().unwrap()
    }

    pub(crate) fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap()
    }
}

#[derive(Debug)]
pub(crate) struct Condvar(loom::sync::Condvar);

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar(loom::sync::Condvar::new())
    }
}

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar::default()
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.held = guard.held.take().map(|held| self.0.wait(held).unwrap());
    }

    /// Returns a timeout at once, possibly after other threads have run.
    pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> TimeIsOver {
        let mutex = guard.of;
        guard.held = None;
        yield_now();
        guard.held = mutex.lock().held;
        TimeIsOver
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// The end of a wait.
pub(crate) struct TimeIsOver;

impl TimeIsOver {
    pub(crate) fn timed_out(&self) -> bool {
        true
    }
}
