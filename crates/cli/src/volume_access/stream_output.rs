//! Output files of commands on this machine. They must neither contain a volume nor be in use as one.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, anyhow};
use ubtrfs_device::{DeviceError, check_overwrite};

use crate::presentation::quoting::Escaped;

/// Creates the file, or truncates it.
pub(crate) fn create(path: &Path) -> anyhow::Result<File> {
    let file = open(path)?;
    refuse_volume(&file, path)?;
    cut(&file)?;
    Ok(file)
}

/// Opens an existing file, and truncates it.
pub(crate) fn overwrite(path: &Path) -> anyhow::Result<File> {
    let refused = || format!("cannot write '{}'", Escaped::of(path));
    let file = OpenOptions::new().write(true).open(path);
    let file = file.with_context(refused)?;
    refuse_volume(&file, path)?;
    cut(&file).with_context(refused)?;
    Ok(file)
}

/// Redirects standard output of this process to the file, creating it if necessary.
///
/// The file is not truncated here. It may be an image of the volume, which only the mount's server knows.
pub(crate) fn redirect(path: &Path) -> anyhow::Result<()> {
    let file = open(path)?;
    let redirected = rustix::stdio::dup2_stdout(&file);
    redirected.context("cannot redirect standard output")
}

fn open(path: &Path) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let opened = options.open(path);
    opened.with_context(|| format!("cannot create '{}'", Escaped::of(path)))
}

/// Truncates a regular file. Pipes and devices have no length.
pub(crate) fn cut(file: &File) -> anyhow::Result<()> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(())
}

/// Checks that a file does not contain a volume, and that no other program has locked, mounted or attached
/// it.
pub(crate) fn refuse_volume(file: &File, path: &Path) -> anyhow::Result<()> {
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Ok(());
    }
    // The file is open only for writing. If it cannot be read, it cannot be checked.
    let Ok(reader) = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())) else {
        return Ok(());
    };
    let shown = Escaped::of(path);
    match check_overwrite(&reader, path) {
        Err(DeviceError::HoldsVolume { .. }) => Err(anyhow!(
            "cannot write '{shown}': it holds a btrfs volume ('{shown}:/' is its top directory; remove the file first \
             to replace the volume)"
        )),
        checked => checked.with_context(|| format!("cannot write '{shown}'")),
    }
}

/// Checks a file by name, like [`refuse_volume`]. A missing file is not an error.
pub(crate) fn refuse_volume_at(path: &Path) -> anyhow::Result<()> {
    match path.metadata() {
        // Opening a pipe could block.
        Ok(there) if there.is_file() || there.file_type().is_block_device() => {}
        _ => return Ok(()),
    }
    match File::open(path) {
        Ok(file) => refuse_volume(&file, path),
        Err(_) => Ok(()),
    }
}
