//! Companions of a mount: a listener, say, or the volume that must be closed when the mount is gone.

use std::fmt::Debug;

use super::error::MountError;

/// Started by its maker; ended by the session.
pub trait Companion: Send + Debug {
    /// Ends the companion, since the mount is gone and its last request answered. Returns when the companion has ended.
    fn end(&mut self) -> Result<(), MountError>;
}
