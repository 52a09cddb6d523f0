//! A volume mounted by the kernel or by ubtrfs, and its counters.

use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cleanup::{self, Undo};
use crate::commits::Commits;
use crate::counters::{self, DeviceCounts};
use crate::discards::Discards;
use crate::figures::Side;
use crate::kit::Kit;
use crate::run::run;

const READY_WITHIN: Duration = Duration::from_secs(60);
const SUPERBLOCK_AT: u64 = 64 << 10;
const FSID_IN_SUPERBLOCK: u64 = 32;
const ENDS_WITHIN: Duration = Duration::from_secs(300);

/// A mounted volume.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) dir: PathBuf,
    server: Server,
    ubtrfs: PathBuf,
}

/// The server of the mount.
#[derive(Debug)]
enum Server {
    Kernel { device: PathBuf, fsid: String },
    Ubtrfs { process: Child, undo: Undo },
}

impl Stage {
    /// Mounts an image, with options of `mount -t btrfs`.
    pub(crate) fn mount(kit: &Kit, side: Side, image: &Path, options: &str) -> Result<Stage> {
        let dir = kit.fresh("mount");
        fs::create_dir(&dir)?;
        let mut server = match side {
            Side::Kernel => mount_by_kernel(image, &dir, options)?,
            Side::Mount => serve(kit, image, &dir, options)?,
            Side::Library => bail!("the library has no mount"),
        };
        wait_until_mounted(&dir, &mut server)?;
        Ok(Stage {
            dir,
            server,
            ubtrfs: kit.ubtrfs.clone(),
        })
    }

    /// Makes everything durable. FUSE does not forward syncfs(2) to the server of a plain mount.
    pub(crate) fn sync(&self) -> Result<()> {
        let dir = fs::File::open(&self.dir)?;
        rustix::fs::syncfs(&dir)?;
        if let Server::Ubtrfs { .. } = self.server {
            let mut command = Command::new(&self.ubtrfs);
            command.args(["filesystem", "sync"]).arg(&self.dir);
            crate::run::run_command(command)?;
        }
        Ok(())
    }

    /// Returns the requests to the device below so far.
    pub(crate) fn device_counts(&self) -> Result<DeviceCounts> {
        match &self.server {
            Server::Kernel { device, .. } => DeviceCounts::of_loop(device),
            Server::Ubtrfs { .. } => DeviceCounts::of_ubtrfs(&self.own_stats()?),
        }
    }

    /// Returns the commits since the volume was mounted.
    pub(crate) fn commits(&self) -> Result<Commits> {
        match &self.server {
            Server::Kernel { fsid, .. } => Commits::of_kernel(fsid),
            Server::Ubtrfs { .. } => Commits::of_ubtrfs(&self.own_stats()?),
        }
    }

    /// Returns the discards since the volume was mounted.
    pub(crate) fn discards(&self) -> Result<Discards> {
        match &self.server {
            Server::Kernel { fsid, .. } => Discards::of_kernel(fsid, &self.device_counts()?),
            Server::Ubtrfs { .. } => Discards::of_ubtrfs(&self.own_stats()?),
        }
    }

    /// Returns the figures of a mount of ubtrfs, as JSON.
    fn own_stats(&self) -> Result<String> {
        let mut command = Command::new(&self.ubtrfs);
        command.args(["filesystem", "stats", "--format", "json"]);
        command.arg(&self.dir);
        Ok(crate::run::run_command(command)?.output)
    }

    /// Returns the peak memory of the server's process, if there is one.
    pub(crate) fn peak_memory_bytes(&self) -> Option<u64> {
        match &self.server {
            Server::Kernel { .. } => None,
            Server::Ubtrfs { process, .. } => counters::peak_memory_bytes(process.id()),
        }
    }

    /// Unmounts, and waits until everything is durable and released.
    pub(crate) fn end(mut self) -> Result<()> {
        run("umount", &[&self.dir])?;
        if let Server::Ubtrfs { process, undo } = &mut self.server {
            let ended = wait_for_end(process)?;
            cleanup::done(undo);
            if !ended.success() {
                bail!("the server of the mount ended: {ended}");
            }
        }
        fs::remove_dir(&self.dir)?;
        Ok(())
    }
}

fn mount_by_kernel(image: &Path, dir: &Path, options: &str) -> Result<Server> {
    let is_device = fs::metadata(image)?.file_type().is_block_device();
    let device = if is_device {
        image.to_owned()
    } else {
        let ran = run("losetup", &[Path::new("-f"), Path::new("--show"), image])?;
        PathBuf::from(ran.output.trim())
    };
    let mut args: Vec<&std::ffi::OsStr> = vec!["-t".as_ref(), "btrfs".as_ref()];
    if !options.is_empty() {
        args.extend(["-o".as_ref(), std::ffi::OsStr::new(options)]);
    }
    args.extend([device.as_os_str(), dir.as_os_str()]);
    run("mount", &args)?;
    if !is_device {
        // The kernel detaches it with the mount, even if that fails.
        run("losetup", &[Path::new("-d"), &device])?;
    }
    Ok(Server::Kernel {
        device,
        fsid: fsid_of(image)?,
    })
}

/// Reads the fsid of the volume, in the form of the kernel's tables.
fn fsid_of(image: &Path) -> Result<String> {
    let mut bytes = [0; 16];
    let at = SUPERBLOCK_AT + FSID_IN_SUPERBLOCK;
    fs::File::open(image)?.read_exact_at(&mut bytes, at)?;
    let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    for at in [20, 16, 12, 8] {
        text.insert(at, '-');
    }
    Ok(text)
}

fn serve(kit: &Kit, image: &Path, dir: &Path, options: &str) -> Result<Server> {
    let mut command = Command::new(&kit.ubtrfs);
    command.args(["mount", "-f"]);
    if !options.is_empty() {
        command.args(["-o", options]);
    }
    let log = fs::File::create(dir.with_extension("log"))?;
    command
        .arg(image)
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    let (process, undo) = cleanup::spawn(&mut command).context("cannot run ubtrfs")?;
    Ok(Server::Ubtrfs { process, undo })
}

fn wait_until_mounted(dir: &Path, server: &mut Server) -> Result<()> {
    let begin = Instant::now();
    let parent = dir.parent().context("a mountpoint has a parent")?;
    let outside = rustix::fs::stat(parent)?.st_dev;
    while rustix::fs::stat(dir)?.st_dev == outside {
        if let Server::Ubtrfs { process, .. } = server
            && let Some(status) = process.try_wait()?
        {
            let said = fs::read_to_string(dir.with_extension("log")).unwrap_or_default();
            bail!("cannot mount: {status}: {said}");
        }
        if begin.elapsed() > READY_WITHIN {
            bail!("not mounted within {READY_WITHIN:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn wait_for_end(process: &mut Child) -> Result<std::process::ExitStatus> {
    let begin = Instant::now();
    loop {
        if let Some(status) = process.try_wait()? {
            return Ok(status);
        }
        if begin.elapsed() > ENDS_WITHIN {
            bail!("the server of the mount does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
