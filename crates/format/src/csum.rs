//! Checksums of tree blocks, superblocks and data sectors.
//!
//! A volume uses one algorithm for everything, according to `csum_type` in its superblock. A block has its checksum
//! in its first 32 bytes, which covers the rest of the block. Checksums of data sectors are in the checksum tree,
//! packed at the algorithm's size.
//!
//! Invariants
//! - CSUM-1: a `Csum` is zero beyond the size of its algorithm.
//! - CSUM-2: only the algorithm's bytes of a stored field are compared, as in the kernel; the tail is ignored.
//!
//! Not here: the checksum tree, and the hashes of names (`name_hash`).

use std::fmt;

use blake2b_simd::many::{HashManyJob, hash_many};
use sha2::{Digest, Sha256};
use twox_hash::XxHash64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[cfg(test)]
mod tests;

/// Size of the checksum field at the start of every block, for any algorithm.
pub const CSUM_FIELD_BYTES: usize = 32;

/// Number of sectors per batch of the interleaved BLAKE2b; a multiple of every SIMD degree.
const BLAKE2B_BATCH: usize = 32;

/// A volume's checksum algorithm; values as in the superblock's `csum_type`.
#[derive(Copy, Clone, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u16)]
pub enum CsumType {
    /// CRC-32C, of 4 bytes: the default.
    #[default]
    Crc32c = 0,
    /// XXH64, of 8 bytes.
    XxHash64 = 1,
    /// SHA-256, of 32 bytes.
    Sha256 = 2,
    /// `BLAKE2b`, of 32 bytes.
    Blake2b = 3,
}

impl fmt::Display for CsumType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl CsumType {
    /// Every algorithm, ordered by on-disk value.
    pub const ALL: [Self; 4] = [Self::Crc32c, Self::XxHash64, Self::Sha256, Self::Blake2b];

    /// Returns the algorithm of an on-disk value.
    pub fn from_raw(raw: u16) -> Option<Self> {
        Self::ALL.get(usize::from(raw)).copied()
    }

    /// Returns the on-disk value.
    pub const fn raw(self) -> u16 {
        self as u16
    }

    /// Returns the size of one checksum, which is also its stride in a checksum item.
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::Crc32c => 4,
            Self::XxHash64 => 8,
            Self::Sha256 | Self::Blake2b => 32,
        }
    }

    /// Returns the name in btrfs-progs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc32c => "crc32c",
            Self::XxHash64 => "xxhash64",
            Self::Sha256 => "sha256",
            Self::Blake2b => "blake2b",
        }
    }

    /// Parses a name like `mkfs.btrfs --csum`: ignoring case, with short and long forms.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "crc32c" => Some(Self::Crc32c),
            "xxhash" | "xxhash64" => Some(Self::XxHash64),
            "sha256" => Some(Self::Sha256),
            "blake2" | "blake2b" => Some(Self::Blake2b),
            _ => None,
        }
    }

    /// Computes the checksum of `bytes`.
    pub fn compute(self, bytes: &[u8]) -> Csum {
        match self {
            Self::Crc32c => Csum::from_prefix(&crc_fast::crc32_iscsi(bytes).to_le_bytes()),
            Self::XxHash64 => Csum::from_prefix(&XxHash64::oneshot(0, bytes).to_le_bytes()),
            Self::Sha256 => Csum::from_prefix(&Sha256::digest(bytes)),
            Self::Blake2b => Csum::from_prefix(blake2b_256().hash(bytes).as_bytes()),
        }
    }

    /// Appends the checksum of each sector of `data` to `out`, packed as in a checksum item.
    ///
    /// # Panics
    /// If `data` is not whole sectors.
    pub fn compute_sectors(self, data: &[u8], sector: usize, out: &mut Vec<u8>) {
        assert!(
            data.len().is_multiple_of(sector),
            "sums cover whole sectors only"
        );
        out.reserve(data.len() / sector * self.size_bytes());
        match self {
            Self::Crc32c => {
                for one in data.chunks_exact(sector) {
                    out.extend_from_slice(&crc_fast::crc32_iscsi(one).to_le_bytes());
                }
            }
            Self::XxHash64 => {
                for one in data.chunks_exact(sector) {
                    out.extend_from_slice(&XxHash64::oneshot(0, one).to_le_bytes());
                }
            }
            Self::Sha256 => {
                for one in data.chunks_exact(sector) {
                    out.extend_from_slice(&Sha256::digest(one));
                }
            }
            Self::Blake2b => blake2b_sectors(data, sector, out),
        }
    }

    /// Computes the checksum for the first 32 bytes of a tree block or superblock.
    ///
    /// # Panics
    /// If `block` is shorter than the checksum field.
    pub fn block_csum(self, block: &[u8]) -> Csum {
        self.compute(&block[CSUM_FIELD_BYTES..])
    }

    /// Compares the stored checksum of a block with its contents.
    ///
    /// # Panics
    /// If `block` is shorter than the checksum field.
    pub fn verify_block(self, block: &[u8]) -> Result<(), CsumMismatch> {
        // CSUM-2
        let stored = Csum::from_prefix(&block[..self.size_bytes()]);
        let found = self.block_csum(block);
        if stored == found {
            Ok(())
        } else {
            Err(CsumMismatch { stored, found })
        }
    }

    /// Writes a block's checksum into its checksum field, padded with zeros.
    ///
    /// # Panics
    /// If `block` is shorter than the checksum field.
    pub fn seal_block(self, block: &mut [u8]) {
        let csum = self.block_csum(block);
        block[..CSUM_FIELD_BYTES].copy_from_slice(&csum.0);
    }
}

fn blake2b_256() -> blake2b_simd::Params {
    let mut params = blake2b_simd::Params::new();
    params.hash_length(CSUM_FIELD_BYTES);
    params
}

fn blake2b_sectors(data: &[u8], sector: usize, out: &mut Vec<u8>) {
    let params = blake2b_256();
    let mut jobs = Vec::with_capacity(BLAKE2B_BATCH);
    for batch in data.chunks(sector.saturating_mul(BLAKE2B_BATCH)) {
        jobs.clear();
        jobs.extend(
            batch
                .chunks_exact(sector)
                .map(|one| HashManyJob::new(&params, one)),
        );
        hash_many(jobs.iter_mut());
        for job in &jobs {
            out.extend_from_slice(job.to_hash().as_bytes());
        }
    }
}

/// A checksum in the form of a header's 32-byte field: little-endian, zero beyond the algorithm's size.
#[derive(
    Copy,
    Clone,
    Default,
    Eq,
    Hash,
    PartialEq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct Csum([u8; CSUM_FIELD_BYTES]);

const _: () = assert!(size_of::<Csum>() == CSUM_FIELD_BYTES);

impl Csum {
    /// Creates a checksum from the bytes of one algorithm.
    ///
    /// # Panics
    /// If there are more than 32 bytes.
    pub fn from_prefix(bytes: &[u8]) -> Self {
        // CSUM-1
        let mut field = [0; CSUM_FIELD_BYTES];
        field[..bytes.len()].copy_from_slice(bytes);
        Self(field)
    }

    /// Returns the whole field.
    pub const fn as_bytes(&self) -> &[u8; CSUM_FIELD_BYTES] {
        &self.0
    }

    /// Returns the bytes used by `csum_type`.
    pub fn significant(&self, csum_type: CsumType) -> &[u8] {
        &self.0[..csum_type.size_bytes()]
    }

    /// Returns the bytes to display: the smallest checksum size that includes every nonzero byte.
    fn shown(&self) -> &[u8] {
        let used = self
            .0
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |last| last + 1);
        match used {
            0..=4 => &self.0[..4],
            5..=8 => &self.0[..8],
            _ => &self.0,
        }
    }
}

impl From<[u8; CSUM_FIELD_BYTES]> for Csum {
    fn from(field: [u8; CSUM_FIELD_BYTES]) -> Self {
        Self(field)
    }
}

/// Formats as `0x` and the significant bytes in disk order, like `btrfs inspect-internal`.
impl fmt::Display for Csum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.shown()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Csum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A mismatch between a block's contents and its stored checksum.
#[derive(Copy, Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("csum {found}, header has {stored}")]
pub struct CsumMismatch {
    pub stored: Csum,
    pub found: Csum,
}
