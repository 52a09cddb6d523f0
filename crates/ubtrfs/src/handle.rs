//! The open engine shared by volumes, subvolumes and files.

use std::fs::Metadata;
use std::ops::Deref;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::Arc;

/// The engine, closed with the last clone of the handle, after which the devices may be opened again.
#[derive(Clone, Debug)]
pub(crate) struct Engine(Arc<OpenEngine>);

#[derive(Debug)]
struct OpenEngine {
    volume: Arc<ubtrfs_fs::Volume>,
    /// Whether the last clone of the handle closes it.
    is_owned: bool,
}

impl Engine {
    pub(crate) fn new(volume: Arc<ubtrfs_fs::Volume>) -> Engine {
        let is_owned = true;
        Engine(Arc::new(OpenEngine { volume, is_owned }))
    }

    /// Creates a handle on an engine that its owner closes.
    pub(crate) fn borrowed(volume: Arc<ubtrfs_fs::Volume>) -> Engine {
        let is_owned = false;
        Engine(Arc::new(OpenEngine { volume, is_owned }))
    }

    /// Returns device and inode numbers of the image files of the volume. Copies neither read nor replace these.
    pub(crate) fn images(&self) -> Vec<(u64, u64)> {
        let files = self.device_files().into_iter();
        files.map(|file| (file.dev(), file.ino())).collect()
    }

    /// Returns whether the volume is stored on a file or device of the host.
    pub(crate) fn lies_on(&self, file: &Metadata) -> bool {
        let mut files = self.device_files().into_iter();
        files.any(|of| identity(&of) == identity(file))
    }

    fn device_files(&self) -> Vec<Metadata> {
        let devices = self.pool().devices();
        let paths = devices.iter().filter_map(|device| device.path.as_ref());
        paths.filter_map(|path| path.metadata().ok()).collect()
    }

    /// Returns whether both belong to the same open volume.
    pub(crate) fn is_same(&self, other: &Engine) -> bool {
        Arc::ptr_eq(&self.0.volume, &other.0.volume)
    }
}

/// Returns values that are equal for two paths to one file. All nodes of a block device are the same file.
fn identity(file: &Metadata) -> (bool, u64, u64) {
    if file.file_type().is_block_device() {
        (true, file.rdev(), 0)
    } else {
        (false, file.dev(), file.ino())
    }
}

impl Deref for Engine {
    type Target = Arc<ubtrfs_fs::Volume>;

    fn deref(&self) -> &Self::Target {
        &self.0.volume
    }
}

impl Drop for OpenEngine {
    /// Closes an engine that it owns. Only `Volume::close` reports whether the last changes are durable.
    ///
    /// A forked child leaves its copy of the engine as it is. Threads, device locks and uncommitted changes belong to
    /// the parent.
    fn drop(&mut self) {
        if self.volume.is_drop_in_fork() {
            std::mem::forget(Arc::clone(&self.volume));
        } else if self.is_owned {
            // The engine has logged the reason.
            let _ = self.volume.close();
        }
    }
}
