//! Types of the fields of commands, each in one attribute.

use ubtrfs_format::ids::{InodeNr, Transid};
use ubtrfs_format::uuid::Uuid;

use super::attribute::{Attribute, Time};
use super::writer::Body;
use super::{Fault, WriteError};

/// The value of an attribute.
pub(super) trait Field<'a>: Sized {
    fn decode(attribute: Attribute, bytes: &'a [u8]) -> Result<Self, Fault>;
    fn encode(self, attribute: Attribute, body: &mut Body<'_>) -> Result<(), WriteError>;
}

/// Implements fields with a fixed size by their conversions from and to bytes.
macro_rules! fixed_size {
    ($($Type:ty: $from_bytes:expr, $to_bytes:expr;)*) => {
        $(impl Field<'_> for $Type {
            fn decode(attribute: Attribute, bytes: &[u8]) -> Result<Self, Fault> {
                sized(attribute, bytes).map($from_bytes)
            }

            fn encode(self, attribute: Attribute, body: &mut Body<'_>) -> Result<(), WriteError> {
                body.bytes(attribute, &$to_bytes(self))
            }
        })*
    };
}

fixed_size! {
    u32: u32::from_le_bytes, u32::to_le_bytes;
    u64: u64::from_le_bytes, u64::to_le_bytes;
    InodeNr: |bytes| InodeNr(u64::from_le_bytes(bytes)), |ino: InodeNr| ino.0.to_le_bytes();
    Transid: |bytes| Transid(u64::from_le_bytes(bytes)), |id: Transid| id.0.to_le_bytes();
    Uuid: Uuid, |uuid: Uuid| uuid.0;
    Time: Time::from_bytes, Time::to_bytes;
}

fn sized<const N: usize>(attribute: Attribute, bytes: &[u8]) -> Result<[u8; N], Fault> {
    bytes.try_into().map_err(|_| Fault::AttributeSize {
        attribute,
        expected: N,
        found: bytes.len(),
    })
}

/// Paths, names and symlink targets end at the first NUL, as in `btrfs receive`. The kernel sends a NUL in targets that
/// `mkfs.btrfs --rootdir` has stored with one.
impl<'a> Field<'a> for &'a [u8] {
    fn decode(attribute: Attribute, bytes: &'a [u8]) -> Result<Self, Fault> {
        let end = if attribute.is_binary() {
            None
        } else {
            bytes.iter().position(|byte| *byte == 0)
        };
        Ok(&bytes[..end.unwrap_or(bytes.len())])
    }

    fn encode(self, attribute: Attribute, body: &mut Body<'_>) -> Result<(), WriteError> {
        if attribute.is_binary() {
            body.bytes(attribute, self)
        } else {
            body.text(attribute, self)
        }
    }
}

/// Omitted without a value, or if the version does not have the attribute.
impl<'a, F: Field<'a>> Field<'a> for Option<F> {
    fn decode(attribute: Attribute, bytes: &'a [u8]) -> Result<Self, Fault> {
        F::decode(attribute, bytes).map(Some)
    }

    fn encode(self, attribute: Attribute, body: &mut Body<'_>) -> Result<(), WriteError> {
        match self.filter(|_| attribute.is_known_in(body.version())) {
            Some(field) => field.encode(attribute, body),
            None => Ok(()),
        }
    }
}
