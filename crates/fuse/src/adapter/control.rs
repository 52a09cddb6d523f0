//! The address for commands on a mount, readable by every process that sees the mount.
//!
//! It is the value of an extended attribute that every file has and no list shows. In the namespace `system.` the
//! kernel leaves permission checks to the file system. So the user who mounted may read it even if the directories
//! belong to others.
//!
//! The mount also confirms that its own process is at the other end of a connection. A client sends a freshly drawn
//! nonce. The receiving process registers the nonce with the mount, and the client reads it from the mount. No other
//! process can register it, whatever address it listens on.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ubtrfs_fuse_server::request::{Errno, Result};

/// The attribute that holds the address, on any path in a mount.
pub const CONTROL_ATTRIBUTE: &str = "system.ubtrfs.control";

/// A number that a client draws for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonce(pub [u8; 16]);

impl Nonce {
    /// Returns the name of the attribute that a client reads on any path in a mount. The attribute exists while the
    /// nonce is registered.
    pub fn attribute(self) -> String {
        let number = u128::from_be_bytes(self.0);
        format!("{CONTROL_ATTRIBUTE}.{number:032x}")
    }
}

/// The address for commands on a mount, and the registered nonces.
#[derive(Clone, Debug, Default)]
pub struct ControlPoint(Arc<State>);

#[derive(Debug, Default)]
struct State {
    address: OnceLock<Box<[u8]>>,
    /// Attributes of the registered nonces.
    known: Mutex<HashSet<String>>,
}

impl State {
    fn known(&self) -> MutexGuard<'_, HashSet<String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControlPoint {
    /// Publishes the address for commands, for the rest of the mount's life.
    pub fn hand_out(&self, address: &[u8]) {
        let _ = self.0.address.set(address.into());
    }

    /// Registers a nonce for the life of the guard.
    pub fn know(&self, nonce: Nonce) -> KnownNonce {
        let attribute = nonce.attribute();
        self.0.known().insert(attribute.clone());
        KnownNonce {
            point: self.clone(),
            attribute,
        }
    }

    /// Returns the value of an attribute, or `None` for an attribute of another kind.
    pub(super) fn value(&self, attribute: &[u8]) -> Option<Result<&[u8]>> {
        let nonce = attribute.strip_prefix(CONTROL_ATTRIBUTE.as_bytes())?;
        let value = match nonce {
            [] => self.0.address.get().map(AsRef::as_ref),
            [b'.', ..] => {
                let asked = std::str::from_utf8(attribute).unwrap_or_default();
                self.0.known().contains(asked).then_some(&b"1"[..])
            }
            _ => return None,
        };
        Some(value.ok_or(Errno::NODATA))
    }
}

/// A registered nonce.
#[derive(Debug)]
pub struct KnownNonce {
    point: ControlPoint,
    attribute: String,
}

impl Drop for KnownNonce {
    fn drop(&mut self) {
        self.point.0.known().remove(&self.attribute);
    }
}
