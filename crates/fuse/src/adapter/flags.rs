//! Inode flags as `chattr`, `lsattr` and `xfs_io` know them, by ioctl.
//!
//! The kernel checks the caller only for the 64-bit commands: it translates `FS_IOC32_SETFLAGS` of 32-bit programs into
//! them. A request that arrives as such has bypassed the check, and is answered as an unknown command.
//!
//! Source of the commands and bits: linux/fs.h.

use ubtrfs_device::nonblocking;
use ubtrfs_format::item::InodeFlags;
use ubtrfs_fuse_server::request::{Errno, FileKind, NodeId, Result};

use super::errno::errno;
use super::flushing::For;
use super::source::{Inode, Source};
use super::{Adapter, WHOLE_FILE};

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

/// `FS_IOC_SETFLAGS`
pub(super) const SETFLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSSETXATTR`
pub(super) const FSSETXATTR: u32 = 0x401c_5820;

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

const FSXATTR_BYTES: usize = 28;
const XFLAG_IMMUTABLE: u32 = 0x8;
const XFLAG_APPEND: u32 = 0x10;
const XFLAG_SYNC: u32 = 0x20;
const XFLAG_NOATIME: u32 = 0x40;
const XFLAG_NODUMP: u32 = 0x80;
const XFLAG_VERITY: u32 = 0x2_0000;

/// Flags that both interfaces have and users set.
const COMMON: [(InodeFlags, u32, u32); 5] = [
    (InodeFlags::SYNC, FS_SYNC, XFLAG_SYNC),
    (InodeFlags::IMMUTABLE, FS_IMMUTABLE, XFLAG_IMMUTABLE),
    (InodeFlags::APPEND, FS_APPEND, XFLAG_APPEND),
    (InodeFlags::NODUMP, FS_NODUMP, XFLAG_NODUMP),
    (InodeFlags::NOATIME, FS_NOATIME, XFLAG_NOATIME),
];
/// Flags that users set and only `chattr` has.
const OWN: [(InodeFlags, u32); 4] = [
    (InodeFlags::DIRSYNC, FS_DIRSYNC),
    (InodeFlags::NODATACOW, FS_NOCOW),
    (InodeFlags::COMPRESS, FS_COMPR),
    (InodeFlags::NOCOMPRESS, FS_NOCOMP),
];

impl<S: Source> Adapter<S> {
    /// Carries out an ioctl on flags. Returns `None` for any other command.
    pub(super) fn flags_ioctl(
        &self,
        node: NodeId,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Option<Result<usize>> {
        let inode = || self.source.inode(self.node(node)?.id);
        let outcome = match command {
            GETFLAGS | GETFLAGS_32 => {
                inode().and_then(|inode| answer(out, &fs_flags(inode.flags).to_ne_bytes()))
            }
            GETVERSION | GETVERSION_32 => {
                // The low half, as other file systems show it.
                inode().and_then(|inode| answer(out, &(inode.generation as u32).to_ne_bytes()))
            }
            FSGETXATTR => inode().and_then(|inode| answer(out, &fsxattr(inode.flags))),
            SETFLAGS => self.set_flags(node, |inode| wanted(inode, input)),
            FSSETXATTR => self.set_flags(node, |inode| wanted_by_xflags(inode, input)),
            _ => return None,
        };
        Some(outcome)
    }

    fn set_flags(
        &self,
        node: NodeId,
        wanted: impl FnOnce(&Inode) -> Result<InodeFlags>,
    ) -> Result<usize> {
        let volume = self.writing()?;
        let id = self.node(node)?.id;
        let inode = self.source.inode(id)?;
        let flags = for_kind(inode.attr.kind, wanted(&inode)?);
        nonblocking::check().map_err(|_| Errno::WOULD_BLOCK)?;
        let guards = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        if !self.gets_opens && inode.attr.kind == FileKind::Regular && flags.intersects(guards) {
            // Writeback of pages that a mapping has changed is refused once the flags are set.
            self.flush(id, WHOLE_FILE, For::Command)?;
        }
        volume.set_inode_flags(id, flags).map_err(errno)?;
        self.appends.forget(id);
        self.changes.attributes(id);
        self.changes.drain_nodes();
        Ok(0)
    }
}

/// Writes the answer of an ioctl to `out`.
fn answer(out: &mut [u8], bytes: &[u8]) -> Result<usize> {
    out.get_mut(..bytes.len())
        .ok_or(Errno::INVAL)?
        .copy_from_slice(bytes);
    Ok(bytes.len())
}

/// Returns the inode flags after `FS_IOC_SETFLAGS`.
fn wanted(inode: &Inode, input: &[u8]) -> Result<InodeFlags> {
    let asked = u32::from_ne_bytes(*input.first_chunk().ok_or(Errno::INVAL)?);
    // Programs send back displayed flags that users cannot set.
    let mut rest = asked & !(fs_flags(inode.flags) & FS_VERITY);
    let mut flags = InodeFlags::empty();
    let common = COMMON.iter().map(|&(flag, bit, _)| (flag, bit));
    for (flag, bit) in common.chain(OWN) {
        flags.set(flag, asked & bit != 0);
        rest &= !bit;
    }
    match rest {
        0 => Ok(flags),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Returns the inode flags after `FS_IOC_FSSETXATTR`. Flags without a bit in its interface stay.
fn wanted_by_xflags(inode: &Inode, input: &[u8]) -> Result<InodeFlags> {
    let fields = input.get(..FSXATTR_BYTES).ok_or(Errno::INVAL)?;
    let field = |at: usize| match fields[at..].first_chunk() {
        Some(bytes) => u32::from_ne_bytes(*bytes),
        None => 0,
    };
    let asked = field(0);
    let mut rest = asked & !(translate(inode.flags, &[(InodeFlags::RO_VERITY, XFLAG_VERITY)]));
    let own = OWN
        .iter()
        .fold(InodeFlags::empty(), |all, (flag, _)| all | *flag);
    let mut flags = inode.flags & own;
    for (flag, _, bit) in COMMON {
        flags.set(flag, asked & bit != 0);
        rest &= !bit;
    }
    let (extsize, projid, cowextsize) = (field(4), field(12), field(16));
    match (rest, extsize, projid, cowextsize) {
        (0, 0, 0, 0) => Ok(flags),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// Returns the flags that this kind of file can have.
fn for_kind(kind: FileKind, flags: InodeFlags) -> InodeFlags {
    match kind {
        FileKind::Directory => flags,
        FileKind::Regular => flags - InodeFlags::DIRSYNC,
        _ => flags & (InodeFlags::NODUMP | InodeFlags::NOATIME),
    }
}

/// Returns the flags in the answer of `FS_IOC_GETFLAGS`.
fn fs_flags(flags: InodeFlags) -> u32 {
    let common = COMMON.map(|(flag, bit, _)| (flag, bit));
    let mut shown = translate(flags, &common)
        | translate(
            flags,
            &[
                (InodeFlags::DIRSYNC, FS_DIRSYNC),
                (InodeFlags::RO_VERITY, FS_VERITY),
                (InodeFlags::NODATACOW, FS_NOCOW),
            ],
        );
    // Both may be set on disk; the kernel displays the effective one.
    if flags.contains(InodeFlags::NOCOMPRESS) {
        shown |= FS_NOCOMP;
    } else if flags.contains(InodeFlags::COMPRESS) {
        shown |= FS_COMPR;
    }
    shown
}

/// Returns the `struct fsxattr` that `FS_IOC_FSGETXATTR` answers: flags, then fields that btrfs leaves 0.
fn fsxattr(flags: InodeFlags) -> [u8; FSXATTR_BYTES] {
    let common = COMMON.map(|(flag, _, bit)| (flag, bit));
    let xflags =
        translate(flags, &common) | translate(flags, &[(InodeFlags::RO_VERITY, XFLAG_VERITY)]);
    let mut answer = [0; FSXATTR_BYTES];
    answer[..4].copy_from_slice(&xflags.to_ne_bytes());
    answer
}

fn translate(flags: InodeFlags, pairs: &[(InodeFlags, u32)]) -> u32 {
    pairs
        .iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .fold(0, |shown, (_, bit)| shown | bit)
}
