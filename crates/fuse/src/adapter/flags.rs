//! Inode flags as `lsattr` and `xfs_io` see them, asked for by ioctl.
//!
//! Source of the commands and bits: linux/fs.h.

use ubtrfs_format::item::InodeFlags;

/// `FS_IOC_GETFLAGS`, declared with a long, used with an int.
pub(super) const GETFLAGS: u32 = 0x8008_6601;
/// `FS_IOC32_GETFLAGS`
pub(super) const GETFLAGS_32: u32 = 0x8004_6601;
/// `FS_IOC_GETVERSION`
pub(super) const GETVERSION: u32 = 0x8008_7601;
/// `FS_IOC32_GETVERSION`
pub(super) const GETVERSION_32: u32 = 0x8004_7601;
/// `FS_IOC_FSGETXATTR`
pub(super) const FSGETXATTR: u32 = 0x801c_581f;

const FS_COMPR: u32 = 0x4;
const FS_SYNC: u32 = 0x8;
const FS_IMMUTABLE: u32 = 0x10;
const FS_APPEND: u32 = 0x20;
const FS_NODUMP: u32 = 0x40;
const FS_NOATIME: u32 = 0x80;
const FS_NOCOMP: u32 = 0x400;
const FS_DIRSYNC: u32 = 0x1_0000;
const FS_VERITY: u32 = 0x10_0000;
const FS_NOCOW: u32 = 0x80_0000;

const XFLAG_IMMUTABLE: u32 = 0x8;
const XFLAG_APPEND: u32 = 0x10;
const XFLAG_SYNC: u32 = 0x20;
const XFLAG_NOATIME: u32 = 0x40;
const XFLAG_NODUMP: u32 = 0x80;
const XFLAG_VERITY: u32 = 0x2_0000;

/// What `FS_IOC_GETFLAGS` answers.
pub(super) fn fs_flags(flags: InodeFlags) -> u32 {
    let mut shown = translate(
        flags,
        &[
            (InodeFlags::SYNC, FS_SYNC),
            (InodeFlags::IMMUTABLE, FS_IMMUTABLE),
            (InodeFlags::APPEND, FS_APPEND),
            (InodeFlags::NODUMP, FS_NODUMP),
            (InodeFlags::NOATIME, FS_NOATIME),
            (InodeFlags::DIRSYNC, FS_DIRSYNC),
            (InodeFlags::RO_VERITY, FS_VERITY),
            (InodeFlags::NODATACOW, FS_NOCOW),
        ],
    );
    // Both may be set on disk; the kernel shows the one that wins.
    if flags.contains(InodeFlags::NOCOMPRESS) {
        shown |= FS_NOCOMP;
    } else if flags.contains(InodeFlags::COMPRESS) {
        shown |= FS_COMPR;
    }
    shown
}

/// The `struct fsxattr` that `FS_IOC_FSGETXATTR` answers: flags, then fields that btrfs leaves 0.
pub(super) fn fsxattr(flags: InodeFlags) -> [u8; 28] {
    let xflags = translate(
        flags,
        &[
            (InodeFlags::IMMUTABLE, XFLAG_IMMUTABLE),
            (InodeFlags::APPEND, XFLAG_APPEND),
            (InodeFlags::SYNC, XFLAG_SYNC),
            (InodeFlags::NOATIME, XFLAG_NOATIME),
            (InodeFlags::NODUMP, XFLAG_NODUMP),
            (InodeFlags::RO_VERITY, XFLAG_VERITY),
        ],
    );
    let mut answer = [0; 28];
    answer[..4].copy_from_slice(&xflags.to_ne_bytes());
    answer
}

fn translate(flags: InodeFlags, pairs: &[(InodeFlags, u32)]) -> u32 {
    pairs
        .iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .fold(0, |shown, (_, bit)| shown | bit)
}
