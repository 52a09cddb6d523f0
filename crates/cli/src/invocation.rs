//! The ways to call the program: its command line, and its other names.

pub(crate) mod as_btrfs;
pub(crate) mod command_line;
pub(crate) mod invoked_as;
pub(crate) mod joined_disks;
pub(crate) mod mount_helper;
