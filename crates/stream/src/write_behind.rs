//! Writing bytes on a thread beside the one that makes them.
//!
//! Memory: [`BUFFERS`] buffers of [`BUFFER_BYTES`], whatever the bytes are written to.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

use parking_lot::Mutex;

#[cfg(test)]
mod tests;

const BUFFER_BYTES: usize = 1 << 20;
const BUFFERS: usize = 4;

/// Takes bytes that another thread writes on. Made by [`write_behind`].
#[derive(Debug)]
pub struct WriteBehind {
    buffer: Vec<u8>,
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    /// The error that ended the thread that writes.
    failed: Arc<Mutex<Option<io::Error>>>,
    has_told: bool,
}

impl Write for WriteBehind {
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

impl WriteBehind {
    fn hand_over(&mut self) -> io::Result<()> {
        let Ok(next) = self.empty.recv() else {
            return Err(self.failure());
        };
        let full = std::mem::replace(&mut self.buffer, next);
        match self.full.send(full) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.failure()),
        }
    }

    fn failure(&mut self) -> io::Error {
        self.has_told = true;
        let failed = self.failed.lock().take();
        failed.unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

/// Does `work`, and writes to `out` beside it what `work` writes.
///
/// Returns when all is written and flushed. An error of `out` fails a later write of `work`; one that no write has
/// returned is the second result.
pub fn write_behind<T>(
    out: &mut (dyn Write + Send),
    work: impl FnOnce(&mut WriteBehind) -> T,
) -> (T, io::Result<()>) {
    let (full, to_write) = mpsc::sync_channel(BUFFERS);
    let (written, empty) = mpsc::channel();
    let failed = Arc::new(Mutex::new(None));
    // One more is filled.
    for _ in 1..BUFFERS {
        // Its receiver is here.
        let _ = written.send(Vec::with_capacity(BUFFER_BYTES));
    }
    let mut behind = WriteBehind {
        buffer: Vec::with_capacity(BUFFER_BYTES),
        full,
        empty,
        failed: Arc::clone(&failed),
        has_told: false,
    };
    let done = thread::scope(|scope| {
        let failed = &failed;
        scope.spawn(move || {
            if let Err(error) = write_all(out, &to_write, &written) {
                // Before the channels close, so that a failed send finds it.
                *failed.lock() = Some(error);
            }
            drop((to_write, written));
        });
        let done = work(&mut behind);
        if !behind.has_told
            && let Err(error) = behind.flush()
        {
            *failed.lock() = Some(error);
        }
        drop(behind);
        done
    });
    let result = failed.lock().take().map_or(Ok(()), Err);
    (done, result)
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
