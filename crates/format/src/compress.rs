//! Compressed file extents: the three codecs and their framing on disk.
//!
//! An extent holds at most 128 KiB of file data and is compressed as one unit. On disk a regular extent is padded
//! with zeros to the sector; an inline one is exactly as long as its stream. A stream may be shorter than the
//! extent's `ram_bytes` if the file ended inside of the last sector. The missing bytes read as zeros.
//!
//! Invariants
//! - CODEC-1: no input makes a decoder panic, or write or allocate more than the output slice and one fixed context
//!   per thread.
//! - CODEC-2: `compress` only succeeds if it saves at least one sector (one byte for inline extents).
//!
//! Locks: none; contexts are per thread.
//! Not here: which extents to compress and when to store them inline (the engine's write path).

use std::fmt;

mod compressible;
mod lzo;
mod lzo1x;
mod zlib;
mod zstd;

#[cfg(test)]
mod tests;

pub use compressible::looks_compressible;
pub use lzo1x::LzoError;

/// Maximum file data in one compressed extent, and its maximum size on disk.
pub const MAX_EXTENT_BYTES: usize = 128 * 1024;

/// The compression of an extent; values as in a file extent item.
#[derive(Copy, Clone, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Compression {
    /// Uncompressed.
    #[default]
    None = 0,
    /// Deflate, with levels 1 to 9.
    Zlib = 1,
    /// LZO, which is fast and has no levels.
    Lzo = 2,
    /// Zstandard, with levels -15 to 15.
    Zstd = 3,
}

impl Compression {
    /// Every kind, ordered by on-disk value.
    pub const ALL: [Self; 4] = [Self::None, Self::Zlib, Self::Lzo, Self::Zstd];

    /// Returns the algorithm with an on-disk value.
    pub fn from_raw(raw: u8) -> Option<Self> {
        Self::ALL.get(usize::from(raw)).copied()
    }

    /// Returns the on-disk value.
    pub const fn raw(self) -> u8 {
        self as u8
    }

    /// Returns the name used in mount options, properties and btrfs-progs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zlib => "zlib",
            Self::Lzo => "lzo",
            Self::Zstd => "zstd",
        }
    }

    /// Parses a name; `no` is an alias of `none`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "none" | "no" => Some(Self::None),
            "zlib" => Some(Self::Zlib),
            "lzo" => Some(Self::Lzo),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The reason why an extent could not be compressed or decompressed.
#[derive(Copy, Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CodecError {
    #[error("zlib stream is damaged or cut short")]
    Zlib,
    #[error("stream holds more than the extent's {room} bytes")]
    TooLong { room: usize },
    #[error("zstd: {}", zstd_safe::get_error_name(*code))]
    Zstd { code: usize },
    #[error("lzo extent of {len} bytes has no room for its header")]
    LzoHeader { len: usize },
    #[error("lzo extent has a length of {total} bytes in its head, and {len} in all")]
    LzoTotal { total: usize, len: usize },
    #[error("lzo segment at byte {at} has a length of {segment} bytes, {left} are left")]
    LzoSegment {
        at: usize,
        segment: usize,
        left: usize,
    },
    #[error("lzo segment at byte {at}: {source}")]
    Lzo { at: usize, source: LzoError },
    #[error("inline lzo extent of {total} bytes has {extra} bytes after its segment")]
    LzoInlineTail { total: usize, extra: usize },
    #[error("{len} bytes are more than one compressed extent holds")]
    InputTooLong { len: usize },
    #[error("no memory for a codec context")]
    NoMemory,
}

/// Decompresses one extent into `out`, whose length is the extent's `ram_bytes`.
///
/// Returns the length of the stream's data; the rest of `out` is zeroed. `input` is the whole extent as stored on
/// disk, with or without its padding. A stream with more data than `out` is an error.
///
/// # Panics
/// If `sectorsize` is not valid in a superblock.
pub fn decompress(
    kind: Compression,
    input: &[u8],
    out: &mut [u8],
    sectorsize: usize,
    inline: bool,
) -> Result<usize, CodecError> {
    assert_sectorsize(sectorsize);
    let held = match kind {
        Compression::None => {
            let held = input.len().min(out.len());
            out[..held].copy_from_slice(&input[..held]);
            held
        }
        Compression::Zlib => zlib::decompress(input, out)?,
        Compression::Lzo if inline => lzo::decompress_inline(input, out)?,
        Compression::Lzo => lzo::decompress(input, out, sectorsize)?,
        Compression::Zstd => zstd::decompress(input, out)?,
    };
    out[held..].fill(0);
    Ok(held)
}

/// Compresses the data of one extent and appends the result to `out`, if that saves space on disk.
///
/// A regular extent is padded to the sector, an inline one is not. Returns false and leaves `out` unchanged if
/// compression saves no disk space. `level` 0 means the kernel's default (3). Other levels are clamped to 1..=9 for
/// zlib and -15..=15 for zstd, and ignored for lzo.
///
/// # Panics
/// If `sectorsize` is not valid in a superblock.
pub fn compress(
    kind: Compression,
    level: i32,
    input: &[u8],
    out: &mut Vec<u8>,
    sectorsize: usize,
    inline: bool,
) -> Result<bool, CodecError> {
    assert_sectorsize(sectorsize);
    if input.len() > MAX_EXTENT_BYTES {
        return Err(CodecError::InputTooLong { len: input.len() });
    }
    let limit = if inline {
        input.len().saturating_sub(1)
    } else {
        input
            .len()
            .next_multiple_of(sectorsize)
            .saturating_sub(sectorsize)
    };
    if kind == Compression::None || limit == 0 {
        return Ok(false);
    }
    let start = out.len();
    // CODEC-2: the codec fails if it needs more space than this limit.
    out.resize(start + limit, 0);
    let room = &mut out[start..];
    let taken = match kind {
        Compression::None => None,
        Compression::Zlib => zlib::compress(level, input, room),
        Compression::Lzo => lzo::compress(input, room, sectorsize, inline),
        Compression::Zstd => zstd::compress(level, input, room)?,
    };
    let kept = match taken {
        None => 0,
        Some(taken) if inline => taken,
        Some(taken) => {
            let padded = taken.next_multiple_of(sectorsize);
            room[taken..padded].fill(0);
            padded
        }
    };
    out.truncate(start + kept);
    Ok(kept != 0)
}

fn assert_sectorsize(sectorsize: usize) {
    assert!(
        sectorsize.is_power_of_two() && (512..=64 * 1024).contains(&sectorsize),
        "the sector size is checked with the superblock"
    );
}
