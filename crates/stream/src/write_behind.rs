//! Writing on a second thread.
//!
//! Memory: [`BUFFERS`] buffers of [`BUFFER_BYTES`], regardless of the output. Without a second thread, only one.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::{fmt, thread};

use parking_lot::Mutex;

use crate::scoped_thread;

#[cfg(test)]
mod tests;

const BUFFER_BYTES: usize = 1 << 20;
const BUFFERS: usize = 4;

/// A writer whose bytes are written by a second thread; see [`write_behind`].
#[derive(Debug)]
pub struct WriteBehind<'o> {
    buffer: Vec<u8>,
    writer: Writer<'o>,
    /// Whether a write has returned the error that stopped the writing.
    has_failed: bool,
}

enum Writer<'o> {
    Beside(Beside),
    /// The system could not create a thread.
    Here(&'o Mutex<dyn Write + Send + 'o>),
}

impl fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Writer::Beside(beside) => beside.fmt(f),
            Writer::Here(_) => f.write_str("Here"),
        }
    }
}

/// The channels to the writing thread.
#[derive(Debug)]
struct Beside {
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    /// The error that stopped the thread.
    failed: Arc<Mutex<Option<io::Error>>>,
}

impl Write for WriteBehind<'_> {
    /// Fails once if earlier bytes could not be written.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() >= BUFFER_BYTES {
            self.hand_over()?;
        }
        let len = bytes.len().min(BUFFER_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    /// Passes all bytes to the thread. They are written when [`write_behind`] returns.
    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            Ok(())
        } else {
            self.hand_over()
        }
    }
}

impl WriteBehind<'_> {
    fn hand_over(&mut self) -> io::Result<()> {
        if self.has_failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let handed_over = match &self.writer {
            Writer::Beside(beside) => beside.hand_over(&mut self.buffer),
            Writer::Here(out) => {
                let written = out.lock().write_all(&self.buffer);
                self.buffer.clear();
                written
            }
        };
        self.has_failed = handed_over.is_err();
        handed_over
    }

    /// Passes on the remaining bytes, unless a write has returned an error.
    fn finish(mut self) -> io::Result<()> {
        if self.has_failed {
            return Ok(());
        }
        self.flush()?;
        match &self.writer {
            Writer::Beside(_) => Ok(()),
            Writer::Here(out) => out.lock().flush(),
        }
    }
}

impl Beside {
    fn hand_over(&self, buffer: &mut Vec<u8>) -> io::Result<()> {
        let next = self.empty.recv().map_err(|_| self.failure())?;
        let full = std::mem::replace(buffer, next);
        self.full.send(full).map_err(|_| self.failure())
    }

    fn failure(&self) -> io::Error {
        let failed = self.failed.lock().take();
        failed.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

/// Runs `work`, and writes its output to `out` on a second thread. Without that thread, `work` waits for each write.
///
/// Returns after everything is written and flushed. An error of `out` makes a later write of `work` fail. If no write
/// has returned the error, it is the second result.
pub fn write_behind<T>(
    out: &mut (dyn Write + Send),
    work: impl FnOnce(&mut WriteBehind<'_>) -> T,
) -> (T, io::Result<()>) {
    let (full, to_write) = mpsc::sync_channel(BUFFERS);
    let (written, empty) = mpsc::channel();
    let failed = Arc::new(Mutex::new(None));
    // One more buffer is being filled.
    for _ in 1..BUFFERS {
        // This cannot fail, because the receiver is in scope.
        let _ = written.send(Vec::with_capacity(BUFFER_BYTES));
    }
    // The writing thread holds the lock as long as it runs.
    let out: &Mutex<dyn Write + Send + '_> = &Mutex::new(out);
    let (done, ended) = thread::scope(|scope| {
        let failed_there = Arc::clone(&failed);
        let thread = scoped_thread::start(scope, "ubtrfs-write", move || {
            if let Err(error) = write_all(&mut *out.lock(), &to_write, &written) {
                // Set before the channels close, so that a failed send finds the error.
                *failed_there.lock() = Some(error);
            }
            drop((to_write, written));
        });
        let mut behind = WriteBehind {
            buffer: Vec::with_capacity(BUFFER_BYTES),
            writer: match thread {
                Ok(_) => Writer::Beside(Beside {
                    full,
                    empty,
                    failed: Arc::clone(&failed),
                }),
                Err(_) => Writer::Here(out),
            },
            has_failed: false,
        };
        let done = work(&mut behind);
        (done, behind.finish())
    });
    let failed = failed.lock().take();
    (done, failed.map_or(ended, Err))
}

fn write_all(
    out: &mut (dyn Write + Send),
    full: &Receiver<Vec<u8>>,
    written: &mpsc::Sender<Vec<u8>>,
) -> io::Result<()> {
    for mut buffer in full {
        out.write_all(&buffer)?;
        buffer.clear();
        // This fails if the receiver is gone.
        let _ = written.send(buffer);
    }
    out.flush()
}
