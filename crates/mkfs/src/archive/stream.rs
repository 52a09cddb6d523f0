//! The bytes of an archive, in order. What is not wanted is passed over, without reading it where that can be.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::compressed::{ArchiveDecoder, ArchiveFormat, MAGIC_BYTES};
use super::error::ArchiveError;

const BUFFER_BYTES: usize = 1 << 20;
pub(crate) const BLOCK: usize = 512;

#[derive(Debug)]
pub(crate) struct TarStream {
    file: Arc<File>,
    /// The length of a file that can be read anywhere.
    len_bytes: Option<u64>,
    /// The decoder of what is compressed. Then all offsets are those of the decompressed bytes.
    decoder: Option<ArchiveDecoder>,
    buffer: Vec<u8>,
    taken: usize,
    /// The offset in the file of what follows the buffer.
    next: u64,
}

impl TarStream {
    pub(crate) fn new(mut file: File) -> io::Result<TarStream> {
        let metadata = file.metadata()?;
        let len_bytes = metadata.is_file().then_some(metadata.len());
        // Another may have read some of it.
        let next = match len_bytes {
            Some(_) => file.stream_position()?,
            None => 0,
        };
        let start = read_start(&file, len_bytes.map(|_| next))?;
        let mut stream = TarStream {
            file: Arc::new(file),
            len_bytes,
            decoder: None,
            buffer: Vec::new(),
            taken: 0,
            next,
        };
        match (ArchiveFormat::of(&start), len_bytes) {
            (Some(format), _) => {
                // What was read of a file comes again.
                let start = if len_bytes.is_some() {
                    Vec::new()
                } else {
                    start
                };
                let rest = Descriptor(Arc::clone(&stream.file));
                let input = io::Cursor::new(start).chain(rest);
                stream.decoder = Some(ArchiveDecoder::new(format, input)?);
                stream.len_bytes = None;
                stream.next = 0;
            }
            (None, Some(_)) => {}
            (None, None) => {
                stream.next = start.len() as u64;
                stream.buffer = start;
            }
        }
        Ok(stream)
    }

    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    pub(crate) fn is_seekable(&self) -> bool {
        self.len_bytes.is_some()
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
            let read = match (&mut self.decoder, self.len_bytes) {
                (Some(decoder), _) => decoder.read(&mut self.buffer),
                (None, Some(_)) => self.file.read_at(&mut self.buffer, self.next),
                (None, None) => (&*self.file).read(&mut self.buffer),
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
                && let Some(len_bytes) = self.len_bytes
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

/// A file that is read on from where it stands.
struct Descriptor(Arc<File>);

impl Read for Descriptor {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self.0).read(buf)
    }
}

/// Reads the first bytes, which a pipe does not give again. `at` is where a file stands that can be read anywhere.
fn read_start(file: &File, at: Option<u64>) -> io::Result<Vec<u8>> {
    let mut start = vec![0; MAGIC_BYTES];
    let mut done = 0;
    while done < start.len() {
        let read = match at {
            Some(at) => file.read_at(&mut start[done..], at + done as u64),
            None => (&mut &*file).read(&mut start[done..]),
        };
        match read {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    start.truncate(done);
    Ok(start)
}
