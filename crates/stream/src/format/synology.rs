//! The commands that Synology's DSM adds to version 1 of the stream.
//!
//! Their numbers have other meanings in version 2. They differ in their fields from mainline's commands, which also occur
//! in streams of version 1 that other programs made.
//!
//! Source: the kernels that Synology publishes (4.4 of DSM 6.2, 5.10 of DSM 7).

use super::attribute::Attribute;
use super::field::Attributes;
use super::{Command, Fault, StreamVersion};

const SUBVOLUME_FLAGS: u16 = 23;
const FALLOCATE: u16 = 24;
/// A u32 with the number of mainline's `fallocate_mode`.
const FLAGS: Attribute = Attribute::FallocateMode;
/// A u32 with the number of mainline's `fileattr`, and with the bits of fallocate(2).
const MODE: Attribute = Attribute::Fileattr;

/// Decodes a command of DSM. Returns None if it is another command.
pub(super) fn decode(
    number: u16,
    body: &[u8],
    version: StreamVersion,
) -> Result<Option<Command<'_>>, Fault> {
    if version != StreamVersion::V1 || !matches!(number, SUBVOLUME_FLAGS | FALLOCATE) {
        return Ok(None);
    }
    let attributes = Attributes::parse(body, version)?;
    match number {
        SUBVOLUME_FLAGS if !attributes.has(Attribute::Path) => Ok(Some(Command::SubvolumeFlags {
            flags: attributes.field(FLAGS, None)?,
        })),
        FALLOCATE if attributes.has(Attribute::FileOffset) => Ok(Some(Command::Fallocate {
            path: attributes.field(Attribute::Path, None)?,
            mode: attributes.field(MODE, None)?,
            offset: attributes.field(Attribute::FileOffset, None)?,
            len: attributes.field(Attribute::Size, None)?,
        })),
        _ => Ok(None),
    }
}
