//! Sends a subvolume with the kernel's ioctl.

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::io::Errno;
use ubtrfs_format::ids::RootId;
use ubtrfs_fuse::ioctl_args::{self as args, SendArgs};
use zerocopy::FromZeros;

use super::Asked;

impl Asked {
    /// Writes the stream of this subvolume to `to`. `flags` are the flags of the ioctl.
    pub(crate) fn send(
        &self,
        to: &File,
        clone_sources: &[u64],
        parent: Option<RootId>,
        flags: u64,
        version: u32,
    ) -> Result<(), Errno> {
        let mut args = SendArgs::new_zeroed();
        args.send_fd.set(to.as_raw_fd().into());
        args.clone_sources_count.set(clone_sources.len() as u64);
        args.clone_sources.set(clone_sources.as_ptr() as u64);
        args.parent_root.set(parent.map_or(0, |parent| parent.0));
        args.flags.set(flags);
        args.version.set(version);
        self.ask::<{ args::SEND }, _>(&mut args)
    }
}
