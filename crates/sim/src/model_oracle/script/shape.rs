//! The focus of a random script.

use super::action::Action;
use crate::Rng;
use crate::fill::colliding_names;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All operations on a small tree.
    Mixed,
    /// Thousands of names in a few directories.
    ManySmallFiles,
    /// Overwrites, holes, preallocation and shared extents in a few files of some MiB.
    BigFile,
    /// Subvolumes, snapshots of snapshots, and changes of shared data.
    Snapshots,
    /// Names and xattrs with colliding hashes, so that they share items.
    CollidingNames,
    /// Names of about 255 bytes, so that a leaf holds only a few of them.
    LongNames,
    Xattrs,
    /// Writes until the volume is full. Only for small targets, and with `RunOptions::may_be_full`.
    FullDisk,
}

impl Shape {
    pub const ALL: [Shape; 8] = [
        Shape::Mixed,
        Shape::ManySmallFiles,
        Shape::BigFile,
        Shape::Snapshots,
        Shape::CollidingNames,
        Shape::LongNames,
        Shape::Xattrs,
        Shape::FullDisk,
    ];

    /// Returns the frequency of an action; 100 is the usual one.
    pub(super) fn weight(self, action: Action) -> u64 {
        use Action::*;
        let usual = match action {
            Create | Write => 100,
            Mkdir | Unlink | Rename | SetXattr => 40,
            Link | Truncate | Append | Fallocate | CloneRange | Read => 25,
            Symlink | Rmdir | Exchange | NoReplace | RemoveXattr | Chmod | SetTimes | Fsync => 15,
            CopyRange | Dedupe => 15,
            List | Stat | Open | Close | Chown | Mknod | SetFlags | LinkOpen => 12,
            Whiteout | GetXattr | GetFlags | CreateSubvolume | Snapshot | SetReadOnly => 8,
            Tmpfile => 8,
            DeleteSubvolume | MoveSubvolume | Sync | Commit => 5,
            SetReceived | GetReceived => 4,
            SetDefault | Remount | DropCaches => 1,
        };
        let factor = match (self, action) {
            (Shape::Mixed, _) => 4,
            (_, Sync | Commit | Remount | DropCaches | List | Stat | Read) => 4,

            (Shape::ManySmallFiles, Create | Unlink | Rename | Link) => 16,
            (Shape::ManySmallFiles, Write | Mkdir | Rmdir) => 4,

            (Shape::BigFile, Write | Truncate | Fallocate | CloneRange | Append) => 16,
            (Shape::BigFile, CopyRange | Dedupe) => 16,
            (Shape::BigFile, Snapshot | DeleteSubvolume) => 4,

            (Shape::Snapshots, CreateSubvolume | Snapshot | DeleteSubvolume) => 40,
            (Shape::Snapshots, MoveSubvolume | SetReadOnly | SetReceived | GetReceived) => 12,
            (Shape::Snapshots, SetDefault) => 6,
            (Shape::Snapshots, Create | Write | Unlink | Rename | Mkdir | CloneRange) => 4,
            (Shape::Snapshots, CopyRange | Dedupe) => 4,

            (Shape::CollidingNames, Create | Unlink | Rename | Link | Exchange | Mkdir) => 8,
            (Shape::CollidingNames, SetXattr | RemoveXattr | Symlink | Whiteout) => 8,

            (Shape::LongNames, Create | Unlink | Rename | Link | Mkdir | Symlink) => 8,

            (Shape::Xattrs, SetXattr | RemoveXattr | GetXattr) => 40,
            (Shape::Xattrs, Create | Mkdir) => 2,

            // Without space, these may be partially executed.
            (Shape::FullDisk, CloneRange | CopyRange | Dedupe | Truncate | SetFlags) => 0,
            (Shape::FullDisk, CreateSubvolume | Snapshot | SetReadOnly) => 0,
            (Shape::FullDisk, SetDefault | SetReceived) => 0,
            (Shape::FullDisk, Write | Append | Create | Fallocate) => 8,
            (Shape::FullDisk, Unlink) => 6,
            _ => 1,
        };
        usual * factor
    }

    /// Returns the target number of inodes: a script grows below it, and shrinks above.
    pub(super) fn inodes(self) -> usize {
        match self {
            Shape::ManySmallFiles => 3000,
            Shape::BigFile => 12,
            Shape::Snapshots => 400,
            Shape::FullDisk => 600,
            _ => 200,
        }
    }

    pub(super) fn subvolumes(self) -> usize {
        match self {
            Shape::Snapshots => 30,
            _ => 8,
        }
    }

    /// Returns the range of file offsets for writes.
    pub(super) fn file_bytes(self) -> u64 {
        match self {
            Shape::BigFile => 8 << 20,
            Shape::ManySmallFiles => 3000,
            Shape::FullDisk => 16 << 20,
            _ => 200_000,
        }
    }

    pub(super) fn write_bytes(self, rng: &mut Rng) -> usize {
        let most = match (self, rng.below(8)) {
            (Shape::FullDisk, 0..4) => 4 << 20,
            (Shape::BigFile, 0) => 1 << 20,
            (Shape::BigFile, _) => 100_000,
            (Shape::ManySmallFiles, _) => 3000,
            (_, 0) => 300_000,
            (_, 1..4) => 10_000,
            _ => 300,
        };
        rng.below(most + 1) as usize
    }

    pub(super) fn name(self, rng: &mut Rng) -> Vec<u8> {
        const LONG: usize = 255;
        if rng.one_in(150) {
            return vec![b'x'; LONG + 1];
        }
        match self {
            Shape::ManySmallFiles => format!("file-{}", rng.below(4000)).into_bytes(),
            Shape::CollidingNames => {
                let group = rng.below(3);
                let mut names = colliding_names(format!("c{group}-").as_bytes(), 30);
                names.swap_remove(rng.below(30) as usize)
            }
            Shape::LongNames => {
                let mut name = format!("{}-", rng.below(60)).into_bytes();
                let len = LONG - rng.below(8) as usize;
                name.resize(len, b'l');
                name
            }
            Shape::FullDisk => format!("{}", rng.below(400)).into_bytes(),
            _ if rng.one_in(12) => {
                let mut name = format!("{} \u{e9}\n\\", rng.below(4)).into_bytes();
                name.push(0xff);
                name
            }
            _ => format!("n{}", rng.below(50)).into_bytes(),
        }
    }

    pub(super) fn xattr_name(self, rng: &mut Rng) -> Vec<u8> {
        let number = rng.below(12);
        match rng.below(if self == Shape::CollidingNames { 3 } else { 8 }) {
            0 => format!("trusted.t{number}").into_bytes(),
            1 => format!("security.s{number}").into_bytes(),
            2 => {
                let mut names = colliding_names(b"user.c", 12);
                names.swap_remove(number as usize)
            }
            3 => {
                let mut name = format!("user.{number}/").into_bytes();
                name.resize(rng.below(100) as usize + 150, b'n');
                name
            }
            _ => format!("user.u{number}").into_bytes(),
        }
    }

    pub(super) fn xattr_bytes(self, rng: &mut Rng) -> usize {
        let most = match (self, rng.below(40)) {
            // About the maximum for a leaf of the usual size.
            (_, 0) => return 16_000 + rng.below(400) as usize,
            (Shape::Xattrs, 1..10) => 4000,
            (_, 1..6) => 1500,
            (_, 6..15) => 300,
            _ => 30,
        };
        rng.below(most + 1) as usize
    }
}
