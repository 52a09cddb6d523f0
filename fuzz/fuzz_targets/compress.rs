//! Any bytes as file data: every codec restores them after compression.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ubtrfs_format::compress::{Compression, MAX_EXTENT_BYTES, compress, decompress};

fuzz_target!(|input: &[u8]| {
    let Some((&shape, data)) = input.split_last() else {
        return;
    };
    let sectorsize = [4096, 512, 16384, 65536][usize::from(shape & 3)];
    let inline = shape & 4 != 0;
    let level = i32::from(shape >> 3) - 16;
    let data = &data[..data
        .len()
        .min(if inline { sectorsize } else { MAX_EXTENT_BYTES })];
    for kind in Compression::ALL {
        let mut stream = Vec::new();
        if compress(kind, level, data, &mut stream, sectorsize, inline).unwrap() {
            assert!(stream.len() < data.len());
            let mut out = vec![0xee; data.len()];
            assert_eq!(
                decompress(kind, &stream, &mut out, sectorsize, inline),
                Ok(data.len())
            );
            assert!(out == data);
        }
    }
});
