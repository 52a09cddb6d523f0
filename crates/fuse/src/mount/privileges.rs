//! The capabilities of a process that serves a mount.
//!
//! Root has all capabilities, and a server reads untrusted images. So it keeps only those that it uses: to mount and
//! unmount, open images, inspect callers and lock memory.

use rustix::io;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_ADMIN)
    // Required to inspect descriptors and mounts of callers with more capabilities.
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_RESOURCE);

/// Drops all capabilities that serving a mount does not need, from the calling thread. New threads inherit the set, so
/// call this before starting any.
///
/// # Errors
/// The kernel refused it, as a seccomp filter can.
pub fn drop_capabilities() -> io::Result<()> {
    let had = capabilities(None)?.permitted;
    let kept = had.intersection(KEPT);
    if kept == had {
        return Ok(());
    }
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)
}
