//! The kernel's figures on threads and CPUs.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::thread::Pid;

use super::count_of;

/// The number of runnable threads on all CPUs.
pub(super) struct Runnable(File);

impl Runnable {
    pub(super) fn open() -> io::Result<Self> {
        File::open("/proc/loadavg").map(Self)
    }

    pub(super) fn count(&self) -> io::Result<usize> {
        read(&self.0, runnable_in)
    }
}

/// Returns the number of CPUs that are online.
pub(super) fn online_cpus() -> io::Result<usize> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online")?;
    count_of(&list).map(usize::from).ok_or_else(unexpected)
}

/// Checks that this kernel measures how long threads wait.
pub(super) fn check_waits_are_counted() -> io::Result<()> {
    // Without the measurement, all fields are zero.
    if fs::read_to_string("/proc/self/schedstat")?.starts_with("0 0 0") {
        Err(io::ErrorKind::Unsupported.into())
    } else {
        Ok(())
    }
}

/// The state of one thread of this process.
pub(super) struct ThreadGauge {
    stat: File,
    schedstat: File,
}

/// The state of a thread, and its total waiting time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gauged {
    /// It is running or runnable.
    pub(super) is_runnable: bool,
    /// The total time in the run queue, up to when it last ran.
    pub(super) waited: Duration,
}

impl ThreadGauge {
    pub(super) fn open(thread: Pid) -> io::Result<Self> {
        let folder = format!("/proc/self/task/{}", thread.as_raw_nonzero());
        Ok(Self {
            stat: File::open(format!("{folder}/stat"))?,
            schedstat: File::open(format!("{folder}/schedstat"))?,
        })
    }

    pub(super) fn look(&self) -> io::Result<Gauged> {
        Ok(Gauged {
            is_runnable: read(&self.stat, is_runnable)?,
            waited: read(&self.schedstat, waited_in)?,
        })
    }
}

fn read<T>(file: &File, parse: impl FnOnce(&str) -> Option<T>) -> io::Result<T> {
    let mut bytes = [0; 512];
    let len = file.read_at(&mut bytes, 0)?;
    let text = str::from_utf8(&bytes[..len]).ok();
    text.and_then(parse).ok_or_else(unexpected)
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not in the form of the kernel")
}

/// Returns the number of all runnable threads, from the fourth field.
fn runnable_in(loadavg: &str) -> Option<usize> {
    let (runnable, _) = loadavg.split_whitespace().nth(3)?.split_once('/')?;
    runnable.parse().ok()
}

/// Returns whether the thread is runnable. Its state follows the name, which is in parentheses and may contain some.
fn is_runnable(stat: &str) -> Option<bool> {
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.trim_start().starts_with('R'))
}

/// Returns the waiting time of the thread: the second field, in nanoseconds.
fn waited_in(schedstat: &str) -> Option<Duration> {
    let waited = schedstat.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(waited))
}

#[cfg(test)]
mod tests;
