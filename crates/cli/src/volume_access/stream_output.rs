//! Files of this machine that a command writes: never one that holds a volume, or that is in use as one.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, anyhow};
use ubtrfs_device::{DeviceError, check_overwrite};

use crate::presentation::quoting::Escaped;

/// Creates the file, or cuts it to nothing.
pub(crate) fn create(path: &Path) -> anyhow::Result<File> {
    let file = open(path)?;
    refuse_volume(&file, path)?;
    cut(&file)?;
    Ok(file)
}

/// Opens a file that exists, and cuts it to nothing.
pub(crate) fn overwrite(path: &Path) -> anyhow::Result<File> {
    let refused = || format!("cannot write '{}'", Escaped::of(path));
    let file = OpenOptions::new().write(true).open(path);
    let file = file.with_context(refused)?;
    refuse_volume(&file, path)?;
    cut(&file).with_context(refused)?;
    Ok(file)
}

/// Has standard output of this process lead to the file, which is made if it is not there.
///
/// It is not cut. It may be the image that is read, which the server of the mount knows.
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

/// Cuts a regular file to nothing. Pipes and devices have no length to cut.
pub(crate) fn cut(file: &File) -> anyhow::Result<()> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(())
}

/// Refuses to write to a file that holds a volume, or that another program has locked, mounted or attached.
pub(crate) fn refuse_volume(file: &File, path: &Path) -> anyhow::Result<()> {
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Ok(());
    }
    // It is open for writing alone. A file that may not be read cannot be looked at.
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

/// Refuses a file by its name, as [`refuse_volume`]. Nothing is wrong with one that is not there.
pub(crate) fn refuse_volume_at(path: &Path) -> anyhow::Result<()> {
    match path.metadata() {
        // A pipe would have to be waited for.
        Ok(there) if there.is_file() || there.file_type().is_block_device() => {}
        _ => return Ok(()),
    }
    match File::open(path) {
        Ok(file) => refuse_volume(&file, path),
        Err(_) => Ok(()),
    }
}
