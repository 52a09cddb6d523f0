//! Detection of the contents of a device, by the magic numbers of known formats.
//!
//! The list and its names follow blkid(8): current formats are here, others in `rare`. It serves to prevent
//! accidental overwrites. A device without a known signature may still hold important data.
//!
//! Source of the offsets: each format's own documentation.

use std::io;
use std::ops::Range;

use ubtrfs_format::superblock::{MAGIC, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE};

use crate::block_device::BlockDevice;
use crate::signature::{BTRFS, Signature};

mod rare;
#[cfg(test)]
mod tests;

/// All marks at the start of a device are below this offset.
const HEAD_BYTES: u64 = 258 << 10;
const _: () = assert!(rare::UFS_END <= HEAD_BYTES);
/// All marks at the end of a device are within this many bytes.
const TAIL_BYTES: u64 = 2 << 20;
const SECTOR: u64 = 512;
/// The range of the btrfs superblock within the head.
const SUPERBLOCK: Range<usize> = {
    let start = SUPERBLOCK_OFFSETS[0] as usize;
    start..start + SUPERBLOCK_SIZE
};
const RAID: &str = "linux_raid_member";
const RAID_MAGIC: &[u8] = b"\xfc\x4e\x2b\xa9";
const ZFS: &str = "zfs_member";

/// A signature and the marks that identify it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundSignature {
    pub signature: Signature,
    /// Ranges of its marks. Erasing them makes the format undetectable.
    pub marks: Vec<Range<u64>>,
}

impl FoundSignature {
    fn new(signature: Signature, offset: u64, len: usize) -> FoundSignature {
        let mark = offset..offset + len as u64;
        FoundSignature {
            signature,
            marks: vec![mark],
        }
    }
}

/// Format names with the offsets and bytes of their marks in the head. If two match, the first in this list is
/// reported first.
const MARKS: &[(&str, usize, &[u8])] = &[
    (BTRFS, SUPERBLOCK.start + 64, &MAGIC),
    // Zoned volumes have a superblock log at the start.
    (BTRFS, 64, &MAGIC),
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
    // The secondary header of version 2, which may survive the first.
    ("crypto_LUKS", 16 << 10, b"SKUL\xba\xbe"),
    ("BitLocker", 3, b"-FVE-FS-"),
    ("LVM2_member", 24, b"LVM2 001"),
    ("LVM2_member", 512 + 24, b"LVM2 001"),
    ("LVM2_member", 1024 + 24, b"LVM2 001"),
    ("LVM2_member", 1536 + 24, b"LVM2 001"),
    ("DM_integrity", 0, b"integrt\0"),
    ("DM_verity_hash", 0, b"verity\0\0"),
    ("vdo", 0, b"dmvdo001"),
    ("stratis", 512 + 4, b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("ceph_bluestore", 0, b"bluestore block device"),
    (RAID, 4096, RAID_MAGIC),
    (RAID, 0, RAID_MAGIC),
    ("swap", (4 << 10) - 10, b"SWAPSPACE2"),
    ("swap", (4 << 10) - 10, b"SWAP-SPACE"),
    ("swap", (8 << 10) - 10, b"SWAPSPACE2"),
    ("swap", (16 << 10) - 10, b"SWAPSPACE2"),
    ("swap", (32 << 10) - 10, b"SWAPSPACE2"),
    ("swap", (64 << 10) - 10, b"SWAPSPACE2"),
    ("swsuspend", (4 << 10) - 10, b"S1SUSPEND"),
    ("swsuspend", (4 << 10) - 10, b"S2SUSPEND"),
    ("swsuspend", (4 << 10) - 10, b"LINHIB0001"),
    ("squashfs", 0, b"hsqs"),
    ("cramfs", 0, b"\x45\x3d\xcd\x28"),
    ("romfs", 0, b"-rom1fs-"),
    ("zonefs", 0, b"SFOZ"),
    ("iso9660", 0x8001, b"CD001"),
    ("udf", 0x8001, b"BEA01"),
    ("udf", 0x8001, b"NSR0"),
    ("jfs", 0x8000, b"JFS1"),
    ("reiserfs", 0x10034, b"ReIsEr"),
    ("reiserfs", 0x2034, b"ReIsEr"),
    ("reiser4", 0x10000, b"ReIsEr4"),
    ("gfs2", 0x10000, b"\x01\x16\x19\x70"),
    ("ocfs2", 1024, b"OCFSV2"),
    ("ocfs2", 2048, b"OCFSV2"),
    ("ocfs2", 4096, b"OCFSV2"),
    ("ocfs2", 8192, b"OCFSV2"),
    ("apfs", 32, b"NXSB"),
    ("hfsplus", 1024, b"H+\0\x04"),
    ("hfsplus", 1024, b"HX\0\x05"),
    ("ntfs", 3, b"NTFS    "),
    ("exfat", 3, b"EXFAT   "),
    ("vfat", 0x36, b"FAT12   "),
    ("vfat", 0x36, b"FAT16   "),
    ("vfat", 0x52, b"FAT32   "),
];

/// Format names with their marks at the end of a device, by distance from the end.
const LAST_MARKS: &[(&str, u64, &[u8])] = &[
    ("isw_raid_member", 2 * SECTOR, b"Intel Raid ISM Cfg Sig. "),
    ("ddf_raid_member", SECTOR, b"\xde\x11\xde\x11"),
];

/// Finds the first signature on a device. Returns None without a known one.
pub fn find_signature(device: &dyn BlockDevice) -> io::Result<Option<Signature>> {
    Ok(find_signatures(device)?
        .first()
        .map(|found| found.signature))
}

/// Finds all signatures on a device, file systems first.
pub fn find_signatures(device: &dyn BlockDevice) -> io::Result<Vec<FoundSignature>> {
    let len_bytes = device.len_bytes();
    let mut head = vec![0; len_bytes.min(HEAD_BYTES) as usize];
    device.read_at(&mut head, 0)?;
    let mut tail = vec![0; len_bytes.min(TAIL_BYTES) as usize];
    let tail_start = len_bytes - tail.len() as u64;
    device.read_at(&mut tail, tail_start)?;

    let mut found = file_systems(&head);
    found.extend(at_the_end(&tail, len_bytes));
    found.extend(zfs(&head, &tail, tail_start));
    found.extend(disk_images(&head, &tail, tail_start));
    found.extend(partition_tables(&head));
    found.extend(rare::labels(&head));
    Ok(found)
}

fn has(bytes: &[u8], offset: usize, mark: &[u8]) -> bool {
    bytes
        .get(offset..)
        .is_some_and(|rest| rest.starts_with(mark))
}

fn file_systems(head: &[u8]) -> Vec<FoundSignature> {
    let is_btrfs = has(head, SUPERBLOCK.start + 64, &MAGIC);
    // Bytes inside of a btrfs superblock are not a mark of another format.
    let is_free = |offset: usize| !is_btrfs || !SUPERBLOCK.contains(&offset);
    let mut found: Vec<FoundSignature> = MARKS
        .iter()
        .chain(rare::MARKS)
        .filter(|(name, offset, mark)| {
            let is_its_own = *name == BTRFS || is_free(*offset);
            is_its_own && has(head, *offset, mark) && is_plausible(name, *offset, head)
        })
        .map(|(name, offset, mark)| {
            FoundSignature::new(Signature::FileSystem(name), *offset as u64, mark.len())
        })
        .collect();
    if let Some(name) = ext(head) {
        let mark = FoundSignature::new(Signature::FileSystem(name), 1024 + 0x38, 2);
        found.push(mark);
    }
    let ufs = rare::ufs(head).into_iter();
    found.extend(ufs.filter(|found| is_free(found.marks[0].start as usize)));
    found
}

/// Finds virtual disk images.
fn disk_images(head: &[u8], tail: &[u8], tail_start: u64) -> Vec<FoundSignature> {
    const VHD: &[u8] = b"conectix";
    let marks = rare::DISK_IMAGES.iter();
    let of_head = marks.filter(|(_, offset, mark)| has(head, *offset, mark));
    let mut found: Vec<FoundSignature> = of_head
        .map(|(name, offset, mark)| {
            FoundSignature::new(Signature::DiskImage(name), *offset as u64, mark.len())
        })
        .collect();
    // A fixed-size VHD has only a footer.
    if let Some(at) = tail.len().checked_sub(SECTOR as usize)
        && has(tail, at, VHD)
    {
        let at = tail_start + at as u64;
        found.push(FoundSignature::new(
            Signature::DiskImage("vhd"),
            at,
            VHD.len(),
        ));
    }
    found
}

/// Returns whether the bytes around a short mark are valid in its format.
fn is_plausible(name: &str, offset: usize, head: &[u8]) -> bool {
    match name {
        "vfat" | "ntfs" | "exfat" => has(head, 510, b"\x55\xaa"),
        // The format version and the length of the superblock.
        "nilfs2" => {
            let len = half(head, 1024 + 8).unwrap_or(0);
            word(head, 1024) == Some(2) && (256..=1024).contains(&len)
        }
        RAID => word(head, offset + 4) == Some(1),
        _ => rare::is_plausible(name, offset, head),
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Finds ext2, ext3 or ext4. They have the same mark and differ in their features.
fn ext(head: &[u8]) -> Option<&'static str> {
    const SUPERBLOCK: usize = 1024;
    const HAS_JOURNAL: u32 = 1 << 2;
    /// An external journal device.
    const JOURNAL_DEVICE: u32 = 1 << 3;
    /// Extents and newer features.
    const EXT4_INCOMPAT: u32 = !0x1f;
    /// All except sparse superblocks, large files and sorted directories.
    const EXT4_RO_COMPAT: u32 = !0x7;
    let superblock = head.get(SUPERBLOCK..SUPERBLOCK + 0x68)?;
    if superblock[0x38..0x3a] != [0x53, 0xef] {
        return None;
    }
    let word = |at: usize| word(superblock, at).unwrap_or(0);
    let (inodes, blocks, log_block_size, revision) = (word(0), word(4), word(0x18), word(0x4c));
    let (compat, incompat, ro_compat) = (word(0x5c), word(0x60), word(0x64));
    // A journal device has no inodes.
    let is_journal = incompat & JOURNAL_DEVICE != 0;
    if inodes == 0 && !is_journal || blocks == 0 || log_block_size > 6 || revision > 1 {
        return None;
    }
    if is_journal {
        Some("jbd")
    } else if incompat & EXT4_INCOMPAT != 0 || ro_compat & EXT4_RO_COMPAT != 0 {
        Some("ext4")
    } else if compat & HAS_JOURNAL != 0 {
        Some("ext3")
    } else {
        Some("ext2")
    }
}

/// Finds marks at the end of a device, such as RAID members with the superblock at the end.
fn at_the_end(tail: &[u8], len_bytes: u64) -> Vec<FoundSignature> {
    let tail_start = len_bytes - tail.len() as u64;
    let within = |offset: u64| offset.checked_sub(tail_start).map(|at| at as usize);
    let is_at = |offset, mark| within(offset).is_some_and(|at| has(tail, at, mark));
    let mut found = Vec::new();
    let mut add = |name, offset, mark: &[u8]| {
        found.push(FoundSignature::new(
            Signature::FileSystem(name),
            offset,
            mark.len(),
        ));
    };
    for (name, distance, mark) in LAST_MARKS.iter().chain(rare::LAST_MARKS) {
        if let Some(offset) = len_bytes.checked_sub(*distance)
            && is_at(offset, mark)
        {
            add(name, offset, mark);
        }
    }
    // Version 0.90: at the last whole 64 KiB. Version 1.0: 8 KiB before the end, aligned to a page.
    let places = [
        ((len_bytes & !0xffff).checked_sub(0x10000), 0),
        ((len_bytes & !0xfff).checked_sub(0x2000), 1),
    ];
    for (offset, version) in places {
        if let Some(offset) = offset
            && is_at(offset, RAID_MAGIC)
            && within(offset).and_then(|at| word(tail, at + 4)) == Some(version)
        {
            add(RAID, offset, RAID_MAGIC);
        }
    }
    found
}

/// Finds the uberblocks of ZFS. The second half of each label is an array of them; there are two labels at the start
/// and two at the end.
fn zfs(head: &[u8], tail: &[u8], tail_start: u64) -> Option<FoundSignature> {
    const LABEL: usize = 256 << 10;
    const UBERBLOCKS: Range<usize> = 128 << 10..LABEL;
    /// Fewer could be a coincidence; blkid has the same limit.
    const ENOUGH: usize = 4;
    let of_label = |label: &[u8], start: u64| -> Vec<Range<u64>> {
        let places = UBERBLOCKS.step_by(1 << 10);
        let is_one = |at: &usize| {
            let magic = label.get(*at..at + 8);
            magic.is_some_and(|magic| {
                let found = u64::from_le_bytes(magic.try_into().expect("8 bytes"));
                found == 0x00ba_b10c || found.swap_bytes() == 0x00ba_b10c
            })
        };
        let at = |at: usize| start + at as u64..start + at as u64 + 8;
        places.filter(is_one).map(at).collect()
    };
    let mut marks = of_label(head, 0);
    // Labels at the end are aligned to the label size.
    let end = (tail_start + tail.len() as u64) & !(LABEL as u64 - 1);
    for label in [2, 1] {
        if let Some(start) = end.checked_sub(label * LABEL as u64)
            && let Some(at) = start.checked_sub(tail_start)
            && let Some(bytes) = tail.get(at as usize..at as usize + LABEL)
        {
            marks.extend(of_label(bytes, start));
        }
    }
    let signature = Signature::FileSystem(ZFS);
    (marks.len() >= ENOUGH).then_some(FoundSignature { signature, marks })
}

fn partition_tables(head: &[u8]) -> Vec<FoundSignature> {
    const GPT: &[u8] = b"EFI PART";
    let mut found = Vec::new();
    for offset in [512, 4096] {
        if has(head, offset, GPT) {
            let table = Signature::PartitionTable("gpt");
            found.push(FoundSignature::new(table, offset as u64, GPT.len()));
        }
    }
    if is_mbr(head) {
        let table = Signature::PartitionTable("dos");
        found.push(FoundSignature::new(table, 510, 2));
    }
    found
}

/// Returns whether the four entries of a boot sector are a partition table, as opposed to code. Each status must be 0
/// or 0x80, and an entry must be in use.
fn is_mbr(head: &[u8]) -> bool {
    let Some(sector) = head
        .get(..512)
        .filter(|sector| sector[510..] == [0x55, 0xaa])
    else {
        return false;
    };
    let entries = sector[446..510].chunks(16);
    let sound = entries.clone().all(|entry| matches!(entry[0], 0 | 0x80));
    // An entry in use has a type and a length.
    let used = |entry: &[u8]| entry[4] != 0 && entry[12..16] != [0; 4];
    sound && entries.into_iter().any(used)
}
