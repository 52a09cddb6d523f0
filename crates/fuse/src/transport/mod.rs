//! What carries requests between the kernel and a `FileSystem`.
//!
//! A transport is given the connection's descriptor (an opened `/dev/fuse` that is mounted already),
//! settles the protocol's version and options, and then serves requests until the kernel ends the
//! connection. It knows nothing of btrfs.
//!
//! - `abi`: the protocol as bytes; `parse`, `encode`: from bytes to requests, from answers to bytes
//! - `answer`: calls the verb that a request asks for; `guard`: keeps its panics in
//! - `settle`: the first request, with which both sides agree on options
//! - `device`, `classic`: requests through `/dev/fuse`
//! - `notifier`: the way back to the kernel's caches

mod abi;
mod answer;
mod classic;
mod device;
mod encode;
mod guard;
mod notifier;
mod parse;
mod settle;

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use zerocopy::{FromZeros, IntoBytes};

use self::abi::init::InitOut;
use self::abi::{OutHeader, opcode};
use self::answer::Server;
use self::classic::Readers;
use self::device::{Device, Frame, Received, out_header};
use self::guard::Guarded;
use self::notifier::Teller;
use self::settle::{Offer, REQUEST_MAX_BYTES, Settled, settle};
use crate::request::{FileSystem, Wishes};

/// Which transport a mount asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// The fastest that the kernel offers.
    #[default]
    Auto,
    /// FUSE over io_uring, or no mount.
    Uring,
    /// Reads and writes of `/dev/fuse`.
    Classic,
}

/// A connection that has been set up; the kernel sends requests from now on.
pub(crate) struct Connection(Box<dyn FnOnce() -> io::Result<()> + Send>);

impl Connection {
    /// Answers the kernel's first request, with which both sides agree on the protocol.
    pub(crate) fn establish(
        file_system: impl FileSystem,
        device: OwnedFd,
        threads: NonZeroUsize,
        choice: TransportChoice,
    ) -> io::Result<Self> {
        if choice == TransportChoice::Uring {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let file_system = Guarded(file_system);
        let device = Device::new(device);
        let settled = handshake(&device, &file_system.wishes())?;
        let teller = Teller::start(device.another()?, settled.has_epoch())?;
        file_system.start(teller.queue());
        let server = Arc::new(Server {
            file_system,
            settled,
        });
        Ok(Self(Box::new(move || {
            let outcome = Readers::new(server, device, threads).serve();
            drop(teller);
            outcome
        })))
    }

    /// Serves requests until the file system is unmounted or the connection aborted.
    pub(crate) fn serve(self) -> io::Result<()> {
        (self.0)()
    }
}

/// Answers the kernel's first request.
fn handshake(device: &Device, wishes: &Wishes) -> io::Result<Settled> {
    let mut frame = Frame::new(REQUEST_MAX_BYTES)?;
    loop {
        let (header, len) = match device.receive(&mut frame)? {
            Received::Request(header, len) => (header, len),
            Received::Nothing => continue,
            Received::Unmounted => return Err(io::ErrorKind::NotConnected.into()),
        };
        let offer = (header.opcode == opcode::INIT)
            .then(|| Offer::parse(frame.request(len)))
            .flatten();
        let Some(offer) = offer else {
            device.send_error(&header, rustix::io::Errno::IO);
            continue;
        };
        let send = |answer: &InitOut| {
            let head: OutHeader = out_header(&header, 0, size_of::<InitOut>());
            device.send(&header, &[head.as_bytes(), answer.as_bytes()].concat());
        };
        if offer.major > abi::MAJOR {
            // It asks again with what we know.
            send(&InitOut {
                major: abi::MAJOR,
                minor: abi::MINOR,
                ..InitOut::new_zeroed()
            });
            continue;
        }
        let (settled, answer) = settle(&offer, wishes).inspect_err(|_| {
            device.send_error(&header, rustix::io::Errno::PROTO);
        })?;
        send(&answer);
        return Ok(settled);
    }
}
