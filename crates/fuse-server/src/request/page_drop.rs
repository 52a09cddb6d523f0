//! A drop of cached pages by the kernel, from the view of the request that waits for it.
//!
//! Locks: the drop's own, a leaf.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::thread::{Pid, gettid};

/// A drop that is under way, or finished.
#[derive(Debug, Default)]
pub struct PageDrop {
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// No thread has notified the kernel yet.
    #[default]
    Waits,
    /// The thread is in the kernel.
    Runs(Pid),
    Over,
}

impl PageDrop {
    /// Creates a drop that no thread has begun.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Creates a finished drop.
    pub fn finished() -> Arc<Self> {
        let drop = Self::new();
        drop.finish();
        drop
    }

    /// Marks the drop as begun by the calling thread.
    pub fn begin(&self) {
        *self.stage.lock() = Stage::Runs(gettid());
    }

    /// Marks the drop as finished: the kernel has dropped the pages, or is gone.
    pub fn finish(&self) {
        *self.stage.lock() = Stage::Over;
        self.changed.notify_all();
    }

    /// Waits until the drop is finished. Returns false on a timeout.
    pub fn wait(&self, at_most: Duration) -> bool {
        let mut stage = self.stage.lock();
        let is_under_way = |stage: &mut Stage| !matches!(stage, Stage::Over);
        !self
            .changed
            .wait_while_for(&mut stage, is_under_way, at_most)
            .timed_out()
    }

    /// Returns whether the thread sleeps in the kernel, waiting for a page lock or for writeback. A thread that waits
    /// for a CPU is not asleep. If /proc cannot be read, it counts as asleep.
    pub fn is_asleep(&self) -> bool {
        let Stage::Runs(thread) = *self.stage.lock() else {
            return false;
        };
        let stat = fs::read(format!("/proc/self/task/{thread}/stat"));
        stat.map_or(true, |stat| state_of(&stat) == Some(b'D'))
    }
}

/// Parses the state of a thread from its line in /proc. Its name may contain anything.
fn state_of(stat: &[u8]) -> Option<u8> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(name_end + 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_is_waited_for_until_it_is_over() {
        let drop = PageDrop::new();
        assert!(!drop.wait(Duration::from_millis(1)));
        assert!(!drop.is_asleep(), "no thread has it");
        drop.begin();
        assert!(!drop.is_asleep(), "this thread runs");
        std::thread::scope(|scope| {
            scope.spawn(|| drop.finish());
            assert!(drop.wait(Duration::from_secs(60)));
        });
        assert!(PageDrop::finished().wait(Duration::ZERO));
    }

    #[test]
    fn the_state_of_a_thread_stands_behind_its_name() {
        assert_eq!(state_of(b"12 (a) D (b) D 1 2"), Some(b'D'));
        assert_eq!(state_of(b"12 (ubtrfs-drop) R 1"), Some(b'R'));
        assert_eq!(state_of(b"12 (ubtrfs-drop)"), None);
        assert_eq!(state_of(b""), None);
    }
}
