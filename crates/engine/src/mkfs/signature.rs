//! What lies on a device already, by the marks that formats leave at fixed places.
//!
//! Enough to warn before something is lost, not to tell formats apart in every case: a device without a
//! known mark may still hold what somebody needs. The names are blkid's.
//!
//! Source of the places: each format's own description.

use std::fmt;
use std::io;

use ubtrfs_device::BlockDevice;
use ubtrfs_format::superblock::{MAGIC, SUPERBLOCK_OFFSETS};

#[cfg(test)]
mod tests;

/// Every mark lies below this offset.
const HEAD_BYTES: u64 = 72 << 10;

/// What a device seems to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signature {
    FileSystem(&'static str),
    PartitionTable(&'static str),
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Signature::FileSystem(name) => write!(f, "an existing filesystem ({name})"),
            Signature::PartitionTable(name) => write!(f, "a partition table ({name})"),
        }
    }
}

/// Names with the places and bytes of their marks; where two would match, the first is told.
const MARKS: &[(&str, usize, &[u8])] = &[
    ("btrfs", SUPERBLOCK_OFFSETS[0] as usize + 64, &MAGIC),
    // Zoned volumes have their superblock log at the start.
    ("btrfs", 64, &MAGIC),
    ("xfs", 0, b"XFSB"),
    (
        "bcachefs",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    (
        "bcache",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    ("f2fs", 1024, b"\x10\x20\xf5\xf2"),
    ("erofs", 1024, b"\xe2\xe1\xf5\xe0"),
    ("nilfs2", 1024 + 6, b"\x34\x34"),
    ("crypto_LUKS", 0, b"LUKS\xba\xbe"),
    ("LVM2_member", 512 + 24, b"LVM2 001"),
    ("LVM2_member", 24, b"LVM2 001"),
    ("linux_raid_member", 4096, b"\xfc\x4e\x2b\xa9"),
    ("linux_raid_member", 0, b"\xfc\x4e\x2b\xa9"),
    ("swap", 4096 - 10, b"SWAPSPACE2"),
    ("swsuspend", 4096 - 10, b"S1SUSPEND"),
    ("squashfs", 0, b"hsqs"),
    ("iso9660", 0x8001, b"CD001"),
    ("udf", 0x8001, b"BEA01"),
    ("jfs", 0x8000, b"JFS1"),
    ("reiserfs", 0x10034, b"ReIsEr"),
    ("ntfs", 3, b"NTFS    "),
    ("exfat", 3, b"EXFAT   "),
    ("vfat", 0x36, b"FAT12   "),
    ("vfat", 0x36, b"FAT16   "),
    ("vfat", 0x52, b"FAT32   "),
];

/// What the first bytes of a device tell, if anything.
pub fn find_signature(device: &dyn BlockDevice) -> io::Result<Option<Signature>> {
    let len = device.len_bytes().min(HEAD_BYTES) as usize;
    let mut head = vec![0; len];
    device.read_at(&mut head, 0)?;
    Ok(signature_of(&head))
}

fn signature_of(head: &[u8]) -> Option<Signature> {
    let at = |offset: usize, bytes: &[u8]| {
        head.get(offset..)
            .is_some_and(|rest| rest.starts_with(bytes))
    };
    let mark = MARKS.iter().find(|(_, offset, bytes)| at(*offset, bytes));
    if let Some((name, ..)) = mark {
        return Some(Signature::FileSystem(name));
    }
    if let Some(name) = ext(head) {
        return Some(Signature::FileSystem(name));
    }
    if at(512, b"EFI PART") || at(4096, b"EFI PART") {
        return Some(Signature::PartitionTable("gpt"));
    }
    is_mbr(head).then_some(Signature::PartitionTable("dos"))
}

/// ext2, ext3 and ext4 share a mark; features tell them apart.
fn ext(head: &[u8]) -> Option<&'static str> {
    const SUPERBLOCK: usize = 1024;
    const HAS_JOURNAL: u32 = 1 << 2;
    /// Extents and what came after them.
    const EXT4_INCOMPAT: u32 = !0x1f;
    /// All but sparse superblocks, large files and sorted directories.
    const EXT4_RO_COMPAT: u32 = !0x7;
    let superblock = head.get(SUPERBLOCK..SUPERBLOCK + 0x68)?;
    if superblock[0x38..0x3a] != [0x53, 0xef] {
        return None;
    }
    let word = |at: usize| {
        let bytes = superblock[at..at + 4].try_into().expect("4 bytes");
        u32::from_le_bytes(bytes)
    };
    let (compat, incompat, ro_compat) = (word(0x5c), word(0x60), word(0x64));
    if incompat & EXT4_INCOMPAT != 0 || ro_compat & EXT4_RO_COMPAT != 0 {
        Some("ext4")
    } else if compat & HAS_JOURNAL != 0 {
        Some("ext3")
    } else {
        Some("ext2")
    }
}

/// A boot sector whose four entries are a partition table, not code: states 0 or 0x80, one in use.
fn is_mbr(head: &[u8]) -> bool {
    let Some(sector) = head
        .get(..512)
        .filter(|sector| sector[510..] == [0x55, 0xaa])
    else {
        return false;
    };
    let entries = sector[446..510].chunks(16);
    let sound = entries.clone().all(|entry| matches!(entry[0], 0 | 0x80));
    // A type and a length.
    let used = |entry: &[u8]| entry[4] != 0 && entry[12..16] != [0; 4];
    sound && entries.into_iter().any(used)
}
