//! Maps of sparse files in the four formats of GNU tar.

use super::error::ArchiveError;
use super::pax::number;
use super::stream::{BLOCK, TarStream};

#[cfg(test)]
mod tests;

/// Offset and length of data in the file.
pub type Part = (u64, u64);

/// Limits the memory of a map.
const MAX_PARTS: usize = 1 << 24;

/// Reads GNU's own headers: four parts in the first one, more in its extensions. Also returns the file size.
pub(super) fn read_gnu(
    header: &tar::Header,
    stream: &mut TarStream<'_>,
    offset: u64,
) -> Result<(u64, Vec<Part>), ArchiveError> {
    let wrong = || ArchiveError::SparseMap { offset };
    let gnu = header.as_gnu().ok_or_else(wrong)?;
    let size = gnu.real_size().map_err(|_| wrong())?;
    let mut parts = Vec::new();
    let mut add = |sparse: &[tar::GnuSparseHeader]| {
        for part in sparse.iter().filter(|part| !part.is_empty()) {
            let (at, len) = (part.offset(), part.length());
            parts.push((at.map_err(|_| wrong())?, len.map_err(|_| wrong())?));
        }
        Ok(())
    };
    add(&gnu.sparse)?;
    let mut headers = 0;
    let mut has_more = gnu.is_extended();
    while has_more {
        headers += 1;
        // Each extension has room for 21.
        if headers > MAX_PARTS / 21 {
            return Err(too_many(offset));
        }
        let mut more = tar::GnuExtSparseHeader::new();
        stream.read_exact(more.as_mut_bytes(), offset)?;
        add(more.sparse())?;
        has_more = more.is_extended();
    }
    Ok((size, parts))
}

/// Parses the map of version 0.1: offsets and lengths, separated by commas.
pub(super) fn from_text(text: &[u8]) -> Option<Vec<Part>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let numbers = text.split(|&byte| byte == b',').map(number);
    let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
    let (pairs, rest) = numbers.as_chunks();
    rest.is_empty()
        .then(|| pairs.iter().map(|&[at, len]| (at, len)).collect())
}

/// Reads the map of version 1.0 at the start of the data: decimal numbers, one per line, padded to a block.
pub(super) fn read_in_data(
    stream: &mut TarStream<'_>,
    stored_bytes: u64,
    offset: u64,
) -> Result<Vec<Part>, ArchiveError> {
    let wrong = || ArchiveError::SparseMap { offset };
    let mut lines = Lines {
        block: [0; BLOCK],
        taken: BLOCK,
        left: stored_bytes,
        offset,
    };
    let count = lines.next(stream)?;
    if count > stored_bytes {
        return Err(wrong());
    }
    if count > MAX_PARTS as u64 {
        return Err(too_many(offset));
    }
    let mut parts = Vec::new();
    for _ in 0..count {
        parts.push((lines.next(stream)?, lines.next(stream)?));
    }
    Ok(parts)
}

fn too_many(offset: u64) -> ArchiveError {
    let max = MAX_PARTS;
    ArchiveError::TooManyParts { offset, max }
}

/// Numbers from blocks.
struct Lines {
    block: [u8; BLOCK],
    taken: usize,
    left: u64,
    offset: u64,
}

impl Lines {
    fn next(&mut self, stream: &mut TarStream<'_>) -> Result<u64, ArchiveError> {
        let offset = self.offset;
        let wrong = || ArchiveError::SparseMap { offset };
        let mut line = Vec::new();
        loop {
            if self.taken == BLOCK {
                let left = self.left.checked_sub(BLOCK as u64);
                self.left = left.ok_or_else(wrong)?;
                stream.read_exact(&mut self.block, offset)?;
                self.taken = 0;
            }
            let byte = self.block[self.taken];
            self.taken += 1;
            match byte {
                b'\n' => return number(&line).ok_or_else(wrong),
                byte if line.len() < 20 => line.push(byte),
                _ => return Err(wrong()),
            }
        }
    }
}

/// Removes empty parts. Returns None unless the others ascend, are within the file and match the stored size.
pub(super) fn checked(mut parts: Vec<Part>, size: u64, stored_bytes: u64) -> Option<Vec<Part>> {
    // SOURCE-2
    let (mut end, mut stored) = (0, 0);
    for &(at, len) in &parts {
        if at < end {
            return None;
        }
        end = at.checked_add(len).filter(|&end| end <= size)?;
        stored += len;
    }
    parts.retain(|&(_, len)| len > 0);
    (stored == stored_bytes).then_some(parts)
}
