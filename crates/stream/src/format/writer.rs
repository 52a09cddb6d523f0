//! Writing a stream, command by command.

use std::io::Write;

use super::body::Body;
use super::{
    COMMAND_HEADER_BYTES, CRC_AT, Command, CommandKind, MAGIC, MAX_BODY_BYTES,
    MAX_V1_COMMAND_BYTES, StreamVersion, WriteError, command_crc,
};

/// Writes the commands of one stream. Attributes are in the kernel's order.
#[derive(Debug)]
pub struct StreamWriter<W> {
    sink: W,
    version: StreamVersion,
    command: Vec<u8>,
}

impl<W: Write> StreamWriter<W> {
    /// Writes the header of the stream.
    pub fn new(mut sink: W, version: StreamVersion) -> Result<Self, WriteError> {
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&version.raw().to_le_bytes());
        sink.write_all(&header)?;
        Ok(Self {
            sink,
            version,
            command: header,
        })
    }

    /// Continues a stream whose header was already written.
    pub fn resume(sink: W, version: StreamVersion) -> Self {
        Self {
            sink,
            version,
            command: Vec::new(),
        }
    }

    /// Writes one whole command, or nothing if it does not fit the format.
    pub fn write(&mut self, command: &Command<'_>) -> Result<(), WriteError> {
        let kind = match (command, command.kind()) {
            (Command::Unknown { number }, _) => return Err(WriteError::Unknown(*number)),
            (_, kind) => kind.expect("only unknown commands have no kind"),
        };
        if kind.needs_version_2() && self.version < StreamVersion::V2 {
            return Err(WriteError::NeedsVersion2(kind));
        }
        self.command.clear();
        self.command.resize(COMMAND_HEADER_BYTES, 0);
        command.encode(&mut Body::new(&mut self.command, self.version, kind))?;
        let len = self.body_len(kind)?;
        self.command[..4].copy_from_slice(&len.to_le_bytes());
        self.command[4..CRC_AT].copy_from_slice(&kind.raw().to_le_bytes());
        let crc = command_crc(&self.command);
        self.command[CRC_AT..COMMAND_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        Ok(self.sink.write_all(&self.command)?)
    }

    /// Returns the sink, which has received all commands but was not flushed.
    pub fn into_inner(self) -> W {
        self.sink
    }

    fn body_len(&self, command: CommandKind) -> Result<u32, WriteError> {
        let max_bytes = match self.version {
            StreamVersion::V1 => MAX_V1_COMMAND_BYTES - COMMAND_HEADER_BYTES,
            StreamVersion::V2 => MAX_BODY_BYTES,
        };
        let len_bytes = self.command.len() - COMMAND_HEADER_BYTES;
        match u32::try_from(len_bytes) {
            Ok(len) if len_bytes <= max_bytes => Ok(len),
            _ => Err(WriteError::TooLarge {
                command,
                len_bytes,
                max_bytes,
            }),
        }
    }
}
