//! A temporary folder for device files and mount points that is always cleaned up.
//!
//! Its name contains the process id. The first scratch folder of a process also removes the leftovers of killed
//! processes: their mounts, loop devices and files.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::At;
use crate::program::run;
use crate::{Error, Result};

const PREFIX: &str = "ubtrfs-sim-";
static NEXT: AtomicU32 = AtomicU32::new(0);
static SWEEP: Once = Once::new();

#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates a folder in `UBTRFS_SIM_DIR`, or in the system's temporary folder.
    pub fn new() -> Result<Scratch> {
        let base = base();
        SWEEP.call_once(|| sweep(&base));
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("{PREFIX}{}-{number}", std::process::id()));
        fs::create_dir_all(&path).at("create", &path)?;
        Ok(Scratch { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a new sparse file of `len_bytes`.
    pub fn file(&self, name: &str, len_bytes: u64) -> Result<PathBuf> {
        let path = self.path.join(name);
        let file = fs::File::create_new(&path).at("create", &path)?;
        file.set_len(len_bytes).at("set length", &path)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // remove_dir_all must not delete files on a mount that outlived its handle.
        if !mounts_below(&self.path).is_empty() {
            remove(&self.path);
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("{}: not removed: {error}", self.path.display());
        }
    }
}

/// Copies a program to a folder and opens both to other users, because the folder of the build may be private.
pub fn share_program(program: &str, folder: &Path) -> Result<PathBuf> {
    let path = folder.join(Path::new(program).file_name().unwrap_or_default());
    // Not by this process: children of other threads would inherit the open copy, and nobody could execute it (ETXTBSY).
    run(
        "install",
        [
            "-m".as_ref(),
            "0755".as_ref(),
            program.as_ref(),
            path.as_os_str(),
        ],
    )?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).at("share", folder)?;
    Ok(path)
}

fn base() -> PathBuf {
    let dir = std::env::var_os("UBTRFS_SIM_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    fs::canonicalize(&dir).unwrap_or(dir)
}

fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
            continue;
        };
        let pid = rest.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(pid).exists() {
            remove(&entry.path());
        }
    }
}

fn remove(dir: &Path) {
    for mount in mounts_below(dir) {
        let unmounted = run("umount", [mount.as_os_str()])
            .or_else(|_: Error| run("umount", ["-l".as_ref(), mount.as_os_str()]));
        if let Err(error) = unmounted {
            eprintln!("{}: left behind: {error}", dir.display());
            return;
        }
    }
    for device in loops_below(dir) {
        // Already detached if the mount was its last user.
        let _ = run("losetup", ["-d".as_ref(), device.as_os_str()]);
    }
    if let Err(error) = fs::remove_dir_all(dir) {
        eprintln!("{}: left behind: {error}", dir.display());
    }
}

/// Lists the mount points below `dir`, the innermost first.
fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut mounts: Vec<PathBuf> = table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(|point| PathBuf::from(std::ffi::OsStr::from_bytes(point)))
        .filter(|point| point.starts_with(dir))
        .collect();
    mounts.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    mounts
}

fn loops_below(dir: &Path) -> Vec<PathBuf> {
    let args = ["--list", "--noheadings", "--raw", "-O", "NAME,BACK-FILE"];
    let table = run("losetup", args).unwrap_or_default();
    table
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, file)| Path::new(file).starts_with(dir))
        .map(|(name, _)| PathBuf::from(name))
        .collect()
}
