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
    /// `SCHED_IDLE`: every other thread preempts it, and its CPU counts as idle meanwhile.
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

/// Gives a thread a policy. Threads that it starts get the same one.
pub(super) fn set(thread: Pid, policy: Policy) -> io::Result<()> {
    // The kernel's `sched_param` is the priority alone; that of musl has more.
    let priority: libc::c_int = 0;
    // SAFETY: the priority is read during the call. It is made directly, for a C library may refuse to.
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

/// Returns whether the calling thread has the policy that threads normally have.
pub(super) fn is_normal() -> bool {
    // SAFETY: no memory is involved.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    policy == i64::from(libc::SCHED_OTHER)
}

/// Checks that a thread may leave `SCHED_IDLE` again, which needs CAP_SYS_NICE or RLIMIT_NICE. This is tried with a
/// thread that sleeps, for one that wants to run might not get to.
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
