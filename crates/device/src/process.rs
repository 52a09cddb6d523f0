//! The process that opened a volume, told apart from its forks.
//!
//! A fork has a copy of the memory and none of the threads. Locks that these held stay locked, and what the copy writes
//! would overwrite the changes of the parent.
//!
//! A handler of fork(2) counts, so that a check is a load from memory. Each call makes one.

#![allow(unsafe_code)]

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many forks lie between this process and the one that loaded the program.
static FORKS: AtomicU64 = AtomicU64::new(0);

static HANDLER: Once = Once::new();

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> i32;
}

unsafe extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process that made this value.
#[derive(Clone, Copy, Debug)]
pub struct OpeningProcess {
    forks: u64,
    pid: u32,
}

impl OpeningProcess {
    /// Returns this process.
    pub fn this() -> OpeningProcess {
        HANDLER.call_once(|| {
            // SAFETY: the handler changes an atomic number and nothing else, which is allowed after a fork.
            let registered = unsafe { pthread_atfork(None, None, Some(count_fork)) };
            if registered != 0 {
                // Out of memory. Only drops, which look at the pid, find a fork then.
                tracing::warn!("forks of this program cannot be told apart");
            }
        });
        OpeningProcess {
            forks: FORKS.load(Ordering::Relaxed),
            pid: std::process::id(),
        }
    }

    /// Returns whether this process is a fork of the one that made the value.
    #[inline]
    pub fn is_left(&self) -> bool {
        self.forks != FORKS.load(Ordering::Relaxed)
    }

    /// Returns the same by the pid, also after a fork that ran no handlers. It is a system call.
    pub fn is_left_by_pid(&self) -> bool {
        self.pid != std::process::id()
    }
}
