//! Threads that read requests from `/dev/fuse`, each from a descriptor of its own.
//!
//! A thread that serves a request may wait, for a device or a commit. Requests of the others must not wait
//! for that, so the last thread that reads starts another one before it serves, up to a limit.
//!
//! Invariants
//! - CLASSIC-1: as long as fewer requests wait than there may be threads, a thread reads.
//! - CLASSIC-2: every thread has ended when `serve` returns, and with it every use of the file system.
//!
//! A thread is counted before it starts, so that there are never more than the limit (`thread_count`).

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    /// Threads that stay.
    lasting: usize,
    /// Threads that wait for a request.
    reading: AtomicUsize,
    alive: ThreadCount,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Why a thread ended before it should have.
    failure: Mutex<Option<io::Error>>,
}

impl<F: FileSystem> Readers<F> {
    pub(crate) fn new(server: Arc<Server<F>>, device: Device, threads: NonZeroUsize) -> Arc<Self> {
        let surplus = server.negotiated.surplus_threads;
        Arc::new(Self {
            server,
            device,
            lasting: threads.get(),
            reading: AtomicUsize::new(0),
            alive: ThreadCount::new(threads.get() + surplus),
            threads: Mutex::new(Vec::new()),
            failure: Mutex::new(None),
        })
    }

    /// Serves requests until the connection ends.
    pub(crate) fn serve(self: &Arc<Self>) -> io::Result<()> {
        for number in 0..self.lasting {
            match self.grow() {
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

    /// Starts one more thread, if there may be one.
    fn grow(self: &Arc<Self>) -> io::Result<()> {
        if !self.alive.add() {
            return Ok(());
        }
        let started = self.start();
        if started.is_err() {
            self.alive.remove();
        }
        started
    }

    /// Starts a thread that is counted already.
    fn start(self: &Arc<Self>) -> io::Result<()> {
        let device = self.device.another()?;
        let frame = Frame::new(self.server.negotiated.request_bytes)?;
        // A search for threads to wait for finds this one or its maker.
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
            self.reading.fetch_add(1, Ordering::Relaxed);
            let received = device.receive(&mut frame);
            let was_last = self.reading.fetch_sub(1, Ordering::Relaxed) == 1;
            match received {
                Ok(Received::Request(header, len)) => {
                    // CLASSIC-1
                    if was_last && let Err(error) = self.grow() {
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
            let is_one_too_many = self.reading.load(Ordering::Relaxed) >= self.lasting;
            if is_one_too_many && self.alive.remove_above(self.lasting) {
                return;
            }
        }
        self.alive.remove();
    }
}
