//! An append-only log of bytes, in memory up to a budget and in an unnamed file beyond it.
//!
//! Not here: the meaning of the bytes.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

const USUAL_MEMORY_BYTES: usize = 384 << 20;
const LEAST_MEMORY_BYTES: usize = 16 << 20;
/// Number of bytes that a reader fetches at a time.
const READ_BYTES: usize = 256 << 10;

/// The directory for temporary files, and the memory budget before they are used.
#[derive(Clone, Debug)]
pub struct Scratch {
    /// For unnamed files.
    pub dir: PathBuf,
    /// The budget for all intermediate data together.
    pub memory_bytes: usize,
}

impl Scratch {
    /// Creates a scratch with the usual budget.
    pub fn new(dir: PathBuf) -> Scratch {
        Scratch {
            dir,
            memory_bytes: USUAL_MEMORY_BYTES,
        }
    }

    /// Limits the budget to a share of `memory_bytes`, because readahead needs memory in addition.
    #[must_use]
    pub fn limit_memory(self, memory_bytes: u64) -> Scratch {
        let share = usize::try_from(memory_bytes / 4).unwrap_or(usize::MAX);
        Scratch {
            memory_bytes: self.memory_bytes.min(share.max(LEAST_MEMORY_BYTES)),
            ..self
        }
    }

    /// Returns the budget for sorting items.
    pub(super) fn sorting_bytes(&self) -> usize {
        self.memory_bytes / 2
    }

    /// Creates a log. There are at most four.
    pub(super) fn log(&self) -> ByteLog {
        ByteLog::new(&self.dir, self.memory_bytes / 8)
    }
}

#[derive(Debug)]
pub(super) struct ByteLog {
    scratch_dir: PathBuf,
    budget_bytes: usize,
    /// The bytes after those in the file.
    memory: Vec<u8>,
    file: Option<File>,
    file_bytes: u64,
}

impl ByteLog {
    /// Creates a log. Its file is created in `scratch_dir` when it is first needed, and removed with the log.
    pub(super) fn new(scratch_dir: &Path, budget_bytes: usize) -> ByteLog {
        ByteLog {
            scratch_dir: scratch_dir.to_owned(),
            budget_bytes,
            memory: Vec::new(),
            file: None,
            file_bytes: 0,
        }
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.file_bytes + self.memory.len() as u64
    }

    /// Appends bytes, and returns their offset.
    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let at = self.len_bytes();
        if self.memory.len() + bytes.len() > self.budget_bytes && !self.memory.is_empty() {
            self.spill()?;
        }
        self.memory.extend_from_slice(bytes);
        Ok(at)
    }

    fn spill(&mut self) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(tempfile::tempfile_in(&self.scratch_dir)?),
        };
        file.write_all_at(&self.memory, self.file_bytes)?;
        self.file_bytes += self.memory.len() as u64;
        self.memory.clear();
        Ok(())
    }

    /// Fills `buf` from `at`. Fails beyond the end.
    pub(super) fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let in_file = self.file_bytes.saturating_sub(at).min(buf.len() as u64) as usize;
        let (from_file, from_memory) = buf.split_at_mut(in_file);
        if let (Some(file), false) = (&self.file, from_file.is_empty()) {
            file.read_exact_at(from_file, at)?;
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
    pub(super) fn reader(&self, at: u64, end: u64) -> LogReader<'_> {
        LogReader {
            log: self,
            at,
            end,
            buffer: Vec::new(),
            taken: 0,
        }
    }
}

/// Reads a range of a log.
#[derive(Debug)]
pub(super) struct LogReader<'a> {
    log: &'a ByteLog,
    /// The offset in the log after the buffer.
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    taken: usize,
}

impl LogReader<'_> {
    pub(super) fn is_at_end(&self) -> bool {
        self.taken == self.buffer.len() && self.at == self.end
    }

    pub(super) fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

impl Read for LogReader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.buffer.len() {
            let len = (self.end - self.at).min(READ_BYTES as u64) as usize;
            self.buffer.resize(len, 0);
            self.log.read_at(self.at, &mut self.buffer)?;
            self.at += len as u64;
            self.taken = 0;
        }
        let held = &self.buffer[self.taken..];
        let len = held.len().min(buf.len());
        buf[..len].copy_from_slice(&held[..len]);
        self.taken += len;
        Ok(len)
    }
}
