//! Detection of forks: the process that opened a volume, as opposed to its children.
//!
//! A forked child has a copy of the memory but no other threads. Their locks stay locked, and its writes would
//! overwrite changes of the parent.
//!
//! A fork(2) handler increments a counter, so that a check is a single load. Every call into the library makes one.

#![allow(unsafe_code)]

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of forks between this process and the one that loaded the program.
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

/// The process that created this value.
#[derive(Clone, Copy, Debug)]
pub struct OpeningProcess {
    forks: u64,
    pid: u32,
}

impl OpeningProcess {
    /// Returns the current process.
    pub fn this() -> OpeningProcess {
        HANDLER.call_once(|| {
            // SAFETY: the handler only updates an atomic number, which is allowed after a fork.
            let registered = unsafe { pthread_atfork(None, None, Some(count_fork)) };
            if registered != 0 {
                // Out of memory. Then only the checks by pid, as in drops, detect a fork.
                tracing::warn!("forks of this program cannot be told apart");
            }
        });
        OpeningProcess {
            forks: FORKS.load(Ordering::Relaxed),
            pid: std::process::id(),
        }
    }

    /// Returns whether this process is a fork of the one that created the value.
    #[inline]
    pub fn is_left(&self) -> bool {
        self.forks != FORKS.load(Ordering::Relaxed)
    }

    /// Compares pids instead, which also detects a fork that ran no handlers. It costs a system call.
    pub fn is_left_by_pid(&self) -> bool {
        self.pid != std::process::id()
    }
}
