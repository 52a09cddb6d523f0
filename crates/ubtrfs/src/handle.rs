//! The open engine that volumes, subvolumes and files share.

use std::ops::Deref;
use std::sync::Arc;

/// The engine, closed with the last clone of the handle, after which the devices may be opened anew.
#[derive(Clone, Debug)]
pub(crate) struct Engine(Arc<OpenEngine>);

#[derive(Debug)]
struct OpenEngine(Arc<ubtrfs_engine::Volume>);

impl Engine {
    pub(crate) fn new(engine: Arc<ubtrfs_engine::Volume>) -> Engine {
        Engine(Arc::new(OpenEngine(engine)))
    }

    /// Whether both are of one open volume.
    pub(crate) fn is_same(&self, other: &Engine) -> bool {
        Arc::ptr_eq(&self.0.0, &other.0.0)
    }
}

impl Deref for Engine {
    type Target = Arc<ubtrfs_engine::Volume>;

    fn deref(&self) -> &Self::Target {
        &self.0.0
    }
}

impl Drop for OpenEngine {
    /// `Volume::close` tells whether the last changes are durable.
    fn drop(&mut self) {
        // The engine has logged the reason.
        let _ = self.0.close();
    }
}
