//! Ctrl-C that ends a transfer between two pieces, and not the process.
//!
//! A shell shows its next prompt then, and mkfs removes the image that it has made.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level;

/// The end of a handler of SIGINT that is read, if there is one.
static PRESSED: OnceLock<UnixStream> = OnceLock::new();

/// Has SIGINT and SIGTERM end transfers of this process, and nothing else, from now on.
pub(crate) fn watch() -> io::Result<()> {
    let writer = watch_ctrl_c()?;
    low_level::pipe::register(SIGTERM, writer)?;
    Ok(())
}

/// Has SIGINT alone end transfers. Returns the end that its handler writes to.
pub(crate) fn watch_ctrl_c() -> io::Result<UnixStream> {
    let (pressed, writer) = pipe()?;
    low_level::pipe::register(SIGINT, writer.try_clone()?)?;
    // Set once: a process has one shell, or makes one volume.
    let _ = PRESSED.set(pressed);
    Ok(writer)
}

/// Returns whether there was such a signal since the last time that this was asked.
pub(crate) fn take() -> bool {
    let mut bytes = [0; 64];
    let mut taken = false;
    while let Some(mut pressed) = PRESSED.get()
        && let Ok(len) = pressed.read(&mut bytes)
        && len > 0
    {
        taken = true;
    }
    taken
}

/// Returns the end that a prompt waits for. None: SIGINT ends the process.
pub(crate) fn pressed() -> Option<&'static UnixStream> {
    PRESSED.get()
}

/// Makes both ends of a pipe that a handler of a signal writes to.
pub(crate) fn pipe() -> io::Result<(UnixStream, UnixStream)> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    Ok((reader, writer))
}
