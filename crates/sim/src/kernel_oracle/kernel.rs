//! The kernel's btrfs under the control of a test: create, mount, check.
//!
//! Requires root, loop devices and a kernel with btrfs; `available` checks this, and `or_skip` skips tests that
//! cannot run.

mod chunks;
mod cut;
mod loop_device;
mod mkfs;
mod mount;
mod verdict;
mod volume;

pub use chunks::{Chunk, Stripe, chunks};
pub use cut::CutVolume;
pub use loop_device::LoopDevice;
pub use mkfs::{Csum, Feature, MkfsSpec, Profile};
pub use mount::KernelMount;
pub use verdict::{Verdict, progs_verdict, read_all, reading_verdict, writing_verdict};
pub use volume::KernelVolume;

use std::path::Path;

use crate::Error;
use crate::program::run;
use crate::rights::is_root;
use crate::skip::{calling_test, skip_part};

/// The reason why the kernel is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("UBTRFS_SKIP_KERNEL is set")]
    Unwanted,
    #[error("not root")]
    NotRoot,
    #[error("the kernel has no btrfs")]
    NoBtrfs,
    #[error("no loop devices")]
    NoLoop,
    #[error("no {program}: run scripts/setup")]
    NoProgram { program: &'static str },
}

pub fn available() -> Result<(), Why> {
    if std::env::var_os("UBTRFS_SKIP_KERNEL").is_some() {
        return Err(Why::Unwanted);
    }
    if !is_root() {
        return Err(Why::NotRoot);
    }
    let filesystems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has_btrfs = || filesystems.lines().any(|line| line.trim() == "btrfs");
    if !has_btrfs() && run("modprobe", ["btrfs"]).is_err() {
        return Err(Why::NoBtrfs);
    }
    if !Path::new("/dev/loop-control").exists() {
        return Err(Why::NoLoop);
    }
    for program in ["mkfs.btrfs", "btrfs", "losetup", "mount", "umount"] {
        if matches!(run(program, ["--version"]), Err(Error::NotStarted { .. })) {
            return Err(Why::NoProgram { program });
        }
    }
    Ok(())
}

/// Returns whether the kernel is available. Otherwise skips the calling test.
#[track_caller]
pub fn available_or_skip() -> bool {
    or_skip(&calling_test())
}

/// Returns whether the kernel is available. Otherwise skips `test`, like [`skip`](crate::skip).
#[track_caller]
pub fn or_skip(test: &str) -> bool {
    match available() {
        Ok(()) => true,
        Err(why) => {
            skip_part(test, why);
            false
        }
    }
}
