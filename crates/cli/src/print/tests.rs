//! The output of btrfs-progs 6.14, byte for byte.
//!
//! `tests/data/print` contains superblocks, and leaves written into an image over a kernel's leaf. They have
//! items that are rare in real volumes. The output of btrfs-progs is next to each file.

use std::path::PathBuf;

use jiff::tz::TimeZone;
use ubtrfs_format::csum::CsumType;
use ubtrfs_format::node::Node;
use ubtrfs_format::superblock::Superblock;
use zerocopy::FromZeros;

use super::{Copy, PrintOptions, print_block, print_superblock};

fn data(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/print");
    std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn options() -> PrintOptions {
    PrintOptions {
        csum_type: CsumType::Crc32c,
        sectorsize: 4096,
        simple_quota: false,
        hide_names: false,
        csum_headers: true,
        csum_items: true,
        for_terminal: false,
        time_zone: TimeZone::UTC,
    }
}

/// Asserts that a text is as expected, and prints the first different line. Names of subvolumes may be any
/// bytes, so the text is compared as bytes.
fn assert_same(name: &str, found: &[u8]) {
    let wanted = data(&format!("{name}.txt"));
    let lines = |text: &[u8]| -> Vec<String> {
        let lines = text.split(|&byte| byte == b'\n');
        lines.map(|line| line.escape_ascii().to_string()).collect()
    };
    for (number, (wanted, found)) in lines(&wanted).iter().zip(lines(found)).enumerate() {
        assert_eq!(*wanted, found, "{name}, line {}", number + 1);
    }
    assert_eq!(wanted.len(), found.len(), "{name}");
}

fn printed_block(block: &[u8], options: &PrintOptions) -> Vec<u8> {
    let mut out = Vec::new();
    let node = Node::new(block).expect("a whole block");
    print_block(&mut out, node, options).expect("to memory");
    out
}

#[test]
fn leaves_are_printed_as_btrfs_progs_does() {
    for name in ["all_types", "odd_values", "names_and_balance"] {
        let block = data(&format!("{name}.bin"));
        assert_same(name, &printed_block(&block, &options()));
    }
}

#[test]
fn superblocks_are_printed_as_btrfs_progs_does() {
    for name in ["superblock_all_flags", "superblock_raid10"] {
        let block = data(&format!("{name}.bin"));
        let superblock = Superblock::from_block(&block).expect("4 KiB");
        let mut out = Vec::new();
        let full = true;
        let result = print_superblock(&mut out, &Copy { superblock, full }).expect("to memory");
        assert_eq!(result, Ok(()));
        out.push(b'\n');
        // btrfs-progs has no lines for makers of NAS boxes.
        let lines = out.split_inclusive(|&byte| byte == b'\n');
        let lines = lines.filter(|line| !line.starts_with(b"made_by"));
        assert_same(name, &lines.collect::<Vec<_>>().concat());
    }
}

#[test]
fn hidden_names_and_values_do_not_appear() {
    let mut options = options();
    options.hide_names = true;
    let text = printed_block(&data("odd_values.bin"), &options);
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("name: HIDDEN\n") && text.contains("data HIDDEN\n"));
    assert!(!text.contains("nom") && !text.contains("user."));
}

#[test]
fn names_reach_no_terminal_unescaped() {
    let mut options = options();
    options.for_terminal = true;
    let text = printed_block(&data("names_and_balance.bin"), &options);
    assert!(std::str::from_utf8(&text).is_ok());
    assert!(!text.contains(&0x1b));
}

#[test]
fn times_follow_the_time_zone() {
    let mut options = options();
    options.time_zone = TimeZone::fixed(jiff::tz::offset(-5));
    let text = printed_block(&data("all_types.bin"), &options);
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("atime 1.2 (1969-12-31 19:00:01)"));
}

/// Any bytes can be printed. A block need not be valid.
#[test]
fn damaged_blocks_are_printed() {
    let sound = data("all_types.bin");
    for step in 1..64 {
        let mut block = sound.clone();
        for (at, byte) in block.iter_mut().enumerate().skip(96) {
            if (at * 31) % (step + 7) == 0 {
                *byte = byte.wrapping_mul(37).wrapping_add(step as u8);
            }
        }
        printed_block(&block, &options());
    }
    let mut superblock = Superblock::new_zeroed();
    superblock.sys_chunk_array_size.set(u32::MAX);
    let copy = Copy {
        superblock: &superblock,
        full: true,
    };
    assert!(
        print_superblock(&mut Vec::new(), &copy)
            .expect("to memory")
            .is_err()
    );
}
