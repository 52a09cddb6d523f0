//! Where clients work: mounts that are made for it and taken away again.

use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use ubtrfs_fuse::mount::{Options, TransportChoice, mount_file_system};

use crate::instant::{Instant, Manners};
use crate::switch::with_uring;

const IMAGE_BYTES: u64 = 4 << 30;

/// A mount of the file system that answers at once.
pub(crate) fn with_instant(
    choice: TransportChoice,
    manners: Manners,
    threads: usize,
    work: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let options = Options {
        transport: choice,
        threads: NonZeroUsize::new(threads),
        ..Options::default()
    };
    let mount = || {
        mount_file_system(
            Instant::new(manners),
            Path::new("instant"),
            dir.path(),
            &options,
        )
    };
    let mounted = with_uring(choice == TransportChoice::Uring, mount);
    let mut session = mounted.context("this kernel has no FUSE over io_uring")??;
    let outcome = work(dir.path());
    session.unmount()?;
    outcome
}

/// A fresh volume, mounted by the kernel from a loop device.
pub(crate) fn with_kernel_btrfs(work: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let image = scratch.path().join("image");
    File::create(&image)?.set_len(IMAGE_BYTES)?;
    let dir = scratch.path().join("mnt");
    fs::create_dir(&dir)?;
    run(Command::new("mkfs.btrfs").arg("-q").arg(&image))?;
    run(Command::new("mount")
        .args(["-t", "btrfs", "-o", "loop"])
        .arg(&image)
        .arg(&dir))?;
    let outcome = work(&dir);
    run(Command::new("umount").arg(&dir))?;
    outcome
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
