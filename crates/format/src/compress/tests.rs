//! Framing, limits and damage of all codecs; kernel-made extents are in `tests/kernel_vectors.rs`.

use proptest::prelude::*;

use super::*;

const SECTOR: usize = 4096;
const REAL: [Compression; 3] = [Compression::Zlib, Compression::Lzo, Compression::Zstd];

/// Returns lines that compress to a half or less.
fn text(len: usize) -> Vec<u8> {
    lines(len, 0, " and what every line has")
}

fn lines(len: usize, seed: u32, tail: &str) -> Vec<u8> {
    (seed..)
        .flat_map(|line| {
            format!("{line} {:08x}{tail}\n", line.wrapping_mul(2_654_435_761)).into_bytes()
        })
        .take(len)
        .collect()
}

fn packed(kind: Compression, data: &[u8], inline: bool) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    compress(kind, 0, data, &mut out, SECTOR, inline)
        .unwrap()
        .then_some(out)
}

#[test]
fn raw_values_and_names_are_read_back() {
    for kind in Compression::ALL {
        assert_eq!(Compression::from_raw(kind.raw()), Some(kind));
        assert_eq!(Compression::from_name(kind.name()), Some(kind));
    }
    assert_eq!(Compression::from_raw(4), None);
}

#[test]
fn appends_whole_sectors_and_leaves_what_was_there() {
    for kind in REAL {
        let mut out = vec![1, 2, 3];
        assert_eq!(
            compress(kind, 0, &text(100_000), &mut out, SECTOR, false),
            Ok(true)
        );
        assert_eq!(out[..3], [1, 2, 3]);
        assert_eq!((out.len() - 3) % SECTOR, 0);
        assert!(out.len() < 100_000 - SECTOR);
    }
}

// CODEC-2
#[test]
fn compression_that_saves_no_sector_is_not_worth_it() {
    let mut state = 1_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(20_000)
    .collect();
    for kind in REAL {
        assert_eq!(packed(kind, &noise, false), None);
        assert_eq!(packed(kind, &text(SECTOR), false), None);
        assert_eq!(packed(kind, b"", false), None);
        assert_eq!(packed(kind, b"x", true), None);
    }
}

#[test]
fn every_level_is_taken() {
    let data = text(30_000);
    for kind in REAL {
        for level in -20..=20 {
            let mut stream = Vec::new();
            assert_eq!(
                compress(kind, level, &data, &mut stream, SECTOR, false),
                Ok(true)
            );
            let mut out = vec![0; data.len()];
            assert_eq!(
                decompress(kind, &stream, &mut out, SECTOR, false),
                Ok(data.len())
            );
            assert_eq!(out, data);
        }
    }
}

#[test]
fn more_than_one_extent_of_data_is_refused() {
    let data = vec![0; MAX_EXTENT_BYTES + 1];
    let error = Err(CodecError::InputTooLong { len: data.len() });
    assert_eq!(
        compress(Compression::Zstd, 0, &data, &mut Vec::new(), SECTOR, false),
        error
    );
}

#[test]
fn stream_shorter_than_the_extent_leaves_zeros() {
    let data = text(9000);
    for kind in REAL {
        let stream = packed(kind, &data, false).unwrap();
        let mut out = vec![0xaa; 12288];
        assert_eq!(decompress(kind, &stream, &mut out, SECTOR, false), Ok(9000));
        assert_eq!(out[..9000], data);
        assert!(out[9000..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn stream_longer_than_the_extent_is_refused() {
    let data = text(30_000);
    for kind in REAL {
        let stream = packed(kind, &data, false).unwrap();
        let error = decompress(kind, &stream, &mut vec![0; 12288], SECTOR, false).unwrap_err();
        assert!(
            matches!(error, CodecError::TooLong { .. }),
            "{kind}: {error:?}"
        );
    }
}

/// CODEC-1
#[test]
fn huge_zstd_window_costs_no_memory() {
    // Magic, a window of 3.75 TiB and no content size, one raw block of one byte.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xff, 0x09, 0x00, 0x00, b'x'];
    let mut out = [0; 16];
    let result = decompress(Compression::Zstd, &frame, &mut out, SECTOR, false);
    assert!(result.is_err() || out[0] == b'x', "{result:?}");
}

// LZO-1 and LZO-2
#[test]
fn lzo_length_fields_never_cross_a_sector() {
    let (mut crossings, mut at_the_end) = (0, 0);
    for seed in 0..3000 {
        let tail = &"abcdefghijklmnopqrstuvw"[..seed as usize % 24];
        let data = lines(12_000 + 3 * seed as usize, seed, tail);
        let Some(stream) = packed(Compression::Lzo, &data, false) else {
            continue;
        };
        let total = u32::from_le_bytes(*stream.first_chunk().unwrap()) as usize;
        let mut at = 4;
        while at < total {
            let left = SECTOR - at % SECTOR;
            if left < 4 {
                assert!(stream[at..at + left].iter().all(|&byte| byte == 0));
                at += left;
                crossings += 1;
                at_the_end += usize::from(at == total);
                continue;
            }
            at += 4 + u32::from_le_bytes(*stream[at..].first_chunk().unwrap()) as usize;
        }
        assert_eq!(at, total);
        assert!(at.is_multiple_of(SECTOR) || SECTOR - at % SECTOR >= 4);
        assert!(stream[at..].iter().all(|&byte| byte == 0));
        let mut out = vec![0; data.len()];
        assert_eq!(
            decompress(Compression::Lzo, &stream, &mut out, SECTOR, false),
            Ok(data.len())
        );
        assert_eq!(out, data);
    }
    assert!(crossings > 0 && at_the_end > 0);
}

// LZO-3
#[test]
fn inline_lzo_has_one_segment_only() {
    let mut stream = packed(Compression::Lzo, &text(2000), true).unwrap();
    stream.extend_from_slice(&[0; 4]);
    let total = stream.len() as u32;
    stream[..4].copy_from_slice(&total.to_le_bytes());
    let error = decompress(Compression::Lzo, &stream, &mut vec![0; 2000], SECTOR, true);
    assert_eq!(
        error,
        Err(CodecError::LzoInlineTail {
            total: stream.len(),
            extra: 4
        })
    );
}

fn kinds() -> impl Strategy<Value = Compression> {
    prop::sample::select(REAL.to_vec())
}

/// Generates compressible data of any length allowed in an extent.
fn data() -> impl Strategy<Value = Vec<u8>> {
    (
        prop::collection::vec(any::<u8>(), 1..5000),
        1..=MAX_EXTENT_BYTES,
    )
        .prop_map(|(piece, len)| piece.iter().copied().cycle().take(len).collect())
}

proptest! {
    #[test]
    fn compressed_data_comes_back(
        kind in kinds(),
        level in -16..16_i32,
        data in data(),
        sectorsize in prop::sample::select(vec![4096_usize, 16384, 65536]),
        inline: bool,
    ) {
        // An inline extent is never longer than a sector.
        let data = if inline { &data[..data.len().min(sectorsize)] } else { &data[..] };
        let mut stream = Vec::new();
        if compress(kind, level, data, &mut stream, sectorsize, inline).unwrap() {
            prop_assert!(stream.len() < data.len());
            let mut out = vec![0xff; data.len()];
            let held = decompress(kind, &stream, &mut out, sectorsize, inline);
            prop_assert_eq!(held, Ok(data.len()));
            prop_assert!(out == data);
        } else {
            prop_assert!(stream.is_empty());
        }
    }

    // CODEC-1
    #[test]
    fn noise_never_panics(
        kind in kinds(),
        noise in prop::collection::vec(any::<u8>(), 0..9000),
        room in 0..20_000_usize,
        inline: bool,
    ) {
        let _ = decompress(kind, &noise, &mut vec![0; room], SECTOR, inline);
    }

    #[test]
    fn damage_never_panics(
        kind in kinds(),
        data in data(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        inline: bool,
    ) {
        if let Some(mut stream) = packed(kind, &data[..data.len().min(SECTOR)], true) {
            for (at, byte) in damage {
                let at = at.index(stream.len());
                stream[at] = byte;
            }
            let _ = decompress(kind, &stream, &mut vec![0; data.len()], SECTOR, inline);
        }
    }

    #[test]
    fn truncated_streams_are_errors(
        kind in kinds(),
        data in data(),
        cut in any::<prop::sample::Index>(),
    ) {
        let data = &data[..data.len().min(SECTOR)];
        if let Some(stream) = packed(kind, data, true) {
            let cut = cut.index(stream.len());
            let mut out = vec![0; data.len()];
            for inline in [true, false] {
                prop_assert!(decompress(kind, &stream[..cut], &mut out, SECTOR, inline).is_err());
            }
        }
    }
}
