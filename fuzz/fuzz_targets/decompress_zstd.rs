//! Any bytes as a zstd extent.

#![no_main]

mod extent;

use libfuzzer_sys::fuzz_target;
use ubtrfs_format::compress::Compression;

fuzz_target!(|data: &[u8]| extent::decompress_any(Compression::Zstd, data));
