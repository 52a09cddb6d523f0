//! The file that a stream is written to.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;

use crate::presentation::quoting::Escaped;

/// Creates the file, or cuts it to nothing.
pub(crate) fn create(path: &Path) -> anyhow::Result<File> {
    open(path, true)
}

/// Has standard output of this process lead to the file, which is made if it is not there.
///
/// It is not cut. It may be the image that is read, which the server of the mount knows.
pub(crate) fn redirect(path: &Path) -> anyhow::Result<()> {
    let file = open(path, false)?;
    let redirected = rustix::stdio::dup2_stdout(&file);
    redirected.context("cannot redirect standard output")
}

fn open(path: &Path, is_cut: bool) -> anyhow::Result<File> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(is_cut)
        .mode(0o600);
    let opened = options.open(path);
    opened.with_context(|| format!("cannot create '{}'", Escaped::of(path)))
}
