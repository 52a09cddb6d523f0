//! The line of progress on a terminal, which is cleared before a signal ends the process.
//!
//! The handler clears the line and ends the process at once: a command that ran on could commit half of its work.
//! Signals that the process ignores stay ignored.
//!
//! Not here: signals that end a transfer and not the process (`interrupt`).
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::stderr;
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level::{emulate_default_handler, register};
use ubtrfs_device::clock;

use crate::presentation::interrupt;

const CLEAR_LINE: &[u8] = b"\r\x1b[2K";
/// A drawing ends within a moment, unless the terminal takes nothing or the handler has interrupted it.
const DRAWING_POLLS: u32 = 20;
const DRAWING_POLL: Duration = Duration::from_millis(1);

/// The line is on the terminal.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);
static IS_DRAWING: AtomicBool = AtomicBool::new(false);
/// A signal ends the process: nothing is drawn from now on.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Clears the line before a signal ends the process.
pub(super) fn clear_at_signals() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // Without handlers the line stays on the terminal, which is no reason to fail.
        if let Err(error) = watch() {
            tracing::debug!(%error, "cannot handle signals");
        }
    });
}

/// Writes the line by `write`, unless a signal ends the process.
pub(super) fn draw(write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    IS_DRAWING.store(true, Ordering::SeqCst);
    let written = if IS_ENDING.load(Ordering::SeqCst) {
        Ok(())
    } else {
        IS_SHOWN.store(true, Ordering::SeqCst);
        write()
    };
    IS_DRAWING.store(false, Ordering::SeqCst);
    written
}

/// Notes that the command has cleared the line.
pub(super) fn was_cleared() {
    IS_SHOWN.store(false, Ordering::SeqCst);
}

/// Handles signals for the rest of the process: a handler cannot be taken back.
fn watch() -> io::Result<()> {
    let ignored = ignored_signals()?;
    for signal in [SIGINT, SIGTERM, SIGQUIT] {
        let ends_transfer = signal != SIGQUIT && interrupt::pressed().is_some();
        if !ends_transfer && ignored & (1 << (signal - 1)) == 0 {
            // SAFETY: `end` calls nothing that takes locks or memory: atomics, nanosleep(2), poll(2), write(2), and
            // `emulate_default_handler`, which is meant for handlers.
            unsafe { register(signal, move || end(signal)) }?;
        }
    }
    Ok(())
}

/// Clears the line and ends the process, in a handler of `signal`.
fn end(signal: i32) {
    IS_ENDING.store(true, Ordering::SeqCst);
    let mut polls = 0;
    while IS_DRAWING.load(Ordering::SeqCst) && polls < DRAWING_POLLS {
        clock::sleep(DRAWING_POLL);
        polls += 1;
    }
    if IS_SHOWN.load(Ordering::SeqCst) && takes_output() {
        let _ = rustix::io::write(stderr(), CLEAR_LINE);
    }
    let _ = emulate_default_handler(signal);
}

/// Returns whether the terminal takes output: none does after Ctrl-S, and a write would wait.
fn takes_output() -> bool {
    let terminal = stderr();
    let mut polled = [PollFd::new(&terminal, PollFlags::OUT)];
    poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Returns the set of signals that the process ignores, with bit 0 for signal 1.
fn ignored_signals() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let mut fields = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = fields.next().map(|set| u64::from_str_radix(set.trim(), 16));
    ignored
        .and_then(Result::ok)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}
