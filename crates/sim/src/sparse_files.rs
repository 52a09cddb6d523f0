//! Fast reads of large sparse files, which skip holes: fingerprints and contents.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::zeros::is_zero;

const BLOCK: usize = 4096;
const AT_ONCE: usize = 256 * BLOCK;

/// Calls `each` with the data of a file and its offset, in whole blocks except at the end. Holes are skipped.
fn each_data(file: &File, mut each: impl FnMut(u64, &[u8])) -> io::Result<()> {
    let len_bytes = file.metadata()?.len();
    let mut buf = vec![0; AT_ONCE];
    let mut at = 0;
    loop {
        at = match seek(file, SeekFrom::Data(at)) {
            Ok(found) => found - found % BLOCK as u64,
            Err(Errno::NXIO) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let end = seek(file, SeekFrom::Hole(at))?.next_multiple_of(BLOCK as u64);
        while at < end {
            let len = (end.min(len_bytes) - at).min(AT_ONCE as u64) as usize;
            file.read_exact_at(&mut buf[..len], at)?;
            each(at, &buf[..len]);
            at += len.next_multiple_of(BLOCK) as u64;
        }
    }
}

/// Hashes the length of a file and its blocks. Holes are equal to zeros.
pub fn fingerprint(path: &Path) -> io::Result<u64> {
    let file = File::open(path)?;
    let mut hash = DefaultHasher::new();
    file.metadata()?.len().hash(&mut hash);
    each_data(&file, |at, data| {
        for (number, block) in data.chunks(BLOCK).enumerate() {
            if !is_zero(block) {
                (at / BLOCK as u64 + number as u64, block).hash(&mut hash);
            }
        }
    })?;
    Ok(hash.finish())
}

/// Reads a file of any length. Holes cost neither time nor memory.
pub fn read_sparse(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let len_bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    let mut bytes = vec![0; len_bytes];
    each_data(&file, |at, data| {
        let at = at as usize;
        bytes[at..at + data.len()].copy_from_slice(data);
    })?;
    Ok(bytes)
}

/// Reads the data of a file and discards it.
pub fn read_data(path: &Path) -> io::Result<()> {
    each_data(&File::open(path)?, |_, _| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;

    #[test]
    fn changed_blocks_and_lengths_show_and_holes_are_zeros() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().join("file");
        let file = File::create(&path).unwrap();
        let mut seen = Vec::new();
        let mut look = || {
            let found = fingerprint(&path).unwrap();
            let is_new = !seen.contains(&found);
            seen.push(found);
            is_new
        };
        assert!(look());
        file.write_all_at(b"data", 9000).unwrap();
        file.set_len((4 << 20) + 1).unwrap();
        assert!(look());
        read_data(&path).unwrap();
        assert!(read_sparse(&path).unwrap() == std::fs::read(&path).unwrap());
        file.set_len(1 << 40).unwrap();
        assert!(look());
        file.set_len((1 << 40) + 1).unwrap();
        assert!(look());
        for at in [0, 5000, 3 << 20, (1 << 30) + 1, 1 << 40] {
            file.write_all_at(b"x", at).unwrap();
            assert!(look(), "{at}");
        }
        // Replaces a hole.
        file.write_all_at(&[0; 3 * BLOCK], 1 << 35).unwrap();
        assert!(!look());
        file.write_all_at(b"y", 0).unwrap();
        assert!(look());
    }
}
