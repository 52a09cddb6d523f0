//! The ioctl FICLONERANGE, which shares blocks between files and has no safe wrapper.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `struct file_clone_range` of linux/fs.h: source, source offset, length, destination offset.
type FileCloneRange = [u64; 4];

/// `_IOW(0x94, 13, struct file_clone_range)`.
const FICLONERANGE: Opcode = opcode::write::<FileCloneRange>(0x94, 13);

pub(crate) fn clone_range(
    target: &File,
    source: BorrowedFd<'_>,
    source_offset: u64,
    len: u64,
    offset: u64,
) -> io::Result<()> {
    // The kernel takes a length of 0 as "up to the end of the file".
    if len == 0 {
        return Ok(());
    }
    let source = source.as_raw_fd() as u64;
    // SAFETY: FICLONERANGE reads the struct that its argument points to and writes nothing. The descriptor in the
    // struct is borrowed, hence open.
    unsafe {
        let range =
            Setter::<FICLONERANGE, FileCloneRange>::new([source, source_offset, len, offset]);
        Ok(ioctl(target, range)?)
    }
}
