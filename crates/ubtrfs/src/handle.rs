//! The open engine that volumes, subvolumes and files share.

use std::ops::Deref;
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

    /// A handle on an engine that its owner closes.
    pub(crate) fn borrowed(volume: Arc<ubtrfs_engine::Volume>) -> Engine {
        let is_owned = false;
        Engine(Arc::new(OpenEngine { volume, is_owned }))
    }

    /// Whether both are of one open volume.
    pub(crate) fn is_same(&self, other: &Engine) -> bool {
        Arc::ptr_eq(&self.0.volume, &other.0.volume)
    }
}

impl Deref for Engine {
    type Target = Arc<ubtrfs_engine::Volume>;

    fn deref(&self) -> &Self::Target {
        &self.0.volume
    }
}

impl Drop for OpenEngine {
    /// `Volume::close` tells whether the last changes are durable.
    fn drop(&mut self) {
        if self.is_owned {
            // The engine has logged the reason.
            let _ = self.volume.close();
        }
    }
}
