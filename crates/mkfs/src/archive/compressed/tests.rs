//! Archives of each format are decompressed to the original, or fail.

use std::io::{Cursor, Write};

use super::*;

fn noise(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at ^ at >> 7) as u8).collect()
}

fn compress(format: ArchiveFormat, bytes: &[u8]) -> Vec<u8> {
    match format {
        ArchiveFormat::Gzip => {
            let level = flate2::Compression::fast();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        ArchiveFormat::Zstd => {
            let mut frame = vec![0; zstd_safe::compress_bound(bytes.len())];
            let mut context = zstd_safe::CCtx::create();
            let with_sum = zstd_safe::CParameter::ChecksumFlag(true);
            context.set_parameter(with_sum).unwrap();
            let len = context.compress2(&mut frame[..], bytes).unwrap();
            frame.truncate(len);
            frame
        }
        ArchiveFormat::Xz => {
            let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        ArchiveFormat::Bzip2 => {
            let level = bzip2::Compression::fast();
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), level);
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
    }
}

fn decompress(compressed: Vec<u8>) -> io::Result<Vec<u8>> {
    let format = ArchiveFormat::of(&compressed).expect("the format is known");
    let mut bytes = Vec::new();
    ArchiveDecoder::new(format, Cursor::new(compressed))?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

const ALL: [ArchiveFormat; 4] = [
    ArchiveFormat::Gzip,
    ArchiveFormat::Zstd,
    ArchiveFormat::Xz,
    ArchiveFormat::Bzip2,
];

#[test]
fn streams_behind_each_other_are_one_archive() {
    let (first, second) = (noise(3 << 20), noise(5000));
    for format in ALL {
        let compressed = compress(format, &first);
        assert_eq!(ArchiveFormat::of(&compressed[..MAGIC_BYTES]), Some(format));
        assert!(compressed.len() < first.len());
        let both = [compressed, compress(format, &second)].concat();
        let expected = [&*first, &second].concat();
        assert!(decompress(both).unwrap() == expected, "{format:?}");
        let empty = compress(format, b"");
        assert_eq!(decompress(empty).unwrap(), b"", "{format:?}");
    }
}

#[test]
fn damaged_and_short_archives_are_errors() {
    let content = noise(1 << 20);
    for format in ALL {
        let compressed = compress(format, &content);
        for len in [compressed.len() - 1, compressed.len() / 2, 7] {
            let short = decompress(compressed[..len].to_vec());
            assert!(short.is_err(), "{format:?} of {len} bytes");
        }
        let mut damaged = compressed.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0x10;
        let error = decompress(damaged).unwrap_err().to_string();
        assert!(error.starts_with(format.name()), "{error}");
    }
}

#[test]
fn archive_that_would_take_too_much_memory_is_refused() {
    // A frame with a window of 2 GiB, and a last block of one byte.
    let frame = b"\x28\xb5\x2f\xfd\x00\xa8\x09\x00\x00x";
    let error = decompress(frame.to_vec()).unwrap_err().to_string();
    assert!(error.contains("too much memory"), "{error}");
    // A block header that requests a dictionary of 1.5 GiB, with a valid checksum.
    let mut stream = b"\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4\x46".to_vec();
    let head = b"\x02\x00\x21\x01\x25\x00\x00\x00";
    stream.extend(head);
    stream.extend(crc32(head).to_le_bytes());
    stream.extend([0; 64]);
    let error = decompress(stream).unwrap_err().to_string();
    assert!(error.contains("memory"), "{error}");
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}
