//! Threads that read requests from `/dev/fuse`, each from a descriptor of its own.
//!
//! A thread that serves a request may block, for a device or a commit. Other requests must not wait for that. So the
//! last reading thread starts another one before it serves, up to a limit.
//!
//! Invariants
//! - CLASSIC-1: as long as fewer requests are blocked than the thread limit, a thread reads.
//! - CLASSIC-2: when `serve` returns, every thread has ended, and with it every use of the file system.
//!
//! A thread is counted before it starts, so there are never more than the limit (`thread_count`).

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::answer::Server;
use crate::device::{Device, Frame, Received};
use crate::request::FileSystem;
use crate::thread;
use crate::thread_count::ThreadCount;

/// The threads of a connection.
pub(crate) struct Readers<F> {
    server: Arc<Server<F>>,
    device: Device,
    /// The number of permanent threads.
    lasting: usize,
    count: ThreadCount,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The error of a thread that ended early.
    failure: Mutex<Option<io::Error>>,
}

impl<F: FileSystem> Readers<F> {
    pub(crate) fn new(server: Arc<Server<F>>, device: Device, threads: NonZeroUsize) -> Arc<Self> {
        let surplus = server.negotiated.surplus_threads;
        Arc::new(Self {
            server,
            device,
            lasting: threads.get(),
            count: ThreadCount::new(threads.get(), threads.get() + surplus),
            threads: Mutex::new(Vec::new()),
            failure: Mutex::new(None),
        })
    }

    /// Serves requests until the connection ends.
    pub(crate) fn serve(self: &Arc<Self>) -> io::Result<()> {
        for number in 0..self.lasting {
            let started = if self.count.add() {
                self.start()
            } else {
                break;
            };
            match started {
                Ok(()) => {}
                Err(error) if number == 0 => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, number, "fewer threads than requested");
                    break;
                }
            }
        }
        loop {
            // CLASSIC-2
            // A thread adds its successor before it ends, so an empty list means that all have ended.
            let thread = self.threads.lock().pop();
            match thread.map(JoinHandle::join) {
                None => break,
                Some(Ok(())) => {}
                Some(Err(_)) => self.fail(io::Error::other("a thread of the transport panicked")),
            }
        }
        match self.failure.lock().take() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    fn fail(&self, error: io::Error) {
        self.failure.lock().get_or_insert(error);
    }

    /// Starts a thread that is already counted. If that fails, the count is reduced again.
    fn start(self: &Arc<Self>) -> io::Result<()> {
        let started = self.spawn();
        if started.is_err() {
            self.count.remove();
        }
        started
    }

    fn spawn(self: &Arc<Self>) -> io::Result<()> {
        let device = self.device.another()?;
        let frame = Frame::new(self.server.negotiated.request_bytes)?;
        // The lock is held so that a join loop finds either this thread or its creator.
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        let readers = Arc::clone(self);
        threads.push(thread::start("ubtrfs-fuse", move || {
            readers.read(&device, frame)
        })?);
        Ok(())
    }

    /// Runs one thread, which reads and serves requests until the connection ends or the thread retires.
    fn read(self: Arc<Self>, device: &Device, mut frame: Frame) {
        loop {
            self.count.begin_read();
            let received = device.receive(&mut frame);
            if !matches!(received, Ok(Received::Request(..))) {
                self.count.end_read();
            }
            match received {
                Ok(Received::Request(header, len)) => {
                    // CLASSIC-1
                    if self.count.begin_serving()
                        && let Err(error) = self.start()
                    {
                        tracing::debug!(%error, "no further thread");
                    }
                    device.serve(&self.server, &header, &mut frame, len);
                }
                Ok(Received::Nothing) => {}
                Ok(Received::Unmounted) => break,
                Err(error) => {
                    self.fail(error);
                    break;
                }
            }
            if self.count.retire() {
                return;
            }
        }
        self.count.remove();
    }
}
