//! FUSE over io_uring: a queue per CPU, each with a thread that is pinned to it.
//!
//! Once io_uring is negotiated, the kernel holds back all requests until every queue has registered. So everything that
//! can fail is tried before. After that, a failing queue ends the connection, because its requests would wait without
//! end. FORGET and INTERRUPT still use `/dev/fuse` (`forget_reader`).
//!
//! - `slot`: the buffers of a request; `ring`: commands to the kernel; `queue`: a queue's thread

mod queue;
mod ring;
mod slot;

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use rustix::thread::{CpuSet, sched_setaffinity};

use self::queue::{Queue, Service};
use self::ring::Ring;
use crate::answer::Server;
use crate::capacity::Capacity;
use crate::device::Device;
use crate::ending::Ending;
use crate::pool::Pool;
use crate::request::FileSystem;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The arguments of a queue's thread.
struct Begin<F> {
    server: Arc<Server<F>>,
    device: Device,
    pool: Arc<Pool>,
    ending: Arc<Ending>,
    registered: Sender<io::Result<()>>,
}

/// Queues that are ready to be registered.
pub(super) struct Queues<F> {
    threads: Vec<(SyncSender<Begin<F>>, JoinHandle<()>)>,
    /// The limits of each request.
    capacity: Capacity,
}

impl<F: FileSystem> Queues<F> {
    /// Creates all queues, with their threads and memory, for a connection whose first request is not answered yet.
    /// `most` is the limit by available memory.
    pub(super) fn prepare(device: &Device, most: &Capacity) -> io::Result<Self> {
        let count = possible_cpus()?;
        let capacity = most.of_queues(count).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::OutOfMemory,
                format!(
                    "the memory is too little for {count} queues of io_uring, one for each CPU"
                ),
            )
        })?;
        Ring::new(0, 1)?.try_command(device.as_fd())?;
        let (ready, made) = channel();
        let mut threads = Vec::new();
        for number in 0..count {
            let (begin, begun) = sync_channel(1);
            let ready = ready.clone();
            let thread = crate::thread::start(&format!("ubtrfs-ring-{number}"), move || {
                live(number, &capacity, &ready, &begun)
            })?;
            threads.push((begin, thread));
        }
        drop(ready);
        made.iter().take(count.into()).collect::<io::Result<()>>()?;
        Ok(Self { threads, capacity })
    }

    pub(super) fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Registers all queues. All answers go through them from now on.
    pub(super) fn begin(
        self,
        server: &Arc<Server<F>>,
        device: &Device,
        ending: &Arc<Ending>,
    ) -> io::Result<Serving> {
        // A thread for every possible request: no request waits for a thread that is blocked by a device.
        let limit = self.capacity.places() * self.threads.len();
        let devices = self.threads.iter().map(|_| device.another());
        let devices = devices.collect::<io::Result<Vec<_>>>()?;
        let pool = Pool::new("ubtrfs-pool", limit)?;
        let (registered, outcomes) = channel();
        let mut serving = Serving {
            threads: Vec::new(),
            pool,
        };
        for ((begin, thread), device) in self.threads.into_iter().zip(devices) {
            // A thread that has ended sends no outcome either.
            let _ = begin.send(Begin {
                server: Arc::clone(server),
                device,
                pool: Arc::clone(&serving.pool),
                ending: Arc::clone(ending),
                registered: registered.clone(),
            });
            serving.threads.push(thread);
        }
        drop(registered);
        let mut all = Ok(());
        for _ in &serving.threads {
            let ended = |_| Err(io::Error::other("a queue's thread ended"));
            all = all.and(outcomes.recv().unwrap_or_else(ended));
        }
        if let Err(error) = all {
            ending.fail(io::ErrorKind::ConnectionAborted.into());
            serving.join();
            return Err(error);
        }
        Ok(serving)
    }
}

/// Registered queues.
pub(super) struct Serving {
    threads: Vec<JoinHandle<()>>,
    pool: Arc<Pool>,
}

impl Serving {
    /// Waits for the threads, which end with the connection.
    pub(super) fn join(self) {
        for thread in self.threads {
            // `Alarm` reports panics.
            let _ = thread.join();
        }
        self.pool.end();
    }
}

/// Runs the thread of a queue.
fn live<F: FileSystem>(
    number: u16,
    capacity: &Capacity,
    ready: &Sender<io::Result<()>>,
    begun: &Receiver<Begin<F>>,
) {
    pin(number);
    let mut queue = match Queue::new(number, capacity) {
        Ok(queue) => queue,
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let _ = ready.send(Ok(()));
    let Ok(begin) = begun.recv() else {
        // The kernel has not accepted io_uring after all.
        return queue.abandon();
    };
    let _alarm = Alarm(&begin.ending);
    let registered = queue.register(&begin.device, &begin.ending);
    let refused = registered.is_err();
    let _ = begin.registered.send(registered);
    if refused {
        return;
    }
    let service = Service {
        server: &begin.server,
        device: &begin.device,
        pool: &begin.pool,
        ending: &begin.ending,
    };
    match queue.serve(&service) {
        Ok(()) => begin.ending.come(),
        Err(error) => {
            tracing::error!(%error, number, "a queue of io_uring failed: the connection is ended");
            begin.ending.fail(error);
        }
    }
}

/// Ends the connection if the thread panics.
struct Alarm<'a>(&'a Ending);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!("a queue of io_uring panicked: the connection is ended");
            self.0.fail(io::Error::other("a thread panicked"));
        }
    }
}

/// Pins the calling thread to a CPU, which may be offline. A failure is not an error: a queue without its CPU is slow,
/// but correct.
fn pin(cpu: u16) {
    let mut set = CpuSet::new();
    if usize::from(cpu) < CpuSet::MAX_CPU {
        set.set(cpu.into());
    }
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::debug!(%error, cpu, "a queue's thread is not pinned");
    }
}

/// Returns the reason why a kernel does not offer io_uring, with advice.
pub(super) fn why_not_offered() -> &'static str {
    match fs::read(SWITCH) {
        Ok(_) => {
            "the kernel could carry FUSE over io_uring, which is faster, but is told not to; root allows it \
             with: echo Y > /sys/module/fuse/parameters/enable_uring"
        }
        Err(_) => "the kernel cannot carry FUSE over io_uring, which is faster; Linux 6.14 can",
    }
}

/// Returns whether the kernel's switch is on, as far as it can be read.
pub(super) fn is_on() -> bool {
    fs::read(SWITCH).map_or(true, |switch| switch.trim_ascii() != b"N")
}

/// Returns the number of queues that the kernel requires: one for each possible CPU.
fn possible_cpus() -> io::Result<u16> {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    count_of(&list).ok_or_else(|| io::Error::other(format!("possible CPUs: {list:?}")))
}

/// Counts the numbers in a list such as `0-3,8`.
fn count_of(list: &str) -> Option<u16> {
    list.trim().split(',').try_fold(0u16, |count, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        count.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests;
