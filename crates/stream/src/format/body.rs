//! The body of a command that is being written: its attributes.

use super::attribute::Attribute;
use super::command_kind::CommandKind;
use super::{StreamVersion, WriteError};

/// The body of a command that is being written.
pub(super) struct Body<'a> {
    /// Includes space for the header at the start.
    command: &'a mut Vec<u8>,
    version: StreamVersion,
    kind: CommandKind,
}

impl<'a> Body<'a> {
    /// Creates an empty body, to be added after the header in `command`.
    pub(super) fn new(command: &'a mut Vec<u8>, version: StreamVersion, kind: CommandKind) -> Self {
        Body {
            command,
            version,
            kind,
        }
    }

    pub(super) fn version(&self) -> StreamVersion {
        self.version
    }

    pub(super) fn bytes(&mut self, attribute: Attribute, bytes: &[u8]) -> Result<(), WriteError> {
        self.command
            .extend_from_slice(&attribute.raw().to_le_bytes());
        if !attribute.takes_rest(self.version) {
            let len = u16::try_from(bytes.len()).map_err(|_| WriteError::TooLong {
                command: self.kind,
                attribute,
                len_bytes: bytes.len(),
            })?;
            self.command.extend_from_slice(&len.to_le_bytes());
        }
        self.command.extend_from_slice(bytes);
        Ok(())
    }

    /// Adds a path or a name, which must not contain a NUL.
    pub(super) fn text(&mut self, attribute: Attribute, bytes: &[u8]) -> Result<(), WriteError> {
        if bytes.contains(&0) {
            Err(WriteError::Nul {
                command: self.kind,
                attribute,
            })
        } else {
            self.bytes(attribute, bytes)
        }
    }
}
