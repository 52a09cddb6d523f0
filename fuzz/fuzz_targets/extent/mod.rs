//! An extent of any shape: the last byte of the input selects the shape, the bytes before it are the extent.
//!
//! A zero there is a regular extent of 128 KiB with 4 KiB sectors. The padding of an on-disk extent ends in a zero,
//! so the extent can be used as a seed unchanged.

use ubtrfs_format::compress::{Compression, MAX_EXTENT_BYTES, decompress};

pub(crate) fn decompress_any(kind: Compression, data: &[u8]) {
    let Some((&shape, stream)) = data.split_last() else {
        return;
    };
    let inline = shape & 1 != 0;
    let sectorsize = [4096, 512, 16384, 65536][usize::from(shape >> 1 & 3)];
    let room = [MAX_EXTENT_BYTES, 0, 1, 4095, 4096, 12288, 65536, 100][usize::from(shape >> 3 & 7)];
    let mut out = vec![0xee; room];
    if let Ok(held) = decompress(kind, stream, &mut out, sectorsize, inline) {
        assert!(out[held..].iter().all(|&byte| byte == 0));
    }
}
