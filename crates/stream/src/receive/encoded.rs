//! Encoded writes: their sizes are checked, and the data is decompressed, before anything is stored.
//!
//! The kernel stores the data unchecked, and readers get an error later. Here, data that cannot be decompressed is an
//! error of the stream.

use ubtrfs_format::compress::{self, CodecError, Compression};

use super::target::{EncodedExtent, LEAST_SECTOR_BYTES};

/// The kernel's limit for one compressed extent, both before and after compression.
const MAX_EXTENT_BYTES: u64 = 128 << 10;

/// The fields of an encoded write in the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoded<'a> {
    pub(super) file_len: u64,
    pub(super) unencoded_len: u64,
    pub(super) unencoded_offset: u64,
    pub(super) compression: u32,
    pub(super) encryption: u32,
    pub(super) data: &'a [u8],
}

/// The reason why an encoded write is rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EncodedFault {
    #[error("compression {0} is unknown")]
    Compression(u32),
    #[error("encryption {0} is not supported")]
    Encryption(u32),
    #[error("{what} of {bytes} bytes is too large (max {MAX_EXTENT_BYTES})")]
    TooLarge { what: &'static str, bytes: u64 },
    #[error("bytes {offset} to {end} are not within the {len} of the decompressed data")]
    Range { offset: u64, end: u64, len: u64 },
    #[error("data cannot be decompressed: {0}")]
    Codec(#[from] CodecError),
}

/// Reusable buffers of a receiver.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    plain: Vec<u8>,
}

impl Decoder {
    /// Decompresses encoded data. Returns the extent, and the part of its data that belongs to the file.
    pub(super) fn decode<'a>(
        &'a mut self,
        encoded: &Encoded<'a>,
    ) -> Result<(EncodedExtent<'a>, &'a [u8]), EncodedFault> {
        encoded.check()?;
        let (compression, lzo_sector_bytes) = encoded.algorithm()?;
        let len = encoded.unencoded_len as usize;
        self.plain.resize(len, 0);
        let sectorsize = lzo_sector_bytes.unwrap_or(LEAST_SECTOR_BYTES as usize);
        let is_inline = !(encoded.data.len() as u64).is_multiple_of(LEAST_SECTOR_BYTES);
        compress::decompress(
            compression,
            encoded.data,
            &mut self.plain,
            sectorsize,
            is_inline,
        )?;
        let from = encoded.unencoded_offset as usize;
        let plain: &[u8] = &self.plain;
        let part = &plain[from..from + encoded.file_len as usize];
        let extent = EncodedExtent {
            compression,
            lzo_sector_bytes,
            bytes: encoded.data,
            plain,
            unencoded_offset: encoded.unencoded_offset,
            file_len: encoded.file_len,
        };
        Ok((extent, part))
    }
}

impl Encoded<'_> {
    fn check(&self) -> Result<(), EncodedFault> {
        let sizes = [
            ("compressed data", self.data.len() as u64),
            ("decompressed data", self.unencoded_len),
        ];
        for (what, bytes) in sizes {
            if bytes > MAX_EXTENT_BYTES {
                return Err(EncodedFault::TooLarge { what, bytes });
            }
        }
        if self.encryption != 0 {
            return Err(EncodedFault::Encryption(self.encryption));
        }
        let (offset, len) = (self.unencoded_offset, self.unencoded_len);
        let end = offset.saturating_add(self.file_len);
        if end <= len {
            Ok(())
        } else {
            Err(EncodedFault::Range { offset, end, len })
        }
    }

    /// Returns the algorithm, and the sector size of LZO data.
    fn algorithm(&self) -> Result<(Compression, Option<usize>), EncodedFault> {
        Ok(match self.compression {
            0 => (Compression::None, None),
            1 => (Compression::Zlib, None),
            2 => (Compression::Zstd, None),
            // Sectors of 4, 8, 16, 32 and 64 KiB.
            lzo @ 3..=7 => (
                Compression::Lzo,
                Some((LEAST_SECTOR_BYTES as usize) << (lzo - 3)),
            ),
            other => return Err(EncodedFault::Compression(other)),
        })
    }
}
