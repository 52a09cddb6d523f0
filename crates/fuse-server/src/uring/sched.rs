//! Scheduling policies of the threads of this process.
#![allow(unsafe_code)]

use std::io;
use std::sync::mpsc::channel;

use crate::thread;
use rustix::thread::{Pid, gettid};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// `SCHED_OTHER`
    Normal,
    /// `SCHED_IDLE`: every other thread preempts it, and its CPU counts as idle.
    Idle,
}

impl Policy {
    fn number(self) -> i32 {
        match self {
            Policy::Normal => libc::SCHED_OTHER,
            Policy::Idle => libc::SCHED_IDLE,
        }
    }
}

/// Sets the policy of a thread. Its child threads inherit it.
pub(super) fn set(thread: Pid, policy: Policy) -> io::Result<()> {
    // The kernel's `sched_param` has only the priority; musl's has more.
    let priority: libc::c_int = 0;
    // SAFETY: the priority is read during the call. The raw system call is used because a C library may refuse to.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            thread.as_raw_nonzero().get(),
            policy.number(),
            &raw const priority,
        )
    };
    match outcome {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Returns whether the calling thread has the default policy.
pub(super) fn is_normal() -> bool {
    // SAFETY: no memory is involved.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    policy == i64::from(libc::SCHED_OTHER)
}

/// Checks that a thread may leave `SCHED_IDLE` again, which needs CAP_SYS_NICE or RLIMIT_NICE. Uses a sleeping thread,
/// as a runnable one might never get to run.
pub(super) fn try_there_and_back() -> io::Result<()> {
    let (sender, heard) = channel();
    let (release, released) = channel::<()>();
    let thread = thread::start("ubtrfs-try", move || {
        let _ = sender.send(gettid());
        let _ = released.recv();
    })?;
    let tried = match heard.recv() {
        Ok(id) => set(id, Policy::Idle).and_then(|()| set(id, Policy::Normal)),
        Err(_) => Err(io::ErrorKind::Other.into()),
    };
    drop(release);
    let _ = thread.join();
    tried
}
