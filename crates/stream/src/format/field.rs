//! Types of the fields of commands, each in one attribute, and the attributes of a body that is read.

use ubtrfs_format::ids::{InodeNr, Transid};
use ubtrfs_format::item::{FileTime, Timespec};
use ubtrfs_format::uuid::Uuid;

use super::attribute::Attribute;
use super::body::Body;
use super::{Fault, StreamVersion, WriteError};

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
    FileTime: time_from_bytes, time_to_bytes;
}

/// Decodes a time, which streams have in the format of inodes.
fn time_from_bytes(bytes: [u8; 12]) -> FileTime {
    let time: Timespec = zerocopy::transmute!(bytes);
    time.into()
}

fn time_to_bytes(time: FileTime) -> [u8; 12] {
    zerocopy::transmute!(Timespec::from(time))
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

/// The attributes of one command. If an attribute is repeated, the last one counts.
#[derive(Debug)]
pub(super) struct Attributes<'a>([Option<&'a [u8]>; Attribute::COUNT]);

impl<'a> Attributes<'a> {
    pub(super) fn parse(body: &'a [u8], version: StreamVersion) -> Result<Self, Fault> {
        let mut found = Self([None; Attribute::COUNT]);
        let mut rest = body;
        while !rest.is_empty() {
            let number = take_u16(&mut rest)?;
            let attribute = Attribute::from_raw(number).ok_or(Fault::UnknownAttribute(number))?;
            if attribute.is_of_version_3() {
                return Err(Fault::NewerAttribute(attribute));
            }
            let len = if attribute.takes_rest(version) {
                rest.len()
            } else {
                usize::from(take_u16(&mut rest)?)
            };
            // STREAM-3
            let value = rest.split_off(..len).ok_or(Fault::CutAttribute)?;
            found.0[attribute.index()] = Some(value);
        }
        Ok(found)
    }

    pub(super) fn has(&self, attribute: Attribute) -> bool {
        self.0[attribute.index()].is_some()
    }

    /// Returns the value of an attribute, or `default` if it is missing. Without a default it is required.
    pub(super) fn field<F: Field<'a>>(
        &self,
        attribute: Attribute,
        default: Option<F>,
    ) -> Result<F, Fault> {
        match self.0[attribute.index()] {
            Some(bytes) => F::decode(attribute, bytes),
            None => default.ok_or(Fault::MissingAttribute(attribute)),
        }
    }
}

fn take_u16(rest: &mut &[u8]) -> Result<u16, Fault> {
    let bytes = rest.split_off(..2).ok_or(Fault::CutAttribute)?;
    Ok(u16::from_le_bytes(bytes.try_into().expect("2 bytes")))
}
