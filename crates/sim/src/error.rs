//! Errors of setting up or running the oracle.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {doing}: {source}", path = path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{program}: not started: {source}")]
    NotStarted {
        program: &'static str,
        source: io::Error,
    },
    #[error("{command}: {status}\n{output}")]
    Failed {
        command: String,
        status: ExitStatus,
        output: String,
    },
    #[error("{command}: no {wanted} in its output")]
    Unexpected {
        command: String,
        wanted: &'static str,
    },
    #[error("/{path}: the kernel fails to {doing}: {reason}")]
    KernelFault {
        path: String,
        doing: &'static str,
        reason: String,
    },
    #[error("no image named {name} in {dir}", dir = dir.display())]
    NoImage { name: String, dir: PathBuf },
    #[error("{path}: not a zstd stream: {reason}", path = path.display())]
    BadImage { path: PathBuf, reason: &'static str },
    #[error("manifest line {line}: {reason}")]
    BadManifest { line: usize, reason: &'static str },
}

/// Adds the path to an IO error.
pub(crate) trait At<T> {
    fn at(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T, Error> {
        self.map_err(|source| Error::Io {
            doing,
            path: path.as_ref().to_path_buf(),
            source: source.into(),
        })
    }
}
