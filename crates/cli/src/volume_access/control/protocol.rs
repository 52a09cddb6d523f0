//! Messages between client and server.
//!
//! - Greeting: the client sends a random number. The server registers it with the mount and answers with one
//!   byte. Then the client queries the mount for the number (`ubtrfs_fuse::mount::Nonce`).
//! - Request: its length (u32, little-endian) with two or three descriptors, then that many bytes. These are
//!   fields, each a length (u32, little-endian) and bytes.
//! - Answer: one byte, which is the exit code or announces another version, followed by that version. An end
//!   without an answer means that the command was not run, or not completed.
//!
//! A client that unmounts sends `UNMOUNT` as its only argument. The server answers `READY`, the client unmounts
//! and sends `UNMOUNTED`. If the file system lives on, the server commits and answers `DURABLE` or
//! `NOT_DURABLE`. Otherwise the end of the server process ends the connection, after `NOT_DURABLE` if the
//! last commit failed.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use ubtrfs_device::random_uuid;
use ubtrfs_fuse::mount::{CONTROL_ATTRIBUTE, Nonce};

use crate::volume_access::session::MountPath;

/// Both sides are this program, but one may be older. The version is the first field of every request.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// In place of an exit code. The server's version follows.
const OTHER_VERSION: u8 = 0xff;
/// Before an exit code: the length and name of a subvolume being received. An empty name means that it is
/// finished.
const RECEIVING: u8 = 0xfe;
const MAX_SUBVOLUME_BYTES: usize = 255;
const MAX_REQUEST_BYTES: u32 = 4 << 20;
/// The longest abstract name or path that the kernel accepts.
const MAX_NAME_BYTES: usize = 107;
/// The first bytes from a client.
const GREETING: [u8; 4] = *b"ubtr";
/// The mount knows the number of the greeting.
pub(super) const READY: u8 = b'!';
/// In place of a command line: the client is about to unmount.
pub(super) const UNMOUNT: &[u8] = b"leave";
pub(super) const UNMOUNTED: u8 = b'u';
pub(super) const DURABLE: u8 = b'd';
pub(super) const NOT_DURABLE: u8 = b'n';

/// A command to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    /// Major and minor number of the mount's device in the client's view. They detect that the client was
    /// directed to the server of another mount.
    pub(super) device: (u32, u32),
    /// The client's local time zone.
    pub(super) zone: Vec<u8>,
    /// Whether the kernel has not been asked to write back its dirty pages of the mount.
    pub(super) is_unwritten: bool,
    /// The mount point in the client's view.
    pub(super) mountpoint: Vec<u8>,
    pub(super) paths: Vec<MountPath>,
    /// The command line, including the program name.
    pub(super) args: Vec<Vec<u8>>,
}

/// Open files from a client.
#[derive(Debug)]
pub(super) struct Descriptors {
    pub(super) stdout: File,
    pub(super) stderr: File,
    /// The input, for commands that read one.
    pub(super) input: Option<File>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ProtocolError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("not a request")]
    Malformed,
    #[error("version {0} of this program is at the other end")]
    Version(String),
}

/// The addresses at which a mount accepts commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The name of the socket in the server's network namespace.
    pub(super) name: String,
    /// The path of the socket for clients in other namespaces.
    pub(super) path: Option<PathBuf>,
}

impl Address {
    /// Creates an address with an unused abstract name.
    pub(super) fn new() -> Address {
        Address {
            name: format!("ubtrfs/control/{}", random_uuid()),
            path: None,
        }
    }

    /// Reads the address from the mount that contains a path.
    pub(super) fn at(place: &Path) -> io::Result<Address> {
        let mut value = [0; 2 * MAX_NAME_BYTES + 1];
        let len = rustix::fs::getxattr(place, CONTROL_ATTRIBUTE, &mut value)?;
        let mut parts = value[..len].splitn(2, |&byte| byte == 0);
        let name = parts.next().unwrap_or_default().to_vec();
        let path = parts.next().map(|path| OsString::from_vec(path.to_vec()));
        Ok(Address {
            name: String::from_utf8(name).map_err(|_| io::ErrorKind::InvalidData)?,
            path: path.map(PathBuf::from),
        })
    }

    /// Returns the address in the form published by the mount: the name, followed by a zero and the path if
    /// there is one.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.name.clone().into_bytes();
        if let Some(path) = &self.path {
            bytes.push(0);
            bytes.extend(path.as_os_str().as_bytes());
        }
        bytes
    }

    pub(super) fn abstract_socket(&self) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(&self.name)
    }

    /// Returns all sockets, in the order to try them.
    pub(super) fn sockets(&self) -> Vec<io::Result<SocketAddr>> {
        let mut sockets = vec![self.abstract_socket()];
        sockets.extend(self.path.as_ref().map(SocketAddr::from_pathname));
        sockets
    }
}

/// Sends a greeting, and waits until the server has registered the number. Returns false if the connection
/// ends instead.
pub(super) fn greet(mut socket: &UnixStream, nonce: Nonce) -> io::Result<bool> {
    socket.write_all(&[&GREETING[..], &nonce.0].concat())?;
    let mut answer = [0];
    Ok(socket.read(&mut answer)? == 1 && answer == [READY])
}

/// Receives the number of a client's greeting.
pub(super) fn greeting(mut socket: &UnixStream) -> Result<Nonce, ProtocolError> {
    let mut greeting = GREETING;
    socket.read_exact(&mut greeting)?;
    // An older client begins with its request.
    if greeting != GREETING {
        return Err(ProtocolError::Malformed);
    }
    let mut nonce = [0; 16];
    socket.read_exact(&mut nonce)?;
    Ok(Nonce(nonce))
}

pub(super) fn say_ready(mut socket: &UnixStream) -> io::Result<()> {
    socket.write_all(&[READY])
}

impl Request {
    /// Creates the request of a client that is about to unmount.
    pub(super) fn unmount(device: (u32, u32)) -> Request {
        Request {
            device,
            args: vec![UNMOUNT.to_vec()],
            ..Request::default()
        }
    }

    pub(super) fn is_unmount(&self) -> bool {
        self.args == [UNMOUNT]
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |field: &[u8]| {
            bytes.extend((field.len() as u32).to_le_bytes());
            bytes.extend(field);
        };
        put(VERSION.as_bytes());
        let (major, minor) = self.device;
        put(&[major.to_le_bytes(), minor.to_le_bytes()].concat());
        put(&self.zone);
        put(&[self.is_unwritten.into()]);
        put(&self.mountpoint);
        put(&(self.paths.len() as u32).to_le_bytes());
        for of in &self.paths {
            put(&of.written);
            put(&of.path);
            put(&[of.is_read_only.into()]);
        }
        for arg in &self.args {
            put(arg);
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Request, ProtocolError> {
        let mut fields = Fields(bytes);
        let version = fields.next()?;
        if version != VERSION.as_bytes() {
            let version = String::from_utf8_lossy(&version).into_owned();
            return Err(ProtocolError::Version(version));
        }
        let device = u64::from_le_bytes(fields.next_array()?);
        let zone = fields.next()?;
        let is_unwritten = fields.next_array()? != [0];
        let mountpoint = fields.next()?;
        let count = u32::from_le_bytes(fields.next_array()?);
        let paths = (0..count)
            .map(|_| {
                Ok(MountPath {
                    written: fields.next()?,
                    path: fields.next()?,
                    is_read_only: fields.next_array()? != [0],
                })
            })
            .collect::<Result<_, ProtocolError>>()?;
        let mut args = Vec::new();
        while !fields.0.is_empty() {
            args.push(fields.next()?);
        }
        Ok(Request {
            device: (device as u32, (device >> 32) as u32),
            zone,
            is_unwritten,
            mountpoint,
            paths,
            args,
        })
    }

    pub(super) fn send(
        &self,
        mut socket: &UnixStream,
        stdout: impl AsFd,
        stderr: impl AsFd,
        input: Option<&File>,
    ) -> Result<(), ProtocolError> {
        let bytes = self.to_bytes();
        let mut descriptors = vec![stdout.as_fd(), stderr.as_fd()];
        descriptors.extend(input.map(AsFd::as_fd));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(ProtocolError::Malformed);
        }
        let len = (bytes.len() as u32).to_le_bytes();
        let head = [IoSlice::new(&len)];
        let sent = sendmsg(socket, &head, &mut ancillary, SendFlags::NOSIGNAL);
        if sent.map_err(io::Error::from)? != len.len() {
            return Err(ProtocolError::Malformed);
        }
        Ok(socket.write_all(&bytes)?)
    }

    /// Receives a request with the client's descriptors.
    pub(super) fn receive(
        mut socket: &UnixStream,
    ) -> Result<(Request, Descriptors), ProtocolError> {
        let mut len = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut len)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        );
        let received = received.map_err(io::Error::from)?;
        let mut descriptors: Vec<OwnedFd> = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        let len_bytes = u32::from_le_bytes(len);
        let mut descriptors = descriptors.into_iter().map(File::from);
        let (Some(stdout), Some(stderr), 4) =
            (descriptors.next(), descriptors.next(), received.bytes)
        else {
            return Err(ProtocolError::Malformed);
        };
        let descriptors = Descriptors {
            stdout,
            stderr,
            input: descriptors.next(),
        };
        if len_bytes > MAX_REQUEST_BYTES {
            return Err(ProtocolError::Malformed);
        }
        let mut bytes = vec![0; len_bytes as usize];
        socket.read_exact(&mut bytes)?;
        Ok((Request::from_bytes(&bytes)?, descriptors))
    }
}

/// Encodes the message that a server begins to receive a subvolume. An empty name means that the subvolume is
/// finished.
pub(crate) fn receiving(name: &[u8]) -> Vec<u8> {
    let name = &name[..name.len().min(MAX_SUBVOLUME_BYTES)];
    [&[RECEIVING, name.len() as u8], name].concat()
}

/// Receives the exit code from a server. `unfinished` becomes the subvolume that was received last, unless it
/// is finished.
///
/// Errors: the server has not completed the command, or has another version.
pub(super) fn exit_code(
    mut socket: &UnixStream,
    unfinished: &mut Option<Vec<u8>>,
) -> Result<u8, ProtocolError> {
    let mut code = [0];
    loop {
        if socket.read(&mut code)? == 0 {
            return Err(ProtocolError::Malformed);
        }
        if code != [RECEIVING] {
            break;
        }
        let mut len = [0];
        socket.read_exact(&mut len)?;
        let mut name = vec![0; len[0].into()];
        socket.read_exact(&mut name)?;
        *unfinished = Some(name).filter(|name| !name.is_empty());
    }
    if code != [OTHER_VERSION] {
        return Ok(code[0]);
    }
    let mut version = String::new();
    socket
        .take(MAX_NAME_BYTES as u64)
        .read_to_string(&mut version)?;
    Err(ProtocolError::Version(version))
}

/// Sends the version to a client of another version.
pub(super) fn refuse_version(mut socket: &UnixStream) -> io::Result<()> {
    socket.write_all(&[&[OTHER_VERSION], VERSION.as_bytes()].concat())
}

/// The remaining fields.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn next(&mut self) -> Result<Vec<u8>, ProtocolError> {
        let (len, rest) = self
            .0
            .split_first_chunk::<4>()
            .ok_or(ProtocolError::Malformed)?;
        let (field, rest) = rest
            .split_at_checked(u32::from_le_bytes(*len) as usize)
            .ok_or(ProtocolError::Malformed)?;
        self.0 = rest;
        Ok(field.to_vec())
    }

    fn next_array<const LEN: usize>(&mut self) -> Result<[u8; LEN], ProtocolError> {
        let field = self.next()?;
        field.try_into().map_err(|_| ProtocolError::Malformed)
    }
}

#[cfg(test)]
mod tests;
