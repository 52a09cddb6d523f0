//! FUSE over io_uring: a queue per CPU, each with a thread that is pinned to it.
//!
//! The kernel holds back all requests from the moment io_uring is agreed on until every queue has registered,
//! so all that can fail is done before. FORGET and INTERRUPT go on coming through `/dev/fuse`.
//!
//! - `slot`: the buffers of a request; `ring`: commands to the kernel; `queue`: a queue's thread
//! - `pool`: threads for what has to wait

mod pool;
mod queue;
mod ring;
mod slot;

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use self::pool::Pool;
use self::queue::Queue;
use super::answer::Server;
use super::device::Device;
use super::settle::MAX_BACKGROUND;
use crate::request::FileSystem;

/// Requests of one CPU under way at once; further ones wait in the kernel, also those that would not have to.
/// Memory of large ones is taken when they come, and the kernel uses again what it used last.
const DEPTH: usize = 96;
const _: () = assert!(DEPTH > 2 * MAX_BACKGROUND as usize);
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// What a queue's thread needs to begin.
struct Begin<F> {
    server: Arc<Server<F>>,
    device: Device,
    pool: Arc<Pool>,
}

type QueueThread = JoinHandle<io::Result<()>>;

/// Queues that are ready to be registered.
pub(super) struct Queues<F> {
    threads: Vec<(SyncSender<Begin<F>>, QueueThread)>,
}

impl<F: FileSystem> Queues<F> {
    /// Makes all queues, with their threads and memory.
    pub(super) fn prepare(request_bytes: usize) -> io::Result<Self> {
        let count = possible_cpus()?;
        let (ready, made) = channel();
        let mut threads = Vec::new();
        for number in 0..count {
            let (begin, told) = sync_channel(1);
            let ready = ready.clone();
            let thread = Builder::new()
                .name(format!("ubtrfs-ring-{number}"))
                .spawn(move || live(number, request_bytes, &ready, &told))?;
            threads.push((begin, thread));
        }
        drop(ready);
        made.iter().take(count.into()).collect::<io::Result<()>>()?;
        Ok(Self { threads })
    }

    /// Registers all queues. Answers come from them from now on.
    pub(super) fn begin(self, server: &Arc<Server<F>>, device: &Device) -> io::Result<Serving> {
        // One for every request that there can be: none waits for a thread that waits for a device.
        let limit = DEPTH * self.threads.len();
        let pool = Pool::new(limit, sched_getaffinity(None)?);
        let devices = self.threads.iter().map(|_| device.another());
        let devices = devices.collect::<io::Result<Vec<_>>>()?;
        let mut threads = Vec::new();
        for ((begin, thread), device) in self.threads.into_iter().zip(devices) {
            let begun = begin.send(Begin {
                server: Arc::clone(server),
                device,
                pool: Arc::clone(&pool),
            });
            if begun.is_err() {
                return Err(io::Error::other("a queue's thread ended"));
            }
            threads.push(thread);
        }
        Ok(Serving { threads, pool })
    }
}

/// Queues that the kernel puts requests into.
pub(super) struct Serving {
    threads: Vec<QueueThread>,
    pool: Arc<Pool>,
}

impl Serving {
    /// Waits for the end of the connection. A queue that the kernel refused ends at once, and its requests
    /// come through `/dev/fuse`.
    pub(super) fn join(self) {
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "a queue of io_uring failed"),
                Err(_) => tracing::error!("a queue of io_uring panicked"),
            }
        }
        self.pool.end();
    }
}

/// The life of a queue's thread.
fn live<F: FileSystem>(
    number: u16,
    request_bytes: usize,
    ready: &Sender<io::Result<()>>,
    told: &Receiver<Begin<F>>,
) -> io::Result<()> {
    pin(number);
    let queue = match Queue::new(number, DEPTH, request_bytes) {
        Ok(queue) => queue,
        Err(error) => {
            let _ = ready.send(Err(error));
            return Ok(());
        }
    };
    let _ = ready.send(Ok(()));
    match told.recv() {
        Ok(begin) => queue.serve(&begin.server, &begin.device, &begin.pool),
        // The kernel did not agree after all.
        Err(_) => Ok(()),
    }
}

/// A queue without its CPU is slow and right: the CPU may be off for now.
fn pin(cpu: u16) {
    let mut set = CpuSet::new();
    if usize::from(cpu) < CpuSet::MAX_CPU {
        set.set(cpu.into());
    }
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::debug!(%error, cpu, "a queue's thread is not pinned");
    }
}

/// Why a kernel does not offer io_uring, and what to do about it.
pub(super) fn why_not_offered() -> &'static str {
    match fs::read(SWITCH) {
        Ok(_) => {
            "the kernel could carry FUSE over io_uring, which is faster, but is told not to; root allows it \
             with: echo Y > /sys/module/fuse/parameters/enable_uring"
        }
        Err(_) => "the kernel cannot carry FUSE over io_uring, which is faster; Linux 6.14 can",
    }
}

/// How many queues the kernel wants: one for each CPU that there may ever be.
fn possible_cpus() -> io::Result<u16> {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    count_of(&list).ok_or_else(|| io::Error::other(format!("possible CPUs: {list:?}")))
}

/// The length of a list as `0-3,8`.
fn count_of(list: &str) -> Option<u16> {
    list.trim().split(',').try_fold(0u16, |count, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        count.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests;
