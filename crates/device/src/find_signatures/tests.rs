//! Marks in otherwise empty devices.

use crate::memory::MemDevice;

use super::*;

const LEN: usize = 2 << 20;

fn device(marks: &[(usize, &[u8])]) -> MemDevice {
    let mut image = vec![0; LEN];
    for (offset, bytes) in marks {
        image[*offset..][..bytes.len()].copy_from_slice(bytes);
    }
    MemDevice::from_bytes(&image)
}

fn found(marks: &[(usize, &[u8])]) -> Option<Signature> {
    find_signature(&device(marks)).unwrap()
}

/// Returns a mark together with the surrounding bytes that its format requires.
fn planted(name: &str, offset: usize, bytes: &'static [u8]) -> Vec<(usize, &'static [u8])> {
    let mut marks = vec![(offset, bytes)];
    match name {
        "vfat" | "ntfs" | "exfat" => marks.push((510, b"\x55\xaa")),
        "nilfs2" => marks.extend([(1024, &b"\x02\0\0\0"[..]), (1032, &b"\x18\x01"[..])]),
        RAID => marks.push((offset + 4, b"\x01")),
        "minix" => marks.extend([
            (1024, &b"\x20\0"[..]),
            (1024 + 4, b"\x01"),
            (1024 + 6, b"\x01"),
            (1024 + 28, b"\0\x04"),
        ]),
        "hfs" => marks.push((1024 + 20, b"\0\0\x10\0")),
        "LVM1_member" => marks.push((2, b"\x01")),
        _ => {}
    }
    marks
}

const EXT: [(usize, &[u8]); 3] = [
    (1024, b"\x10\0\0\0"),
    (1024 + 4, b"\x10\0\0\0"),
    (1024 + 0x38, b"\x53\xef"),
];

#[test]
fn every_mark_is_found_by_its_name() {
    for (name, offset, bytes) in MARKS.iter().chain(rare::MARKS) {
        assert_eq!(
            found(&planted(name, *offset, bytes)),
            Some(Signature::FileSystem(name)),
            "{offset}"
        );
    }
}

#[test]
fn empty_and_tiny_devices_have_none() {
    for len in [0, 1, 100, 512, 5000, 70_000, 300_000, 1 << 20] {
        for byte in [0, 0xff] {
            let device = MemDevice::from_bytes(&vec![byte; len]);
            assert_eq!(find_signature(&device).unwrap(), None, "{len} of {byte}");
        }
    }
}

#[test]
fn features_tell_ext_versions_apart() {
    let journal: (usize, &[u8]) = (1024 + 0x5c, b"\x04");
    let extents: (usize, &[u8]) = (1024 + 0x60, b"\x42");
    for (added, name) in [
        (vec![], "ext2"),
        (vec![journal], "ext3"),
        (vec![journal, extents], "ext4"),
        (vec![(1024 + 0x60, &b"\x08"[..])], "jbd"),
    ] {
        let marks = [&EXT[..], &added].concat();
        assert_eq!(found(&marks), Some(Signature::FileSystem(name)));
    }
}

#[test]
fn short_marks_alone_are_taken_for_chance() {
    for alone in [
        (1024 + 0x38, &b"\x53\xef"[..]),
        (1024 + 6, b"\x34\x34"),
        (3, b"NTFS    "),
        (4096, RAID_MAGIC),
    ] {
        assert_eq!(found(&[alone]), None, "{alone:?}");
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

#[test]
fn members_are_known_by_what_is_at_their_end() {
    let raid: &[u8] = b"\xfc\x4e\x2b\xa9";
    let v1: &[u8] = b"\xfc\x4e\x2b\xa9\x01";
    for (marks, name) in [
        (vec![(LEN - 0x10000, raid)], RAID),
        (vec![(LEN - 0x2000, v1)], RAID),
        (
            vec![(LEN - 1024, &b"Intel Raid ISM Cfg Sig. "[..])],
            "isw_raid_member",
        ),
        (
            vec![(LEN - 512, &b"\xde\x11\xde\x11"[..])],
            "ddf_raid_member",
        ),
        (vec![(LEN - 1024, &b"NVIDIA"[..])], "nvidia_raid_member"),
        (
            vec![(LEN - 3087 * 512, &b"Promise Technology, Inc."[..])],
            "promise_fasttrack_raid_member",
        ),
    ] {
        assert_eq!(found(&marks), Some(Signature::FileSystem(name)));
    }
}

#[test]
fn uberblocks_of_zfs_are_found_in_each_label() {
    let magic: &[u8] = b"\x0c\xb1\xba\0\0\0\0\0";
    for label in [0, LEN - (512 << 10), LEN - (256 << 10)] {
        let at = |number: usize| (label + (128 << 10) + (number << 10), magic);
        let four: Vec<_> = (0..4).map(at).collect();
        assert_eq!(found(&four), Some(Signature::FileSystem(ZFS)), "{label}");
        assert_eq!(found(&four[..3]), None, "{label}");
    }
}

#[test]
fn all_signatures_are_told_with_the_places_of_their_marks() {
    let magic: (usize, &[u8]) = (SUPERBLOCK.start + 64, &MAGIC);
    let swap: (usize, &[u8]) = (4086, b"SWAPSPACE2");
    // A superblock's checksum can equal any mark.
    let by_chance: (usize, &[u8]) = (0x10000, b"\x01\x16\x19\x70");
    let all = find_signatures(&device(&[magic, swap, by_chance])).unwrap();
    let found: Vec<_> = all
        .iter()
        .map(|found| (found.signature, found.marks[0].clone()))
        .collect();
    assert_eq!(
        found,
        [
            (Signature::FileSystem("btrfs"), 65600..65608),
            (Signature::FileSystem("swap"), 4086..4096),
        ]
    );
    assert!(found[0].0.is_btrfs() && !found[1].0.is_btrfs());
}

#[test]
fn ufs_is_found_at_each_of_its_places() {
    for superblock in [0, 8 << 10, 64 << 10, 256 << 10] {
        for number in [
            &b"\x54\x19\x01\0"[..],
            b"\x19\x54\x01\x19",
            b"\x19\x01\x54\x19",
        ] {
            let marks = [(superblock + 0x55c, number)];
            assert_eq!(
                found(&marks),
                Some(Signature::FileSystem("ufs")),
                "{superblock}"
            );
        }
    }
}

#[test]
fn old_labels_need_their_sums() {
    let mut sgi = [0; 512];
    sgi[..4].copy_from_slice(b"\x0b\xe5\xa9\x41");
    assert_eq!(found(&[(0, &sgi)]), None);
    sgi[4..8].copy_from_slice(&0x0be5_a941_u32.wrapping_neg().to_be_bytes());
    assert_eq!(found(&[(0, &sgi)]), Some(Signature::PartitionTable("sgi")));
    let sun: [(usize, &[u8]); 2] = [(508, b"\xda\xbe"), (510, b"\xda\xbe")];
    assert_eq!(found(&sun), Some(Signature::PartitionTable("sun")));
    assert_eq!(found(&sun[..1]), None);
    let mac: [(usize, &[u8]); 2] = [(0, b"ER\x02\0"), (512, b"PM")];
    assert_eq!(found(&mac), Some(Signature::PartitionTable("mac")));
    assert_eq!(found(&mac[..1]), None);
    let aix: (usize, &[u8]) = (0, b"\xc9\xc2\xd4\xc1");
    assert_eq!(found(&[aix]), Some(Signature::PartitionTable("aix")));
}

#[test]
fn virtual_disks_are_known_by_their_files() {
    for (name, offset, bytes) in rare::DISK_IMAGES {
        let wanted = Some(Signature::DiskImage(name));
        assert_eq!(found(&[(*offset, bytes)]), wanted);
    }
    let footer: (usize, &[u8]) = (LEN - 512, b"conectix");
    assert_eq!(found(&[footer]), Some(Signature::DiskImage("vhd")));
}

#[test]
fn short_rare_marks_alone_are_taken_for_chance() {
    for alone in [
        (1024 + 0x10, &b"\x7f\x13"[..]),
        (1024, b"BD"),
        (0, b"HM"),
        (0, b"ER"),
        (508, b"\xda\xbe"),
    ] {
        assert_eq!(found(&[alone]), None, "{alone:?}");
    }
}
