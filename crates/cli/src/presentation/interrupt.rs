//! Ctrl-C that cancels a transfer between two pieces instead of ending the process.
//!
//! A shell then displays its next prompt, and mkfs removes the image that it has created.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// The read end of the SIGINT handler's pipe, if a handler is installed.
static PRESSED: OnceLock<UnixStream> = OnceLock::new();

/// Whether there are bytes to read, so that a transfer needs no system call to find out.
static ARRIVED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Makes SIGINT and SIGTERM cancel transfers of this process, instead of ending it.
pub(crate) fn watch() -> io::Result<()> {
    let writer = watch_ctrl_c()?;
    register(SIGTERM, writer)
}

/// Makes SIGINT cancel transfers. Returns the write end of its handler.
pub(crate) fn watch_ctrl_c() -> io::Result<UnixStream> {
    let (pressed, writer) = pipe()?;
    register(SIGINT, writer.try_clone()?)?;
    // Set once: a process has one shell, or creates one volume.
    let _ = PRESSED.set(pressed);
    Ok(writer)
}

/// Handlers run in this order: the flag is set when the pipe is readable.
fn register(signal: i32, writer: UnixStream) -> io::Result<()> {
    low_level::pipe::register(signal, writer)?;
    flag::register(signal, Arc::clone(&ARRIVED))?;
    Ok(())
}

/// Returns whether a signal arrived since the last call.
pub(crate) fn take() -> bool {
    if !ARRIVED.swap(false, Ordering::AcqRel) {
        return false;
    }
    let mut bytes = [0; 64];
    while let Some(mut pressed) = PRESSED.get()
        && let Ok(len) = pressed.read(&mut bytes)
        && len > 0
    {}
    true
}

/// Returns the read end for a prompt. None: SIGINT ends the process.
pub(crate) fn pressed() -> Option<&'static UnixStream> {
    PRESSED.get()
}

/// Creates both ends of a pipe for a signal handler.
pub(crate) fn pipe() -> io::Result<(UnixStream, UnixStream)> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    Ok((reader, writer))
}
