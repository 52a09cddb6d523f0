//! A volume that stays open from one command to the next, as the shell has it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::bail;
use ubtrfs_engine::{FileId, Volume};

use crate::location::Access;

#[derive(Debug)]
pub(crate) struct Session {
    image: PathBuf,
    volume: Arc<Volume>,
    root: FileId,
    /// Where paths without a leading slash begin; itself begins with one.
    dir: Mutex<Vec<u8>>,
}

impl Session {
    /// `root` stands for "/".
    pub(crate) fn new(image: PathBuf, volume: Arc<Volume>, root: FileId) -> Session {
        Session {
            image,
            volume,
            root,
            dir: Mutex::new(b"/".to_vec()),
        }
    }

    pub(crate) fn image(&self) -> &Path {
        &self.image
    }

    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    pub(crate) fn volume_for(&self, access: Access) -> anyhow::Result<Arc<Volume>> {
        if access == Access::Write && !self.volume.is_writable() {
            bail!("the shell was started with --read-only");
        }
        Ok(Arc::clone(&self.volume))
    }

    pub(crate) fn root(&self) -> FileId {
        self.root
    }

    pub(crate) fn dir(&self) -> Vec<u8> {
        let dir = self.dir.lock();
        dir.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_dir(&self, path: Vec<u8>) {
        let mut dir = self.dir.lock().unwrap_or_else(PoisonError::into_inner);
        *dir = path;
    }

    pub(crate) fn absolute(&self, path: &[u8]) -> Vec<u8> {
        if path.starts_with(b"/") {
            return path.to_vec();
        }
        let mut absolute = self.dir();
        if !absolute.ends_with(b"/") {
            absolute.push(b'/');
        }
        absolute.extend_from_slice(path);
        absolute
    }
}
