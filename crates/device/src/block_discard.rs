//! Discarding a range of a block device: the ioctl BLKDISCARD, which no safe wrapper offers.
#![allow(unsafe_code)]

use std::fs::File;

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `_IO(0x12, 119)` of linux/fs.h.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);

pub(crate) fn discard(device: &File, offset: u64, len: u64) -> rustix::io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64, offset and length, from where its argument points, and writes
    // nothing; on what is not a block device it fails.
    unsafe {
        let range = Setter::<BLKDISCARD, [u64; 2]>::new([offset, len]);
        ioctl(device, range)
    }
}
