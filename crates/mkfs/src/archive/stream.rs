//! The bytes of an archive, in order. Unwanted data is skipped, without reading it if the input is seekable.

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
    /// The offset in the input after the buffer.
    next: u64,
}

/// The input of an archive.
enum Input<'a> {
    /// A seekable file, with its length.
    File(Arc<File>, u64),
    /// A stream: a pipe, a reader, or a decoder.
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
    /// Creates the stream of a file, from its current position, or of a pipe.
    pub(crate) fn new(mut file: File) -> io::Result<TarStream<'a>> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return TarStream::of(file);
        }
        // The file may already be partially read.
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

    /// Creates the stream of a reader.
    pub(crate) fn of(mut reader: impl Read + 'a) -> io::Result<TarStream<'a>> {
        let start = read_start(|buf, _| reader.read(buf))?;
        let format = ArchiveFormat::of(&start);
        // A pipe cannot be read again, so put the bytes back.
        let whole = io::Cursor::new(start).chain(reader);
        match format {
            Some(format) => TarStream::decoded(format, whole),
            None => Ok(TarStream::starting(Input::InOrder(Box::new(whole)), 0)),
        }
    }

    /// Creates the decompressed stream of `input`.
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

    /// Returns the file if it is seekable.
    pub(crate) fn file(&self) -> Option<&Arc<File>> {
        match &self.input {
            Input::File(file, _) => Some(file),
            Input::InOrder(_) => None,
        }
    }

    /// Returns the offset of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.next - (self.buffer.len() - self.taken) as u64
    }

    /// Fills the empty buffer. Returns false at the end.
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

    /// Fills `buf`. Returns fewer bytes only at the end.
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

    /// Fills `buf`, like [`TarStream::read`]. The end is an error of the member whose header is at `offset`.
    pub(crate) fn read_exact(&mut self, buf: &mut [u8], offset: u64) -> Result<(), ArchiveError> {
        match self.read(buf) {
            Ok(read) if read == buf.len() => Ok(()),
            Ok(_) => Err(ArchiveError::Truncated { offset }),
            Err(source) => Err(ArchiveError::Read { offset, source }),
        }
    }

    /// Skips `len` bytes.
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

/// Reads the first bytes, or fewer at the end. `read` gets the number of bytes read so far.
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
