//! Data of files: sharing extents, and writing compressed data.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use ubtrfs::Compression;
use ubtrfs_fuse::ioctl_args::{self as args, CloneRange, EncodedIo};
use ubtrfs_stream::EncodedExtent;
use zerocopy::FromZeros;

use super::ask_of;

/// The encoding number of LZO data with 4 KiB sectors. Each following number doubles the sector size.
const LZO_4K: u32 = 3;
const LZO_SECTOR_BYTES: usize = 4096;

/// Makes a range of `file` share the extents of another file.
pub(super) fn clone_range(
    source: &File,
    source_offset: u64,
    len: u64,
    file: &File,
    offset: u64,
) -> Result<(), Errno> {
    let mut range = CloneRange::new_zeroed();
    range.src_fd.set(source.as_raw_fd().into());
    range.src_offset.set(source_offset);
    range.src_length.set(len);
    range.dest_offset.set(offset);
    ask_of::<{ args::CLONE_RANGE }, _>(file.as_fd(), &mut range)
}

/// Stores compressed data as an extent of `file`.
pub(super) fn write_encoded(
    file: &File,
    offset: u64,
    extent: &EncodedExtent<'_>,
) -> Result<(), Errno> {
    // An `iovec`. The kernel only reads the bytes.
    let buffers = [[extent.bytes.as_ptr().addr(), extent.bytes.len()]];
    let mut io = EncodedIo::new_zeroed();
    io.iov.set(buffers.as_ptr().addr() as u64);
    io.iovcnt.set(buffers.len() as u64);
    io.offset.set(offset.cast_signed());
    io.len.set(extent.file_len);
    io.unencoded_len.set(extent.unencoded_len());
    io.unencoded_offset.set(extent.unencoded_offset);
    io.compression.set(match extent.compression {
        Compression::None => 0,
        Compression::Zlib => 1,
        Compression::Zstd => 2,
        Compression::Lzo => {
            let sector = extent.lzo_sector_bytes.unwrap_or(LZO_SECTOR_BYTES);
            LZO_4K + (sector / LZO_SECTOR_BYTES).trailing_zeros()
        }
    });
    ask_of::<{ args::ENCODED_WRITE }, _>(file.as_fd(), &mut io)
}
