//! Writing bytes on a thread beside the one that makes them.
//!
//! Memory: [`BUFFERS`] buffers of [`BUFFER_BYTES`], whatever the bytes are written to. Without a thread, one of them.

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

/// Takes bytes that another thread writes on. Made by [`write_behind`].
#[derive(Debug)]
pub struct WriteBehind<'o> {
    buffer: Vec<u8>,
    writer: Writer<'o>,
    /// A write has returned the error that ended the writing.
    has_failed: bool,
}

enum Writer<'o> {
    Beside(Beside),
    /// The system had no thread to give.
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

/// The way to the thread that writes.
#[derive(Debug)]
struct Beside {
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    /// The error that ended the thread.
    failed: Arc<Mutex<Option<io::Error>>>,
}

impl Write for WriteBehind<'_> {
    /// Fails, once, if bytes given before could not be written.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() >= BUFFER_BYTES {
            self.hand_over()?;
        }
        let len = bytes.len().min(BUFFER_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    /// Hands all bytes over. They are written when [`write_behind`] returns.
    fn flush(&mut self) -> io::Result<()> {
        match self.buffer.is_empty() {
            true => Ok(()),
            false => self.hand_over(),
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

    /// Hands over what is left, unless a write has returned an error.
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

/// Does `work`, and writes to `out` beside it what `work` writes. Without a thread for it, `work` waits for each write.
///
/// Returns when all is written and flushed. An error of `out` fails a later write of `work`; one that no write has
/// returned is the second result.
pub fn write_behind<T>(
    out: &mut (dyn Write + Send),
    work: impl FnOnce(&mut WriteBehind<'_>) -> T,
) -> (T, io::Result<()>) {
    let (full, to_write) = mpsc::sync_channel(BUFFERS);
    let (written, empty) = mpsc::channel();
    let failed = Arc::new(Mutex::new(None));
    // One more is filled.
    for _ in 1..BUFFERS {
        // Its receiver is here.
        let _ = written.send(Vec::with_capacity(BUFFER_BYTES));
    }
    // Locked by the thread that writes, for as long as it does.
    let out: &Mutex<dyn Write + Send + '_> = &Mutex::new(out);
    let (done, ended) = thread::scope(|scope| {
        let failed_there = Arc::clone(&failed);
        let thread = scoped_thread::start(scope, "ubtrfs-write", move || {
            if let Err(error) = write_all(&mut *out.lock(), &to_write, &written) {
                // Before the channels close, so that a failed send finds it.
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
        // The receiver may be gone.
        let _ = written.send(buffer);
    }
    out.flush()
}
