//! The FUSE protocol and what carries it: requests of the kernel come to a [`request::FileSystem`] of any kind.
//!
//! - `request`: the requests that a file system answers, whatever carries them
//! - `abi`: the protocol as bytes; `parse`, `encode`: from bytes to requests, from answers to bytes
//! - `answer`: calls the verb that a request asks for; `panic_guard`: keeps its panics in
//! - `init`: the first request (FUSE_INIT), with which both sides agree on options; `capacity`: how large requests are
//! - `device`, `dev_fuse`: requests through `/dev/fuse`; `uring`: through io_uring
//! - `forget_reader`: FORGETs, which io_uring does not carry
//! - `ending`: how threads hear of the end
//! - `notifier`: the way back to the kernel's caches
//! - `pool`: threads for what has to wait
//! - `retrieval`: what the kernel replies of its cache
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
