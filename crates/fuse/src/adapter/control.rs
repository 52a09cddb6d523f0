//! Where commands on a mount are taken. Every process that sees the mount may ask for the place.
//!
//! It is the value of an extended attribute of every file, which no list shows. In the namespace `system.` the kernel
//! leaves permissions to us. So the user that mounted may ask even where the directories belong to others.
//!
//! The mount also says whether it is its own process that takes them at the other end of a connection. A client
//! sends a number that it has just drawn. The process that was sent it has the mount know it, and the client asks
//! the mount. No other process can do that, whatever address it listens at.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ubtrfs_fuse_server::request::{Errno, Result};

/// Asked of any path in a mount.
pub const CONTROL_ATTRIBUTE: &str = "system.ubtrfs.control";

/// A number that a client has drawn for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonce(pub [u8; 16]);

impl Nonce {
    /// Returns the name of the attribute that a client reads at any path in a mount. It is there while the mount knows
    /// the number.
    pub fn attribute(self) -> String {
        let number = u128::from_be_bytes(self.0);
        format!("{CONTROL_ATTRIBUTE}.{number:032x}")
    }
}

/// The place where commands on a mount are taken, as the mount tells it.
#[derive(Clone, Debug, Default)]
pub struct ControlPoint(Arc<State>);

#[derive(Debug, Default)]
struct State {
    address: OnceLock<Box<[u8]>>,
    /// Attributes of numbers that are known now.
    known: Mutex<HashSet<String>>,
}

impl State {
    fn known(&self) -> MutexGuard<'_, HashSet<String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControlPoint {
    /// Has the mount say where commands are taken, from now on and for its life.
    pub fn hand_out(&self, address: &[u8]) {
        let _ = self.0.address.set(address.into());
    }

    /// Has the mount know a number as long as the guard lives.
    pub fn know(&self, nonce: Nonce) -> KnownNonce {
        let attribute = nonce.attribute();
        self.0.known().insert(attribute.clone());
        KnownNonce {
            point: self.clone(),
            attribute,
        }
    }

    /// Returns the value of an attribute, or None for an attribute of another kind.
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

/// A number that the mount knows.
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
