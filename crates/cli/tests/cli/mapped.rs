//! A file of a mount that is changed through a shared mapping.

use std::ffi::c_void;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr::null_mut;

use rustix::fs::{major, minor};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The beginning of a file, mapped. The descriptor is closed. A process started by another test would inherit
/// it, and closing that copy would write the file back.
pub(crate) struct Mapped(*mut c_void);

pub(crate) const MAPPED_BYTES: usize = 4096;

#[allow(unsafe_code)]
impl Mapped {
    pub(crate) fn new(path: &Path) -> Mapped {
        let mut file = File::options();
        let file = file.read(true).write(true).open(path).unwrap();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: this maps new memory at an address that the kernel chooses.
        let start = unsafe { mmap(null_mut(), MAPPED_BYTES, access, MapFlags::SHARED, &file, 0) };
        Mapped(start.unwrap())
    }

    pub(crate) fn change(&self, byte: u8) {
        // SAFETY: the file is at least this long, and is not truncated.
        unsafe { self.0.cast::<u8>().write_volatile(byte) };
    }
}

impl Drop for Mapped {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: `new` mapped this memory, and it is not used after this.
        let _ = unsafe { munmap(self.0, MAPPED_BYTES) };
    }
}

/// Raises the kernel's limits so that it does not soon write back a mount's dirty pages.
pub(crate) fn let_pages_lie(mountpoint: &Path) {
    let device = mountpoint.metadata().unwrap().dev();
    let folder = format!("/sys/class/bdi/{}:{}", major(device), minor(device));
    for (name, value) in [("strict_limit", "0"), ("max_ratio", "100")] {
        let _ = fs::write(format!("{folder}/{name}"), value);
    }
}
