//! Services with the lifetime of a mount, such as a listener, or the volume that must be closed when the mount is gone.

use std::fmt::Debug;

use super::error::MountError;

/// A mount-scoped service. Its creator starts it, and the session ends it.
pub trait MountService: Send + Debug {
    /// Ends the service after the mount is gone and its last request is answered. Returns when the service has ended.
    fn end(&mut self) -> Result<(), MountError>;
}
