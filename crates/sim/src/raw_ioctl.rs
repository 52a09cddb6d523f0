//! Raw ioctls by number, for which no library has a function.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};

struct Raw<'a> {
    number: Opcode,
    argument: &'a mut [u8],
}

// SAFETY: the kernel or server transfers the number of bytes encoded in the ioctl number. `raw_ioctl` checks that the
// argument has this many.
#[allow(unsafe_code)]
unsafe impl Ioctl for Raw<'_> {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.number
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        self.argument.as_mut_ptr().cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut std::ffi::c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// Returns the argument size that is encoded in the number.
pub fn ioctl_bytes(number: Opcode) -> usize {
    (number >> 16 & 0x3fff) as usize
}

/// Executes an ioctl, which leaves its result in the argument. The argument may be longer than encoded, because some
/// ioctls have the length of trailing data in their header.
pub fn raw_ioctl(file: impl AsFd, number: Opcode, argument: &mut [u8]) -> Result<(), Errno> {
    assert!(argument.len() >= ioctl_bytes(number));
    let raw = Raw { number, argument };
    // SAFETY: see `Raw`.
    #[allow(unsafe_code)]
    unsafe {
        rustix::ioctl::ioctl(file, raw)
    }
}
