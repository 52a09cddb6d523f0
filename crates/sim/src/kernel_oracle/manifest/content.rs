//! A digest of a file's contents that is independent of how a reader reports holes, and skips them.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::zeros::is_zero;

const BLOCK_BYTES: usize = 4096;

#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    pub(super) fn of_bytes(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }

    /// Hashes a file with these blocks, in ascending order, and zeros in between. All blocks have
    /// `ContentHasher::ALIGN` bytes, except for one at the end of the file.
    pub(crate) fn of_file<'a>(blocks: impl Iterator<Item = (u64, &'a [u8])>, size: u64) -> Digest {
        let mut hasher = ContentHasher::default();
        for (offset, block) in blocks {
            hasher.update(offset, block);
        }
        hasher.finish(size)
    }

    pub(super) fn parse(hex: &str) -> Option<Digest> {
        let mut bytes = [0; 32];
        if hex.len() != 64 || !hex.is_ascii() {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Digest(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The sha256 over (offset, length, bytes) of each aligned block that is not all zero, then over the size.
#[derive(Debug, Default)]
pub(super) struct ContentHasher {
    hasher: Sha256,
}

impl ContentHasher {
    /// Required alignment of reads and of their lengths, except at the end of the file.
    pub(super) const ALIGN: u64 = BLOCK_BYTES as u64;

    pub(super) fn update(&mut self, offset: u64, data: &[u8]) {
        for (number, block) in data.chunks(BLOCK_BYTES).enumerate() {
            if is_zero(block) {
                continue;
            }
            let at = offset + (number * BLOCK_BYTES) as u64;
            self.hasher.update(at.to_le_bytes());
            self.hasher.update((block.len() as u64).to_le_bytes());
            self.hasher.update(block);
        }
    }

    pub(super) fn finish(mut self, size: u64) -> Digest {
        self.hasher.update(size.to_le_bytes());
        Digest(self.hasher.finalize().into())
    }
}
