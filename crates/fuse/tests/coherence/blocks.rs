//! A file whose blocks have versions, so that readers can detect stale data.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) const BLOCK: usize = 16 << 10;
const PAGE: usize = 4096;
/// The version of a hole.
pub(crate) const HOLE: u64 = 0;

pub(crate) struct Blocks {
    pub(crate) path: PathBuf,
    /// The version of each block that was last completely written.
    completed: Vec<AtomicU64>,
    /// The version of the last hole that was begun.
    holes: Vec<AtomicU64>,
    pub(crate) stop: AtomicBool,
}

impl Blocks {
    /// Creates a file, whose blocks have version 1.
    pub(crate) fn create(path: &Path, count: usize) -> Blocks {
        let blocks = Blocks {
            path: path.to_owned(),
            completed: (0..count).map(|_| AtomicU64::new(1)).collect(),
            holes: (0..count).map(|_| AtomicU64::new(0)).collect(),
            stop: AtomicBool::new(false),
        };
        let mut whole = vec![0; count * BLOCK];
        for (number, block) in whole.chunks_mut(BLOCK).enumerate() {
            fill(block, number, 1);
        }
        std::fs::write(path, whole).unwrap();
        blocks
    }

    pub(crate) fn count(&self) -> usize {
        self.completed.len()
    }

    pub(crate) fn open(&self, flags: i32) -> File {
        let mut options = File::options();
        let options = options.read(true).write(true).custom_flags(flags);
        options.open(&self.path).unwrap()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Registers a hole before it is made.
    pub(crate) fn begin_hole(&self, number: usize, version: u64) {
        self.holes[number].store(version, Ordering::SeqCst);
    }

    /// Sets the minimum version that later reads may return.
    pub(crate) fn complete(&self, number: usize, version: u64) {
        self.completed[number].store(version, Ordering::SeqCst);
    }

    pub(crate) fn completed(&self, number: usize) -> u64 {
        self.completed[number].load(Ordering::SeqCst)
    }

    /// Asserts that bytes are not older than `least`, which was completed before they were read.
    pub(crate) fn assert_current(&self, number: usize, bytes: &[u8], least: u64, by: &str) {
        for (page, bytes) in bytes.chunks(PAGE).enumerate() {
            for at in [0, PAGE - 8] {
                let word = bytes[at..]
                    .first_chunk()
                    .map(|word| u64::from_le_bytes(*word));
                let word = word.unwrap();
                let version = word & u64::from(u32::MAX);
                let is_hole = version == HOLE;
                assert!(
                    is_hole || word >> 32 == number as u64,
                    "{by}: block {number} has the bytes of block {}",
                    word >> 32
                );
                let version = if is_hole {
                    self.holes[number].load(Ordering::SeqCst)
                } else {
                    version
                };
                assert!(
                    version >= least,
                    "{by}: block {number}, page {page} has version {version} \
                     (a hole: {is_hole}), and {least} was complete before it was read"
                );
            }
        }
    }
}

pub(crate) fn offset_of(number: usize) -> u64 {
    (number * BLOCK) as u64
}

/// Fills `bytes` with a version of a block.
pub(crate) fn fill(bytes: &mut [u8], number: usize, version: u64) {
    let word = (number as u64) << 32 | version;
    for part in bytes.chunks_exact_mut(8) {
        part.copy_from_slice(&word.to_le_bytes());
    }
}
