//! Data that compresses, and data that is not tried.

use ubtrfs_sim::Rng;

use super::*;

const SECTOR: usize = 4096;

fn volume(algorithm: Compression, force: bool) -> Compress {
    Compress {
        algorithm,
        level: 0,
        force,
    }
}

fn random(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(1).fill(&mut bytes);
    bytes
}

/// Returns data that looks like text to the sampling, and is random in between.
fn deceptive(len: usize) -> Vec<u8> {
    let mut bytes = random(len);
    for interval in bytes.chunks_mut(256) {
        let len = interval.len().min(16);
        interval[..len].fill(b' ');
    }
    bytes
}

fn is_compressed(encoded: &Encoded) -> bool {
    matches!(encoded, Encoded::Compressed(..))
}

#[test]
fn text_is_compressed_and_noise_is_not_tried() {
    let encoder = Encoder::new(&volume(Compression::Zstd, false), InodeFlags::empty(), None);
    let text = b"all work and no play ".repeat(2000);
    assert!(is_compressed(&encoder.encode(&text, SECTOR, false)));
    assert_eq!(
        encoder.encode(&random(128 << 10), SECTOR, false),
        Encoded::Plain
    );
}

#[test]
fn a_failure_is_remembered_unless_forced_or_asked_for_by_name() {
    let data = deceptive(2 * SECTOR);
    let zlib = volume(Compression::Zlib, false);
    let once = Encoder::new(&zlib, InodeFlags::empty(), None);
    assert_eq!(once.encode(&data, SECTOR, false), Encoded::Incompressible);
    let forced = Encoder::new(&volume(Compression::Zlib, true), InodeFlags::empty(), None);
    assert_eq!(forced.encode(&data, SECTOR, false), Encoded::Plain);
    let flags = InodeFlags::COMPRESS;
    let named = Encoder::new(&Compress::default(), flags, Some(Compression::Lzo));
    assert_eq!(named.encode(&data, SECTOR, false), Encoded::Plain);
}

#[test]
fn flags_and_properties_decide() {
    let on = |volume: &Compress, flags, property| Encoder::new(volume, flags, property).is_on();
    let none = Compress::default();
    let zstd = volume(Compression::Zstd, false);
    let forced = volume(Compression::Zstd, true);
    let empty = InodeFlags::empty();
    assert!(!on(&none, empty, None));
    assert!(on(&zstd, empty, None));
    assert!(on(&none, InodeFlags::COMPRESS, None));
    assert!(on(&none, InodeFlags::COMPRESS, Some(Compression::Lzo)));
    assert!(!on(&zstd, InodeFlags::NOCOMPRESS, None));
    assert!(on(&forced, InodeFlags::NOCOMPRESS, None));
    for flags in [
        InodeFlags::NODATACOW,
        InodeFlags::NODATASUM,
        InodeFlags::PREALLOC,
    ] {
        assert!(!on(&forced, flags, Some(Compression::Zlib)));
    }
}
