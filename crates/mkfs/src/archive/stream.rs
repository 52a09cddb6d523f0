//! The bytes of an archive, in order. Data that is not wanted is passed over, without reading it where that can be.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::compressed::{ArchiveDecoder, ArchiveFormat, MAGIC_BYTES};
use super::error::ArchiveError;

const BUFFER_BYTES: usize = 1 << 20;
pub(crate) const BLOCK: usize = 512;

pub(crate) struct TarStream<'a> {
    input: Input<'a>,
    buffer: Vec<u8>,
    taken: usize,
    /// The offset in the input of what follows the buffer.
    next: u64,
}

/// The place where an archive's bytes come from.
enum Input<'a> {
    /// A file that can be read anywhere, with its length.
    File(Arc<File>, u64),
    /// Bytes that come in order: of a pipe, of a program, or decompressed.
    InOrder(Box<dyn Read + 'a>),
}

impl fmt::Debug for TarStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TarStream")
            .field("file", &self.file())
            .field("position", &self.position())
            .finish_non_exhaustive()
    }
}

impl<'a> TarStream<'a> {
    /// Creates the stream of a file, from where it stands, or of a pipe.
    pub(crate) fn new(mut file: File) -> io::Result<TarStream<'a>> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return TarStream::of(file);
        }
        // Another may have read some of it.
        let next = file.stream_position()?;
        let start = read_start(|buf, done| file.read_at(buf, next + done as u64))?;
        match ArchiveFormat::of(&start) {
            Some(format) => TarStream::decoded(format, file),
            None => {
                let input = Input::File(Arc::new(file), metadata.len());
                Ok(TarStream::starting(input, next))
            }
        }
    }

    /// Creates the stream of bytes that come in order.
    pub(crate) fn of(mut reader: impl Read + 'a) -> io::Result<TarStream<'a>> {
        let start = read_start(|buf, _| reader.read(buf))?;
        let format = ArchiveFormat::of(&start);
        // A pipe does not give again what was read.
        let whole = io::Cursor::new(start).chain(reader);
        match format {
            Some(format) => TarStream::decoded(format, whole),
            None => Ok(TarStream::starting(Input::InOrder(Box::new(whole)), 0)),
        }
    }

    /// Creates the stream of the bytes that `input` has compressed.
    fn decoded(format: ArchiveFormat, input: impl Read + 'a) -> io::Result<TarStream<'a>> {
        let decoder = ArchiveDecoder::new(format, input)?;
        Ok(TarStream::starting(Input::InOrder(Box::new(decoder)), 0))
    }

    fn starting(input: Input<'a>, next: u64) -> TarStream<'a> {
        TarStream {
            input,
            buffer: Vec::new(),
            taken: 0,
            next,
        }
    }

    /// Returns the file, if it can be read anywhere.
    pub(crate) fn file(&self) -> Option<&Arc<File>> {
        match &self.input {
            Input::File(file, _) => Some(file),
            Input::InOrder(_) => None,
        }
    }

    /// Returns the offset of the next byte in the file.
    pub(crate) fn position(&self) -> u64 {
        self.next - (self.buffer.len() - self.taken) as u64
    }

    /// Fills the buffer, which was used up; false at the end.
    fn refill(&mut self) -> io::Result<bool> {
        self.buffer.resize(BUFFER_BYTES, 0);
        self.taken = 0;
        let read = loop {
            let read = match &mut self.input {
                Input::File(file, _) => file.read_at(&mut self.buffer, self.next),
                Input::InOrder(reader) => reader.read(&mut self.buffer),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.buffer.truncate(*read.as_ref().unwrap_or(&0));
        let read = read?;
        self.next += read as u64;
        Ok(read > 0)
    }

    /// Reads up to the length of `buf`, less at the end only.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            if self.taken == self.buffer.len() && !self.refill()? {
                break;
            }
            let held = &self.buffer[self.taken..];
            let len = held.len().min(buf.len() - done);
            buf[done..done + len].copy_from_slice(&held[..len]);
            self.taken += len;
            done += len;
        }
        Ok(done)
    }

    /// Reads all of `buf`, like [`TarStream::read`]; the end is an error of the member whose header is at `offset`.
    pub(crate) fn read_exact(&mut self, buf: &mut [u8], offset: u64) -> Result<(), ArchiveError> {
        match self.read(buf) {
            Ok(read) if read == buf.len() => Ok(()),
            Ok(_) => Err(ArchiveError::Truncated { offset }),
            Err(source) => Err(ArchiveError::Read { offset, source }),
        }
    }

    /// Passes over so many bytes.
    pub(crate) fn skip(&mut self, len: u64, offset: u64) -> Result<(), ArchiveError> {
        let mut left = len;
        while left > 0 {
            let held = (self.buffer.len() - self.taken) as u64;
            if held == 0
                && let Input::File(_, len_bytes) = self.input
            {
                if left > len_bytes.saturating_sub(self.next) {
                    return Err(ArchiveError::Truncated { offset });
                }
                self.next += left;
                return Ok(());
            }
            if held == 0 {
                match self.refill() {
                    Ok(true) => continue,
                    Ok(false) => return Err(ArchiveError::Truncated { offset }),
                    Err(source) => return Err(ArchiveError::Read { offset, source }),
                }
            }
            let now = held.min(left);
            self.taken += now as usize;
            left -= now;
        }
        Ok(())
    }
}

/// Reads the first bytes, as far as there are any. `read` is told how many it has given.
fn read_start(mut read: impl FnMut(&mut [u8], usize) -> io::Result<usize>) -> io::Result<Vec<u8>> {
    let mut start = vec![0; MAGIC_BYTES];
    let mut done = 0;
    while done < start.len() {
        match read(&mut start[done..], done) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    start.truncate(done);
    Ok(start)
}
