//! The capabilities of a process that serves a mount.
//!
//! Root has all of them, and a server reads what others wrote on an image. It keeps those that it uses. They let it
//! mount and unmount, open images, look at callers, take memory and schedule its threads.

use rustix::io;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_NICE)
    // Else it sees the descriptors and mounts of no caller that has more capabilities.
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_RESOURCE);

/// Takes from the calling thread all capabilities that serving a mount does not need. Threads that it starts have them
/// no more than it has, so this comes first.
///
/// # Errors
/// The kernel refused it, as a filter of system calls can.
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
