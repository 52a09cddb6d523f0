//! Extended attributes of files in the source tree.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{fgetxattr, flistxattr, lgetxattr, llistxattr};
use rustix::io::{Errno, Result};

use crate::fill::source::{Xattr, is_kept};

/// Suffices for most lists and values.
const USUAL_BYTES: usize = 1024;
/// The kernel's limit for lists and values.
const MAX_BYTES: usize = 64 << 10;

/// Reads the attributes of an open file or directory.
pub(super) fn of_open(file: impl AsFd) -> Result<Vec<Xattr>> {
    let file = file.as_fd();
    read(
        |buf| flistxattr(file, buf),
        |name, buf| fgetxattr(file, name, buf),
    )
}

/// Reads the attributes of a file that must not be opened, such as a link or a device.
pub(super) fn of_name(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<Xattr>> {
    let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    read(
        |buf| llistxattr(path.as_slice(), buf),
        |name, buf| lgetxattr(path.as_slice(), name, buf),
    )
}

fn read(
    list: impl Fn(&mut [u8]) -> Result<usize>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize>,
) -> Result<Vec<Xattr>> {
    let names = match whole(&list) {
        // The file system does not support extended attributes.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
        names => names?,
    };
    let mut xattrs = Vec::new();
    for name in names.split(|&byte| byte == 0).filter(|name| is_kept(name)) {
        match whole(|buf| get(name, buf)) {
            Ok(value) => xattrs.push((name.to_vec(), value)),
            // Removed since the listing.
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno),
        }
    }
    xattrs.sort_unstable();
    Ok(xattrs)
}

/// Calls `call` again with a buffer of the maximum size if the first one was too small.
fn whole(call: impl Fn(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let mut buf = [0; USUAL_BYTES];
    match call(&mut buf) {
        Err(Errno::RANGE) => {}
        len => return Ok(buf[..len?].to_vec()),
    }
    let mut buf = vec![0; MAX_BYTES];
    let len = call(&mut buf)?;
    buf.truncate(len);
    Ok(buf)
}
