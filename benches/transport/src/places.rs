//! Mounts for the clients.

use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ubtrfs_fuse::mount::{Options, TransportChoice, mount_file_system};

use crate::instant::{Instant, Manners};
use crate::switch::with_uring;

const IMAGE_BYTES: u64 = 4 << 30;

/// Runs `work` on a mount of the file system that answers at once.
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

/// Runs `work` on a fresh volume, mounted by the kernel from a loop device.
pub(crate) fn with_kernel_btrfs(work: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    with_volume(|image, dir| {
        run(Command::new("mount")
            .args(["-t", "btrfs", "-o", "loop"])
            .args([image, dir]))?;
        let outcome = work(dir);
        run(Command::new("umount").arg(dir))?;
        outcome
    })
}

/// Runs `work` on a fresh volume, mounted by a program of ours.
///
/// The program stays in this process' session. The scheduler groups processes by session, and the other sides'
/// servers and clients are in this one.
pub(crate) fn with_ubtrfs(program: &Path, work: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    with_volume(|image, dir| {
        let mut command = Command::new(program);
        command.args(["mount", "-f", "-o", "transport=uring"]);
        let mut server = with_uring(true, || start(command.args([image, dir]), dir))??;
        let outcome = work(dir);
        run(Command::new("umount").arg(dir))?;
        let ended = server.wait()?;
        if !ended.success() {
            bail!("{command:?}: {ended}");
        }
        outcome
    })
}

/// Starts a server and waits until it has mounted.
fn start(command: &mut Command, dir: &Path) -> Result<Child> {
    let outside = rustix::fs::stat(dir)?.st_dev;
    let mut server = command.spawn()?;
    while rustix::fs::stat(dir)?.st_dev == outside {
        if let Some(ended) = server.try_wait()? {
            bail!("{command:?}: {ended}");
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(server)
}

fn with_volume(work: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let image = scratch.path().join("image");
    File::create(&image)?.set_len(IMAGE_BYTES)?;
    let dir = scratch.path().join("mnt");
    fs::create_dir(&dir)?;
    run(Command::new("mkfs.btrfs").arg("-q").arg(&image))?;
    work(&image, &dir)
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
