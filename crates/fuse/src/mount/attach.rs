//! Mounting a FUSE connection with mount(2), or through fusermount3.
//!
//! mount(2) is for root. For every other user, fusermount3 (set-user-id, from the package fuse3) checks the user's
//! rights, mounts, and passes the connection's descriptor back over a socket. The socket is its standard input. That is
//! the one descriptor that a child inherits without changes to close-on-exec flags, in a process that may have threads.

use std::ffi::{CString, OsString};
use std::fs::OpenOptions;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::mount::MountFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::{getegid, geteuid};

use super::error::MountError;
use crate::mount_table::{BLOCK_FS_TYPE, FS_TYPE};

const HELPER: &str = "fusermount3";
/// The environment variable with the socket descriptor for fusermount3.
const HELPER_SOCKET: &str = "_FUSE_COMMFD";

/// The parameters of a mount for the kernel.
#[derive(Clone, Debug)]
pub(super) struct Attachment<'a> {
    pub(super) mountpoint: &'a Path,
    /// Displayed as the mount's source.
    pub(super) source: &'a Path,
    pub(super) flags: MountFlags,
    pub(super) allow_other: bool,
    /// Whether the kernel checks permissions.
    pub(super) default_permissions: bool,
    /// Options for the kernel's security module, unchanged.
    pub(super) security: &'a [String],
}

/// Mounts, and returns the connection. The kernel blocks all access until the first request on it is answered.
pub(super) fn attach(wanted: &Attachment<'_>) -> Result<OwnedFd, MountError> {
    if geteuid().is_root() {
        match direct(wanted) {
            // Root without the right to mount, as in a container.
            Err(MountError::Mount { error, .. })
                if error.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error()) => {}
            outcome => return outcome,
        }
    }
    through_helper(wanted)
}

/// Mounts a block device, whose path is `wanted.source`. Only root may.
pub(super) fn attach_block(
    wanted: &Attachment<'_>,
    sector_bytes: u32,
) -> Result<OwnedFd, MountError> {
    mount_directly(
        wanted,
        BLOCK_FS_TYPE,
        &format!(",blksize={}", sector_bytes.min(4096)),
    )
}

fn direct(wanted: &Attachment<'_>) -> Result<OwnedFd, MountError> {
    mount_directly(wanted, FS_TYPE, "")
}

fn mount_directly(
    wanted: &Attachment<'_>,
    fs_type: &str,
    more_data: &str,
) -> Result<OwnedFd, MountError> {
    let device: OwnedFd = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => MountError::NoFuse,
            _ => MountError::OpenFuse(error),
        })?
        .into();
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        geteuid().as_raw(),
        getegid().as_raw()
    );
    for option in connection_options(wanted) {
        data.push(',');
        data.push_str(option);
    }
    data.push_str(more_data);
    let failed = |error: io::Error| MountError::Mount {
        mountpoint: wanted.mountpoint.into(),
        error,
    };
    let data = CString::new(data).map_err(|error| failed(error.into()))?;
    rustix::mount::mount(
        wanted.source,
        wanted.mountpoint,
        fs_type,
        wanted.flags,
        Some(data.as_c_str()),
    )
    .map_err(|error| match error {
        rustix::io::Errno::NODEV => MountError::NoFuse,
        error => failed(error.into()),
    })?;
    Ok(device)
}

fn through_helper(wanted: &Attachment<'_>) -> Result<OwnedFd, MountError> {
    let (ours, theirs) = UnixStream::pair().map_err(MountError::RunHelper)?;
    let child = helper_command()
        .arg("-o")
        .arg(helper_options(wanted))
        .arg("--")
        .arg(wanted.mountpoint)
        .env(HELPER_SOCKET, "0")
        .stdin(OwnedFd::from(theirs))
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => MountError::NoHelper,
            _ => MountError::RunHelper(error),
        })?;
    let device = receive_descriptor(&ours);
    drop(ours);
    let complaint = finish(child).map_err(MountError::RunHelper)?;
    match device {
        Ok(Some(device)) => Ok(device),
        Ok(None) => Err(MountError::Helper(complaint)),
        Err(error) => Err(MountError::RunHelper(error)),
    }
}

/// Creates the command of the helper, still without arguments. The helper inherits only descriptors that are set later.
pub(super) fn helper_command() -> Command {
    let mut command = Command::new(HELPER);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Waits for the helper. Returns its standard error in one line, without its name.
pub(super) fn finish(child: Child) -> io::Result<String> {
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = text
        .lines()
        .map(|line| line.trim_start_matches("fusermount3: ").trim())
        .filter(|line| !line.is_empty())
        .collect();
    Ok(match lines.as_slice() {
        [] if output.status.success() => String::new(),
        [] => format!("fusermount3 failed: {}", output.status),
        lines => lines.join("; "),
    })
}

/// Receives the descriptor from the helper. Returns `None` if the helper ends without sending one.
fn receive_descriptor(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let received = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(received)
}

fn connection_options<'a>(wanted: &Attachment<'a>) -> impl Iterator<Item = &'a str> {
    [
        (wanted.default_permissions, "default_permissions"),
        (wanted.allow_other, "allow_other"),
    ]
    .into_iter()
    .filter_map(|(set, option)| set.then_some(option))
    .chain(wanted.security.iter().map(String::as_str))
}

fn helper_options(wanted: &Attachment<'_>) -> OsString {
    let mut options = Vec::new();
    for (flag, name) in [
        (MountFlags::RDONLY, "ro"),
        (MountFlags::NOSUID, "nosuid"),
        (MountFlags::NODEV, "nodev"),
        (MountFlags::NOEXEC, "noexec"),
        (MountFlags::NOSYMFOLLOW, "nosymfollow"),
        (MountFlags::NOATIME, "noatime"),
        (MountFlags::SYNCHRONOUS, "sync"),
        (MountFlags::DIRSYNC, "dirsync"),
    ] {
        if wanted.flags.contains(flag) {
            options.extend_from_slice(name.as_bytes());
            options.push(b',');
        }
    }
    for option in connection_options(wanted) {
        options.extend_from_slice(option.as_bytes());
        options.push(b',');
    }
    let subtype = FS_TYPE.trim_start_matches("fuse.");
    options.extend_from_slice(format!("subtype={subtype},fsname=").as_bytes());
    for &byte in wanted.source.as_os_str().as_bytes() {
        if matches!(byte, b',' | b'\\') {
            options.push(b'\\');
        }
        options.push(byte);
    }
    OsString::from_vec(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_the_source_do_not_end_the_option() {
        let options = helper_options(&Attachment {
            mountpoint: Path::new("/mnt"),
            source: Path::new(r"/a,b\c.img"),
            flags: MountFlags::RDONLY,
            allow_other: false,
            default_permissions: true,
            security: &[],
        });
        assert_eq!(
            options,
            r"ro,default_permissions,subtype=ubtrfs,fsname=/a\,b\\c.img"
        );
    }
}
