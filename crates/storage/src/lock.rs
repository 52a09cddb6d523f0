//! Acquisition of locks that other threads may hold during device IO: the locks of inodes and of files' extents, and
//! `InodeTable::rename_lock`.
//!
//! A nonblocking thread (`ubtrfs_device::nonblocking`) tries `TRIES` times before it fails, because the holder may be
//! about to release the lock.

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use ubtrfs_device::nonblocking::{self, WouldBlock};

use crate::error::Result;

const TRIES: usize = 64;

pub fn lock<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    take(|| mutex.try_lock(), || mutex.lock())
}

pub fn read<T>(lock: &RwLock<T>) -> Result<RwLockReadGuard<'_, T>> {
    take(|| lock.try_read(), || lock.read())
}

pub fn write<T>(lock: &RwLock<T>) -> Result<RwLockWriteGuard<'_, T>> {
    take(|| lock.try_write(), || lock.write())
}

fn take<G>(attempt: impl Fn() -> Option<G>, wait: impl FnOnce() -> G) -> Result<G> {
    if !nonblocking::is_set() {
        return Ok(wait());
    }
    for _ in 0..TRIES {
        if let Some(guard) = attempt() {
            return Ok(guard);
        }
        std::hint::spin_loop();
    }
    Err(WouldBlock.into())
}
