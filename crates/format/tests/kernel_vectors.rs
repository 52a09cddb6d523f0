//! Extents and superblocks written by Linux 6.18, for the codecs and checksums.
//!
//! An extent's file is named KIND_CONTENT_SIZE_OFFSET_RAM.{inline,extent}: the extent at OFFSET, with `ram_bytes`
//! RAM, of a file with SIZE bytes of CONTENT. `UBTRFS_EXTENTS` may name a folder with more.

use std::fs;
use std::path::Path;

use ubtrfs_format::compress::{Compression, decompress};
use ubtrfs_format::csum::CsumType;

/// Generates file contents by name: a letter for the generator and a seed.
fn content(name: &str, len: usize) -> Vec<u8> {
    let (generator, seed) = name.split_at(1);
    let seed: u32 = seed.parse().unwrap();
    let scattered = |i: u32| {
        seed.wrapping_mul(0x9e37_79b9)
            .wrapping_add(i.wrapping_mul(2_654_435_761))
    };
    let mut bytes = Vec::with_capacity(len + 64);
    let mut state = seed.wrapping_mul(2) + 1;
    for i in 0.. {
        let x = scattered(i);
        let piece = match generator {
            "t" => format!("line {i} {x:08x} of a file\n"),
            "m" => {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                format!("word{:02x} ", state >> 24)
            }
            "s" => format!(
                "{i} {x:08x}{}\n",
                &" abcdefghijklmnopqrstuvw"[..seed as usize % 24]
            ),
            other => panic!("no generator {other}"),
        };
        bytes.extend_from_slice(piece.as_bytes());
        if bytes.len() >= len {
            break;
        }
    }
    bytes.truncate(len);
    bytes
}

/// Decompresses every extent of a folder and returns how many there were.
fn check_folder(folder: &Path) -> usize {
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some((stem, form @ ("inline" | "extent"))) = name.split_once('.') else {
            continue;
        };
        let [kind, style, numbers @ ..] = &stem.split('_').collect::<Vec<_>>()[..] else {
            panic!("{name}")
        };
        let [size, offset, ram] = [0, 1, 2].map(|i| numbers[i].parse::<usize>().unwrap());
        let whole = content(style, size);
        let want = &whole[offset..size.min(offset + ram)];
        let mut out = vec![0xee; ram];
        let kind = Compression::from_name(kind).unwrap();
        let raw = fs::read(&path).unwrap();
        decompress(kind, &raw, &mut out, 4096, form == "inline")
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(out[..want.len()] == *want, "{name}");
        assert!(out[want.len()..].iter().all(|&byte| byte == 0), "{name}");
        seen += 1;
    }
    seen
}

#[test]
fn kernel_written_extents_decompress() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/extents");
    assert_eq!(check_folder(&folder), 10);
    if let Some(folder) = std::env::var_os("UBTRFS_EXTENTS") {
        println!("{} more", check_folder(Path::new(&folder)));
    }
}

#[test]
fn kernel_written_superblocks_verify_and_seal_the_same() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/superblocks");
    for kind in CsumType::ALL {
        let raw = fs::read(folder.join(format!("{kind}.bin"))).unwrap();
        assert_eq!(raw[0xc4..0xc6], kind.raw().to_le_bytes());
        assert_eq!(kind.verify_block(&raw), Ok(()), "{kind}");
        let mut sealed = raw.clone();
        sealed[..32].fill(0xee);
        kind.seal_block(&mut sealed);
        assert!(sealed == raw, "{kind}");
        for other in CsumType::ALL.into_iter().filter(|&other| other != kind) {
            assert!(other.verify_block(&raw).is_err());
        }
    }
}
