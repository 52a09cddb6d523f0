//! The folder of temporary files.
//!
//! Invariants
//! - SCRATCH-1: a folder that the user names is the only one that is tried: an option first, then `TMPDIR`.
//! - SCRATCH-2: otherwise the folders of the volume's images are tried, then `/var/tmp`, then `/tmp`. Folders in memory
//!   are skipped: a temporary file there would exceed the memory limit that it is for.
//! - SCRATCH-3: an error names its folder. Without a named folder, it lists all folders that were tried.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(test)]
mod tests;

const VARIABLE: &str = "TMPDIR";
const SYSTEM_FOLDERS: [&str; 2] = ["/var/tmp", "/tmp"];
/// File systems in memory, by their type in `statfs`: tmpfs with devtmpfs, and ramfs.
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// The choice of a folder for temporary files. Folders are tried when the first file is created.
#[derive(Clone, Debug)]
pub struct ScratchDir {
    /// In order.
    folders: Arc<[PathBuf]>,
    is_named: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ScratchError {
    #[error("temporary file in {}: {error}", folder.display())]
    File { folder: PathBuf, error: io::Error },
    #[error("no folder for temporary files, set TMPDIR: {}", list(tried))]
    NoFolder { tried: Vec<(PathBuf, Refusal)> },
}

/// The reason why no temporary file is created in a folder.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error("is in memory")]
    InMemory,
    #[error("{0}")]
    Failed(io::Error),
}

/// `TMPDIR`, or otherwise a folder of the system.
impl Default for ScratchDir {
    fn default() -> ScratchDir {
        ScratchDir::beside::<&Path>([])
    }
}

impl ScratchDir {
    /// Uses only this folder, which the user has named.
    pub fn named(folder: impl Into<PathBuf>) -> ScratchDir {
        ScratchDir {
            folders: [folder.into()].into(),
            is_named: true,
        }
    }

    /// Uses `TMPDIR`, or otherwise a folder of the images among the devices of a volume, or of the system.
    pub fn beside<P: AsRef<Path>>(devices: impl IntoIterator<Item = P>) -> ScratchDir {
        ScratchDir::choose(std::env::var_os(VARIABLE), devices)
    }

    fn choose<P: AsRef<Path>>(
        variable: Option<OsString>,
        devices: impl IntoIterator<Item = P>,
    ) -> ScratchDir {
        // SCRATCH-1
        if let Some(folder) = variable.filter(|folder| !folder.is_empty()) {
            return ScratchDir::named(folder);
        }
        let devices = devices.into_iter();
        let images = devices.filter_map(|device| folder_of_image(device.as_ref()));
        let mut folders: Vec<PathBuf> = images.collect();
        folders.dedup();
        folders.extend(SYSTEM_FOLDERS.map(PathBuf::from));
        ScratchDir {
            folders: folders.into(),
            is_named: false,
        }
    }

    /// Creates a file without a name. Returns it with its folder.
    pub(crate) fn create(&self) -> Result<(File, PathBuf), ScratchError> {
        let mut tried = Vec::new();
        for folder in &*self.folders {
            match self.create_in(folder) {
                Ok(file) => return Ok((file, folder.clone())),
                Err(Refusal::Failed(error)) if self.is_named => {
                    let folder = folder.clone();
                    return Err(ScratchError::File { folder, error });
                }
                Err(refusal) => tried.push((folder.clone(), refusal)),
            }
        }
        Err(ScratchError::NoFolder { tried })
    }

    fn create_in(&self, folder: &Path) -> Result<File, Refusal> {
        // SCRATCH-2
        if !self.is_named && is_in_memory(folder).map_err(Refusal::Failed)? {
            return Err(Refusal::InMemory);
        }
        tempfile::tempfile_in(folder).map_err(Refusal::Failed)
    }
}

impl From<ScratchError> for io::Error {
    fn from(error: ScratchError) -> io::Error {
        let kind = match &error {
            ScratchError::File { error, .. } => error.kind(),
            // The last folder is the system's, and its error is the most general.
            ScratchError::NoFolder { tried } => match tried.last() {
                Some((_, Refusal::Failed(error))) => error.kind(),
                Some((_, Refusal::InMemory)) | None => io::ErrorKind::StorageFull,
            },
        };
        io::Error::new(kind, error)
    }
}

/// Returns the folder of a regular file. A block device has no folder of its own.
fn folder_of_image(device: &Path) -> Option<PathBuf> {
    if !fs::metadata(device).is_ok_and(|metadata| metadata.is_file()) {
        return None;
    }
    let folder = device.parent()?;
    if folder.as_os_str().is_empty() {
        return Some(PathBuf::from("."));
    }
    Some(folder.to_owned())
}

fn is_in_memory(folder: &Path) -> io::Result<bool> {
    let file_system = rustix::fs::statfs(folder)?;
    Ok(IN_MEMORY.contains(&(file_system.f_type as u32)))
}

/// SCRATCH-3
fn list(tried: &[(PathBuf, Refusal)]) -> impl fmt::Display {
    let parts = tried.iter().map(|(folder, refusal)| {
        let folder = folder.display();
        match refusal {
            Refusal::InMemory => format!("{folder} {refusal}"),
            Refusal::Failed(_) => format!("{folder}: {refusal}"),
        }
    });
    parts.collect::<Vec<_>>().join("; ")
}
