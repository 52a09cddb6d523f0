//! Whether a caller is about to end, by a signal that it neither blocks nor catches.
//!
//! The kernel would report this with an INTERRUPT, which this server refuses (`fuse-server`). So long operations check
//! by themselves.

use std::fs;
use std::time::{Duration, Instant};

use ubtrfs_device::clock;

/// SIGKILL, which the kernel sends to each thread of a process that any signal ends.
const KILL: u64 = 1 << (9 - 1);
const LOOKS_EACH: Duration = Duration::from_millis(20);

/// A caller with a long request, watched for its end.
#[derive(Debug)]
pub(crate) struct EndingCaller {
    pid: u32,
    looked: Instant,
    has_ended: bool,
}

impl EndingCaller {
    /// Creates a check for the end of a caller. A caller in another pid namespace has the number 0 here, and cannot be
    /// inspected.
    pub(crate) fn new(pid: u32) -> EndingCaller {
        EndingCaller {
            pid,
            looked: clock::now(),
            has_ended: false,
        }
    }

    /// Returns whether the caller is ending. Rate-limited, so it may be called often.
    pub(crate) fn is_ending(&mut self) -> bool {
        if !self.has_ended && self.pid != 0 && clock::now() - self.looked >= LOOKS_EACH {
            self.looked = clock::now();
            let status = fs::read_to_string(format!("/proc/{}/status", self.pid));
            self.has_ended = status.is_ok_and(|status| is_killed(&status));
        }
        self.has_ended
    }
}

fn is_killed(status: &str) -> bool {
    status.lines().any(|line| {
        let pending = line
            .strip_prefix("SigPnd:")
            .or_else(|| line.strip_prefix("ShdPnd:"));
        let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        pending.is_some_and(|mask| mask & KILL != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_kill_is_seen_and_no_other_signal() {
        let status = |own: &str, shared: &str| {
            is_killed(&format!(
                "Name:\tfstrim\nSigPnd:\t{own}\nShdPnd:\t{shared}\n"
            ))
        };
        let none = "0000000000000000";
        assert!(status("0000000000000100", none));
        assert!(status(none, "0000000000004100"));
        assert!(!status(none, none));
        assert!(!status("0000000000004002", "0000000000000080"));
        assert!(!is_killed("SigBlk:\t0000000000000100\n"));
    }

    #[test]
    fn process_that_runs_is_not_ending() {
        let mut caller = EndingCaller::new(std::process::id());
        let begin = Instant::now();
        while clock::now() - begin < 2 * LOOKS_EACH {
            assert!(!caller.is_ending());
        }
    }
}
