//! A file of a mount that is changed by a shared mapping.

use std::ffi::c_void;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr::null_mut;

use rustix::fs::{major, minor};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The beginning of a file, mapped. No descriptor is left, whose copies would be closed by programs that are started, and
/// the file written back with that.
pub(crate) struct Mapped(*mut c_void);

pub(crate) const MAPPED_BYTES: usize = 4096;

#[allow(unsafe_code)]
impl Mapped {
    pub(crate) fn new(path: &Path) -> Mapped {
        let mut file = File::options();
        let file = file.read(true).write(true).open(path).unwrap();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: new memory at a place of the kernel's choice.
        let start = unsafe { mmap(null_mut(), MAPPED_BYTES, access, MapFlags::SHARED, &file, 0) };
        Mapped(start.unwrap())
    }

    pub(crate) fn change(&self, byte: u8) {
        // SAFETY: the file is as long, and is not truncated.
        unsafe { self.0.cast::<u8>().write_volatile(byte) };
    }
}

impl Drop for Mapped {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: it was mapped by `new`, and is not used after this.
        let _ = unsafe { munmap(self.0, MAPPED_BYTES) };
    }
}

/// Has the kernel be in no hurry to write what it holds of a mount.
pub(crate) fn let_pages_lie(mountpoint: &Path) {
    let device = mountpoint.metadata().unwrap().dev();
    let folder = format!("/sys/class/bdi/{}:{}", major(device), minor(device));
    for (name, value) in [("strict_limit", "0"), ("max_ratio", "100")] {
        let _ = fs::write(format!("{folder}/{name}"), value);
    }
}
