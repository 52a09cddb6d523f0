//! Reading and writing the connection's device, one request at a time.
//!
//! A frame is the buffer of one exchange. The contents of a WRITE begin on a page, with space in front for the headers
//! of the same read. The room for the answer to a READ also begins on a page, with space in front for its header. So
//! one system call transfers both, and the verb uses the contents in place.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl, opcode};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::abi::input::WriteIn;
use crate::abi::opcode::FIXED_MAX;
use crate::abi::{InHeader, MIN_READ_BUFFER, OutHeader};
use crate::answer::{Outcome, Server};
use crate::request::FileSystem;

const PAGE: usize = 4096;
const IN_HEADER: usize = size_of::<InHeader>();
const OUT_HEADER: usize = size_of::<OutHeader>();
/// The offset of requests in a frame.
const REQUEST_AT: usize = PAGE - IN_HEADER - size_of::<WriteIn>();

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub(crate) struct Page([u8; PAGE]);

/// The buffer of one exchange.
pub(crate) struct Frame(Vec<Page>);

impl Frame {
    /// Creates a frame for payloads of up to `request_bytes`.
    pub(crate) fn new(request_bytes: usize) -> io::Result<Self> {
        let pages = 1 + request_bytes.max(MIN_READ_BUFFER).div_ceil(PAGE);
        Page::new_vec_zeroed(pages)
            .map(Self)
            .map_err(|_| io::ErrorKind::OutOfMemory.into())
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_slice().as_mut_bytes()
    }

    /// Returns the request that `receive` read, without its header.
    #[inline]
    pub(crate) fn request(&self, len: usize) -> &[u8] {
        let bytes = self.0.as_slice().as_bytes();
        let from = (REQUEST_AT + IN_HEADER).min(bytes.len());
        bytes
            .get(from..REQUEST_AT.saturating_add(len))
            .unwrap_or_default()
    }
}

/// The result of a read of the device.
#[derive(Debug)]
pub(crate) enum Received {
    /// A request and its length, including the header.
    Request(InHeader, usize),
    /// No request: try again.
    Nothing,
    /// The file system is unmounted.
    Unmounted,
}

/// A descriptor of the connection.
#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

impl Device {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Creates another descriptor. It has its own list of pending requests if `/dev/fuse` can be opened. That fails
    /// under fusermount3 on a system that restricts the device.
    pub(crate) fn another(&self) -> io::Result<Self> {
        let fresh = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        if let Ok(fresh) = fresh
            && join_connection(fresh.as_fd(), &self.0).is_ok()
        {
            return Ok(Self(fresh.into()));
        }
        self.0.try_clone().map(Self)
    }

    /// Returns whether the connection ends within this time.
    pub(crate) fn ends_within(&self, time: Duration) -> bool {
        let time = Timespec::try_from(time).ok();
        let mut device = [PollFd::new(&self.0, PollFlags::empty())];
        match poll(&mut device, time.as_ref()) {
            Ok(_) => device[0].revents().contains(PollFlags::ERR),
            Err(_) => false,
        }
    }

    /// Waits for a request.
    pub(crate) fn receive(&self, frame: &mut Frame) -> io::Result<Received> {
        let len = match rustix::io::read(&self.0, &mut frame.bytes_mut()[REQUEST_AT..]) {
            Ok(len) => len,
            // The request was interrupted, or a signal arrived.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => return Ok(Received::Nothing),
            Err(Errno::NODEV) => return Ok(Received::Unmounted),
            Err(error) => return Err(error.into()),
        };
        let bytes = &frame.bytes_mut()[REQUEST_AT..][..len];
        let Ok((header, _)) = InHeader::read_from_prefix(bytes) else {
            tracing::error!(len, "a request without a header");
            return Ok(Received::Nothing);
        };
        if header.len as usize != len {
            tracing::error!(len, ?header, "a request's length differs from its header");
            self.send_error(&header, Errno::IO);
            return Ok(Received::Nothing);
        }
        Ok(Received::Request(header, len))
    }

    /// Answers a request, and sends the answer.
    pub(crate) fn serve<F: FileSystem>(
        &self,
        server: &Server<F>,
        header: &InHeader,
        frame: &mut Frame,
        len: usize,
    ) {
        let body_len = len - IN_HEADER;
        let fixed_len = server.fixed_len(header.opcode).unwrap_or(0);
        let Some(payload_len) = body_len.checked_sub(fixed_len) else {
            return self.send_error(header, Errno::INVAL);
        };
        let bytes = frame.bytes_mut();
        let fixed_at = REQUEST_AT + IN_HEADER;
        let mut fixed = [0; FIXED_MAX];
        fixed[..fixed_len].copy_from_slice(&bytes[fixed_at..][..fixed_len]);
        let payload_at = fixed_at + fixed_len;
        let outcome = server.answer(header, &fixed, &mut bytes[payload_at..], payload_len);
        match outcome {
            Outcome::Silence => {}
            Outcome::Answer(len) => {
                let answer = &mut bytes[payload_at - OUT_HEADER..][..OUT_HEADER + len];
                let head = out_header(header, 0, len);
                answer[..OUT_HEADER].copy_from_slice(head.as_bytes());
                self.send(header, answer);
            }
            Outcome::Failure(error) => {
                let error = Errno::from_raw_os_error(error.code());
                self.send_error(header, error);
            }
            Outcome::WouldBlock(_) => {
                tracing::error!(header.opcode, "not answered where waiting is allowed");
                self.send_error(header, Errno::IO);
            }
        }
    }

    pub(crate) fn send_error(&self, header: &InHeader, error: Errno) {
        let head = out_header(header, -error.raw_os_error(), 0);
        if let Err(error) = rustix::io::write(&self.0, head.as_bytes()) {
            complain(header, error);
        }
    }

    /// Sends an answer, including the header.
    pub(crate) fn send(&self, header: &InHeader, answer: &[u8]) {
        if let Err(error) = rustix::io::write(&self.0, answer)
            && complain(header, error)
        {
            // The client still waits.
            self.send_error(header, Errno::IO);
        }
    }

    /// Sends a notification with this code.
    pub(crate) fn notify(&self, code: i32, parts: &[&[u8]]) -> rustix::io::Result<()> {
        let body: usize = parts.iter().map(|part| part.len()).sum();
        let head = OutHeader {
            len: (OUT_HEADER + body) as u32,
            error: code,
            unique: 0,
        };
        let whole = [&[head.as_bytes()], parts].concat().concat();
        rustix::io::write(&self.0, &whole).map(drop)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[inline]
pub(crate) fn out_header(header: &InHeader, error: i32, len: usize) -> OutHeader {
    OutHeader {
        // Answers are never larger than requests may be.
        len: (OUT_HEADER + len) as u32,
        error,
        unique: header.unique,
    }
}

/// Returns whether the kernel refused an answer that a client still needs. It needs none for an interrupted request
/// (`ENOENT`), nor after the end of the connection.
fn complain(header: &InHeader, error: Errno) -> bool {
    let moot = matches!(error, Errno::NOENT | Errno::NODEV | Errno::CONNABORTED);
    if !moot {
        tracing::error!(?header, %error, "the kernel refused an answer");
    }
    !moot
}

/// Attaches a freshly opened device to a connection.
fn join_connection(fresh: BorrowedFd<'_>, connection: &OwnedFd) -> io::Result<()> {
    let number = connection.as_raw_fd().cast_unsigned();
    #[allow(unsafe_code)]
    // SAFETY: FUSE_DEV_IOC_CLONE, `_IOR(229, 0, u32)`, reads a descriptor's number from memory that lives
    // through the call, and writes nothing.
    unsafe {
        ioctl(
            fresh,
            Setter::<{ opcode::read::<u32>(229, 0) }, u32>::new(number),
        )?;
    }
    Ok(())
}
