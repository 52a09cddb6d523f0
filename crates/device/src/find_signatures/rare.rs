//! Marks of rare formats: old file systems, disk labels and arrays, and virtual disk images.
//!
//! The names follow blkid(8), which mkfs.btrfs uses before it overwrites anything. blkid does not list virtual disk
//! images. They are rejected as well, because a new volume would destroy all data of the guest.

use super::{FoundSignature, SECTOR, half, has, word};
use crate::signature::Signature;

/// Format names with the offsets and bytes of their marks in the head.
pub(super) const MARKS: &[(&str, usize, &[u8])] = &[
    ("bfs", 0, b"\xce\xfa\xad\x1b"),
    ("befs", 0x20, b"BFS1"),
    ("befs", 0x20, b"1SFB"),
    ("befs", 0x220, b"BFS1"),
    ("befs", 0x220, b"1SFB"),
    ("hpfs", 0x2000, b"\x49\xe8\x95\xf9"),
    ("squashfs3", 0, b"sqsh"),
    ("cramfs", 0, b"\x28\xcd\x3d\x45"),
    ("minix", 1024 + 0x10, b"\x7f\x13"),
    ("minix", 1024 + 0x10, b"\x8f\x13"),
    ("minix", 1024 + 0x10, b"\x68\x24"),
    ("minix", 1024 + 0x10, b"\x78\x24"),
    ("minix", 1024 + 0x18, b"\x5a\x4d"),
    ("hfs", 1024, b"BD"),
    ("oracleasm", 32, b"ORCLDISK"),
    ("ReFS", 0, b"\0\0\0ReFS\0"),
    ("DM_snapshot_cow", 0, b"SnAp"),
    ("nss", 0x1000, b"SPB5"),
    ("ubi", 0, b"UBI#"),
    ("ubifs", 0, b"\x31\x18\x10\x06"),
    ("LVM1_member", 0, b"HM"),
    // High Sierra, the predecessor of ISO 9660.
    ("iso9660", 0x8009, b"CDROM"),
    ("vxfs", 1024, b"\xf5\xfc\x01\xa5"),
    ("vxfs", 0x2000, b"\xa5\x01\xfc\xf5"),
];

/// Offsets of UFS superblocks. The magic number may have either byte order.
const UFS_SUPERBLOCKS: [usize; 4] = [0, 8 << 10, 64 << 10, 256 << 10];
const UFS_NUMBER_AT: usize = 0x55c;
const UFS_NUMBERS: [u32; 6] = [
    0x0001_1954,
    0x1954_0119,
    0x0019_5612,
    0x0009_5014,
    0x0061_2195,
    0x0523_1994,
];
/// The end of the last UFS superblock that is checked.
pub(super) const UFS_END: u64 = (256 << 10) + 0x560;

/// Marks of virtual disk images, at the start and, for VHD, at the end.
pub(super) const DISK_IMAGES: &[(&str, usize, &[u8])] = &[
    ("qcow2", 0, b"QFI\xfb"),
    ("vmdk", 0, b"KDMV"),
    ("vmdk", 0, b"COWD"),
    ("vmdk", 0, b"# Disk DescriptorFile"),
    ("vhdx", 0, b"vhdxfile"),
    ("vhd", 0, b"conectix"),
    ("vdi", 0x40, b"\x7f\x10\xda\xbe"),
    ("qed", 0, b"QED\0"),
    ("parallels", 0, b"WithoutFreeSpace"),
    ("parallels", 0, b"WithouFreSpacExt"),
];

/// Marks of arrays at the end of a device, by distance from the end.
pub(super) const LAST_MARKS: &[(&str, u64, &[u8])] = &[
    ("nvidia_raid_member", 2 * SECTOR, b"NVIDIA"),
    ("lsi_mega_raid_member", SECTOR, b"$XIDE$"),
    ("promise_fasttrack_raid_member", 16 * SECTOR, PROMISE),
    ("promise_fasttrack_raid_member", 63 * SECTOR, PROMISE),
    ("promise_fasttrack_raid_member", 255 * SECTOR, PROMISE),
    ("promise_fasttrack_raid_member", 256 * SECTOR, PROMISE),
    ("promise_fasttrack_raid_member", 399 * SECTOR, PROMISE),
    ("promise_fasttrack_raid_member", 591 * SECTOR, PROMISE),
    ("promise_fasttrack_raid_member", 675 * SECTOR, PROMISE),
    ("promise_fasttrack_raid_member", 735 * SECTOR, PROMISE),
    ("promise_fasttrack_raid_member", 911 * SECTOR, PROMISE),
    ("promise_fasttrack_raid_member", 951 * SECTOR, PROMISE),
    ("promise_fasttrack_raid_member", 974 * SECTOR, PROMISE),
    ("promise_fasttrack_raid_member", 991 * SECTOR, PROMISE),
    ("promise_fasttrack_raid_member", 3087 * SECTOR, PROMISE),
];
const PROMISE: &[u8] = b"Promise Technology, Inc.";

/// Returns whether the bytes around a short mark are valid in its format.
pub(super) fn is_plausible(name: &str, offset: usize, head: &[u8]) -> bool {
    match name {
        "minix" => is_minix(offset, head),
        // Allocation blocks are multiples of the sector size.
        "hfs" => {
            let block = head.get(1024 + 20..1024 + 24);
            let block = block.map(|bytes| u32::from_be_bytes(bytes.try_into().expect("4 bytes")));
            block.is_some_and(|bytes| bytes > 0 && bytes.is_multiple_of(SECTOR as u32))
        }
        "LVM1_member" => matches!(half(head, 2), Some(1 | 2)),
        _ => true,
    }
}

/// Returns whether the bitmaps of a minix superblock are large enough for its inodes.
fn is_minix(offset: usize, head: &[u8]) -> bool {
    let is_third = offset == 1024 + 0x18;
    let (inodes, map_blocks, block_bytes) = if is_third {
        (
            word(head, 1024),
            half(head, 1024 + 6),
            half(head, 1024 + 28),
        )
    } else {
        (
            half(head, 1024).map(u32::from),
            half(head, 1024 + 4),
            Some(1024),
        )
    };
    let (Some(inodes), Some(blocks), Some(bytes)) = (inodes, map_blocks, block_bytes) else {
        return false;
    };
    let has_room = u64::from(blocks) * u64::from(bytes) * 8 > u64::from(inodes);
    inodes > 0 && has_room
}

/// Finds UFS superblocks.
pub(super) fn ufs(head: &[u8]) -> Vec<FoundSignature> {
    let places = UFS_SUPERBLOCKS.map(|superblock| superblock + UFS_NUMBER_AT);
    let is_number = |number: u32| UFS_NUMBERS.contains(&number);
    let found = places.into_iter().filter(|&at| {
        let number = word(head, at);
        number.is_some_and(|number| is_number(number) || is_number(number.swap_bytes()))
    });
    found
        .map(|at| FoundSignature::new(Signature::FileSystem("ufs"), at as u64, 4))
        .collect()
}

/// Finds disk labels that predate GPT.
pub(super) fn labels(head: &[u8]) -> Vec<FoundSignature> {
    let mut found = Vec::new();
    let mut add = |name, at: u64, len| {
        found.push(FoundSignature::new(
            Signature::PartitionTable(name),
            at,
            len,
        ));
    };
    let Some(sector) = head.get(..SECTOR as usize) else {
        return found;
    };
    let words = sector.as_chunks::<4>().0.iter();
    let sum = words.fold(0_u32, |sum, word| {
        sum.wrapping_add(u32::from_be_bytes(*word))
    });
    if has(head, 0, b"\x0b\xe5\xa9\x41") && sum == 0 {
        add("sgi", 0, 4);
    }
    let halves = sector.as_chunks::<2>().0.iter();
    let parity = halves.fold(0, |parity, half| parity ^ u16::from_be_bytes(*half));
    if has(head, 508, b"\xda\xbe") && parity == 0 {
        add("sun", 508, 2);
    }
    // The partition map begins in the second block; the first one has the block size.
    let block = u16::from_be_bytes([sector[2], sector[3]]);
    let has_map = |mark| has(head, usize::from(block), mark);
    if has(head, 0, b"ER") && block >= 512 && (has_map(b"PM") || has_map(b"TS")) {
        add("mac", 0, 2);
    }
    if has(head, 0, b"\xc9\xc2\xd4\xc1") {
        add("aix", 0, 4);
    }
    found
}
