//! The FUSE protocol and its transports, for any [`request::FileSystem`].
//!
//! - `request`: the requests that a file system answers, independent of the transport
//! - `abi`: the protocol as bytes; `parse`, `encode`: from bytes to requests, from answers to bytes
//! - `answer`: hands the operation of a request to the file system; `panic_guard`: confines panics
//! - `init`: the first request (FUSE_INIT), which negotiates options; `capacity`: the size of requests
//! - `device`, `dev_fuse`: requests through `/dev/fuse`; `uring`: through io_uring
//! - `forget_reader`: FORGETs, which io_uring does not carry
//! - `ending`: signals the end to all threads
//! - `notifier`: invalidates the kernel's caches
//! - `pool`: threads for blocking work
//! - `retrieval`: reads the kernel's page cache
//! - `connection`: all of these together, for one mount
//!
//! Not here: mounting, and any file system.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod abi;
mod answer;
mod capacity;
mod clock;
mod connection;
mod dev_fuse;
mod device;
mod encode;
mod ending;
mod forget_reader;
mod init;
mod notifier;
mod panic_guard;
mod parse;
mod pool;
pub mod request;
mod retrieval;
mod sync;
mod thread;
mod thread_count;
mod uring;

pub use capacity::{BACKGROUND_MIN, Capacity};
pub use connection::{Connection, Refused, TransportChoice};
