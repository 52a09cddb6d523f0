//! Marks in otherwise empty devices.

use ubtrfs_device::MemDevice;

use super::*;

fn found(marks: &[(usize, &[u8])]) -> Option<Signature> {
    let mut image = vec![0; 1 << 20];
    for (offset, bytes) in marks {
        image[*offset..][..bytes.len()].copy_from_slice(bytes);
    }
    find_signature(&MemDevice::from_bytes(&image)).unwrap()
}

#[test]
fn every_mark_is_found_by_its_name() {
    for (name, offset, bytes) in MARKS {
        assert_eq!(
            found(&[(*offset, bytes)]),
            Some(Signature::FileSystem(name))
        );
    }
}

#[test]
fn empty_and_tiny_devices_have_none() {
    assert_eq!(found(&[]), None);
    for len in [0, 1, 100, 512, 5000] {
        assert_eq!(signature_of(&vec![0; len]), None);
        assert_eq!(signature_of(&vec![0xff; len]), None);
    }
}

#[test]
fn features_tell_ext_versions_apart() {
    let magic: (usize, &[u8]) = (1024 + 0x38, b"\x53\xef");
    let journal: (usize, &[u8]) = (1024 + 0x5c, b"\x04");
    let extents: (usize, &[u8]) = (1024 + 0x60, b"\x42");
    for (marks, name) in [
        (vec![magic], "ext2"),
        (vec![magic, journal], "ext3"),
        (vec![magic, journal, extents], "ext4"),
    ] {
        assert_eq!(found(&marks), Some(Signature::FileSystem(name)));
    }
}

#[test]
fn partition_tables_are_told_from_boot_code() {
    let end: (usize, &[u8]) = (510, b"\x55\xaa");
    let linux: (usize, &[u8]) = (446 + 4, b"\x83\0\0\0\0\x08\0\0\0\0\x10\0");
    assert_eq!(found(&[end, linux]), Some(Signature::PartitionTable("dos")));
    assert_eq!(found(&[end]), None);
    assert_eq!(found(&[end, linux, (446, b"\x90")]), None);
    assert_eq!(
        found(&[end, (512, b"EFI PART")]),
        Some(Signature::PartitionTable("gpt"))
    );
}
