//! Reading a stream, command by command.

use std::io::Read;

use super::synology;
use super::{
    COMMAND_HEADER_BYTES, CRC_AT, Command, CommandKind, Fault, MAGIC, MAX_BODY_BYTES,
    STREAM_HEADER_BYTES, StreamError, StreamVersion, command_crc,
};

/// Reads the commands of one stream, from the header to the command `end`.
///
/// It reads no byte after `end`, because another stream may follow. Reads are small, so a file should be buffered.
#[derive(Debug)]
pub struct StreamReader<R> {
    source: R,
    version: StreamVersion,
    /// Offset of the next command.
    offset: u64,
    has_ended: bool,
    /// The last command, including its header.
    pub(super) command: Vec<u8>,
}

impl<R: Read> StreamReader<R> {
    /// Reads the header of the stream.
    pub fn open(mut source: R) -> Result<Self, StreamError> {
        let mut header = Vec::new();
        let version = read_header(&mut source, &mut header).map_err(|fault| StreamError {
            offset: 0,
            command: None,
            fault,
        })?;
        Ok(Self {
            source,
            version,
            offset: STREAM_HEADER_BYTES as u64,
            has_ended: false,
            command: header,
        })
    }

    pub fn version(&self) -> StreamVersion {
        self.version
    }

    /// Returns the offset of the next command in the stream.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the underlying reader, positioned after the stream.
    pub fn into_inner(self) -> R {
        self.source
    }

    /// Reads the next command. Returns None after `end`. After an error the reader must not be used.
    pub fn next_command(&mut self) -> Result<Option<Command<'_>>, StreamError> {
        if self.has_ended {
            return Ok(None);
        }
        let offset = self.offset;
        let mut number = None;
        let read = self.read(&mut number);
        let command = read.and_then(|number| decode(number, &self.command, self.version));
        let command = command.map_err(|fault| StreamError {
            offset,
            command: number,
            fault,
        })?;
        self.offset += self.command.len() as u64;
        self.has_ended = command == Command::End;
        Ok(Some(command))
    }

    /// Reads header and body of a command into the buffer, and returns its number.
    fn read(&mut self, known: &mut Option<u16>) -> Result<u16, Fault> {
        self.command.clear();
        let read = fill(&mut self.source, &mut self.command, COMMAND_HEADER_BYTES);
        if let Err(Fault::ShortRead { read: 0, .. }) = read {
            return Err(Fault::UnexpectedEnd);
        }
        read?;
        let field = |at: usize| self.command[at..at + 4].try_into().expect("4 bytes");
        let len = u32::from_le_bytes(field(0));
        let stored = u32::from_le_bytes(field(CRC_AT));
        let number = u16::from_le_bytes([self.command[4], self.command[5]]);
        *known = Some(number);
        self.command[CRC_AT..].fill(0);
        // STREAM-2
        if len as usize > MAX_BODY_BYTES {
            return Err(Fault::TooLarge {
                len_bytes: len,
                max_bytes: MAX_BODY_BYTES,
            });
        }
        fill(&mut self.source, &mut self.command, len as usize)?;
        let found = command_crc(&self.command);
        if stored == found {
            Ok(number)
        } else {
            Err(Fault::Crc { stored, found })
        }
    }
}

fn read_header(source: &mut impl Read, header: &mut Vec<u8>) -> Result<StreamVersion, Fault> {
    match fill(source, header, STREAM_HEADER_BYTES) {
        Err(Fault::ShortRead { read: 0, .. }) => return Err(Fault::Empty),
        read => read?,
    }
    let version = header.strip_prefix(MAGIC).ok_or(Fault::Magic)?;
    let version = u32::from_le_bytes(version.try_into().expect("the header was read whole"));
    StreamVersion::from_raw(version).ok_or(Fault::Version(version))
}

/// Appends `expected` bytes. Memory grows with the received data, so that a truncated stream allocates no more than
/// its size.
fn fill(source: &mut impl Read, buffer: &mut Vec<u8>, expected: usize) -> Result<(), Fault> {
    let mut limited = source.by_ref().take(expected as u64);
    let read = limited.read_to_end(buffer).map_err(Fault::Read)?;
    if read == expected {
        Ok(())
    } else {
        Err(Fault::ShortRead { expected, read })
    }
}

fn decode(number: u16, command: &[u8], version: StreamVersion) -> Result<Command<'_>, Fault> {
    let body = &command[COMMAND_HEADER_BYTES..];
    if let Some(command) = synology::decode(number, body, version)? {
        return Ok(command);
    }
    match CommandKind::from_raw(number) {
        Some(kind) => Command::decode(kind, body, version),
        None => Ok(Command::Unknown { number }),
    }
}
