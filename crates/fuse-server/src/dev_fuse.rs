//! Threads that read requests from `/dev/fuse`, each from a descriptor of its own.
//!
//! A thread that serves a request may wait, for a device or a commit. Requests of the others must not wait
//! for that, so the last thread that reads starts another one before it serves, up to a limit.
//!
//! Invariants
//! - CLASSIC-1: as long as fewer than `limit` requests wait, a thread reads.
//! - CLASSIC-2: every thread has ended when `serve` returns, and with it every use of the file system.

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

/// The threads of a connection.
pub(crate) struct Readers<F> {
    server: Arc<Server<F>>,
    device: Device,
    /// Threads that stay.
    lasting: usize,
    limit: usize,
    /// Threads that wait for a request.
    reading: AtomicUsize,
    alive: AtomicUsize,
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
            limit: threads.get() + surplus,
            reading: AtomicUsize::new(0),
            alive: AtomicUsize::new(0),
            threads: Mutex::new(Vec::new()),
            failure: Mutex::new(None),
        })
    }

    /// Serves requests until the connection ends.
    pub(crate) fn serve(self: &Arc<Self>) -> io::Result<()> {
        for number in 0..self.lasting {
            match self.start() {
                Ok(()) => {}
                Err(error) if number == 0 => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, number, "fewer threads than asked for");
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

    fn start(self: &Arc<Self>) -> io::Result<()> {
        let device = self.device.another()?;
        let frame = Frame::new(self.server.negotiated.request_bytes)?;
        // A search for threads to wait for finds this one or its maker.
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        let readers = Arc::clone(self);
        self.alive.fetch_add(1, Ordering::Relaxed);
        let started = thread::start("ubtrfs-fuse", move || readers.read(&device, frame));
        match started {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                self.alive.fetch_sub(1, Ordering::Relaxed);
                return Err(error);
            }
        }
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
                    if was_last {
                        self.grow();
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
            if self.reading.load(Ordering::Relaxed) >= self.lasting && self.retire() {
                return;
            }
        }
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }

    /// Starts one more thread if there may be one.
    fn grow(self: &Arc<Self>) {
        if self.alive.load(Ordering::Relaxed) < self.limit
            && let Err(error) = self.start()
        {
            tracing::debug!(%error, "no further thread");
        }
    }

    /// Returns whether the calling thread was one too many, and is not counted any more.
    fn retire(&self) -> bool {
        let fewer = |alive| (alive > self.lasting).then(|| alive - 1);
        self.alive
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer)
            .is_ok()
    }
}
