//! The ioctl BLKDISCARD, which discards a range of a block device and has no safe wrapper.
#![allow(unsafe_code)]

use std::fs::File;

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `_IO(0x12, 119)` of linux/fs.h.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);

pub(crate) fn discard(device: &File, offset: u64, len: u64) -> rustix::io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64, offset and length, from its argument and writes nothing. It fails if `device`
    // is not a block device.
    unsafe {
        let range = Setter::<BLKDISCARD, [u64; 2]>::new([offset, len]);
        ioctl(device, range)
    }
}
