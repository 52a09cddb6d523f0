//! Ioctls by their numbers, as programs make them for which no library has a call.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode};

struct Raw<'a> {
    number: Opcode,
    argument: &'a mut [u8],
}

// SAFETY: the kernel or server that answers moves as many bytes as the number says. `raw_ioctl` has seen them to be
// there.
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

/// Returns how many bytes the number says that are moved.
pub fn ioctl_bytes(number: Opcode) -> usize {
    (number >> 16 & 0x3fff) as usize
}

/// Asks, and leaves the answer in the argument. It may be longer than the number says: some name in their head how
/// much comes behind it.
pub fn raw_ioctl(file: impl AsFd, number: Opcode, argument: &mut [u8]) -> Result<(), Errno> {
    assert!(argument.len() >= ioctl_bytes(number));
    let raw = Raw { number, argument };
    // SAFETY: see `Raw`.
    #[allow(unsafe_code)]
    unsafe {
        rustix::ioctl::ioctl(file, raw)
    }
}
