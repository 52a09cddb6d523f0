//! A connection with the kernel, from its first request to its end.
//!
//! A connection receives the descriptor of an opened `/dev/fuse` that is already mounted. It negotiates the protocol's
//! version and options, and serves requests until the kernel ends it.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use zerocopy::{FromZeros, IntoBytes};

use crate::abi::init::{InitOut, flag};
use crate::abi::{self, InHeader, opcode};
use crate::answer::Server;
use crate::capacity::{Capacity, REQUEST_MAX_BYTES};
use crate::dev_fuse::Readers;
use crate::device::{Device, Frame, Received, out_header};
use crate::ending::Ending;
use crate::forget_reader;
use crate::init::{Offer, negotiate};
use crate::notifier::Invalidator;
use crate::request::FileSystem;
use crate::uring::{self, Queues};

/// The requested transport of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// The fastest transport that the kernel offers.
    #[default]
    Auto,
    /// FUSE over io_uring, or no mount.
    Uring,
    /// Reads and writes of `/dev/fuse`.
    Classic,
}

/// An established connection, on which the kernel may send requests.
pub struct Connection {
    serve: Box<Serve>,
    /// The reason why it is not the fastest transport, unless the user chose it.
    fallback: Option<String>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("fallback", &self.fallback)
            .finish_non_exhaustive()
    }
}

/// The reason why there is no connection, and possibly the file system for another try.
#[derive(Debug)]
pub struct Refused<F> {
    pub error: io::Error,
    /// The file system, if the kernel negotiated io_uring and then refused it: a connection without io_uring may work.
    pub but_for_rings: Option<F>,
}

impl<F> From<io::Error> for Refused<F> {
    fn from(error: io::Error) -> Self {
        Self {
            error,
            but_for_rings: None,
        }
    }
}

type Serve = dyn FnOnce(&dyn Fn()) -> io::Result<()> + Send;

impl Connection {
    /// Answers the kernel's first request, which negotiates the protocol.
    pub fn establish<F: FileSystem>(
        file_system: F,
        device: OwnedFd,
        threads: NonZeroUsize,
        choice: TransportChoice,
        capacity: Capacity,
    ) -> Result<Self, Refused<F>> {
        let device = Device::new(device);
        let (header, offer) = first_request(&device)?;
        let refuse = |_: &io::Error| device.send_error(&header, rustix::io::Errno::PROTO);
        let (queues, fallback) = queues(&device, &offer, choice, &capacity).inspect_err(refuse)?;
        let connection_flags = file_system.connection_flags();
        let agreed = queues.as_ref().map_or(capacity, Queues::capacity);
        let (negotiated, answer) =
            negotiate(&offer, &connection_flags, queues.is_some(), &agreed).inspect_err(refuse)?;
        let invalidator = Invalidator::start(device.another()?).inspect_err(refuse)?;
        file_system.start(invalidator.queue());
        let was_on = uring::is_on();
        device.send(&header, &whole_answer(&header, &answer));
        // The kernel reads its switch again when it receives the answer. If the switch was off before and is on now,
        // the kernel accepts queues nevertheless. It refuses all of their commands once the switch is off again.
        if queues.is_some() && !(was_on && uring::is_on()) {
            return Err(Refused {
                error: rustix::io::Errno::OPNOTSUPP.into(),
                but_for_rings: Some(file_system),
            });
        }
        let server = Arc::new(Server {
            retrievals: invalidator.retrievals(),
            file_system,
            negotiated,
        });
        let Some(queues) = queues else {
            let serve: Box<Serve> = Box::new(move |abort| {
                let outcome = Readers::new(server, device, threads).serve();
                if outcome.is_err() {
                    abort();
                }
                drop(invalidator);
                outcome
            });
            return Ok(Self { serve, fallback });
        };
        let ending = Arc::new(Ending::new()?);
        let queues = match queues.begin(&server, &device, &ending) {
            Ok(queues) => queues,
            Err(error) => {
                let server = Arc::into_inner(server);
                return Err(Refused {
                    error,
                    but_for_rings: server.map(|server| server.file_system),
                });
            }
        };
        let serve: Box<Serve> = Box::new(move |abort| {
            if let Err(error) = forget_reader::serve(&server, &device, &ending) {
                ending.fail(error);
            }
            if ending.has_failed() {
                abort();
            }
            queues.join();
            drop(invalidator);
            ending.take_failure()
        });
        Ok(Self { serve, fallback })
    }

    /// Returns the reason for using `/dev/fuse`, unless the user chose it.
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Serves until the file system is unmounted or the connection aborted. If serving fails, `abort` must end the
    /// connection: until then clients wait for answers that never arrive.
    pub fn serve(self, abort: impl Fn()) -> io::Result<()> {
        (self.serve)(&abort)
    }
}

/// Waits for the kernel's first request.
fn first_request(device: &Device) -> io::Result<(InHeader, Offer)> {
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
        match offer {
            // The kernel sends another request with our version.
            Some(offer) if offer.major > abi::MAJOR => {
                let ours = InitOut {
                    major: abi::MAJOR,
                    minor: abi::MINOR,
                    ..InitOut::new_zeroed()
                };
                device.send(&header, &whole_answer(&header, &ours));
            }
            Some(offer) => return Ok((header, offer)),
            None => device.send_error(&header, rustix::io::Errno::IO),
        }
    }
}

fn whole_answer(header: &InHeader, answer: &InitOut) -> Vec<u8> {
    let head = out_header(header, 0, size_of::<InitOut>());
    [head.as_bytes(), answer.as_bytes()].concat()
}

/// Prepares the queues of io_uring if they are to be used, or returns the reason against them. In all other cases it
/// logs the transport.
fn queues<F: FileSystem>(
    device: &Device,
    offer: &Offer,
    choice: TransportChoice,
    capacity: &Capacity,
) -> io::Result<(Option<Queues<F>>, Option<String>)> {
    if choice == TransportChoice::Classic {
        tracing::info!("requests come through /dev/fuse, as requested");
        return Ok((None, None));
    }
    let made = if offer.has(flag::OVER_IO_URING) {
        Queues::prepare(device, capacity)
    } else {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            uring::why_not_offered(),
        ))
    };
    match (made, choice) {
        (Ok(queues), _) => {
            tracing::info!("requests come through io_uring, which the kernel offers");
            Ok((Some(queues), None))
        }
        (Err(error), TransportChoice::Uring) => Err(error),
        (Err(error), _) => Ok((None, Some(error.to_string()))),
    }
}
