//! Inode numbers that are unique in a mount which shows many subvolumes.
//!
//! Every subvolume counts its inodes from 256, and all of a FUSE mount has one `st_dev`. So `find`, `tar`, `rsync` and
//! `du` would take two files with one number for one file. Hence a number includes the subvolume. It is also the node
//! id, because a transport may need the two to be equal. The file is computed from the number, without a table. And the
//! numbers are the same in every mount of a subvolume.
//!
//! Bit 63 is always 0: some programs store the number in a signed field. Bits 62-60 are the form:
//!
//! | form | bits after it | for |
//! |---|---|---|
//! | 0.. | 62 of inode | the mounted subvolume: numbers as the kernel's btrfs shows them |
//! | 100 | 16 of subvolume, 44 of inode | others |
//! | 101 | 24, 36 | others |
//! | 110 | 32, 28 | others |
//! | 111 | 60 of hash | all others: `NodeTable` has them while the kernel knows them |
//!
//! The first form with room is used, so a file has one number. The last form is for empty subvolume directories, which
//! have no inode and may share a parent. It is also for numbers that take 2^28 subvolumes or a crafted volume to reach.

use ubtrfs_format::ids::{InodeNr, RootId};

use super::source::FileId;

const FORM_SHIFT: u32 = 60;
const FORM_LISTED: u64 = 0b111;
const FOREIGN: u64 = 1 << 62;
const PAYLOAD: u64 = (1 << FORM_SHIFT) - 1;

/// A way to pack a subvolume and an inode into the 60 bits after the form.
struct Split {
    form: u64,
    inode_bits: u32,
}

const SPLITS: [Split; 3] = [
    Split {
        form: 0b100,
        inode_bits: 44,
    },
    Split {
        form: 0b101,
        inode_bits: 36,
    },
    Split {
        form: 0b110,
        inode_bits: 28,
    },
];

/// The numbers of one mount.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbering {
    /// The subvolume whose numbers are shown as they are.
    home: RootId,
}

/// The meaning of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    File(FileId),
    /// A number that only the table of listed nodes can resolve.
    Listed,
    /// No file has this number.
    Nothing,
}

impl Numbering {
    pub(super) fn new(home: RootId) -> Self {
        Self { home }
    }

    /// Returns the number of a file, unless it has to be listed.
    pub(super) fn number(&self, id: FileId) -> Option<u64> {
        let inode = id.ino.0;
        // No file has a smaller number, and FUSE reserves 0 and 1.
        if inode < InodeNr::FIRST_FREE.0 {
            return None;
        }
        if id.root == self.home {
            return (inode < FOREIGN).then_some(inode);
        }
        SPLITS.iter().find_map(|split| {
            let root_bits = FORM_SHIFT - split.inode_bits;
            let fits = id.root.0 >> root_bits == 0 && inode >> split.inode_bits == 0;
            fits.then_some(split.form << FORM_SHIFT | id.root.0 << split.inode_bits | inode)
        })
    }

    /// Finds the meaning of a number.
    pub(super) fn meaning(&self, number: u64) -> Meaning {
        let form = number >> FORM_SHIFT;
        if form == FORM_LISTED {
            return Meaning::Listed;
        }
        let id = match SPLITS.iter().find(|split| split.form == form) {
            Some(split) => FileId {
                root: RootId((number & PAYLOAD) >> split.inode_bits),
                ino: InodeNr(number & ((1 << split.inode_bits) - 1)),
            },
            None => FileId {
                root: self.home,
                ino: InodeNr(number),
            },
        };
        // One file, one number: a number that `number` would not return belongs to no file.
        if self.number(id) == Some(number) {
            Meaning::File(id)
        } else {
            Meaning::Nothing
        }
    }

    /// Returns the 32-bit generation that the kernel stores with a number. A file handle is valid in every mount of the
    /// same subvolume and stale in others: snapshots share numbers and generations of inodes.
    pub(super) fn generation(&self, number: u64, generation: u64) -> u64 {
        let salt = if number < FOREIGN {
            self.home.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
        } else {
            0
        };
        (generation ^ salt) & u64::from(u32::MAX)
    }

    /// Returns the number in the listed form with this hash.
    pub(super) fn listed(hash: u64) -> u64 {
        FORM_LISTED << FORM_SHIFT | (hash & PAYLOAD)
    }
}

#[cfg(test)]
mod tests;
