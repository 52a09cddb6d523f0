//! An append-only log of bytes, in memory up to a budget and in a temporary file beyond it.

use std::io::{self, Read};
use std::ops::{Deref, Range};

use crate::file::SpillFile;
use crate::scratch_dir::ScratchDir;

#[cfg(test)]
mod tests;

/// Number of bytes that a reader fetches at a time.
pub(crate) const READ_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub struct Log {
    budget_bytes: usize,
    /// The bytes after those in the file.
    memory: Vec<u8>,
    file: SpillFile,
    file_bytes: u64,
}

impl Log {
    /// Creates an empty log. Beyond the budget, only the bytes of one push are in memory.
    pub fn new(scratch_dir: &ScratchDir, budget_bytes: usize) -> Log {
        Log {
            budget_bytes,
            memory: Vec::new(),
            file: SpillFile::new(scratch_dir),
            file_bytes: 0,
        }
    }

    pub fn len_bytes(&self) -> u64 {
        self.file_bytes + self.memory.len() as u64
    }

    pub(crate) fn scratch_dir(&self) -> &ScratchDir {
        self.file.scratch_dir()
    }

    /// Appends bytes, and returns their offset.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let at = self.len_bytes();
        // SPILL-1
        if self.memory.len() + bytes.len() > self.budget_bytes && !self.memory.is_empty() {
            self.file.write_all_at(&self.memory, self.file_bytes)?;
            self.file_bytes += self.memory.len() as u64;
            self.memory.clear();
        }
        self.memory.extend_from_slice(bytes);
        Ok(at)
    }

    /// Fills `buf` from `at`. Fails beyond the end.
    pub fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let in_file = self.file_bytes.saturating_sub(at).min(buf.len() as u64) as usize;
        let (from_file, from_memory) = buf.split_at_mut(in_file);
        if !from_file.is_empty() {
            self.file.read_exact_at(from_file, at)?;
        }
        if from_memory.is_empty() {
            return Ok(());
        }
        let start = (at + in_file as u64 - self.file_bytes) as usize;
        let held = self.memory.get(start..).unwrap_or_default();
        let held = held.get(..from_memory.len());
        from_memory.copy_from_slice(held.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    /// Creates a reader for a part of the log.
    pub fn reader(&self, range: Range<u64>) -> LogReader<&Log> {
        LogReader::new(self, range)
    }

    /// Creates a reader for the whole log.
    pub fn read(&self) -> LogReader<&Log> {
        self.reader(0..self.len_bytes())
    }
}

/// Reads a range of a log.
#[derive(Debug)]
pub struct LogReader<L> {
    log: L,
    /// The range after the buffer.
    left: Range<u64>,
    buffer: Vec<u8>,
    taken: usize,
}

impl<L: Deref<Target = Log>> LogReader<L> {
    pub(crate) fn new(log: L, range: Range<u64>) -> LogReader<L> {
        LogReader {
            log,
            left: range,
            buffer: Vec::new(),
            taken: 0,
        }
    }

    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.buffer.len()
    }

    pub fn is_at_end(&self) -> bool {
        self.taken == self.buffer.len() && self.left.is_empty()
    }

    pub fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub fn bytes(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl<L: Deref<Target = Log>> Read for LogReader<L> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.buffer.len() {
            let len = (self.left.end - self.left.start).min(READ_BYTES as u64);
            self.buffer.resize(len as usize, 0);
            self.taken = 0;
            self.log.read_at(self.left.start, &mut self.buffer)?;
            self.left.start += len;
        }
        let held = &self.buffer[self.taken..];
        let len = held.len().min(buf.len());
        buf[..len].copy_from_slice(&held[..len]);
        self.taken += len;
        Ok(len)
    }
}
