//! Stores through a shared mapping, in a separate process: if there is no space, the kernel sends SIGBUS.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::null_mut;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync};

use super::model::fill;
use crate::Outcome;

/// Stores the bytes of `tag` in `offset..offset + len`, whole pages of the file, and syncs the mapping. Returns false
/// if there is no space.
pub(super) fn store(path: &Path, offset: u64, len: usize, tag: u64) -> io::Result<bool> {
    let words = [offset, len as u64, tag].map(|word| word.to_string());
    let child = Command::new("/proc/self/exe")
        .arg("full-store")
        .arg(path)
        .args(words)
        .stderr(Stdio::null())
        .status()?;
    Ok(child.success())
}

/// Runs in the child process of `store`.
pub(crate) fn store_child(path: &Path, offset: u64, len: usize, tag: u64) -> Outcome {
    let file = File::options().read(true).write(true).open(path)?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: new memory at an address chosen by the kernel.
    #[allow(unsafe_code)]
    let start = unsafe { mmap(null_mut(), len, access, MapFlags::SHARED, &file, offset) }?;
    let mut bytes = vec![0; len];
    fill(&mut bytes, tag, offset);
    // SAFETY: the mapping has this length. Nothing else refers to it, and a missing page of the file kills the
    // process.
    #[allow(unsafe_code)]
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast::<u8>(), len);
    }
    // SAFETY: the mapping has this length.
    #[allow(unsafe_code)]
    unsafe { msync(start, len, MsyncFlags::SYNC) }?;
    Ok(())
}
