//! The open engine that volumes, subvolumes and files share.

use std::fs::Metadata;
use std::ops::Deref;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::Arc;

/// The engine, closed with the last clone of the handle, after which the devices may be opened anew.
#[derive(Clone, Debug)]
pub(crate) struct Engine(Arc<OpenEngine>);

#[derive(Debug)]
struct OpenEngine {
    volume: Arc<ubtrfs_engine::Volume>,
    /// The last clone of the handle closes it.
    is_owned: bool,
}

impl Engine {
    pub(crate) fn new(volume: Arc<ubtrfs_engine::Volume>) -> Engine {
        let is_owned = true;
        Engine(Arc::new(OpenEngine { volume, is_owned }))
    }

    /// Creates a handle on an engine that its owner closes.
    pub(crate) fn borrowed(volume: Arc<ubtrfs_engine::Volume>) -> Engine {
        let is_owned = false;
        Engine(Arc::new(OpenEngine { volume, is_owned }))
    }

    /// Returns device and number of the files that the volume lies on. Copies neither read nor replace these.
    pub(crate) fn images(&self) -> Vec<(u64, u64)> {
        let files = self.device_files().into_iter();
        files.map(|file| (file.dev(), file.ino())).collect()
    }

    /// Returns whether the volume lies on a file or device of this machine.
    pub(crate) fn lies_on(&self, file: &Metadata) -> bool {
        let mut files = self.device_files().into_iter();
        files.any(|of| identity(&of) == identity(file))
    }

    fn device_files(&self) -> Vec<Metadata> {
        let devices = self.pool().devices();
        let paths = devices.iter().filter_map(|device| device.path.as_ref());
        paths.filter_map(|path| path.metadata().ok()).collect()
    }

    /// Returns whether both are of one open volume.
    pub(crate) fn is_same(&self, other: &Engine) -> bool {
        Arc::ptr_eq(&self.0.volume, &other.0.volume)
    }
}

/// Returns values that are equal for two paths to one file. A block device is one behind each of its nodes.
fn identity(file: &Metadata) -> (bool, u64, u64) {
    match file.file_type().is_block_device() {
        true => (true, file.rdev(), 0),
        false => (false, file.dev(), file.ino()),
    }
}

impl Deref for Engine {
    type Target = Arc<ubtrfs_engine::Volume>;

    fn deref(&self) -> &Self::Target {
        &self.0.volume
    }
}

impl Drop for OpenEngine {
    /// Closes an engine of its own. Only `Volume::close` reports whether the last changes are durable.
    ///
    /// A fork of the program keeps its copy of the engine as it is. Threads, locks of devices and changes that are not
    /// committed are the parent's.
    fn drop(&mut self) {
        if self.volume.is_drop_in_fork() {
            std::mem::forget(Arc::clone(&self.volume));
        } else if self.is_owned {
            // The engine has logged the reason.
            let _ = self.volume.close();
        }
    }
}
